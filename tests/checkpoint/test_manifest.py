from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.checkpoint.manifest import (
    FileState,
    InlineState,
    Manifest,
    Rescaled,
    SourcePosition,
    SparkPosition,
    StateHandle,
    TaskState,
)
from penstock.checkpoint.manifest_file import READERS, decode, encode, pack_committables, unpack_committables
from penstock.errors import CorruptSnapshotError, StorageError
from penstock.protocol.ids import CheckpointId, Generation


def manifest(**changes: Any) -> Manifest:
    fields: dict[str, Any] = {
        "job_id": "j1",
        "job_name": "Zähler",
        "checkpoint_id": CheckpointId(12),
        "epoch": 12,
        "generation": Generation(2),
        "created_ms": 1_700_000_000_000,
        "processing_time_ms": 1_699_999_999_000,
        "max_parallelism": 128,
        "sources": {"src": SourcePosition(state={"splits": {"0": 41}}, finished=False)},
        "spark": SparkPosition(batch=11, lines=("-", '{"0":5}')),
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
        "stateful": ("count",),
        "rescaled": Rescaled(given=2, now=4),
        "restored_from": "/savepoints/a",
        "claimed_savepoint": "/savepoints/a",
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
files = st.builds(FileState, path=st.text(), size=st.integers(0), crc32=st.integers(0, 2**32 - 1))
manifests = st.builds(
    manifest,
    job_name=st.text(),
    kind=st.sampled_from(["checkpoint", "savepoint"]),
    sources=st.dictionaries(
        st.text(), st.builds(SourcePosition, state=json_values, finished=st.booleans()), max_size=3
    ),
    spark=st.none()
    | st.builds(
        SparkPosition,
        batch=st.integers(0),
        lines=st.lists(st.text(), max_size=3).map(tuple),
        files=st.dictionaries(st.text(), files, max_size=3),
        location=st.none() | st.text(),
    ),
    tasks=st.lists(task_states, max_size=4).map(tuple),
    committables=st.dictionaries(st.text(), st.binary(), max_size=3),
    finished=st.booleans(),
    stateful=st.lists(st.text(), max_size=3).map(tuple),
    rescaled=st.none() | st.builds(Rescaled, given=st.integers(1), now=st.integers(1)),
    restored_from=st.none() | st.text(),
    claimed_savepoint=st.none() | st.text(),
)


@given(manifests)
def test_a_manifest_comes_back_equal_and_gives_the_same_bytes_again(written: Manifest) -> None:
    data = encode(written)
    read = decode(data, source="m")
    assert read == written
    assert encode(read) == data


def test_the_file_is_json_with_its_version() -> None:
    parsed = json.loads(encode(manifest()))
    assert (parsed["penstock"], parsed["version"]) == ("manifest", 3)
    assert parsed["body"]["checkpoint_id"] == 12


def test_every_changed_byte_and_every_truncation_is_detected() -> None:
    whole = encode(manifest())
    for position in range(len(whole)):
        for flipped in (1, 0x20, 0xFF):
            damaged = bytearray(whole)
            damaged[position] ^= flipped
            with pytest.raises(CorruptSnapshotError, match=r"chk-12/manifest\.json"):
                decode(bytes(damaged), source="chk-12/manifest.json")
        with pytest.raises(CorruptSnapshotError, match=r"chk-12/manifest\.json.*older checkpoint"):
            decode(whole[:position], source="chk-12/manifest.json")


def test_a_newer_version_is_told_apart_from_damage() -> None:
    newer = b'{"penstock":"manifest","version":9,"crc32":"%08x","body":{}}\n' % zlib.crc32(b"9\n{}")
    with pytest.raises(CorruptSnapshotError, match=r"manifest version 9.*newer"):
        decode(newer, source="m")


def whole(version: int, body: Any) -> bytes:
    """A file whose checksum is right, whatever is in it."""
    content = json.dumps(body).encode()
    crc = zlib.crc32(b"%d\n" % version + content)
    return b'{"penstock":"manifest","version":%d,"crc32":"%08x","body":%s}\n' % (version, crc, content)


def fields_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where every field is that the format names, a source's own state left out."""
    yield path
    if isinstance(value, dict) and path[-1:] != ("state",):
        for key in value:
            yield from fields_of(value[key], (*path, key))
    elif isinstance(value, list) and value:
        yield from fields_of(value[0], (*path, 0))


def shown(path: tuple[Any, ...]) -> str:
    text = "body"
    for step in path:
        named = isinstance(step, str) and text not in ("body.sources", "body.committables")
        text += f".{step}" if named else f"[{step!r}]"
    return text


BODY = json.loads(encode(manifest(rescaled=Rescaled(given=1, now=2))))["body"]


@pytest.mark.parametrize("path", [p for p in fields_of(BODY) if p[-1:] != ("state",)], ids=shown)
def test_a_field_of_another_type_is_refused_with_its_name_and_the_file(path: tuple[Any, ...]) -> None:
    body: Any = {"": json.loads(json.dumps(BODY))}
    place, last = body, ""
    for step in path:
        place, last = place[last], step
    place[last] = 1.5
    told = re.escape(f"chk-1/manifest.json: the manifest's content makes no sense: {shown(path)} is 1.5")
    with pytest.raises(CorruptSnapshotError, match=told):
        decode(whole(3, body[""]), source="chk-1/manifest.json")


@pytest.mark.parametrize("field", sorted(BODY))
def test_a_field_that_is_missing_is_named(field: str) -> None:
    lacking = {key: value for key, value in BODY.items() if key != field}
    with pytest.raises(CorruptSnapshotError, match=f"m: the manifest's content makes no sense: body has no {field}:"):
        decode(whole(3, lacking), source="m")


@pytest.mark.parametrize("version", sorted(READERS))
def test_a_whole_file_with_impossible_content_is_refused(version: int) -> None:
    with pytest.raises(CorruptSnapshotError, match="m: the manifest's content makes no sense: body has no "):
        decode(whole(version, {}), source="m")
    for odd in ({"subtask": 2}, {"key_groups": [1, 2, 3]}, {"handles": [{"inline": "?"}]}):
        task = {**BODY["tasks"][0], **odd}
        with pytest.raises(CorruptSnapshotError, match="m: the manifest's content makes no sense"):
            decode(whole(3, {**BODY, "tasks": [task]}), source="m")


def test_file_states_are_all_the_files_and_only_they() -> None:
    assert [state.path for state in manifest().file_states()] == ["checkpoints/chk-9/count-0-a.state"]
    log = FileState(path="checkpoints/chk-9/spark_1_0-0-a.state", size=1, crc32=2)
    with_a_log = manifest(spark=SparkPosition(batch=8, lines=("-",), files={"1/0": log}))
    assert [state.path for state in with_a_log.file_states()] == ["checkpoints/chk-9/count-0-a.state", log.path]


def test_a_subtask_beyond_the_parallelism_cannot_be_described() -> None:
    with pytest.raises(ValueError, match="no subtask 2 of 2"):
        TaskState(vertex="v", subtask=2, parallelism=2)


def test_committables_come_back_in_order() -> None:
    assert unpack_committables(pack_committables([("f", 1), ("g", 2)]), sink="s") == [("f", 1), ("g", 2)]


def test_committables_that_cannot_be_rebuilt_name_the_sink() -> None:
    with pytest.raises(StorageError, match="sink 'out'"):
        unpack_committables(b"cno_such_module\nx\n.", sink="out")


@pytest.mark.parametrize("version", [1, 2])
def test_what_versions_1_and_2_kept_among_statistics_is_in_its_field(version: int) -> None:
    body = {
        key: BODY[key] for key in BODY.keys() - {"spark", "stateful", "rescaled", "restored_from", "claimed_savepoint"}
    }
    if version == 1:
        body["tasks"] = [{key: value for key, value in task.items() if key != "operators"} for task in body["tasks"]]
    log = {"name": "1/0", "path": "spark/1/0", "size": 1, "crc32": 2}
    body |= {
        "spark_offsets": {"batch": 11, "lines": ["-", "5"], "files": [log]},
        "statistics": {
            "bytes": 5,
            "stateful": ["count"],
            "rescaled": [2, 4],
            "restored_from": "/savepoints/a",
            "savepoint_epoch": 3,
            "claimed_savepoint": "/savepoints/a",
        },
    }
    log_file = FileState(path="spark/1/0", size=1, crc32=2)
    expected = manifest(spark=SparkPosition(batch=11, lines=("-", "5"), files={"1/0": log_file}))
    read = decode(whole(version, body), source="m")
    assert read == replace(expected, format_version=version)
    assert decode(encode(read), source="m") == expected, "written again, it is of today's version"
    plain = decode(whole(version, {**body, "spark_offsets": None, "statistics": {"bytes": 5}}), source="m")
    assert (plain.stateful, plain.rescaled, plain.restored_from, plain.claimed_savepoint) == ((), None, None, None)
