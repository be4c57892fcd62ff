"""Blocks as the text format of COPY, made in the slots: at commit the driver only passes bytes on."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.types import Row, RowKind
from penstock.connectors.postgres.table import Column, Table
from penstock.connectors.sink_values import as_mapping, field_names
from penstock.errors import BadRecordError, shorten
from penstock.records import Block, Columns
from penstock.records.convert import column_values

_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
_NULL = "\\N"
DELETED = "penstock_deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Rows of the same columns that follow each other, as COPY reads them. A change of columns starts another one."""

    columns: tuple[str, ...]
    rows: int
    data: bytes
    doubtful: bool = False  # only the database knows whether it takes them; not staged

    def halves(self) -> list[Segment]:
        """The rows in two parts of about the same number, to find one that the server refuses."""
        lines = self.data.splitlines(keepends=True)
        half = self.rows // 2
        return [replace(self, rows=len(part), data=b"".join(part)) for part in (lines[:half], lines[half:])]


def merge(segments: Sequence[Segment]) -> list[Segment]:
    """Joins neighbours of the same columns."""
    merged: list[list[Segment]] = []
    for segment in segments:
        if merged and merged[-1][0].columns == segment.columns:
            merged[-1].append(segment)
        else:
            merged.append([segment])
    return [
        Segment(
            columns=group[0].columns,
            rows=sum(s.rows for s in group),
            data=b"".join(s.data for s in group),
            doubtful=any(s.doubtful for s in group),
        )
        for group in merged
    ]


def pack(segments: Sequence[Segment]) -> bytes:
    """Segments as the bytes of a staged output."""
    return pickle.dumps([(s.columns, s.rows, s.data) for s in merge(segments)], protocol=pickle.HIGHEST_PROTOCOL)


def unpack(data: bytes) -> list[Segment]:
    """Reads what `pack` wrote."""
    return [Segment(columns=columns, rows=rows, data=rows_) for columns, rows, rows_ in pickle.loads(data)]


