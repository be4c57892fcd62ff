"""Between the two shapes of a block: Arrow columns and Python values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation
from penstock.common.types import Row, RowKind
from penstock.errors import PenstockError
from penstock.records import Block, Columns, Rows, TimestampArray


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


def column_of(batch: pa.RecordBatch, name: str, where: str) -> pa.Array:
    """A column by name. One that is not there, or twice, is an error: `column(-1)` would quietly be the last one."""
    index = batch.schema.get_field_index(name)
    if index < 0:
        raise PenstockError(
            f"{where}: column {name!r} is not in the stream, or twice; its columns are {batch.schema.names}"
        )
    return batch.column(index)


def single_batch(table: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """A table in one piece."""
    if isinstance(table, pa.RecordBatch):
        return table
    columns = table.combine_chunks().columns
    arrays = [c.chunk(0) if c.num_chunks else pa.array([], type=c.type) for c in columns]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


def event_times(column: pa.Array, where: str) -> TimestampArray:
    """A column of event time as milliseconds: integers are milliseconds, timestamps are rounded down to one."""
    if pa.types.is_timestamp(column.type):
        column = pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", column.type.tz))
    elif not pa.types.is_integer(column.type):
        raise PenstockError(f"{where}: event time must be integers (milliseconds) or timestamps, but is {column.type}")
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise PenstockError(
            f"{where}: row {row} of this block has no event time: filter such rows out before, or fill the column"
        )
    stamps: TimestampArray = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return stamps


def require_columns(block: Block, type_info: TypeInformation | None, where: str) -> Columns:
    """The block as columns: as it is, or converted by its declared type."""
    if isinstance(block, Columns):
        return block
    if not travels_as_arrow(type_info):
        raise PenstockError(
            f"{where} works on columns but was given rows such as {block.values[:1]!r}: declare the row type of the "
            "operator before it (output_type=Types.ROW_NAMED(...)), or use an operator over rows"
        )
    assert type_info is not None
    columns = to_columns(block, type_info, where)
    if not isinstance(columns, Columns):
        raise PenstockError(
            f"{where} needs a timestamp on every record or on none: some of {block.values[:3]!r} have none"
        )
    return columns


def to_rows(block: Block, type_info: TypeInformation | None = None) -> Rows:
    """Materialise: a tuple per row for tuple types, a named Row otherwise."""
    if isinstance(block, Rows):
        return block
    names = list(block.batch.schema.names)
    timestamps: list[int | None] | None = None if block.timestamps is None else block.timestamps.tolist()
    if isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        types = type_info.get_field_types()
        if len(types) == len(names) and any(t.need_conversion() for t in types):
            structs = block.batch.to_struct_array().to_pylist()
            return Rows([type_info.from_internal_type(struct) for struct in structs], timestamps)
    columns = [column_values(column) for column in block.batch.columns]
    if isinstance(type_info, TupleTypeInfo):
        values: list[Any] = list(zip(*columns, strict=True))
    elif type_info is not None and not isinstance(type_info, RowTypeInfo) and len(columns) == 1:
        values = columns[0]
    else:
        values = named_rows(names, columns)
    return Rows(values, timestamps)


def named_rows(names: list[str], columns: list[list[Any]]) -> list[Any]:
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
