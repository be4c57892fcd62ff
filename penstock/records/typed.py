"""Records of a declared type are what the type says, wherever they are: a ROW is a `Row` with its names, a FLOAT has 32 bits.

What an operator gives is converted here as if it had been sent: the same value then goes to a chained operator, through an
exchange and into a sink, at every parallelism. A value that does not fit is refused and never cast.

A converter is made once for each declared type. It gets a column: all values of a field, all elements of all lists of a block, all
keys of all maps. For most columns one set of their Python types then says that there is nothing to do but compare a bound.
"""

from __future__ import annotations

import decimal
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate, chain, islice
from math import inf
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.common.composite_types import _ElementsTypeInfo
from penstock.common.time import Instant
from penstock.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from penstock.common.types import Row, RowKind
from penstock.records import Block, Rows
from penstock.records.convert import columns_of, misfit, named_rows, values_of_rows
from penstock.records.exact_arrays import DoesNotFit, check_fits

Column: TypeAlias = list[Any]
Convert: TypeAlias = Callable[[Column, set[type]], Column]
"""Of values and the set of their types; the very list that it got if there is nothing to convert."""

_NOTHING: Final = type(None)


class _Inside(DoesNotFit):
    """What does not fit is a part of the value at this position."""

    def __init__(self, position: int, text: str) -> None:
        ValueError.__init__(self, text)
        self.position = position


class Typed:
    """Values of one declared type. `where` names who gives them."""

    def __init__(self, type_info: TypeInformation, where: str) -> None:
        self.type_info, self._where = type_info, where
        self._convert = _converter(type_info)
        self._nullable = isinstance(type_info, PickledBytesTypeInfo)

    def block(self, block: Block) -> Block:
        """The block with its values converted; columns have their types already."""
        if not isinstance(block, Rows) or not block.values:
            return block
        values = self.values(block.values)
        return block if values is block.values else Rows(values, block.timestamps)

    def values(self, values: list[Any]) -> list[Any]:
        """The values converted; the list itself if each is as the type says. PenstockError for one that does not fit."""
        kinds = set(map(type, values))
        if _NOTHING in kinds and not self._nullable:
            raise misfit(self._where, self.type_info, None, "None is no record")
        try:
            return self._convert(values, kinds)
        except DoesNotFit as error:
            raise misfit(self._where, self.type_info, values[error.position], f"{error}") from error

    def one(self, value: Any) -> Any:
        """One value, converted."""
        return self.values([value])[0]


def _converter(type_info: TypeInformation) -> Convert:
    match type_info:
        case BasicTypeInfo():
            return _basic(type_info)
        case RowTypeInfo() | TupleTypeInfo():
            return _fields(type_info)
        case MapTypeInfo():
            return _maps(type_info)
        case PrimitiveArrayTypeInfo() if type_info.to_arrow() == pa.binary():
            return _leaf(pa.binary(), bytes, bytes, _whatever)
        case _ElementsTypeInfo():
            return _lists(type_info)
        case PickledBytesTypeInfo():
            return _as_they_are
    kind = type_info.to_arrow()
    return _as_they_are if kind is None else _dates(kind)


def _as_they_are(values: Column, kinds: set[type]) -> Column:
    return values


# -------------------------------------------------------------------- without parts


def _leaf(kind: pa.DataType, exact: type, make: Callable[[Any], Any], surely: Callable[[Column], bool]) -> Convert:
    """Values of the class `exact` stay, others that Arrow's type takes are made one. Where all are of that class, and `surely`
    fit, nobody else is asked."""
    only, usual = {exact}, {exact, _NOTHING}

    def convert(values: Column, kinds: set[type]) -> Column:
        if kinds == only and surely(values):
            return values
        check_fits(values, kind)
        if usual.issuperset(kinds):
            return values
        return [value if value is None or type(value) is exact else make(value) for value in values]

    return convert


def _whatever(values: Column) -> bool:
    return True


def _ascii(values: Column) -> bool:
    return "".join(values).isascii()  # other text may hold half a character


def _integers(kind: pa.DataType) -> Convert:
    lowest, highest = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
    return _leaf(kind, int, int, lambda values: lowest <= min(values) and max(values) <= highest)


