"""Snapshot files: keyed and operator state as self-describing bytes.

    magic (8) | version u16 | number of tables u32 | meta: u64 length + JSON
    | per table: u64 length + one Arrow IPC stream | crc32 u32 over all before it | end mark (4)

Little endian. A table's Arrow schema metadata names the operator, the state, its kind, whether it is full or a delta,
and how each column is encoded, so a file can be read without the job that wrote it. Columns of one plain Python type
are stored as Arrow columns; everything else is pickled entry by entry, because the exact objects must come back.
"""

from __future__ import annotations

import json
import pickle
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import cloudpickle
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.errors import CorruptSnapshotError, StorageError
from penstock.pickling import load_stored

Json: TypeAlias = Any  # what json.dumps accepts

FORMAT_VERSION = 1
_MAGIC = b"PSTKSNAP"
_END = b"PSND"
_HEADER = struct.Struct("<8sHI")
_LENGTH = struct.Struct("<Q")
_FOOTER = struct.Struct("<I4s")
_WHAT_TO_DO = "restore from an older checkpoint or a savepoint, or bring this file back from a copy"


class StoredColumn(Sequence[Any]):
    """A column as files have it: encoding and Arrow array. Whoever can use those needs no object for any entry; for everybody
    else it is a sequence, decoded when it is looked into. StorageError if an entry cannot be rebuilt."""

    __slots__ = ("_alike", "_objects", "_where", "array", "encoding")

    def __init__(
        self,
        encoding: str,
        array: Any,
        *,
        where: str = "a column",
        alike: bool = False,
        objects: list[Any] | None = None,
    ) -> None:
        """`alike`: many entries are the same, and nobody changes them, as windows. One object will do for them. `objects`: the
        entries, where they are known."""
        self.encoding, self.array = encoding, array
        self._where, self._alike = where, alike
        self._objects = objects

    def objects(self) -> list[Any]:
        """All entries."""
        if self._objects is None:
            self._objects = _decode_column(self.array, self.encoding, self._where, alike=self._alike)
        return self._objects

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, index: Any) -> Any:
        return self.objects()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.objects())

    def chosen(self, rows: Any) -> StoredColumn:
        """Only these entries: an array of positions, or a slice."""
        array = self.array[rows] if isinstance(rows, slice) else self.array.take(rows)
        return StoredColumn(self.encoding, array, where=self._where, alike=self._alike)

    def distinct(self) -> tuple[list[Any], Any]:
        """The objects that there are, and which of them each entry is; an object for every entry where they are seldom equal."""
        if self.encoding != "pickle" or self._objects is not None:
            return self.objects(), None
        encoded = self.array.dictionary_encode()
        objects = _decode_column(encoded.dictionary, self.encoding, self._where)
        return objects, encoded.indices


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TableDelta:
    """Entries of one state of one operator: all of them (`full`) or those an epoch changed.

    The columns run in parallel: lists, or `StoredColumn`s. `deleted[i]` marks a tombstone, whose value is ignored. Decoded key
    groups are an int32 array. `kind` is free text: "value", "list", "map", "timer-event", "operator", …
    """

    operator: str  # uid
    name: str
    kind: str
    full: bool
    key_groups: list[int] | npt.NDArray[np.int32]
    keys: Sequence[Any]
    values: Sequence[Any]
    namespaces: Sequence[Any] | None = None
    map_keys: Sequence[Any] | None = None  # each entry of a map, and each piece of a list, is one of ours
    deleted: Sequence[bool] | None = None

    def __post_init__(self) -> None:
        columns = (self.key_groups, self.keys, self.values, self.namespaces, self.map_keys, self.deleted)
        lengths = [len(column) for column in columns if column is not None]
        if len(set(lengths)) > 1:
            raise ValueError(f"{_title(self)}: columns of different lengths {lengths}")

    def __len__(self) -> int:
        return len(self.keys)

    def decoded(self) -> TableDelta:
        """With lists of objects for its columns."""

        def objects(column: Sequence[Any] | None) -> Any:
            return column.objects() if isinstance(column, StoredColumn) else column

        return replace(
            self,
            keys=objects(self.keys),
            values=objects(self.values),
            namespaces=objects(self.namespaces),
            map_keys=objects(self.map_keys),
        )


