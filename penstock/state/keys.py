"""Which keys are one key: Flink's answer, where Python's `==` gives another.

State tables are dicts, and dicts compare with `==`. For two floats that is wrong: NaN equals nothing, so that every record
would be a key of its own, and 0.0 equals -0.0, which Flink keeps apart. So inside of state a key is in its *normal* form:
there is one NaN, which equals itself, and one -0.0, which equals nothing else; alone or inside of tuples and Rows. Users
are shown the plain float again (`user_key`). And two moments are two keys, also where a clock shows the same for both.
"""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from penstock.common.types import Row


class ExactFloat(float):
    """A float that equals only itself. There are two: what is unpickled is one of them again."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __hash__(self) -> int:
        return 7 if math.isnan(self) else 11

    def __reduce__(self) -> str:
        return "NAN" if math.isnan(self) else "NEGATIVE_ZERO"


NAN: Final = ExactFloat("nan")
NEGATIVE_ZERO: Final = ExactFloat("-0.0")

# Of these every value is its own normal form.
PLAIN_KEYS: Final = frozenset(
    {str, int, bool, bytes, type(None), datetime.date, datetime.time, datetime.timedelta, uuid.UUID}
)


def normal_key(key: Any) -> Any:
    """The form of a key that state tables and routers compare."""
    return key if type(key) in PLAIN_KEYS else _rebuilt(key, _normal_float)


def user_key(key: Any) -> Any:
    """A key of a state table as users know it."""
    return key if type(key) in PLAIN_KEYS else _rebuilt(key, _plain_float)


def restored_key(key: Any) -> Any:
    """A key of a snapshot, which may be of a release that kept plain floats: there 0.0 and -0.0 were one key, in the key
    group of 0.0."""
    return key if type(key) in PLAIN_KEYS else _rebuilt(key, _restored_float)


def _normal_float(key: float) -> float:
    if key != key:
        return NAN
    return NEGATIVE_ZERO if key == 0.0 and math.copysign(1.0, key) < 0 else key


def _plain_float(key: float) -> float:
    return float(key) if type(key) is ExactFloat else key


def _restored_float(key: float) -> float:
    if key != key:
        return NAN
    return 0.0 if key == 0.0 else key  # NEGATIVE_ZERO equals nothing else


def _rebuilt(key: Any, of_float: Callable[[float], float]) -> Any:
    kind = type(key)
    if kind is float or kind is ExactFloat:
        return of_float(key)
    if isinstance(key, tuple):
        if PLAIN_KEYS.issuperset(map(type, key)):
            return key
        items = [item if type(item) in PLAIN_KEYS else _rebuilt(item, of_float) for item in key]
        if all(map(_same, items, key)):
            return key
        return kind(*items) if hasattr(key, "_fields") else tuple(items)
    if isinstance(key, Row):
        values = [_rebuilt(value, of_float) for value in key]
        if all(map(_same, values, key)):
            return key
        row = Row(*values)
        row._fields = key._fields
        row.set_row_kind(key.get_row_kind())
        return row
    if isinstance(key, np.floating):
        return of_float(float(key))
    if isinstance(key, decimal.Decimal) and key.is_nan():
        return of_float(float("nan"))
    if isinstance(key, datetime.datetime) and key.tzinfo is not None:
        return _moment(key)
    return key


def _moment(key: datetime.datetime) -> datetime.datetime:
    """Python compares two moments of one zone by what a clock shows, which is the same for two in the hour that comes twice
    in autumn. Only those are in UTC."""
    other = key.replace(fold=1 - key.fold)
    return key if other.utcoffset() == key.utcoffset() else key.astimezone(datetime.UTC)


def _same(one: Any, other: Any) -> bool:
    return one is other
