"""The records of a block and their keys, for functions that are called with one record after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import itemgetter
from typing import Any, Final, NamedTuple

import pyarrow as pa

from penstock.common.typeinfo import TypeInformation
from penstock.operators.lean_rows import LeanRows, Reader, are_few, lean_rows
from penstock.operators.selectors import ColumnKeySelector, function_of
from penstock.records import Block, Columns, Rows
from penstock.records.convert import column_values, to_rows
from penstock.state.backend import NO_KEY
from penstock.state.keys import normal_key

ASK: Final = object()  # for who goes over records and keys together: ask the selector for the key of this one


class KeyedRecords(NamedTuple):
    """`keys`: of each record; None if the selector must be asked for each. `lean`: the records, if they are tuples in the place of
    Rows."""

    rows: Rows
    keys: Iterable[Any] | None
    lean: LeanRows | None


def keyed_records(
    block: Block,
    type_info: TypeInformation | None,
    selector: Callable[[Any], Any] | None,
    readers: Sequence[Reader] | None,
    *,
    whole: bool = False,
) -> KeyedRecords:
    """`readers` are who will get the records; None: they must be Rows. `whole`: with all their fields."""
    if not isinstance(block, Columns) or are_few(block):
        return KeyedRecords(to_rows(block, type_info), repeat(NO_KEY) if selector is None else None, None)
    columns = _key_columns(block, selector)
    place = None if columns is None else _key_place(block, selector, columns)
    lean = None
    if readers is not None:
        asked = [] if selector is None or columns is not None else [Reader(function_of(selector))]
        lean = lean_rows(block, type_info, [*readers, *asked], also=() if place is None else (place,), whole=whole)
    rows = to_rows(block, type_info) if lean is None else lean.rows
    keys: Iterable[Any] | None = None
    if selector is None:
        keys = repeat(NO_KEY)
    elif columns is not None and lean is not None and place is not None:
        keys = map(itemgetter(place), rows.values)  # the same objects: a number is made once
    elif columns is not None:
        keys = _keys_of(columns)
    return KeyedRecords(rows, keys, lean)


def _key_columns(block: Columns, selector: Callable[[Any], Any] | None) -> list[pa.Array] | None:
    """The columns that keys are taken from, which costs a fraction of asking each row; None: each row is asked."""
    if isinstance(selector, ColumnKeySelector) and selector.reads_columns(block.batch):
        return selector.columns_of(block.batch)
    return None


def _key_place(block: Columns, selector: Callable[[Any], Any] | None, columns: list[pa.Array]) -> int | None:
    """Where in its tuple the key of a record is, if it is one field, and that a number or a text as it came."""
    assert isinstance(selector, ColumnKeySelector)
    kind = columns[0].type
    if len(columns) > 1 or not (pa.types.is_integer(kind) or pa.types.is_string(kind)):
        return None
    place: int = block.batch.schema.get_field_index(selector.names[0])
    return place


def _keys_of(columns: list[pa.Array]) -> Iterable[Any]:
    values = list(map(_key_values, columns))
    return values[0] if len(values) == 1 else zip(*values, strict=True)


def _key_values(column: pa.Array) -> Iterable[Any]:
    values = column_values(column)
    kind = column.type
    plain = not (pa.types.is_floating(kind) or pa.types.is_nested(kind) or (pa.types.is_timestamp(kind) and kind.tz))
    return values if plain else map(normal_key, values)
