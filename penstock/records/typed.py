"""Records of a declared type are what the type says, wherever they are: a ROW is a `Row` with its names, a FLOAT has 32 bits.

What an operator gives is converted here as if it had been sent: the same value then goes to a chained operator, through an
exchange and into a sink, at every parallelism. A value that does not fit is refused and never cast.

All values of a field are looked at together, as `exact_arrays` does: for most columns that is one set of their Python types.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from operator import itemgetter
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
from penstock.records.convert import misfit
from penstock.records.exact_arrays import DoesNotFit, check_fits

Convert: TypeAlias = Callable[[Sequence[Any]], Sequence[Any]]  # gives what it got if there is nothing to convert

_NOTHING: Final = type(None)
_INSERT: Final = RowKind.INSERT


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
        if not self._nullable and None in map(_none_or_not, values):
            raise misfit(self._where, self.type_info, None, "None is no record")
        try:
            converted = self._convert(values)
        except DoesNotFit as error:
            raise misfit(self._where, self.type_info, values[error.position], f"{error}") from error
        return converted if isinstance(converted, list) else list(converted)

    def one(self, value: Any) -> Any:
        """One value, converted."""
        return self.values([value])[0]


def _none_or_not(value: Any) -> Any:
    return None if value is None else True  # `None in values` would ask the values, which may be arrays


def _converter(type_info: TypeInformation) -> Convert:
    match type_info:
        case BasicTypeInfo():
            return _basic(type_info)
        case RowTypeInfo() | TupleTypeInfo():
            return _fields(type_info)
        case MapTypeInfo():
            return _maps(type_info)
        case PrimitiveArrayTypeInfo() if type_info.to_arrow() == pa.binary():
            return _leaf(pa.binary(), bytes, bytes)
        case _ElementsTypeInfo():
            return _lists(type_info)
        case PickledBytesTypeInfo():
            return _as_they_are
    kind = type_info.to_arrow()
    return _as_they_are if kind is None else _dates(kind)


def _as_they_are(values: Sequence[Any]) -> Sequence[Any]:
    return values


# -------------------------------------------------------------------- without parts


def _leaf(kind: pa.DataType, exact: type, make: Callable[[Any], Any]) -> Convert:
    """Values of the class `exact` stay, others that Arrow's type takes are made one."""
    usual = {exact, _NOTHING}

    def convert(values: Sequence[Any]) -> Sequence[Any]:
        check_fits(values, kind)
        if usual.issuperset(map(type, values)):
            return values
        return [value if value is None or type(value) is exact else make(value) for value in values]

    return convert


def _single_floats(values: Sequence[Any]) -> Sequence[Any]:
    check_fits(values, pa.float32())
    rounded: list[Any] = pa.array(values, pa.float32()).to_pylist()
    return rounded


def _dates(kind: pa.DataType) -> Convert:
    def convert(values: Sequence[Any]) -> Sequence[Any]:
        check_fits(values, kind)
        return values

    return convert


def _only(type_info: TypeInformation, exact: type, also: tuple[type, ...], make: Callable[[Any], Any]) -> Convert:
    """For types without one of Arrow's."""

    def convert(values: Sequence[Any]) -> Sequence[Any]:
        if {exact, _NOTHING}.issuperset(map(type, values)):
            return values
        for position, value in enumerate(values):
            if value is not None and (not isinstance(value, (exact, *also)) or isinstance(value, bool)):
                raise DoesNotFit(position, value, type_info)
        return [value if value is None or isinstance(value, exact) else make(value) for value in values]

    return convert


def _basic(type_info: BasicTypeInfo) -> Convert:
    match type_info._basic_type:
        case BasicType.STRING | BasicType.CHAR:
            return _leaf(pa.string(), str, str.__str__)
        case BasicType.BOOLEAN:
            return _leaf(pa.bool_(), bool, bool)
        case BasicType.DOUBLE:
            return _leaf(pa.float64(), float, float)
        case BasicType.FLOAT:
            return _single_floats
        case BasicType.BIG_INT:
            return _only(type_info, int, (np.integer,), int)
        case BasicType.BIG_DEC:
            return _only(type_info, decimal.Decimal, (int,), decimal.Decimal)
        case BasicType.INSTANT:
            return _only(type_info, Instant, (), _itself)
    return _leaf(type_info.to_arrow(), int, int)


def _itself(value: Any) -> Any:
    return value


# -------------------------------------------------------------------- made of others


def _lists(type_info: _ElementsTypeInfo) -> Convert:
    element = _part(type_info._element_type, nullable=not isinstance(type_info, PrimitiveArrayTypeInfo))

    def convert(values: Sequence[Any]) -> Sequence[Any]:
        return _each(values, (list, tuple, np.ndarray), type_info, lambda value: _elements(value, element))

    return convert