def _single_floats(values: Column, kinds: set[type]) -> Column:
    if kinds == {float}:
        rounded = array("f", values).tolist()
        if inf not in rounded and -inf not in rounded:  # which may have been given, or be too large
            return values if rounded == values else rounded
    check_fits(values, pa.float32())
    slowly: Column = pa.array(values, pa.float32()).to_pylist()
    return slowly


def _dates(kind: pa.DataType) -> Convert:
    def convert(values: Column, kinds: set[type]) -> Column:
        check_fits(values, kind)
        return values

    return convert


def _only(type_info: TypeInformation, exact: type, also: tuple[type, ...], make: Callable[[Any], Any]) -> Convert:
    """For types without one of Arrow's."""

    usual = {exact, _NOTHING}

    def convert(values: Column, kinds: set[type]) -> Column:
        if usual.issuperset(kinds):
            return values
        for position, value in enumerate(values):
            if value is not None and (not isinstance(value, (exact, *also)) or isinstance(value, bool)):
                raise DoesNotFit(position, value, type_info)
        return [value if value is None or isinstance(value, exact) else make(value) for value in values]

    return convert


def _basic(type_info: BasicTypeInfo) -> Convert:
    match type_info._basic_type:
        case BasicType.STRING | BasicType.CHAR:
            return _leaf(pa.string(), str, str.__str__, _ascii)
        case BasicType.BOOLEAN:
            return _leaf(pa.bool_(), bool, bool, _whatever)
        case BasicType.DOUBLE:
            return _leaf(pa.float64(), float, float, _whatever)
        case BasicType.FLOAT:
            return _single_floats
        case BasicType.BIG_INT:
            return _only(type_info, int, (np.integer,), int)
        case BasicType.BIG_DEC:
            return _only(type_info, decimal.Decimal, (int,), decimal.Decimal)
        case BasicType.INSTANT:
            return _only(type_info, Instant, (), _itself)
    return _integers(type_info.to_arrow())


def _itself(value: Any) -> Any:
    return value


# -------------------------------------------------------------------- made of others


def _lists(type_info: _ElementsTypeInfo) -> Convert:
    elements = _part(type_info._element_type, nullable=not isinstance(type_info, PrimitiveArrayTypeInfo))

    def convert(values: Column, kinds: set[type]) -> Column:
        held = _held(values, kinds, (list, tuple, np.ndarray), type_info)
        flat = list(chain.from_iterable(held))
        converted = _inside(elements, flat, values, held, type_info)
        if converted is flat and kinds <= {list, _NOTHING}:
            return values
        rest = iter(converted)
        return [None if value is None else list(islice(rest, len(value))) for value in values]

    return convert


def _maps(type_info: MapTypeInfo) -> Convert:
    keys = _part(type_info._key_type_info, nullable=False)
    items = _part(type_info._value_type_info, nullable=True)

    def convert(values: Column, kinds: set[type]) -> Column:
        held = _held(values, kinds, (dict,), type_info)
        names, things = list(chain.from_iterable(held)), list(chain.from_iterable(map(_VALUES_OF_DICT, held)))
        new_names = _inside(keys, names, values, held, type_info)
        new_things = _inside(items, things, values, held, type_info)
        if new_names is names and new_things is things:
            return values
        pairs = zip(new_names, new_things, strict=True)
        return [None if value is None else dict(islice(pairs, len(value))) for value in values]

    return convert


_VALUES_OF_DICT: Final = dict.values


def _held(values: Column, kinds: set[type], of: tuple[type, ...], type_info: TypeInformation) -> Column:
    """The values without None, if all are instances of `of`."""
    if kinds <= {*of}:
        return values
    for position, value in enumerate(values):
        if value is not None and not isinstance(value, of):
            raise DoesNotFit(position, value, type_info.to_arrow() or type_info)
    return [value for value in values if value is not None] if _NOTHING in kinds else values


def _inside(convert: Convert, flat: Column, values: Column, held: Column, type_info: TypeInformation) -> Column:
    """All that is in all of `held`, which are the `values` that are not None, converted."""
    try:
        return convert(flat, set(map(type, flat)))
    except DoesNotFit as error:
        at = bisect_right(list(accumulate(map(len, held))), error.position)
        position = [position for position, value in enumerate(values) if value is not None][at]
        raise DoesNotFit(position, held[at], type_info.to_arrow() or type_info, str(error)) from error


