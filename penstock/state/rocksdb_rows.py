"""Entries as RocksDB values: what a snapshot's columns have of an entry, as bytes behind each other.

    value | key | [namespace] | [map key or piece] | trailer: length (4) of each part, encoding (1) of each part, key group (2)

A part is encoded as its column of a snapshot file would be (`ENCODINGS`), so that many rows are cut into columns, and columns
joined to rows, without an object of Python for any entry: a full snapshot and a restore are of millions. The value is
first because it alone is read most often, and pickle stops at its end.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pickling import dump_by_value, load_stored
from penstock.state.keyspace import EntryColumns, Shape
from penstock.state.snapshot_file import StoredColumn

Part: TypeAlias = tuple[int, bytes]  # number of its encoding, bytes
Bytes: TypeAlias = npt.NDArray[np.uint8]

ENCODINGS: Final = ("pickle", "int64", "utf8", "binary", "null", "float64", "bool")
_PICKLE, _INT, _UTF8, _BINARY, _NULL, _FLOAT, _BOOL = range(len(ENCODINGS))
_GROUP_BYTES: Final = 2
_pack_int, _unpack_int = struct.Struct("<q").pack, struct.Struct("<q").unpack_from
_pack_float, _unpack_float = struct.Struct("<d").pack, struct.Struct("<d").unpack_from
_length = struct.Struct("<I").unpack_from

_SPLIT: Final[dict[Shape, Callable[[Any], tuple[Any, ...]]]] = {
    Shape.KEY: lambda entry: (entry,),
    Shape.BLOCKS: lambda entry: (entry,),
    Shape.NAMESPACED: lambda entry: entry,
    Shape.MAP: lambda entry: entry,
    Shape.LIST: lambda entry: entry,
    Shape.TIMERS: lambda entry: (entry[0], (entry[1], entry[2])),
    Shape.NAMESPACED_MAP: lambda entry: (*entry[0], entry[1]),
    Shape.NAMESPACED_LIST: lambda entry: (*entry[0], entry[1]),
}
_JOIN: Final[dict[Shape, Callable[..., Any]]] = {
    Shape.KEY: lambda key: key,
    Shape.BLOCKS: lambda key: key,
    Shape.NAMESPACED: lambda key, namespace: (key, namespace),
    Shape.MAP: lambda key, map_key: (key, map_key),
    Shape.LIST: lambda key, piece: (key, piece),
    Shape.TIMERS: lambda key, rest: (key, *rest),
    Shape.NAMESPACED_MAP: lambda key, namespace, map_key: ((key, namespace), map_key),
    Shape.NAMESPACED_LIST: lambda key, namespace, piece: ((key, namespace), piece),
}


class RowFormat:
    """The rows of tables of one shape."""

    def __init__(self, shape: Shape) -> None:
        self._split, self._join = _SPLIT[shape], _JOIN[shape]
        self._parts = 1 + {Shape.KEY: 1, Shape.BLOCKS: 1, Shape.NAMESPACED_MAP: 3, Shape.NAMESPACED_LIST: 3}.get(
            shape, 2
        )
        trailer = struct.Struct(f"<{self._parts}I{self._parts}B")
        self._pack_trailer, self._unpack_trailer = trailer.pack, trailer.unpack_from
        self._size = trailer.size + _GROUP_BYTES
        self._value_encoding = -_GROUP_BYTES - self._parts  # from the end

    # ---------------------------------------------------------------- one entry

    def encode(self, entry: Any, value: Any, group: bytes) -> bytes:
        """One row. `group`: the key group as it is in the row's key."""
        kind, data = encoded(value)
        if self._parts == 2:
            key_kind, key = encoded(entry)
            return data + key + self._pack_trailer(len(data), len(key), kind, key_kind) + group
        parts = [(kind, data), *map(encoded, self._split(entry))]
        trailer = self._pack_trailer(*(len(part) for _, part in parts), *(kind for kind, _ in parts))
        return b"".join([*(part for _, part in parts), trailer, group])

    def value(self, row: bytes) -> Any:
        """The value of a row."""
        kind = row[self._value_encoding]
        if kind == _PICKLE:
            return load_stored(row)
        return _decoded(kind, row[: _length(row, len(row) - self._size)[0]])

    def entry(self, row: bytes) -> tuple[Any, Any]:
        """Entry and value of a row."""
        numbers = self._unpack_trailer(row, len(row) - self._size)
        start, found = 0, []
        for length, kind in zip(numbers[: self._parts], numbers[self._parts :], strict=True):
            found.append(_decoded(kind, row[start : start + length]))
            start += length
        return self._join(*found[1:]), found[0]

    # ---------------------------------------------------------------- many

    def parts(self, entries: list[Any], values: list[Any]) -> list[StoredColumn]:
        """Values, keys, and what the shape has beside them, of entries that are objects."""
        if self._parts == 2:
            return [column_of(values), column_of(entries)]
        beside = zip(*map(self._split, entries), strict=True)
        return [column_of(values), *(column_of(list(part)) for part in beside)]

    def columns(self, rows: list[bytes]) -> EntryColumns:
        """Many rows as columns. What is of one type needs no object for any entry."""
        count, parts = len(rows), self._parts
        joined = b"".join(rows)
        data = np.frombuffer(joined, np.uint8)
        ends = np.cumsum(np.fromiter(map(len, rows), np.int64, count))
        trailers = data[(ends - self._size)[:, None] + np.arange(self._size)]
        lengths = np.empty((count, parts + 1), np.int64)
        lengths[:, :parts] = np.ascontiguousarray(trailers[:, : 4 * parts]).view("<u4")
        lengths[:, parts] = self._size
        offsets = np.zeros(count * (parts + 1) + 1, np.int64)
        np.cumsum(lengths.ravel(), out=offsets[1:])
        if not np.array_equal(offsets[parts + 1 :: parts + 1], ends):
            raise ValueError("rows whose parts are not as long as they say")
        pieces = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(joined)]
        )
        kinds = trailers[:, 4 * parts : 5 * parts]
        cut = [
            _column(pieces.take(pa.array(np.arange(part, len(pieces), parts + 1))), kinds[:, part])
            for part in range(parts)
        ]
        groups = np.ascontiguousarray(trailers[:, -_GROUP_BYTES:]).view(">u2").ravel().astype(np.int32)
        return EntryColumns(groups, tuple(cut))

    def rows(self, parts: Sequence[StoredColumn], groups: npt.NDArray[np.int32]) -> pa.LargeBinaryArray:
        """The rows of columns: values, keys, and what the shape has beside them."""
        count, number = len(groups), self._parts
        trailers = np.empty((count, self._size), np.uint8)
        columns = [part_bytes(part) for part in parts]
        for index, (part, column) in enumerate(zip(parts, columns, strict=True)):
            lengths = pc.binary_length(column).to_numpy(zero_copy_only=False)
            trailers[:, 4 * index : 4 * index + 4] = _octets(lengths, "<u4")
            trailers[:, 4 * number + index] = ENCODINGS.index(part.encoding)
        trailers[:, -_GROUP_BYTES:] = _octets(groups, ">u2")
        return joined(*columns, fixed(trailers))


