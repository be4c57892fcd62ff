"""Python values as Arrow arrays, exactly: what `pa.array` would quietly change is refused.

Given a type, `pa.array` casts: 2.5 becomes 2, bytes become text, a datetime loses its time or its zone. Which values could
be changed shows in their Python types, and those of a whole column are one set, built at C speed. Only where that set holds
more than the types that always survive are values looked at one by one.

What is taken: integers in float and decimal fields where they are exact, numpy's scalars of the same kind, and in a field of
32-bit floats any float that does not overflow: it is rounded, which is what such a field means.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.arrow_values import arrow_value, is_other

_NOTHING: Final = type(None)
_t: Final = pa.types
_SEQUENCES: Final = frozenset({list, tuple, np.ndarray})


class DoesNotFit(ValueError):
    """A value that is not of the declared type; `position` is its place among the values."""

    def __init__(self, position: int, value: Any, kind: Any, why: str = "") -> None:
        detail = f" ({why})" if why else ""
        super().__init__(f"{value!r}, a {type(value).__name__}, is not exactly a value of {kind}{detail}")
        self.position = position


def exact_array(values: Sequence[Any], kind: pa.DataType, *, checked: bool = False) -> pa.Array:
    """`pa.array(values, kind)`, or an error that names the first value that would not be the same afterwards. `checked`: the
    values are known to fit. In the place of a struct a Row will do."""
    if is_other(kind):
        values = [arrow_value(value, kind) for value in values]
    if not checked:
        check_exact(values, kind)
    try:
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise _first_refused(values, kind, error) from error


def check_fits(values: Sequence[Any], kind: pa.DataType) -> None:
    """Refuse what `exact_array` refuses, without an array where that is cheaper."""
    types = check_exact(values, kind)
    if types == {str} and (_t.is_string(kind) or _t.is_large_string(kind)):
        try:
            "".join(filter(None, values)).encode()
        except UnicodeEncodeError as error:
            raise _first_refused(values, kind, error) from error
    elif types == {int} and _t.is_integer(kind):
        numbers = [value for value in values if value is not None]
        lowest, highest = (-(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1)
        if _t.is_unsigned_integer(kind):
            lowest, highest = 0, 2**kind.bit_width - 1
        if min(numbers) < lowest or max(numbers) > highest:
            raise _first_refused(values, kind, OverflowError(f"not within {lowest} and {highest}"))
    elif types and types not in ({bool}, {float}):
        exact_array(values, kind)


def check_exact(values: Sequence[Any], kind: pa.DataType) -> set[type]:
    """Refuse what Arrow would cast, not what it refuses itself. The types of the values, without that of None."""
    types = set(map(type, values))
    types.discard(_NOTHING)
    if types:
        _checker(kind)(values, kind, types)
    return types


def _first_refused(values: Sequence[Any], kind: pa.DataType, error: Exception) -> DoesNotFit:
    for position, value in enumerate(values):
        try:
            pa.array([value], kind)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as refused:
            return DoesNotFit(position, value, kind, str(refused))
    return DoesNotFit(0, values[0], kind, str(error))  # none alone, only all together


# -------------------------------------------------------------------- a column of one type

Checker = Callable[[Sequence[Any], pa.DataType, set[type]], None]


def _leaf(always: Iterable[type], sometimes: tuple[type, ...], fits: Callable[[Any, pa.DataType], bool]) -> Checker:
    """Values of the types `always` survive for sure; those that are instances of `sometimes` if they also `fits`."""
    surviving = frozenset(always)

    def check(values: Sequence[Any], kind: pa.DataType, types: set[type]) -> None:
        if types <= surviving:
            return
        for position, value in enumerate(values):
            if value is None or type(value) in surviving:
                continue
            if not isinstance(value, sometimes) or not fits(value, kind):
                raise DoesNotFit(position, value, kind)

    return check


def _any(value: Any, kind: pa.DataType) -> bool:
    return True


def _no_boolean(value: Any, kind: pa.DataType) -> bool:
    return not isinstance(value, bool)


def _comes_back(value: Any, kind: pa.DataType) -> bool:
    try:
        return bool(pa.scalar(value, kind).as_py() == value)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return True  # Arrow will say what it thinks of it


def _same_zone(value: Any, kind: pa.DataType) -> bool:
    """With a zone where the type has one, without one where it has none; and no finer than the type's unit."""
    if isinstance(value, np.datetime64):
        return kind.tz is None
    return (value.tzinfo is not None) is (kind.tz is not None) and _comes_back(value, kind)


def _timestamps(values: Sequence[Any], kind: pa.DataType, types: set[type]) -> None:
    if types == {datetime.datetime} and kind.unit in ("us", "ns"):
        zoned = kind.tz is not None
        if {v.tzinfo is not None for v in values if v is not None} == {zoned}:
            return
    _ONE_BY_ONE_TIMESTAMPS(values, kind, types)


def _narrow_floats(values: Sequence[Any], kind: pa.DataType, types: set[type]) -> None:
    _FLOATS(values, kind, types)
    if types == {float}:
        wide = pa.array(values, pa.float64())
        if not pc.any(pc.and_(pc.is_finite(wide), pc.greater(pc.abs(wide), _LARGEST[kind]))).as_py():
            return
    for position, value in enumerate(values):
        if isinstance(value, float) and not math.isinf(value) and abs(value) > _LARGEST[kind]:
            raise DoesNotFit(position, value, kind, "it would become infinite")