class CopyEncoder:
    """`columns` names the fields of values that have no names; None: the values' own. With `keys` a column says of each row
    whether it deletes; without, a row that does not insert is an error."""

    def __init__(self, table: Table, columns: tuple[str, ...] | None, *, keys: tuple[str, ...], sink: str) -> None:
        self._table, self._columns, self._keys, self._sink = table, columns, keys, sink
        self._changelog = bool(keys)
        self._known: set[tuple[str, ...]] = set()

    def encode(self, block: Block) -> Segment | None:
        """The rows of a block as COPY reads them; None for an empty one. BadRecordError for a record that lacks a
        column.
        """
        if not len(block):
            return None
        if isinstance(block, Columns):
            names = self._columns or tuple(block.batch.schema.names)
            if missing := [name for name in names if name not in block.batch.schema.names]:
                raise BadRecordError(
                    f"{self._sink}: the stream has no column {', '.join(missing)}, only {block.batch.schema.names}"
                )
            lists = [_Lazy(block.batch.column(name)) for name in names]
            values: Sequence[Any] = range(len(block))
            shown: Callable[[int], str] = partial(_shown_row, block.batch)
            deleted = None
        else:
            values, deleted = block.values, None
            if any(issubclass(kind, Row) for kind in set(map(type, values))):
                values = [value for value in values if _kind(value) is not RowKind.UPDATE_BEFORE]
                if not values:
                    return None
                deleted = self._deletions(values)
            names = self._columns or self._names_of(values[0])
            lists = [_Lazy(None, column) for column in self._transpose(values, names)]
            shown = partial(_shown_at, values)
        if names not in self._known:
            self._table.check_columns(names, self._sink, shown(0))
            self._known.add(names)
        texts, doubtful = [], self._table.has_checks
        for name, data in zip(names, lists, strict=True):
            column = self._table.column(name)
            assert column is not None
            made, certain = self._texts(column, data, shown, deleted)
            texts.append(made)
            doubtful = doubtful or not certain
        if self._changelog:
            names = (*names, DELETED)
            flags = deleted or [False] * len(values)
            texts.append(pa.array(["t" if flag else "f" for flag in flags]))
        lines = texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, "\t")
        text = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines), "\n")
        data = text[0].as_buffer().to_pybytes() + b"\n"
        return Segment(columns=names, rows=len(values), data=data, doubtful=doubtful)

    def _deletions(self, values: Sequence[Any]) -> list[bool] | None:
        if not any(isinstance(value, Row) and value.get_row_kind() is not RowKind.INSERT for value in values):
            return None
        if not self._changelog:
            odd = next(value for value in values if _kind(value) is not RowKind.INSERT)
            raise BadRecordError(
                f"{self._sink}: table {self._table.name}: {shorten(odd)} changes an earlier row, but the sink only appends: give "
                "it set_upsert_keys"
            )
        return [_kind(value) is RowKind.DELETE for value in values]

    def _names_of(self, value: Any) -> tuple[str, ...]:
        names = field_names(value)
        if names is None:
            raise BadRecordError(
                f"{self._sink}: table {self._table.name}: cannot tell the columns of {shorten(value)}: name them with "
                "set_columns, or write named rows or mappings"
            )
        return tuple(names)

    def _transpose(self, values: Sequence[Any], names: tuple[str, ...]) -> list[Sequence[Any]]:
        if set(map(type, values)) == {tuple} and set(map(len, values)) == {len(names)}:
            return [list(map(itemgetter(place), values)) for place in range(len(names))]
        rows: list[list[Any]] = []
        for value in values:
            try:
                fields: Mapping[str, Any] = as_mapping(value, names)
                rows.append([fields[name] for name in names])
                if len(fields) != len(names) and self._columns is None:
                    raise ValueError(f"it has other fields than the record before: {list(fields)}")
            except KeyError as error:
                raise BadRecordError(
                    f"{self._sink}: table {self._table.name}: column {error.args[0]} is not in the record {shorten(value)}"
                ) from error
            except ValueError as error:
                raise BadRecordError(
                    f"{self._sink}: table {self._table.name}: the record {shorten(value)} does not fit the columns "
                    f"{', '.join(names)}: {error}"
                ) from error
        return [list(column) for column in zip(*rows, strict=True)]

    def _texts(
        self, column: Column, data: _Lazy, shown: Callable[[int], str], deleted: Sequence[bool] | None
    ) -> tuple[pa.Array, bool]:
        """The column as COPY reads it, and whether the database takes it for sure."""
        where, key = (
            f"{self._sink}: table {self._table.name}, column {column.name} ({column.type})",
            column.name in self._keys,
        )
        array = data.array if data.array is not None else _as_array(data.values)
        if array is not None and (fast := _fast_texts(column, array, key)) is not None:
            return fast, True
        try:
            values = data.values
        except (OverflowError, ValueError) as error:
            raise BadRecordError(f"{where}: a value of the stream's {data.kind} cannot be read: {error}") from error
        if deleted is not None and not key and all(gone for gone, v in zip(deleted, values, strict=True) if v is None):
            column = replace(column, not_null=False)  # of a row that deletes only the keys matter
        wrong = column.misfit(values, key=key)
        if wrong is not None:
            index, why = wrong
            raise BadRecordError(f"{where}: {shorten(values[index])} {why}. The record is {shown(index)}")
        to_text = _text_of(column.base)
        try:
            if set(map(type, values)) - {type(None)} == {str}:
                made = _escaped(pa.array(values, pa.string()))
                return made, column.certain(values, [value for value in values if value is not None])
            texts = [None if value is None else to_text(value) for value in values]
            made = pa.array([_NULL if text is None else _escape(text) for text in texts], pa.string())
            return made, column.certain(values, [text for text in texts if text is not None])
        except (TypeError, ValueError, OverflowError, RecursionError) as error:  # a UnicodeEncodeError among them
            for index, value in enumerate(values):
                try:
                    if value is not None:
                        to_text(value).encode()
                except (TypeError, ValueError, OverflowError, RecursionError) as cause:
                    raise BadRecordError(
                        f"{where}: {shorten(value)} cannot be written: {cause}. The record is {shown(index)}"
                    ) from cause
            raise BadRecordError(f"{where}: {error}") from error


class _Lazy:
    """A column as Arrow's array, and as Python values when they are asked for."""

    def __init__(self, array: pa.Array | None, values: Sequence[Any] | None = None) -> None:
        self.array, self._values = array, values

    @property
    def kind(self) -> str:
        return "values" if self.array is None else str(self.array.type)

    @property
    def values(self) -> Sequence[Any]:
        if self._values is None:
            assert self.array is not None
            self._values = column_values(self.array)
        return self._values


# Python's types whose values Arrow takes as they are.
_ARROW: dict[type, pa.DataType] = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}


def _as_array(values: Sequence[Any]) -> pa.Array | None:
    """Values that are all of one simple type, or null, as Arrow's array."""
    kinds = set(map(type, values)) - {type(None)}
    simple = _ARROW.get(kinds.pop()) if len(kinds) == 1 else None
    try:
        return None if simple is None else pa.array(values, simple)
    except (OverflowError, ValueError):
        # More than 64 bits, half of a surrogate pair: to be named by who looks at each value.
        return None


