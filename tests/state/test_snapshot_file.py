"""Snapshot files: what goes in comes out, and no damaged byte goes unnoticed."""

from __future__ import annotations

import base64
import enum
import math
import pickle
import struct
import threading
import zlib
from collections import namedtuple
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import CorruptSnapshotError, StorageError
from penstock.state.snapshot_file import TableDelta, decode, encode, read_tables

Point = namedtuple("Point", "x y")


class Colour(enum.IntEnum):
    RED = 1


class Name(str):
    __slots__ = ()


def table(keys: list[Any], values: list[Any], **more: Any) -> TableDelta:
    described: dict[str, Any] = {"operator": "count", "name": "total", "kind": "value", "full": True}
    return TableDelta(**{**described, "key_groups": [0] * len(keys), "keys": keys, "values": values, **more})


def identical(left: Any, right: Any) -> bool:
    """Equal in type and value all the way down; NaN is itself, and 0.0 is not -0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return struct.pack("<d", left) == struct.pack("<d", right)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(identical, left, right))
    if isinstance(left, dict):
        return identical(list(left.items()), list(right.items()))
    return bool(left == right)


def assert_same(written: TableDelta, read: TableDelta) -> None:
    assert (read.operator, read.name, read.kind, read.full) == (
        written.operator,
        written.name,
        written.kind,
        written.full,
    )
    assert list(read.key_groups) == list(written.key_groups)
    for column in ("keys", "values", "namespaces", "deleted"):
        assert identical(getattr(read, column), getattr(written, column)), column


def round_trip(*tables: TableDelta, compression: str | None = None) -> list[TableDelta]:
    return decode(encode(tables, meta={}, compression=compression), source="f")[1]


floats = st.floats(allow_nan=False) | st.just(math.nan)
scalars = st.none() | st.booleans() | st.integers() | floats | st.text() | st.binary()
objects = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.text(), inner)
    ),
    max_leaves=5,
)
column_kinds = st.sampled_from(
    [
        st.integers(-(2**63), 2**63 - 1),
        st.integers(),
        floats,
        st.text(),
        st.text(st.characters(codec=None, categories=["Cs", "L"])),
        st.binary(),
        st.booleans(),
        st.none(),
        objects,
    ]
)


@st.composite
def tables(draw: st.DrawFn) -> TableDelta:
    size = draw(st.integers(0, 6))

    def column(entries: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(entries, min_size=size, max_size=size))

    return TableDelta(
        operator=draw(st.text(st.characters(codec="utf-8"))),
        name=draw(st.text(st.characters(codec="utf-8"))),
        kind=draw(st.sampled_from(["value", "list", "map", "timer-event", "operator"])),
        full=draw(st.booleans()),
        key_groups=column(st.integers(0, 32767)),
        keys=column(draw(column_kinds)),
        namespaces=column(draw(column_kinds)) if draw(st.booleans()) else None,
        values=column(draw(column_kinds)),
        deleted=column(st.booleans()) if draw(st.booleans()) else None,
    )


@given(written=st.lists(tables(), max_size=3), compression=st.sampled_from([None, "zstd", "lz4"]))
def test_every_table_comes_back_exactly(written: list[TableDelta], compression: str | None) -> None:
    read = round_trip(*written, compression=compression)
    assert len(read) == len(written)
    for before, after in zip(written, read, strict=True):
        assert_same(before, after)


@given(meta=st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.integers())))
def test_meta_comes_back(meta: dict[str, Any]) -> None:
    assert decode(encode([], meta=meta), source="f") == (meta, [])


@pytest.mark.parametrize(
    "values",
    [
        [True, 1, False, 0],
        [1, 2.0],
        [1, None],
        ["a", None],
        [2**63, -1],
        [(1, 2), (1, 2)],
        [Point(1, 2)],
        [Colour.RED],
        [Name("x"), Name("y")],
        [np.int64(3)],
        [bytearray(b"x"), b"x"],
        [-0.0, 0.0, math.inf, math.nan],
        ["\ud800", "plain"],
    ],
    ids=repr,
)
def test_values_keep_their_exact_type(values: list[Any]) -> None:
    (read,) = round_trip(table(list(range(len(values))), values))
    assert identical(read.values, values)


def test_key_groups_may_be_an_array_and_come_back_as_one() -> None:
    (read,) = round_trip(table(["a", "b"], [1, 2], key_groups=np.array([5, 127], dtype=np.int32)))
    assert isinstance(read.key_groups, np.ndarray)
    assert read.key_groups.dtype == np.int32
    assert read.key_groups.tolist() == [5, 127]


def test_arrow_blocks_are_values_like_any_bytes() -> None:
    sink = pa.BufferOutputStream()
    block = pa.record_batch({"a": [1, 2]})
    with pa.ipc.new_stream(sink, block.schema) as writer:
        writer.write_batch(block)
    (read,) = round_trip(table([1], [sink.getvalue().to_pybytes()]))
    assert pa.ipc.open_stream(read.values[0]).read_all().to_pydict() == {"a": [1, 2]}


def test_an_object_of_a_class_no_module_holds_is_carried_by_value() -> None:
    class Local:
        def __init__(self, n: int) -> None:
            self.n = n

    (read,) = round_trip(table([1, 2], [Local(7), 8]))
    assert read.values[0].n == 7
    assert read.values[1] == 8


def test_what_cannot_be_pickled_is_refused_naming_operator_and_state() -> None:
    with pytest.raises(StorageError, match=r"'total' of operator 'count': a value of type lock"):
        encode([table([1], [threading.Lock()])], meta={})


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="'total' of operator 'count'"):
        table([1, 2], [1])


def small_file() -> bytes:
    keyed = table(["a", "b"], [1, (2, None)], namespaces=[(0, 10), (10, 20)], deleted=[False, True])
    return encode([keyed], meta={"epoch": 3})


def test_every_changed_byte_is_detected() -> None:
    whole = small_file()
    for position in range(len(whole)):
        for flipped in (1, 0x80, 0xFF):
            damaged = bytearray(whole)
            damaged[position] ^= flipped
            with pytest.raises(CorruptSnapshotError, match="chk-3/count-0"):
                decode(bytes(damaged), source="chk-3/count-0")


def test_every_truncation_is_detected() -> None:
    whole = small_file()
    for length in range(len(whole)):
        with pytest.raises(CorruptSnapshotError, match="chk-3/count-0"):
            decode(whole[:length], source="chk-3/count-0")


@given(st.binary(min_size=1, max_size=40))
def test_trailing_bytes_are_detected(more: bytes) -> None:
    with pytest.raises(CorruptSnapshotError, match="chk-3"):
        decode(small_file() + more, source="chk-3")


@given(st.binary(max_size=200))
def test_anything_else_is_no_snapshot_file(data: bytes) -> None:
    with pytest.raises(CorruptSnapshotError, match=r"some/file: .*older checkpoint"):
        decode(data, source="some/file")


def test_a_newer_version_is_told_apart_from_damage() -> None:
    body = bytearray(small_file()[:-8])
    body[8:10] = struct.pack("<H", 99)
    newer = bytes(body) + struct.pack("<I4s", zlib.crc32(body), b"PSND")
    with pytest.raises(CorruptSnapshotError, match=r"f: is whole but has format version 99.*newer"):
        decode(newer, source="f")


@pytest.mark.parametrize("said", [b"[]", b"{}", b'{"operator":"v","name":"n","kind":"value","full":true}', b"?", None])
def test_a_table_that_does_not_say_whose_it_is_is_refused(said: bytes | None) -> None:
    """The bytes are as they were written, and their checksum is right."""
    sink = pa.BufferOutputStream()
    schema = pa.schema([("key", pa.int64())], metadata=None if said is None else {b"penstock": said})
    with pa.ipc.new_stream(sink, schema):
        pass
    table = sink.getvalue().to_pybytes()
    data = struct.pack("<8sHIQ", b"PSTKSNAP", 1, 1, 2) + b"{}" + struct.pack("<Q", len(table)) + table
    data += struct.pack("<I4s", zlib.crc32(data), b"PSND")
    with pytest.raises(CorruptSnapshotError, match="chk-1/v: a table does not say whose it is"):
        decode(data, source="chk-1/v")


def test_a_class_that_is_gone_is_not_called_damage() -> None:
    gone = pickle.dumps(Point(1, 2), 5).replace(b"Point", b"Paint")
    assert gone != pickle.dumps(Point(1, 2), 5)
    data = encode([table([1], [Point(1, 2)])], meta={})[:-8].replace(b"Point", b"Paint")
    data += struct.pack("<I4s", zlib.crc32(data), b"PSND")
    with pytest.raises(StorageError, match=r"'total' of operator 'count', values.*importable") as raised:
        decode(data, source="f")
    assert not isinstance(raised.value, CorruptSnapshotError)


def test_one_state_is_read_without_touching_the_others() -> None:
    other = table([1], [Point(1, 2)], name="other")
    data = encode([other, table(["k"], [5])], meta={})[:-8].replace(b"Point", b"Paint")  # other: cannot be rebuilt
    data += struct.pack("<I4s", zlib.crc32(data), b"PSND")
    (read,) = read_tables(data, operator="count", name="total", source="f")
    assert read.values == [5]
    assert read_tables(data, operator="count", name="nothing", source="f") == []


# A file of every released version, as written then: it must stay readable (faults, row 16).
VERSION_1 = (
    "UFNUS1NOQVABAAIAAAAYAAAAAAAAAHsiZXBvY2giOjcsInZlcnRleCI6InYifbAEAAAAAAAA/////zACAAAQAAAAAAAKAA4ABgAF"
    "AAgACgAAAAABBAAQAAAAAAAKAAwAAAAEAAgACgAAAPAAAAAEAAAAAQAAAAwAAAAIAAwABAAIAAgAAADEAAAABAAAALYAAAB7ImVu"
    "Y29kaW5ncyI6IHsiZGVsZXRlZCI6ICJib29sIiwgImtleSI6ICJ1dGY4IiwgImtleV9ncm91cCI6ICJpbnQzMiIsICJuYW1lc3Bh"
    "Y2UiOiAiaW50NjQiLCAidmFsdWUiOiAicGlja2xlIn0sICJmdWxsIjogZmFsc2UsICJraW5kIjogInZhbHVlIiwgIm5hbWUiOiAi"
    "dG90YWwiLCAib3BlcmF0b3IiOiAiY291bnQifQAACAAAAHBlbnN0b2NrAAAAAAUAAADQAAAAlAAAAFwAAAAwAAAABAAAAFT///8A"
    "AAEGEAAAABgAAAAEAAAAAAAAAAcAAABkZWxldGVkAID///98////AAABBBAAAAAYAAAABAAAAAAAAAAFAAAAdmFsdWUAAACo////"
    "pP///wAAAQIQAAAAHAAAAAQAAAAAAAAACQAAAG5hbWVzcGFjZQAAAJT///8AAAABQAAAANj///8AAAEFEAAAABgAAAAEAAAAAAAA"
    "AAMAAABrZXkABAAEAAQAAAAQABQACAAGAAcADAAAABAAEAAAAAAAAQIQAAAAJAAAAAQAAAAAAAAACQAAAGtleV9ncm91cAAAAAgA"
    "DAAIAAcACAAAAAAAAAEgAAAAAAAAAP////+AAQAAFAAAAAAAAAAMABgABgAFAAgADAAMAAAAAAMEABwAAADoAAAAAAAAAAAAAAAM"
    "AB4AEAAEAAgADAAMAAAA8AAAACQAAAAYAAAAAgAAAAAAAAAAAAAAAAAGAAgABwAGAAAAAAAAAQwAAAAAAAAAAAAAAAAAAAAAAAAA"
    "AAAAAAAAAAAZAAAAAAAAACAAAAAAAAAAAAAAAAAAAAAgAAAAAAAAAB0AAAAAAAAAQAAAAAAAAAATAAAAAAAAAFgAAAAAAAAAAAAA"
    "AAAAAABYAAAAAAAAACEAAAAAAAAAgAAAAAAAAAAAAAAAAAAAAIAAAAAAAAAAHQAAAAAAAACgAAAAAAAAACkAAAAAAAAA0AAAAAAA"
    "AAAAAAAAAAAAANAAAAAAAAAAEgAAAAAAAAAAAAAABQAAAAIAAAAAAAAAAAAAAAAAAAACAAAAAAAAAAAAAAAAAAAAAgAAAAAAAAAA"
    "AAAAAAAAAAIAAAAAAAAAAAAAAAAAAAACAAAAAAAAAAAAAAAAAAAACAAAAAAAAAAotS/9IAhBAAADAAAAfwAAAAAAAAAAAAAMAAAA"
    "AAAAACi1L/0gDGEAAAAAAAABAAAAAgAAAAAAAAIAAAAAAAAAKLUv/SACEQAAYWIAAAAAABAAAAAAAAAAKLUv/SAQgQAAAAAAAAAA"
    "AABg6gAAAAAAAAAAAAAAAAAMAAAAAAAAACi1L/0gDGEAAAAAAAAUAAAAGAAAAAAAABgAAAAAAAAAKLUv/SAYwQAAgAWVCQAAAAAA"
    "AABLAYwBeJSGlC6ABU4uAAAAAAAAAAEAAAAAAAAAKLUv/SABCQAAAgAAAAAAAP////8AAAAA6AIAAAAAAAD/////qAEAABAAAAAA"
    "AAoADgAGAAUACAAKAAAAAAEEABAAAAAAAAoADAAAAAQACAAKAAAAyAAAAAQAAAABAAAADAAAAAgADAAEAAgACAAAAJwAAAAEAAAA"
    "jQAAAHsiZW5jb2RpbmdzIjogeyJrZXkiOiAiaW50NjQiLCAia2V5X2dyb3VwIjogImludDMyIiwgInZhbHVlIjogIm51bGwifSwg"
    "ImZ1bGwiOiB0cnVlLCAia2luZCI6ICJ0aW1lci1ldmVudCIsICJuYW1lIjogInQiLCAib3BlcmF0b3IiOiAiY291bnQifQAAAAgA"
    "AABwZW5zdG9jawAAAAADAAAAdAAAADQAAAAEAAAAqP///wAAAQEQAAAAHAAAAAQAAAAAAAAABQAAAHZhbHVlAAAABAAEAAQAAADU"
    "////AAABAhAAAAAUAAAABAAAAAAAAAADAAAAa2V5ALz///8AAAABQAAAABAAFAAIAAYABwAMAAAAEAAQAAAAAAABAhAAAAAkAAAA"
    "BAAAAAAAAAAJAAAAa2V5X2dyb3VwAAAACAAMAAgABwAIAAAAAAAAASAAAAD/////4AAAABQAAAAAAAAADAAYAAYABQAIAAwADAAA"
    "AAADBAAcAAAASAAAAAAAAAAAAAAADAAeABAABAAIAAwADAAAAHAAAAAkAAAAGAAAAAIAAAAAAAAAAAAAAAAABgAIAAcABgAAAAAA"
    "AAEEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAGQAAAAAAAAAgAAAAAAAAAAAAAAAAAAAAIAAAAAAAAAAhAAAAAAAAAAAAAAAD"
    "AAAAAgAAAAAAAAAAAAAAAAAAAAIAAAAAAAAAAAAAAAAAAAACAAAAAAAAAAIAAAAAAAAACAAAAAAAAAAotS/9IAhBAAABAAAAAgAA"
    "AAAAAAAAAAAQAAAAAAAAACi1L/0gEIEAAAEAAAAAAAAAAgAAAAAAAAAAAAAAAAAA/////wAAAADMRPeEUFNORA=="
)


def test_a_file_of_version_1_is_still_read() -> None:
    meta, (keyed, timers) = decode(base64.b64decode(VERSION_1), source="version 1")
    assert meta == {"epoch": 7, "vertex": "v"}
    expected = table(
        ["a", "b"], [(1, "x"), None], key_groups=[3, 127], namespaces=[0, 60000], deleted=[False, True], full=False
    )
    assert_same(expected, keyed)
    assert_same(table([1, 2], [None, None], key_groups=[1, 2], kind="timer-event", name="t"), timers)
