from __future__ import annotations

import base64
import dataclasses
import json
import zlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.manifest import (
    FileState,
    InlineState,
    Manifest,
    StateHandle,
    TaskState,
    pack_committables,
    unpack_committables,
)
from penstock.errors import CorruptSnapshotError, StorageError
from penstock.protocol.ids import CheckpointId, Epoch, Generation


def manifest(**changes: Any) -> Manifest:
    fields: dict[str, Any] = {
        "job_id": "j1",
        "job_name": "Zähler",
        "checkpoint_id": CheckpointId(12),
        "epoch": Epoch(12),
        "generation": Generation(2),
        "created_ms": 1_700_000_000_000,
        "processing_time_ms": 1_699_999_999_000,
        "max_parallelism": 128,
        "sources": {"src": {"splits": {"0": 41}}},
        "spark_offsets": [{"topic": {"0": 5}}],
        "tasks": (
            TaskState(
                vertex="count",
                subtask=0,
                parallelism=2,
                key_group_range=range(0, 64),
                handles=(
                    FileState(path="checkpoints/chk-9/count-0-a.state", size=10, crc32=0xFFFFFFFF),
                    InlineState(data=b"\x00\xff"),
                ),
            ),
            TaskState(vertex="map", subtask=1, parallelism=2),
        ),
        "committables": {"sink": b"\x80\x05]."},
        "statistics": {"duration_ms": 1.5},
    }
    return Manifest(**{**fields, **changes})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
handles: st.SearchStrategy[StateHandle] = st.builds(InlineState, data=st.binary()) | st.builds(
    FileState, path=st.text(), size=st.integers(0), crc32=st.integers(0, 2**32 - 1)
)
task_states = st.builds(
    TaskState,
    vertex=st.text(),
    subtask=st.integers(0, 4),
    parallelism=st.integers(5, 9),
    key_group_range=st.none() | st.builds(range, st.integers(0, 60), st.integers(61, 128)),
    handles=st.lists(handles, max_size=3).map(tuple),
)
manifests = st.builds(
    manifest,
    job_name=st.text(),
    kind=st.sampled_from(["checkpoint", "savepoint"]),
    sources=st.dictionaries(st.text(), json_values, max_size=3),
    spark_offsets=json_values,
    tasks=st.lists(task_states, max_size=4).map(tuple),
    committables=st.dictionaries(st.text(), st.binary(), max_size=3),
    finished=st.booleans(),
    statistics=st.dictionaries(st.text(), json_values, max_size=3),
)


@given(manifests)
def test_a_manifest_comes_back_equal_and_gives_the_same_bytes_again(written: Manifest) -> None:
    data = written.to_bytes()
    read = Manifest.from_bytes(data, source="m")
    assert read == written
    assert read.to_bytes() == data


def test_the_file_is_json_with_its_version() -> None:
    parsed = json.loads(manifest().to_bytes())
    assert (parsed["penstock"], parsed["version"]) == ("manifest", 2)
    assert parsed["body"]["checkpoint_id"] == 12


def test_every_changed_byte_and_every_truncation_is_detected() -> None:
    whole = manifest().to_bytes()
    for position in range(len(whole)):
        for flipped in (1, 0x20, 0xFF):
            damaged = bytearray(whole)
            damaged[position] ^= flipped
            with pytest.raises(CorruptSnapshotError, match=r"chk-12/manifest\.json"):
                Manifest.from_bytes(bytes(damaged), source="chk-12/manifest.json")
        with pytest.raises(CorruptSnapshotError, match=r"chk-12/manifest\.json.*older checkpoint"):
            Manifest.from_bytes(whole[:position], source="chk-12/manifest.json")


def test_a_newer_version_is_told_apart_from_damage() -> None:
    newer = b'{"penstock":"manifest","version":9,"crc32":"%08x","body":{}}\n' % zlib.crc32(b"9\n{}")
    with pytest.raises(CorruptSnapshotError, match=r"manifest version 9.*newer"):
        Manifest.from_bytes(newer, source="m")