def encode(tables: Sequence[TableDelta], *, meta: Mapping[str, Json], compression: str | None = None) -> bytes:
    """The file's bytes. `compression` is None, "zstd" or "lz4".

    StorageError, naming operator and state, if an entry cannot be pickled.
    """
    options = pa.ipc.IpcWriteOptions(compression=compression)
    described = json.dumps(dict(meta), sort_keys=True, separators=(",", ":")).encode()
    parts: list[bytes | memoryview] = [_HEADER.pack(_MAGIC, FORMAT_VERSION, len(tables))]
    parts += (_LENGTH.pack(len(described)), described)
    for table in tables:
        segment = _write_segment(table, options)
        parts += (_LENGTH.pack(len(segment)), segment)
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    parts.append(_FOOTER.pack(crc, _END))
    return b"".join(parts)


def decode(data: bytes, *, source: str) -> tuple[dict[str, Json], list[TableDelta]]:
    """What was encoded. CorruptSnapshotError naming `source` if one byte differs; StorageError if the bytes are
    right but a pickled object cannot be rebuilt here (its class was moved or renamed)."""
    meta, tables = decode_columns(data, source=source)
    return meta, [table.decoded() for table in tables]


def decode_columns(data: bytes, *, source: str) -> tuple[dict[str, Json], list[TableDelta]]:
    """The same without an object for any entry: the columns of the tables are `StoredColumn`s."""
    meta, segments = _open(data, source)
    return meta, [_read_segment(segment, source) for segment in segments]


def read_tables(data: bytes, *, name: str, source: str, operator: str | None = None) -> list[TableDelta]:
    """Only the states of one name, of whichever operator if none is named."""
    _, segments = _open(data, source)
    found = []
    for segment in segments:
        described = _describe(_stream(segment, source).schema, source)
        if described["name"] == name and operator in (None, described["operator"]):
            found.append(_read_segment(segment, source).decoded())
    return found


def describe(data: bytes, *, source: str) -> list[tuple[str, str, str]]:
    """(operator, name, kind) of every table, without decoding one."""
    _, segments = _open(data, source)
    found = [_describe(_stream(segment, source).schema, source) for segment in segments]
    return [(table["operator"], table["name"], table["kind"]) for table in found]


def natural(values: list[Any]) -> Any:
    """A column of natural Arrow types where there are, else of what repr() gives."""
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.array(list(map(repr, values)), type=pa.string())


# --- writing


