"""Between the two shapes of a block: Arrow columns and Python values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation
from penstock.common.types import Row, RowKind
from penstock.errors import PenstockError
from penstock.records import Block, Columns, Rows


def column_values(column: pa.Array) -> list[Any]:
    """Python values of a column. Numbers go through numpy, which is several times faster than `to_pylist`."""
    kind = column.type
    if column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return values
    if column.null_count == 0 and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        strings: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
        return strings
    listed: list[Any] = column.to_pylist()
    return listed


def to_rows(block: Block, type_info: TypeInformation | None = None) -> Rows:
    """Materialise: a tuple per row for tuple types, a named Row otherwise."""
    if isinstance(block, Rows):
        return block
    names = list(block.batch.schema.names)
    columns = [column_values(column) for column in block.batch.columns]
    timestamps: list[int | None] | None = None if block.timestamps is None else block.timestamps.tolist()
    if isinstance(type_info, TupleTypeInfo):
        values: list[Any] = list(zip(*columns, strict=True))
    elif type_info is not None and not isinstance(type_info, RowTypeInfo) and len(columns) == 1:
        values = columns[0]
    else:
        values = _named_rows(names, columns)
    return Rows(values, timestamps)


def _named_rows(names: list[str], columns: list[list[Any]]) -> list[Any]:
    """What `_create_row` gives for each row, without its calls: this runs once per record. The rows share one list of
    names, which rows replace (`set_field_names`) and never change."""
    new, insert = Row.__new__, RowKind.INSERT
    rows: list[Any] = []
    append = rows.append
    for values in zip(*columns, strict=True):
        row = new(Row)
        row._fields = names
        row._values = list(values)
        row._row_kind = insert
        append(row)
    return rows


def to_columns(block: Block, type_info: TypeInformation, where: str) -> Columns:
    """Columnar form of typed rows; a value that does not fit the declared type is an error, never a cast."""
    if isinstance(block, Columns):
        return block
    arrow = type_info.to_arrow()
    if arrow is None or not pa.types.is_struct(arrow):
        raise PenstockError(f"{where}: type {type_info} cannot be turned into columns")
    fields = list(arrow)
    arrays = []
    for index, field in enumerate(fields):
        values = [row[index] for row in block.values]
        try:
            arrays.append(pa.array(values, type=field.type, from_pandas=False))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError) as error:
            bad = _first_misfit(values, field.type)
            raise PenstockError(
                f"{where}: field {field.name!r} is declared {type_info.get_field_types()[index]}, "  # type: ignore[attr-defined]
                f"but record {block.values[bad]!r} holds {values[bad]!r} there ({error}): declare the type the function really "
                "gives, or leave the type out"
            ) from error
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    stamps = None
    if block.timestamps is not None and None not in block.timestamps:
        stamps = np.asarray(block.timestamps, dtype=np.int64)
    return Columns(batch, stamps)


def _first_misfit(values: list[Any], kind: pa.DataType) -> int:
    for index, value in enumerate(values):
        try:
            pa.array([value], type=kind, from_pandas=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError):
            return index
    return 0