# Half a step above the largest one still rounds down to it.
_LARGEST: Final = {
    pa.float32(): float(np.finfo(np.float32).max) * (1 + 2.0**-25),
    pa.float16(): float(np.finfo(np.float16).max),
}

_FLOATS: Final = _leaf({float, int}, (float, int, np.floating, np.integer), _no_boolean)
_ONE_BY_ONE_TIMESTAMPS: Final = _leaf((), (datetime.datetime, np.datetime64), _same_zone)


def _no_zone(value: Any, kind: pa.DataType) -> bool:
    return value.tzinfo is None and _comes_back(value, kind)


def _no_rounding(value: Any, kind: pa.DataType) -> bool:
    """Arrow refuses most decimals that have more digits, but rounds very small ones to zero."""
    if isinstance(value, bool):
        return False
    exponent = value.as_tuple().exponent if isinstance(value, decimal.Decimal) else 0
    return (isinstance(exponent, int) and -exponent <= kind.scale) or _comes_back(value, kind)


def _only_a_date(value: Any, kind: pa.DataType) -> bool:
    return not isinstance(value, datetime.datetime)


def _lists(values: Sequence[Any], kind: pa.DataType, types: set[type]) -> None:
    if not types <= _SEQUENCES:
        position = next(p for p, value in enumerate(values) if value is not None and type(value) not in _SEQUENCES)
        raise DoesNotFit(position, values[position], kind)
    _inside(values, kind, kind.value_type, lambda value: value)


def _maps(values: Sequence[Any], kind: pa.DataType, types: set[type]) -> None:
    """As lists of pairs, or as dicts."""
    _inside(values, kind, kind.key_type, lambda value: [key for key, _ in _pairs(value)])
    _inside(values, kind, kind.item_type, lambda value: [item for _, item in _pairs(value)])


def _pairs(value: Any) -> Iterable[Any]:
    return value.items() if isinstance(value, dict) else value


def _structs(values: Sequence[Any], kind: pa.DataType, types: set[type]) -> None:
    names = {field.name for field in kind}
    for position, value in enumerate(values):
        if value is not None and not (isinstance(value, dict) and value.keys() <= names):
            raise DoesNotFit(position, value, kind)
    for field in kind:
        _inside(values, kind, field.type, partial(_entry, field.name))


def _entry(name: str, value: Any) -> Sequence[Any]:
    return (value.get(name),)


def _inside(values: Sequence[Any], kind: pa.DataType, part: pa.DataType, parts: Callable[[Any], Sequence[Any]]) -> None:
    """All the parts of all values are one column again."""
    lists = [() if value is None else parts(value) for value in values]
    try:
        check_exact(list(chain.from_iterable(lists)), part)
    except DoesNotFit as error:
        seen = 0
        for position, inner in enumerate(lists):
            seen += len(inner)
            if error.position < seen:
                raise DoesNotFit(position, values[position], kind, str(error)) from error
        raise


def _encoded(values: Sequence[Any], kind: pa.DataType, types: set[type]) -> None:
    check_exact(values, kind.value_type)


def _stored(values: Sequence[Any], kind: pa.DataType, types: set[type]) -> None:
    check_exact(values, kind.storage_type)


def _unknown(values: Sequence[Any], kind: pa.DataType, types: set[type]) -> None:
    """A type that has no rule here: Arrow's own conversion must bring every value back."""
    for position, value in enumerate(values):
        if value is not None and not _comes_back(value, kind):
            raise DoesNotFit(position, value, kind)


_RULES: Final[list[tuple[Callable[[pa.DataType], bool], Checker]]] = [
    (_t.is_integer, _leaf({int}, (int, np.integer), _no_boolean)),
    (_t.is_float64, _FLOATS),
    (lambda k: _t.is_float32(k) or _t.is_float16(k), _narrow_floats),
    (_t.is_boolean, _leaf({bool}, (bool, np.bool_), _any)),
    (lambda k: _t.is_string(k) or _t.is_large_string(k) or _t.is_string_view(k), _leaf({str}, (str,), _any)),
    (
        lambda k: _t.is_binary(k) or _t.is_large_binary(k) or _t.is_fixed_size_binary(k) or _t.is_binary_view(k),
        _leaf({bytes}, (bytes, bytearray, memoryview), _any),
    ),
    (_t.is_date, _leaf({datetime.date}, (datetime.date,), _only_a_date)),
    (_t.is_timestamp, _timestamps),
    (_t.is_time, _leaf((), (datetime.time,), _no_zone)),
    (_t.is_duration, _leaf((), (datetime.timedelta, np.timedelta64), _comes_back)),
    (_t.is_decimal, _leaf({int}, (decimal.Decimal, int), _no_rounding)),
    (_t.is_map, _maps),
    (lambda k: _t.is_list(k) or _t.is_large_list(k) or _t.is_fixed_size_list(k) or _t.is_list_view(k), _lists),
    (_t.is_struct, _structs),
    (_t.is_dictionary, _encoded),
    (lambda k: isinstance(k, pa.BaseExtensionType), _stored),
]
_CHECKERS: dict[pa.DataType, Checker] = {}


def _checker(kind: pa.DataType) -> Checker:
    found = _CHECKERS.get(kind)
    if found is None:
        found = _CHECKERS[kind] = next((checker for test, checker in _RULES if test(kind)), _unknown)
    return found