def _write_segment(table: TableDelta, options: Any) -> memoryview:
    columns: dict[str, Any] = {"key_group": pa.array(np.asarray(table.key_groups, dtype=np.int32))}
    encodings = {"key_group": "int32"}
    for column, values in (
        ("key", table.keys),
        ("namespace", table.namespaces),
        ("map_key", table.map_keys),
        ("value", table.values),
    ):
        if values is not None:
            encodings[column], columns[column] = _encode_column(values, table, column)
    if table.deleted is not None:
        encodings["deleted"], columns["deleted"] = "bool", pa.array(table.deleted, type=pa.bool_())
    described = {
        "operator": table.operator,
        "name": table.name,
        "kind": table.kind,
        "full": table.full,
        "encodings": encodings,
    }
    schema = pa.schema(
        [pa.field(column, array.type) for column, array in columns.items()],
        metadata={"penstock": json.dumps(described, sort_keys=True)},
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        writer.write_table(pa.table(columns, schema=schema))
    return memoryview(sink.getvalue())


# Exact types only: bool is an int, and an IntEnum or a str subclass would come back as something else.
_PLAIN: dict[type, tuple[str, Any, Any]] = {
    int: ("int64", pa.int64(), None),
    float: ("float64", pa.float64(), None),
    bool: ("bool", pa.bool_(), None),
    str: ("utf8", pa.string(), pa.large_string()),
    bytes: ("binary", pa.binary(), pa.large_binary()),
}


def _encode_column(values: Sequence[Any], table: TableDelta, column: str) -> tuple[str, Any]:
    if isinstance(values, StoredColumn):
        return values.encoding, values.array
    types = set(map(type, values))
    if len(types) == 1:
        (only,) = types
        if only is type(None):
            return "null", pa.nulls(len(values))
        if only in _PLAIN:
            encoding, arrow_type, large_type = _PLAIN[only]
            try:
                return encoding, _array(values, arrow_type, large_type)
            except (pa.ArrowException, OverflowError, UnicodeEncodeError):
                pass  # an int beyond 64 bits, a str with a lone surrogate: pickle can
    return "pickle", _array(_pickled(values, table, column), pa.binary(), pa.large_binary())


def _array(values: Sequence[Any], arrow_type: Any, large_type: Any) -> Any:
    array = pa.array(values, type=arrow_type)
    if isinstance(array, pa.ChunkedArray):  # more than 2 GiB of text or bytes: 32-bit offsets are too short
        array = pa.array(values, type=large_type)
    return array


def _pickled(values: Sequence[Any], table: TableDelta, column: str) -> list[bytes]:
    dumps = pickle.dumps
    try:
        return [dumps(value, 5) for value in values]
    except Exception:
        # Classes of the user's main program live in no module a slot can import: cloudpickle carries them by value.
        return [_pickled_by_value(value, table, column) for value in values]


def _pickled_by_value(value: Any, table: TableDelta, column: str) -> bytes:
    try:
        return bytes(cloudpickle.dumps(value, 5))
    except Exception as error:
        raise StorageError(
            f"cannot snapshot {_title(table)}: a {column} of type {type(value).__qualname__} cannot be pickled "
            f"({error}); keep connections, locks and generators out of state and store plain data"
        ) from error


# --- reading


def _open(data: bytes, source: str) -> tuple[dict[str, Json], list[memoryview]]:
    if len(data) < _HEADER.size + _FOOTER.size:
        raise CorruptSnapshotError(
            f"{source}: {len(data)} bytes are too few for a snapshot file; it was truncated: {_WHAT_TO_DO}"
        )
    magic, version, count = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise CorruptSnapshotError(f"{source}: does not begin as a Penstock snapshot file does: {_WHAT_TO_DO}")
    view = memoryview(data)
    crc, end = _FOOTER.unpack_from(data, len(data) - _FOOTER.size)
    if end != _END:
        raise CorruptSnapshotError(f"{source}: has no end mark; it was truncated or damaged: {_WHAT_TO_DO}")
    found = zlib.crc32(view[: -_FOOTER.size])
    if found != crc:
        raise CorruptSnapshotError(
            f"{source}: checksum {found:08x} instead of {crc:08x}; the file is damaged: {_WHAT_TO_DO}"
        )
    reader = _READERS.get(version)
    if reader is None:
        raise CorruptSnapshotError(
            f"{source}: is whole but has format version {version}, and this Penstock reads {sorted(_READERS)}: "
            "use the Penstock release that wrote it, or a newer one"
        )
    return reader(view[_HEADER.size : -_FOOTER.size], count, source)


def _read_v1(body: memoryview, count: int, source: str) -> tuple[dict[str, Json], list[memoryview]]:
    segments = list(_split(body, source))
    if len(segments) != count + 1:
        raise CorruptSnapshotError(f"{source}: {len(segments) - 1} tables instead of {count}: {_WHAT_TO_DO}")
    return json.loads(bytes(segments[0])), segments[1:]


# One reader for each version ever released: old savepoints stay readable.
_READERS: dict[int, Callable[[memoryview, int, str], tuple[dict[str, Json], list[memoryview]]]] = {1: _read_v1}


def _split(body: memoryview, source: str) -> Iterator[memoryview]:
    position = 0
    while position < len(body):
        start = position + _LENGTH.size
        if start > len(body):
            raise CorruptSnapshotError(f"{source}: a segment's length is cut off: {_WHAT_TO_DO}")
        position = start + _LENGTH.unpack_from(body, position)[0]
        if position > len(body):
            raise CorruptSnapshotError(f"{source}: a segment is cut off: {_WHAT_TO_DO}")
        yield body[start:position]


def _stream(segment: memoryview, source: str) -> Any:
    try:
        return pa.ipc.open_stream(pa.py_buffer(segment))
    except (pa.ArrowException, OSError) as error:
        raise CorruptSnapshotError(f"{source}: a table cannot be read ({error}): {_WHAT_TO_DO}") from error


_DESCRIBED = ("operator", "name", "kind", "full", "encodings")


def _describe(schema: Any, source: str) -> dict[str, Any]:
    try:
        described = json.loads(schema.metadata[b"penstock"])
        return {field: described[field] for field in _DESCRIBED}
    except (TypeError, KeyError, ValueError) as error:
        raise CorruptSnapshotError(f"{source}: a table does not say whose it is ({error}): {_WHAT_TO_DO}") from error


def _read_segment(segment: memoryview, source: str) -> TableDelta:
    stream = _stream(segment, source)
    described = _describe(stream.schema, source)
    try:
        content = stream.read_all()
    except (pa.ArrowException, OSError) as error:
        raise CorruptSnapshotError(
            f"{source}: state {described['name']!r} of operator {described['operator']!r} cannot be read ({error}): "
            f"{_WHAT_TO_DO}"
        ) from error
    encodings = described["encodings"]
    where = f"{source}: state {described['name']!r} of operator {described['operator']!r}"

    def column(name: str, *, alike: bool = False) -> StoredColumn:
        encoding, named = encodings[name], f"{where}, {name}s"
        if encoding not in _ENCODINGS:
            raise CorruptSnapshotError(
                f"{named}: unknown column encoding {encoding!r}; use the Penstock release that wrote it, or a newer one"
            )
        return StoredColumn(encoding, content.column(name).combine_chunks(), where=named, alike=alike)

    return TableDelta(
        operator=described["operator"],
        name=described["name"],
        kind=described["kind"],
        full=described["full"],
        key_groups=content.column("key_group").to_numpy(),
        keys=column("key"),
        values=column("value"),
        namespaces=column("namespace", alike=True) if "namespace" in encodings else None,
        map_keys=column("map_key") if "map_key" in encodings else None,
        deleted=column("deleted").objects() if "deleted" in encodings else None,
    )


_ENCODINGS = frozenset({"null", "pickle", *(encoding for encoding, _, _ in _PLAIN.values())})


def _decode_column(array: Any, encoding: str, where: str, *, alike: bool = False) -> list[Any]:
    if encoding == "null":
        return [None] * len(array)
    if encoding != "pickle":
        # Through an object array: several times faster than to_pylist, same objects.
        plain: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
        return plain
    try:
        if alike:
            array = array.dictionary_encode()
            objects = list(map(load_stored, array.dictionary.to_numpy(zero_copy_only=False).tolist()))
            return [objects[index] for index in array.indices.to_numpy().tolist()]
        return list(map(load_stored, array.to_numpy(zero_copy_only=False).tolist()))
    except Exception as error:
        raise StorageError(
            f"{where}: the file is whole, but an entry cannot be rebuilt ({type(error).__name__}: {error}); "
            "make the classes it was written with importable under their old names"
        ) from error


def _title(table: TableDelta) -> str:
    return f"state {table.name!r} of operator {table.operator!r}"
