"""Adding and comparing single Python values as whole columns are added and compared."""

from __future__ import annotations

import datetime
import math
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from typing import Any

# Python's own context rounds to 28 digits.
_EXACT = Context(prec=min(MAX_PREC, 1_000_000), Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


def exact_add(a: Any, b: Any) -> Any:
    """The sum, without rounding decimals."""
    if type(a) is Decimal and isinstance(b, (Decimal, int)):
        return _EXACT.add(a, b)
    if type(b) is Decimal and isinstance(a, int):
        return _EXACT.add(Decimal(a), b)
    return a + b


def is_less(a: Any, b: Any) -> bool:
    """Whether a is less than b; of two zeros the negative one is, as in Flink. Of moments the earlier one is: Python compares
    what clocks show where both are of one zone, and in autumn they show an hour twice."""
    if isinstance(a, datetime.datetime) and a.tzinfo is not None:
        return bool(a.astimezone(datetime.UTC) < b.astimezone(datetime.UTC))
    if a < b:
        return True
    return a == b == 0 and isinstance(a, float) and isinstance(b, float) and math.copysign(1, a) < math.copysign(1, b)


def comes_before(a: Any, b: Any) -> bool:
    """Whether a is less than b in the order of Java's `compareTo`: NaN is the largest, and equal to itself."""
    if a != a or b != b:
        return bool(a == a)
    return is_less(a, b)