def _elements(value: Any, element: Convert) -> Any:
    listed = value if type(value) is list else list(value)
    converted = element(listed)
    return converted if isinstance(converted, list) else list(converted)


def _maps(type_info: MapTypeInfo) -> Convert:
    keys = _part(type_info._key_type_info, nullable=False)
    items = _part(type_info._value_type_info, nullable=True)

    def one(value: Any) -> Any:
        names, held = list(value), list(value.values())
        new_names, new_held = keys(names), items(held)
        if new_names is names and new_held is held:
            return value
        return dict(zip(new_names, new_held, strict=True))

    def convert(values: Sequence[Any]) -> Sequence[Any]:
        return _each(values, (dict,), type_info, one)

    return convert


def _each(
    values: Sequence[Any], kinds: tuple[type, ...], type_info: TypeInformation, one: Callable[[Any], Any]
) -> Sequence[Any]:
    out, same = [], True
    for position, value in enumerate(values):
        if value is not None and not isinstance(value, kinds):
            raise DoesNotFit(position, value, type_info.to_arrow() or type_info)
        try:
            made = None if value is None else one(value)
        except DoesNotFit as error:
            raise DoesNotFit(position, value, type_info.to_arrow() or type_info, str(error)) from error
        same = same and made is value
        out.append(made)
    return values if same else out


def _part(type_info: TypeInformation, *, nullable: bool) -> Convert:
    """Of a field or an element."""
    convert = _converter(type_info)
    if nullable or isinstance(type_info, PickledBytesTypeInfo):
        return convert

    def without_none(values: Sequence[Any]) -> Sequence[Any]:
        for position, value in enumerate(values):
            if value is None:
                raise DoesNotFit(position, None, type_info, "None is only allowed in fields of a ROW")
        return convert(values)

    return without_none


def _fields(type_info: RowTypeInfo | TupleTypeInfo) -> Convert:
    rows = isinstance(type_info, RowTypeInfo)
    names = type_info.get_field_names()
    parts = [_part(field, nullable=rows) for field in type_info.get_field_types()]
    only_inserts = type_info.to_arrow() is not None
    cells = _row_cells if rows else _tuple_cells

    def convert(values: Sequence[Any]) -> Sequence[Any]:
        if not values:
            return values
        kinds = set(map(type, values))
        if _NOTHING in kinds:  # inside of something else
            present = [value for value in values if value is not None]
            made = iter(convert(present))
            return [None if value is None else next(made) for value in values]
        if kinds == {tuple} and set(map(len, values)) == {len(names)}:
            records: Sequence[Sequence[Any]] = values
            right = not rows
        elif kinds == {Row} and rows and all(row._fields == names and row._row_kind is _INSERT for row in values):
            records = [row._values for row in values]
            right = True
        else:
            records = [cells(position, value, type_info, names, only_inserts) for position, value in enumerate(values)]
            right = False
        # Not zip(*records): that makes an iterator for each record.
        columns = [tuple(map(itemgetter(at), records)) for at in range(len(names))]
        converted = []
        for name, part, column in zip(names, parts, columns, strict=True):
            try:
                converted.append(part(column))
            except DoesNotFit as error:
                raise _Inside(error.position, f"field {name!r} is {error}") from error
        if right and all(new is old for new, old in zip(converted, columns, strict=True)):
            return values
        if not names:
            return [_named(names, (), value) if rows else () for value in values]
        lines = zip(*converted, strict=True)
        if not rows:
            return list(lines)
        return [_named(names, line, value) for line, value in zip(lines, values, strict=True)]

    return convert


def _named(names: list[str], line: Sequence[Any], made_of: Any) -> Row:
    """A row; `_create_row` without its calls. All share one list of names, which rows replace and never change."""
    row = Row.__new__(Row)
    row._fields, row._values = names, list(line)
    row._row_kind = made_of._row_kind if type(made_of) is Row else RowKind.INSERT
    return row


def _row_cells(
    position: int, value: Any, type_info: TypeInformation, names: list[str], only_inserts: bool
) -> Sequence[Any]:
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
) -> Sequence[Any]:
    if not isinstance(value, (tuple, list, Row)):
        raise DoesNotFit(position, value, type_info, "it is not a tuple")
    return _counted(position, value, type_info, names, list(value))


def _counted(
    position: int, value: Any, type_info: TypeInformation, names: list[str], found: Sequence[Any]
) -> Sequence[Any]:
    if len(found) != len(names):
        raise DoesNotFit(position, value, type_info, f"it has {len(found)} fields and not {len(names)}")
    return found
