"""Python's operators over columns: what each gives for all records, where that is surely what Python gives; else `CalledInstead`.

Whole numbers carry bounds, so that it is known before a step whether 64 bits hold all results.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.operators.calculation_values import EXACT, Bools, CalledInstead, Floats, Ints, Others, Value

_LARGEST: Final = 2**63 - 1

_Bounds: TypeAlias = tuple[int, int]
_Whole: TypeAlias = Ints | int


def truth(value: Value) -> npt.NDArray[np.bool_]:
    """Which values count as true."""
    if isinstance(value, Bools):
        return value.array
    if isinstance(value, Ints | Floats):
        true: npt.NDArray[np.bool_] = value.array != 0
        return true
    raise CalledInstead


def negative(value: Value) -> Value:
    """-value"""
    if isinstance(value, Floats):
        return Floats(-value.array)
    if isinstance(value, Ints):
        low, high = value.between
        return _ints(np.negative, (-high, -low), value)
    raise CalledInstead


# ------------------------------------------------------------------------------------------------------------- whole numbers


def _wholes(left: Value, right: Value) -> tuple[_Whole, _Whole] | None:
    """Both, if they are whole numbers of 64 bits, and at least one of them is a column."""
    if isinstance(left, Ints):
        return (left, right) if isinstance(right, Ints) or _fits(right) else None  # type: ignore[return-value]
    return (left, right) if isinstance(right, Ints) and _fits(left) else None  # type: ignore[return-value]


def _fits(value: Value) -> bool:
    return type(value) is int and -_LARGEST <= value <= _LARGEST


def _need_wholes(left: Value, right: Value) -> tuple[_Whole, _Whole]:
    found = _wholes(left, right)
    if found is None:
        raise CalledInstead
    return found


def _operand(value: _Whole) -> Any:
    return value.array if isinstance(value, Ints) else np.int64(value)


def _between(value: _Whole) -> _Bounds:
    return value.between if isinstance(value, Ints) else (value, value)


def _ints(calculate: Callable[..., Any], bounds: _Bounds, *of: _Whole) -> Ints:
    """The result, when it surely fits."""
    if bounds[0] < -_LARGEST or bounds[1] > _LARGEST:
        raise CalledInstead
    return Ints(calculate(*map(_operand, of)), bounds)


def _products(one: _Bounds, other: _Bounds) -> _Bounds:
    corners = [a * b for a in one for b in other]
    return min(corners), max(corners)


def _divisor(value: _Whole) -> _Bounds:
    """Between which bounds a divisor is; none is 0."""
    low, high = _between(value)
    if low <= 0 <= high and not (isinstance(value, Ints) and value.array.all()):
        raise CalledInstead
    return low, high


def _whole_quotient(left: Value, right: Value) -> Value:
    one, other = _need_wholes(left, right)
    _divisor(other)
    largest = max(map(abs, _between(one)))
    return _ints(np.floor_divide, (-largest - 1, largest), one, other)


def _remainder(left: Value, right: Value) -> Value:
    one, other = _need_wholes(left, right)
    low, high = _divisor(other)
    return _ints(np.remainder, (min(0, low + 1), max(0, high - 1)), one, other)


def _bits(calculate: Callable[..., Any]) -> Callable[[Value, Value], Value]:
    def both(left: Value, right: Value) -> Value:
        return Ints(calculate(*map(_operand, _need_wholes(left, right))))

    return both


def _shifted_right(left: Value, right: Value) -> Value:
    if not isinstance(left, Ints) or type(right) is not int or not 0 <= right < 64:
        raise CalledInstead
    low, high = left.between
    return _ints(np.right_shift, (low >> right, high >> right), left, right)


# -------------------------------------------------------------------------------------------------------------------- floats


def _floats(left: Value, right: Value, *, exact: bool) -> tuple[Any, Any]:
    """Both as floats, at least one of them a column. Whole numbers become floats as Python makes them; `exact`: none of them may
    change."""
    if not isinstance(left, Ints | Floats) and not isinstance(right, Ints | Floats):
        raise CalledInstead
    return _float(left, exact), _float(right, exact)


def _float(value: Value, exact: bool) -> Any:
    if isinstance(value, Floats):
        return value.array
    if isinstance(value, Ints) and (value.exact or not exact):
        return value.array.astype(np.float64)
    if type(value) is float:
        return value
    if type(value) is int and -EXACT <= value <= EXACT:
        return float(value)
    raise CalledInstead


def _quotient(left: Value, right: Value) -> Value:
    one, other = _floats(left, right, exact=_wholes(left, right) is not None)
    if not np.all(other):
        raise CalledInstead
    return Floats(one / other)


def _sum_like(calculate: Callable[..., Any], bounds: Callable[[_Bounds, _Bounds], _Bounds]) -> Callable[..., Value]:
    def both(left: Value, right: Value) -> Value:
        wholes = _wholes(left, right)
        if wholes is not None:
            return _ints(calculate, bounds(*map(_between, wholes)), *wholes)
        return Floats(calculate(*_floats(left, right, exact=False)))

    return both


# --------------------------------------------------------------------------------------------------------------- comparisons


def _compared(compare: Callable[..., Any]) -> Callable[[Value, Value], Value]:
    def both(left: Value, right: Value) -> Value:
        wholes = _wholes(left, right)
        if wholes is not None:
            return Bools(compare(*map(_operand, wholes)))
        if isinstance(left, Others) or isinstance(right, Others):
            return _texts_compared(compare, left, right)
        return Bools(compare(*_floats(left, right, exact=True)))

    return both


def _texts_compared(compare: Callable[..., Any], left: Value, right: Value) -> Value:
    """Equal or not; the order of texts is Python's affair."""
    texts, text = (right, left) if type(left) is str else (left, right)
    if not isinstance(texts, Others) or type(text) is not str or compare not in (operator.eq, operator.ne):
        raise CalledInstead
    if texts.column.type != pa.string() or texts.column.null_count or texts.kind.need_conversion():
        raise CalledInstead
    equal = pc.equal(texts.column, text).to_numpy(zero_copy_only=False)
    return Bools(equal if compare is operator.eq else ~equal)


def _of_truths(combine: Callable[..., Any]) -> Callable[[Value, Value], Value]:
    def both(left: Value, right: Value) -> Value:
        if isinstance(left, Bools) and isinstance(right, Bools):
            return Bools(combine(left.array, right.array))
        raise CalledInstead

    return both


SIGNS: Final[dict[str, Callable[[Value, Value], Value]]] = {
    "+": _sum_like(operator.add, lambda one, other: (one[0] + other[0], one[1] + other[1])),
    "-": _sum_like(operator.sub, lambda one, other: (one[0] - other[1], one[1] - other[0])),
    "*": _sum_like(operator.mul, _products),
    "//": _whole_quotient,
    "%": _remainder,
    "/": _quotient,
    "&": _bits(np.bitwise_and),
    "|": _bits(np.bitwise_or),
    "^": _bits(np.bitwise_xor),
    ">>": _shifted_right,
    "==": _compared(operator.eq),
    "!=": _compared(operator.ne),
    "<": _compared(operator.lt),
    "<=": _compared(operator.le),
    ">": _compared(operator.gt),
    ">=": _compared(operator.ge),
    "and": _of_truths(np.logical_and),
    "or": _of_truths(np.logical_or),
}