def _part(type_info: TypeInformation, *, nullable: bool) -> Convert:
    """Of a field or an element."""
    convert = _converter(type_info)
    if nullable or isinstance(type_info, PickledBytesTypeInfo):
        return convert

    def without_none(values: Column, kinds: set[type]) -> Column:
        if _NOTHING in kinds:
            position = next(position for position, value in enumerate(values) if value is None)
            raise DoesNotFit(position, None, type_info, "None is only allowed in fields of a ROW")
        return convert(values, kinds)

    return without_none


def _fields(type_info: RowTypeInfo | TupleTypeInfo) -> Convert:
    rows = isinstance(type_info, RowTypeInfo)
    names = type_info.get_field_names()
    parts = [_part(field, nullable=rows) for field in type_info.get_field_types()]
    only_inserts = type_info.to_arrow() is not None
    cells = _row_cells if rows else _tuple_cells
    width = {len(names)}

    def records_of(values: Column, kinds: set[type]) -> tuple[Column, bool]:
        """What is in each value, and whether all are of the right class."""
        if kinds == {tuple} and set(map(len, values)) == width:
            return values, not rows
        if kinds == {Row} and rows:
            inside = values_of_rows(values, names)
            if inside is not None:
                return inside, True
        return [cells(at, value, type_info, names, only_inserts) for at, value in enumerate(values)], False

    def convert(values: Column, kinds: set[type]) -> Column:
        if _NOTHING in kinds:  # inside of something else
            present = [value for value in values if value is not None]
            made = iter(convert(present, kinds - {_NOTHING}))
            return [None if value is None else next(made) for value in values]
        if not values:
            return values
        records, right = records_of(values, kinds)
        columns = columns_of(records, len(names))
        converted = []
        for name, part, column in zip(names, parts, columns, strict=True):
            try:
                converted.append(part(column, set(map(type, column))))
            except DoesNotFit as error:
                raise _Inside(error.position, f"field {name!r} is {error}") from error
        same = all(new is old for new, old in zip(converted, columns, strict=True))
        if same and right:
            return values
        lines: Iterable[Any] = records if same else zip(*converted, strict=True)
        if not rows:
            return list(map(tuple, lines))
        made_rows = named_rows(names, lines)
        if Row in kinds:
            for row, value in zip(made_rows, values, strict=True):
                row._row_kind = value._row_kind if type(value) is Row else RowKind.INSERT
        return made_rows

    return convert


def _row_cells(
    position: int, value: Any, type_info: TypeInformation, names: list[str], only_inserts: bool
) -> list[Any]:
    match value:
        case Row():
            if only_inserts and value._row_kind is not RowKind.INSERT:
                raise DoesNotFit(
                    position, value, type_info, f"a typed stream holds only +I rows, this one is {value._row_kind}; leave "
                    "the type out, or use Types.PICKLED_BYTE_ARRAY(), to send changelog rows"
                )  # fmt: skip
            try:
                found = value.get_fields_by_names(names)  # whatever their order
            except KeyError as error:
                raise DoesNotFit(position, value, type_info, str(error)) from error
        case tuple() | list():
            found = list(value)
        case dict():
            found = [value.get(name) for name in names]
        case _ if hasattr(value, "__dict__"):
            found = [vars(value).get(name) for name in names]
        case _:
            raise DoesNotFit(position, value, type_info, "it is not a row")
    return _counted(position, value, type_info, names, found)


def _tuple_cells(
    position: int, value: Any, type_info: TypeInformation, names: list[str], only_inserts: bool
) -> list[Any]:
    if not isinstance(value, (tuple, list, Row)):
        raise DoesNotFit(position, value, type_info, "it is not a tuple")
    return _counted(position, value, type_info, names, list(value))


def _counted(position: int, value: Any, type_info: TypeInformation, names: list[str], found: list[Any]) -> list[Any]:
    if len(found) != len(names):
        raise DoesNotFit(position, value, type_info, f"it has {len(found)} fields and not {len(names)}")
    return found