def encoded(value: Any) -> Part:
    """A part, of exactly this type: a bool is no int, and an enum no str."""
    encoder = _ENCODERS.get(type(value))
    return (_PICKLE, dump_by_value(value)) if encoder is None else encoder(value)


def _encoded_int(value: int) -> Part:
    return (_INT, _pack_int(value)) if -(2**63) <= value < 2**63 else (_PICKLE, dump_by_value(value))


def _encoded_text(value: str) -> Part:
    try:
        return _UTF8, value.encode()
    except UnicodeEncodeError:  # a lone surrogate: pickle can
        return _PICKLE, dump_by_value(value)


_ENCODERS: Final[dict[type, Callable[[Any], Part]]] = {
    int: _encoded_int,
    str: _encoded_text,
    bytes: lambda value: (_BINARY, value),
    float: lambda value: (_FLOAT, _pack_float(value)),
    bool: lambda value: (_BOOL, b"\1" if value else b"\0"),
    type(None): lambda value: (_NULL, b""),
}


def _decoded(kind: int, data: bytes) -> Any:
    match kind:
        case 0:  # _PICKLE
            return load_stored(data)
        case 1:
            return _unpack_int(data)[0]
        case 2:
            return data.decode()
        case 3:
            return data
        case 4:
            return None
        case 5:
            return _unpack_float(data)[0]
        case _:
            return data != b"\0"