def _fast_texts(column: Column, array: pa.Array, key: bool) -> pa.Array | None:
    """Whole columns of the common types, without a Python object per value. None: look at the values."""
    if array.null_count and (key or column.not_null):
        return None
    kind, base = array.type, column.base
    if pa.types.is_integer(kind) and column.type in ("bigint", "numeric") and not pa.types.is_uint64(kind):
        return _with_nulls(array.cast(pa.string()))
    if pa.types.is_integer(kind) and base in ("integer", "smallint"):
        bounds = pc.min_max(array).as_py()
        limit = 1 << (31 if base == "integer" else 15)
        fits = bounds["min"] is None or (-limit <= bounds["min"] and bounds["max"] < limit)
        return _with_nulls(array.cast(pa.string())) if fits else None
    if pa.types.is_floating(kind) and column.type in ("double precision", "real", "numeric"):
        if column.type == "real" and not _fits_real(array):
            return None
        return _with_nulls(array.cast(pa.float64()).cast(pa.string()))
    if pa.types.is_boolean(kind) and base == "boolean":
        return _with_nulls(pc.if_else(array, "t", "f"))
    if pa.types.is_string(kind) and column.type == "text":
        return None if _has(array, b"\x00") else _escaped(array)
    return None


def _fits_real(array: pa.Array) -> bool:
    """Whether no number becomes infinite or 0 in single precision: PostgreSQL refuses both."""
    rounded = array.cast(pa.float32(), safe=False)
    overflows = pc.not_equal(pc.is_inf(rounded), pc.is_inf(array))
    vanishes = pc.not_equal(pc.equal(rounded, 0), pc.equal(array, 0))
    return not pc.any(pc.or_(overflows, vanishes)).as_py()


def _has(array: pa.Array, *marks: bytes) -> bool:
    """Whether one of the bytes is in any of the texts. The buffer may hold those of a larger array, too: then it says yes once
    too often, which costs time and nothing else."""
    buffer = array.buffers()[2]
    data = b"" if buffer is None else buffer.to_pybytes()
    return any(mark in data for mark in marks)


def _escaped(array: pa.Array) -> pa.Array:
    if _has(array, b"\\", b"\t", b"\n", b"\r"):
        for raw, escaped in _ESCAPES:
            array = pc.replace_substring(array, raw, escaped)
    return _with_nulls(array)


def _with_nulls(array: pa.Array) -> pa.Array:
    return pc.fill_null(array, _NULL) if array.null_count else array


def _escape(text: str) -> str:
    for raw, escaped in _ESCAPES:
        text = text.replace(raw, escaped)
    return text


def _text(value: Any) -> str:
    """PostgreSQL's input form of a value."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, bytes | bytearray | memoryview):
        return "\\x" + bytes(value).hex()
    if isinstance(value, int | float | decimal.Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"
    if isinstance(value, list | tuple):
        return _array_text(value, _text)
    if isinstance(value, Mapping):
        return _json_text(value)
    raise TypeError(f"there is no form of {type(value).__name__} in PostgreSQL; convert it before the sink")


def _array_text(value: Any, to_text: Callable[[Any], str]) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list | tuple):
        return "{" + ",".join(_array_text(item, to_text) for item in value) + "}"
    return '"' + to_text(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


def _json_text(value: Any) -> str:
    # NaN is no JSON, though Python writes it: refused here, and not by the database when the checkpoint has promised it.
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)


def _utc_text(value: Any) -> str:
    """A column without a zone ignores the one in a text; as instants they would be moved to UTC, as the whole session is."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return _text(value)


def _zoned_text(value: Any) -> str:
    """In UTC: PostgreSQL does not take all zones that Python has."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        with suppress(OverflowError):  # the first or last day that Python knows: PostgreSQL's calendar goes on
            value = value.astimezone(datetime.UTC)
    return _text(value)


# Input forms that depend on the column, by its type.
_TEXTS: dict[str, Callable[[Any], str]] = {
    "json": _json_text,
    "jsonb": _json_text,
    "timestamp without time zone": _utc_text,
    "timestamp with time zone": _zoned_text,
}


def _text_of(base: str) -> Callable[[Any], str]:
    if base.endswith("[]"):
        return partial(_array_text, to_text=_TEXTS.get(base.removesuffix("[]"), _text))
    return _TEXTS.get(base, _text)


def _kind(value: Any) -> RowKind:
    return value.get_row_kind() if isinstance(value, Row) else RowKind.INSERT


def _shown_row(batch: pa.RecordBatch, index: int) -> str:
    row = batch.slice(index, 1)
    try:
        return shorten(row.to_pylist()[0])
    except (OverflowError, ValueError):  # an instant that Python does not have
        return " ".join(str(row).split())


def _shown_at(values: Sequence[Any], index: int) -> str:
    return shorten(values[index])
