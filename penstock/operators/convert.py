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
    timestamps: list[int | None] | None = None if block.timestamps is None else block.timestamps.tolist()
    typed = isinstance(type_info, (RowTypeInfo, TupleTypeInfo)) and len(type_info.get_field_types()) == len(names)
    if typed and any(t.need_conversion() for t in type_info.get_field_types()):  # type: ignore[union-attr]
        structs = block.batch.to_struct_array().to_pylist()
        return Rows([type_info.from_internal_type(struct) for struct in structs], timestamps)  # type: ignore[union-attr]
    columns = [column_values(column) for column in block.batch.columns]
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


def travels_as_arrow(type_info: TypeInformation | None) -> bool:
    """Declared row and tuple types travel as columns; everything else is pickled."""
    return isinstance(type_info, (RowTypeInfo, TupleTypeInfo)) and type_info.to_arrow() is not None


def to_columns(block: Block, type_info: TypeInformation, where: str) -> Block:
    """Typed rows as columns. A value that does not fit the declared type is an error, never a silent cast. Rows of
    which only some have a timestamp stay rows."""
    if isinstance(block, Columns) or (block.timestamps is not None and None in block.timestamps):
        return block
    assert isinstance(type_info, (RowTypeInfo, TupleTypeInfo))
    struct = type_info.to_arrow()
    assert struct is not None
    flat = isinstance(type_info, TupleTypeInfo) and not any(t.need_conversion() for t in type_info.get_field_types())
    try:
        if flat and all(type(value) is tuple and len(value) == struct.num_fields for value in block.values):
            columns = zip(*block.values, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, struct, strict=True)]
            batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(struct)))
        else:
            rows = pa.array([type_info.to_internal_type(value) for value in block.values], struct)
            batch = pa.RecordBatch.from_struct_array(rows)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError, PenstockError) as error:
        raise PenstockError(
            f"{where} declares the type {type_info}, but gave {_first_misfit(block.values, type_info)!r} ({error}): declare "
            "the type the function really gives, or leave it out"
        ) from error
    stamps = None if block.timestamps is None else np.asarray(block.timestamps, dtype=np.int64)
    return Columns(batch, stamps)


def _first_misfit(values: list[Any], type_info: RowTypeInfo | TupleTypeInfo) -> Any:
    for value in values:
        try:
            pa.array([type_info.to_internal_type(value)], type_info.to_arrow())
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError, PenstockError):
            return value
    return values[0]