def _column(part: pa.LargeBinaryArray, kinds: Bytes) -> Sequence[Any]:
    kind = int(kinds[0])
    if (kinds != kind).any():  # as a snapshot of objects would have it: of several types
        return [_decoded(kind, data) for kind, data in zip(kinds.tolist(), part.to_pylist(), strict=True)]
    return StoredColumn(ENCODINGS[kind], _array(part, kind))


def _array(part: pa.LargeBinaryArray, kind: int) -> pa.Array:
    match kind:
        case 1 | 5:
            data = np.frombuffer(part.buffers()[2], "<i8" if kind == _INT else "<f8", len(part))
            return pa.array(data)
        case 4:
            return pa.nulls(len(part))
        case 6:
            return pa.array(np.frombuffer(part.buffers()[2], np.bool_, len(part)))
    small = part.buffers()[2] is None or part.buffers()[2].size < 2**31
    if kind == _UTF8:
        return part.cast(pa.string() if small else pa.large_string())
    return part.cast(pa.binary()) if small else part


def part_bytes(column: StoredColumn) -> pa.LargeBinaryArray:
    """A column's entries, each as a part of a row."""
    array = column.array
    match column.encoding:
        case "pickle" | "binary" | "utf8":
            return array.cast(pa.large_binary())
        case "int64":
            return fixed(_octets(array.to_numpy(), "<i8"))
        case "float64":
            return fixed(_octets(array.to_numpy(), "<f8"))
        case "bool":
            return fixed(_octets(array.to_numpy(zero_copy_only=False), "u1"))
        case _:
            return fixed(np.empty((len(array), 0), np.uint8))


_PLAIN: Final[dict[type, tuple[str, Any]]] = {
    int: ("int64", pa.int64()),
    str: ("utf8", pa.large_string()),
    bytes: ("binary", pa.large_binary()),
    float: ("float64", pa.float64()),
    bool: ("bool", pa.bool_()),
    type(None): ("null", pa.null()),
}


def column_of(objects: list[Any]) -> StoredColumn:
    """Objects as a column, whatever their types."""
    types = set(map(type, objects))
    if len(types) == 1 and (plain := _PLAIN.get(types.pop())) is not None:
        encoding, kind = plain
        # An int beyond 64 bits, a lone surrogate: pickle can.
        with contextlib.suppress(pa.ArrowException, OverflowError, UnicodeEncodeError):
            return StoredColumn(encoding, pa.array(objects, kind), objects=objects)
    return StoredColumn("pickle", pa.array(list(map(dump_by_value, objects)), pa.large_binary()), objects=objects)


# -------------------------------------------------------------------- arrays of bytes


def _octets(numbers: npt.NDArray[Any], kind: str) -> Bytes:
    """The bytes of numbers, a row each."""
    found: Bytes = np.ascontiguousarray(numbers.astype(kind)).view(np.uint8).reshape(len(numbers), -1)
    return found


def big_endian(numbers: npt.NDArray[Any], width: int) -> pa.LargeBinaryArray:
    """Numbers as so many bytes each, that sort as they do."""
    return fixed(_octets(numbers, f">u{width}"))


def fixed(octets: Bytes) -> pa.LargeBinaryArray:
    """An array of byte strings of one length, from a row each."""
    count, width = octets.shape
    offsets = np.arange(count + 1, dtype=np.int64) * width
    data = pa.py_buffer(np.ascontiguousarray(octets))
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, [None, pa.py_buffer(offsets), data])


def joined(*columns: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """The strings of several arrays, joined row by row."""
    return pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.large_binary()))
