"""Between the two shapes of a block: Arrow columns and Python values."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from operator import attrgetter, itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, type_of_arrow
from penstock.common.types import Row, RowKind
from penstock.errors import PenstockError, shorten
from penstock.records import Block, Columns, Rows, TimestampArray
from penstock.records.arrow_columns import milliseconds
from penstock.records.exact_arrays import DoesNotFit, exact_array


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


def field_values(column: pa.Array, kind: TypeInformation) -> list[Any]:
    """Python values of a field of this type."""
    values = column_values(column)
    return [kind.from_internal_type(value) for value in values] if kind.need_conversion() else values


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
    if not pa.types.is_timestamp(column.type) and not pa.types.is_integer(column.type):
        raise PenstockError(f"{where}: event time must be integers (milliseconds) or timestamps, but is {column.type}")
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise PenstockError(
            f"{where}: row {row} of this block has no event time: filter such rows out before, or fill the column"
        )
    if pa.types.is_timestamp(column.type):
        return milliseconds(column)
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
    names, columns = _python_columns(block.batch, type_info)
    if isinstance(type_info, TupleTypeInfo):
        values: list[Any] = list(zip(*columns, strict=True))
    elif makes_rows(block.batch, type_info):
        values = named_rows(names, zip(*columns, strict=True))
    else:
        values = list(columns[0])
    return Rows(values, _stamps(block))


def makes_rows(batch: pa.RecordBatch, type_info: TypeInformation | None) -> bool:
    """Whether what `to_rows` makes of columns are Rows."""
    if isinstance(type_info, TupleTypeInfo):
        return False
    return type_info is None or isinstance(type_info, RowTypeInfo) or batch.num_columns != 1


def names_of_rows(batch: pa.RecordBatch, type_info: TypeInformation | None) -> list[str]:
    """The names of the fields that Rows of these columns have."""
    declared = _declared_fields(batch, type_info)
    return list(batch.schema.names) if declared is None else declared.get_field_names()


def to_tuples(
    block: Columns, type_info: TypeInformation | None, positions: Collection[int], *, by_name: bool = False
) -> Rows:
    """Tuples in the place of Rows (`makes_rows`), whose fields have names if these are read `by_name`. Only the fields at these
    positions have their values."""
    names, columns = _python_columns(block.batch, type_info, positions)
    fields = zip(*columns, strict=True)
    if not by_name:
        return Rows(list(fields), _stamps(block))
    return Rows(list(map(tuple.__new__, repeat(_named_tuple(tuple(names))), fields)), _stamps(block))


@lru_cache(1_000)
def _named_tuple(names: tuple[str, ...]) -> Any:
    return namedtuple("Record", names, rename=True)


def cannot_change(batch: pa.RecordBatch, positions: Iterable[int]) -> bool:
    """Whether the values of these columns are surely numbers, texts or bytes."""
    kinds = [batch.schema.field(position).type for position in positions]
    return all(any(is_kind(kind) for is_kind in _PLAIN) for kind in kinds)


_PLAIN: Final = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_binary,
)


def _declared_fields(batch: pa.RecordBatch, type_info: TypeInformation | None) -> RowTypeInfo | TupleTypeInfo | None:
    """The type, if values of its fields are others than those of the columns."""
    if isinstance(type_info, RowTypeInfo | TupleTypeInfo):
        types = type_info.get_field_types()
        if len(types) == batch.num_columns and any(t.need_conversion() for t in types):
            return type_info
    return None


def fields_of(batch: pa.RecordBatch, type_info: TypeInformation | None) -> tuple[list[str], list[TypeInformation]]:
    """The names and types of the fields that records of these columns have."""
    declared = _declared_fields(batch, type_info)
    if declared is None:
        return list(batch.schema.names), [type_of_arrow(kind) for kind in batch.schema.types]
    return declared.get_field_names(), declared.get_field_types()


def _python_columns(
    batch: pa.RecordBatch, type_info: TypeInformation | None, positions: Collection[int] | None = None
) -> tuple[list[str], Sequence[Iterable[Any]]]:
    """The names and the values of the columns; None for each value of one at no position that is asked for."""
    names, types = fields_of(batch, type_info)
    given = zip(batch.columns, types, strict=True)
    if positions is None:
        return names, [field_values(column, kind) for column, kind in given]
    rows = batch.num_rows
    return names, [field_values(*one) if at in positions else repeat(None, rows) for at, one in enumerate(given)]


def _stamps(block: Columns) -> list[int | None] | None:
    return None if block.timestamps is None else block.timestamps.tolist()


def named_rows(names: list[str], lines: Iterable[Sequence[Any]]) -> list[Any]:
    """What `_create_row` gives for each line, without its calls: this runs once per record. The rows share one list of
    names, which rows replace (`set_field_names`) and never change."""
    insert = RowKind.INSERT
    held = list(map(list, lines))
    rows: list[Any] = list(map(Row.__new__, repeat(Row, len(held))))
    for row, values in zip(rows, held, strict=True):
        row._fields = names
        row._values = values
        row._row_kind = insert
    return rows


def columns_of(records: Sequence[Sequence[Any]], width: int) -> list[list[Any]]:
    """The values of each field of records that have `width` fields. Not `zip(*records)`: that makes an iterator for each
    record, and so many objects at once set the garbage collector off."""
    return [list(map(itemgetter(at), records)) for at in range(width)]


def values_of_rows(rows: list[Row], names: list[str]) -> list[list[Any]] | None:
    """What is in the rows, if all are inserts and have just these fields in this order. `count` compares objects before it
    asks them, so for rows that share one list of names this is a comparison of pointers."""
    values = list(map(_VALUES, rows))
    if (
        list(map(_NAMES, rows)).count(names) == len(rows)
        and list(map(_KIND, rows)).count(RowKind.INSERT) == len(rows)
        and set(map(len, values)) == {len(names)}
    ):
        return values
    return None


_NAMES: Final = attrgetter("_fields")
_VALUES: Final = attrgetter("_values")
_KIND: Final = attrgetter("_row_kind")


def travels_as_arrow(type_info: TypeInformation | None) -> bool:
    """Declared row and tuple types travel as columns; everything else is pickled."""
    return isinstance(type_info, (RowTypeInfo, TupleTypeInfo)) and type_info.to_arrow() is not None


def to_columns(block: Block, type_info: TypeInformation, where: str, *, checked: bool = False) -> Block:
    """Typed rows as columns. A value that does not fit the declared type is an error, never a silent cast; `checked` rows are
    known to fit. Rows of which only some have a timestamp stay rows."""
    if isinstance(block, Columns) or (block.timestamps is not None and None in block.timestamps):
        return block
    arrays: list[pa.Array] = []
    schema = _each_field(
        block.values,
        type_info,
        where,
        lambda values, kind: arrays.append(exact_array(values, kind, checked=checked)),
    )
    stamps = None if block.timestamps is None else np.asarray(block.timestamps, dtype=np.int64)
    return Columns(pa.RecordBatch.from_arrays(arrays, schema=schema), stamps)


def has_single_floats(type_info: TypeInformation) -> bool:
    """Whether a declared row or tuple has 32-bit floats in it: values of Python have more digits."""
    return _is_or_has_single(type_info.to_arrow())


def _is_or_has_single(kind: pa.DataType) -> bool:
    if pa.types.is_float32(kind):
        return True
    return any(_is_or_has_single(kind.field(place).type) for place in range(kind.num_fields))


def _each_field(
    values: list[Any], type_info: TypeInformation, where: str, do: Callable[[Sequence[Any], pa.DataType], Any]
) -> pa.Schema:
    """`do` something with the values of each field of typed rows, and say whose value it was when that fails."""
    assert isinstance(type_info, (RowTypeInfo, TupleTypeInfo))
    struct = type_info.to_arrow()
    assert struct is not None
    schema = pa.schema(list(struct))
    columns = _fields(values, type_info, where)
    for field, column in zip(schema, columns, strict=True):
        try:
            do(column, field.type)
        except DoesNotFit as error:
            raise misfit(where, type_info, values[error.position], f"field {field.name!r} is {error}") from error
    return schema


def _fields(values: list[Any], type_info: RowTypeInfo | TupleTypeInfo, where: str) -> Sequence[Sequence[Any]]:
    """The values of each field, as Arrow takes them."""
    names = type_info.get_field_names()
    if not values:
        return [()] * len(names)
    if not any(t.need_conversion() for t in type_info.get_field_types()):
        kinds = set(map(type, values))
        if kinds == {tuple} and set(map(len, values)) == {len(names)}:
            return columns_of(values, len(names))
        if kinds == {Row} and isinstance(type_info, RowTypeInfo):
            inside = values_of_rows(values, names)
            if inside is not None:
                return columns_of(inside, len(names))
    structs = []
    value: Any = None
    try:
        for value in values:
            if value is None:
                raise ValueError("None is no record")
            structs.append(type_info.to_internal_type(value))
    except (AttributeError, KeyError, TypeError, ValueError, PenstockError) as error:
        raise misfit(where, type_info, value, str(error)) from error
    return [[struct[name] for struct in structs] for name in names]


def misfit(where: str, type_info: TypeInformation, record: Any, why: str) -> PenstockError:
    """The error of a record that is not of the type that `where` declares."""
    return PenstockError(
        f"{where} declares the type {type_info}, but gave {shorten(record)}: {why}. Declare the type the function really "
        "gives, convert the value in the function, or leave the type out"
    )