def test_a_whole_file_with_impossible_content_is_refused() -> None:
    odd = b'{"penstock":"manifest","version":1,"crc32":"%08x","body":{}}\n' % zlib.crc32(b"1\n{}")
    with pytest.raises(CorruptSnapshotError, match="m: the manifest's content makes no sense"):
        Manifest.from_bytes(odd, source="m")


def test_file_states_are_all_the_files_and_only_they() -> None:
    assert [state.path for state in manifest().file_states()] == ["checkpoints/chk-9/count-0-a.state"]
    log = {"name": "1/0", "path": "checkpoints/chk-9/spark_1_0-0-a.state", "size": 1, "crc32": 2}
    with_a_log = manifest(spark_offsets={"batch": 8, "lines": ["-"], "files": [log]})
    assert [state.path for state in with_a_log.file_states()] == ["checkpoints/chk-9/count-0-a.state", log["path"]]


def test_a_subtask_beyond_the_parallelism_cannot_be_described() -> None:
    with pytest.raises(ValueError, match="no subtask 2 of 2"):
        TaskState(vertex="v", subtask=2, parallelism=2)


def test_committables_come_back_in_order() -> None:
    assert unpack_committables(pack_committables([("f", 1), ("g", 2)]), sink="s") == [("f", 1), ("g", 2)]


def test_committables_that_cannot_be_rebuilt_name_the_sink() -> None:
    with pytest.raises(StorageError, match="sink 'out'"):
        unpack_committables(b"cno_such_module\nx\n.", sink="out")


# A manifest of every released version, as written then: it must stay readable (faults, row 16).
VERSION_1 = (
    "eyJwZW5zdG9jayI6Im1hbmlmZXN0IiwidmVyc2lvbiI6MSwiY3JjMzIiOiI0ZjMzNTAzMSIsImJvZHkiOnsiY2hlY2twb2ludF9p"
    "ZCI6MTIsImNvbW1pdHRhYmxlcyI6eyJzaW5rIjoiZ0FWZExnPT0ifSwiY3JlYXRlZF9tcyI6MTcwMDAwMDAwMDAwMCwiZXBvY2gi"
    "OjEyLCJmaW5pc2hlZCI6ZmFsc2UsImdlbmVyYXRpb24iOjIsImpvYl9pZCI6ImoxIiwiam9iX25hbWUiOiJaXHUwMGU0aGxlciIs"
    "ImtpbmQiOiJjaGVja3BvaW50IiwibWF4X3BhcmFsbGVsaXNtIjoxMjgsInByb2Nlc3NpbmdfdGltZV9tcyI6MTY5OTk5OTk5OTAw"
    "MCwic291cmNlcyI6eyJzcmMiOnsic3BsaXRzIjp7IjAiOjQxfX19LCJzcGFya19vZmZzZXRzIjpbeyJ0b3BpYyI6eyIwIjo1fX1d"
    "LCJzdGF0aXN0aWNzIjp7ImR1cmF0aW9uX21zIjoxLjV9LCJ0YXNrcyI6W3siaGFuZGxlcyI6W3siY3JjMzIiOjQyOTQ5NjcyOTUs"
    "ImZpbGUiOiJjaGVja3BvaW50cy9jaGstOS9jb3VudC0wLWEuc3RhdGUiLCJzaXplIjoxMH0seyJpbmxpbmUiOiJBUDg9In1dLCJr"
    "ZXlfZ3JvdXBzIjpbMCw2NF0sInBhcmFsbGVsaXNtIjoyLCJzdWJ0YXNrIjowLCJ2ZXJ0ZXgiOiJjb3VudCJ9LHsiaGFuZGxlcyI6"
    "W10sImtleV9ncm91cHMiOm51bGwsInBhcmFsbGVsaXNtIjoyLCJzdWJ0YXNrIjoxLCJ2ZXJ0ZXgiOiJtYXAifV19fQo="
)


def test_a_manifest_of_version_1_is_still_read() -> None:
    read = Manifest.from_bytes(base64.b64decode(VERSION_1), source="version 1")
    assert read == replace(manifest(), format_version=1)
    assert dataclasses.replace(manifest(), epoch=Epoch(13)) != manifest()
