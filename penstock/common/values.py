"""What a function emits or stores is a value: whoever else holds the object may change it, and the value stays.

`own(value)` is the value as an object that nobody else holds: the same one if it cannot be changed, else a copy. It costs
a set lookup for a number or a string, a look at the fields for a tuple, and for the usual records (dicts, lists, Rows,
dataclasses of plain fields) a shallow copy. What is nested deeper is copied through pickle, as if it had been sent.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import pickle
import re
import types
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import numpy as np

from penstock.common.types import Row, RowKind

# Nothing inside of these can be changed. Callers ask `type(value) in ATOMS` themselves where every nanosecond counts.
ATOMS: Final[frozenset[type]] = frozenset(
    {
        int, float, bool, str, bytes, type(None), complex, range, type(...),
        datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone,
        decimal.Decimal, fractions.Fraction, uuid.UUID, re.Pattern, RowKind,
        type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType,
    }
)  # fmt: skip

Copy: TypeAlias = Callable[[Any], Any]


def own(value: Any) -> Any:
    """The value as an object of the caller's own, or itself if it cannot be changed."""
    kind = type(value)
    if kind is tuple:  # the most common record: no further call if it is flat
        for item in value:
            if type(item) not in ATOMS:
                return _tuple(value)
        return value
    if kind in ATOMS:
        return value
    if kind is dict:
        for item in value.values():
            if type(item) not in ATOMS:
                return _dict(value)
        return value.copy()
    copier = _copiers.get(kind)
    if copier is None:
        copier = _copiers[kind] = _copier_of(kind)
    return copier(value)


def own_all(values: list[Any]) -> list[Any]:
    """Each of them. The list itself if none can be changed: a block of numbers costs next to nothing."""
    if ATOMS.issuperset(map(type, values)):  # for many: over a few fields a loop is faster
        return values
    return [value if type(value) in ATOMS else own(value) for value in values]


def take(out: list[Any], results: Iterable[Any]) -> None:
    """Append what a function gave, each as it is at the moment it is given: a generator may change it afterwards."""
    append = out.append
    for result in results:
        append(result if type(result) in ATOMS else own(result))


# ------------------------------------------------------------------ by type


def _itself(value: Any) -> Any:
    return value


def _tuple(value: Any) -> Any:
    place = None  # of the only item that can be changed
    for at, item in enumerate(value):
        kind = type(item)
        if kind not in ATOMS and (kind is list or kind is dict or not is_immutable(item)):
            if place is not None:  # two may be one object, which a copy through pickle knows
                return _deep(value)
            place = at
    return value if place is None else (*value[:place], own(value[place]), *value[place + 1 :])


def _named_tuple(value: Any) -> Any:
    if _are_values(value):
        return value
    # Not by a call: a class may have a constructor of its own, which takes other arguments or makes something of them.
    return _deep(value) if getattr(value, "__dict__", None) else tuple.__new__(type(value), _tuple(tuple(value)))


def _list(value: Any) -> Any:
    return value.copy() if ATOMS.issuperset(map(type, value)) or _are_values(value) else _deep(value)


def _dict(value: Any) -> Any:
    return value.copy() if _are_values(value.values()) else _deep(value)


def _row(value: Any) -> Any:
    held = value._values
    if not _are_values(held):
        return _deep(value)
    row = Row.__new__(Row)
    row._fields = value._fields  # rows replace this list and never change it
    row._values = held.copy()
    row._row_kind = value._row_kind
    return row


def _plain_object(value: Any) -> Any:
    state = value.__dict__
    if not _are_values(state.values()):
        return _deep(value)
    made = object.__new__(type(value))
    made.__dict__.update(state)
    return made


def _frozen(value: Any) -> Any:
    held = (getattr(value, field.name, None) for field in dataclasses.fields(value))  # a field may be without a value
    return value if _are_values(held) else _deep(value)


def _array(value: Any) -> Any:
    return _deep(value) if value.dtype.hasobject else value.copy()


def _are_values(children: Iterable[Any]) -> bool:
    for child in children:  # noqa: SIM110 - a generator costs more than the loop
        if type(child) not in ATOMS and not is_immutable(child):
            return False
    return True


def is_immutable(value: Any) -> bool:
    """Whether nothing inside of it can be changed."""
    kind = type(value)
    if kind in ATOMS:
        return True
    if isinstance(value, tuple):
        return _are_values(value)
    copier = _copiers.get(kind)
    if copier is None:
        copier = _copiers[kind] = _copier_of(kind)
    return copier is _itself or (copier is _frozen and _frozen(value) is value)


_copiers: dict[type, Copy] = {
    tuple: _tuple,
    list: _list,
    dict: _dict,
    set: set.copy,
    bytearray: bytearray.copy,
    Row: _row,
    np.ndarray: _array,
}

_NO_STATE_OF_ITS_OWN: Final = (
    "__reduce__",
    "__reduce_ex__",
    "__getstate__",
    "__copy__",
    "__deepcopy__",
    "__setstate__",
)


def _copier_of(kind: type) -> Copy:
    """Asked once for each type."""
    if issubclass(kind, (enum.Enum, frozenset, str, bytes, int, float, type)) and not _has_attributes(kind):
        return _itself
    if kind.__module__.partition(".")[0] == "pyarrow":
        return _itself  # arrays, scalars, batches, schemas: immutable
    if issubclass(kind, np.generic) and kind is not np.void:
        return _itself
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return _named_tuple
    if dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        return _frozen
    return _plain_object if _is_plain(kind) else _deep


def _has_attributes(kind: type) -> bool:
    """Enum members are shared by design; of other types a subclass may have attributes that change."""
    return not issubclass(kind, (enum.Enum, type)) and "__dict__" in dir(kind)


def _is_plain(kind: type) -> bool:
    """A class of Python whose objects are what is in their `__dict__`, and which does not say otherwise."""
    return (
        kind.__base__ is not None
        and "__dict__" in dir(kind)  # else a class of C, whose objects hold what they hold elsewhere
        and all("__slots__" not in vars(base) and not _is_builtin(base) for base in kind.__mro__[:-1])
        and all(getattr(kind, name, None) is getattr(object, name, None) for name in _NO_STATE_OF_ITS_OWN)
        and "__new__" not in {name for base in kind.__mro__[:-1] for name in vars(base)}
    )


def _is_builtin(kind: type) -> bool:
    return not kind.__flags__ & (1 << 9)  # Py_TPFLAGS_HEAPTYPE


def _deep(value: Any) -> Any:
    """Through pickle where that is possible: several times faster than `deepcopy`, and what a record that travels gets."""
    kind = type(value)
    if kind not in _not_pickled:
        try:
            return pickle.loads(pickle.dumps(value, protocol=5))
        except Exception:
            # A class that only the user's script knows, or something that cannot be sent at all.
            if kind not in _CONTAINERS:
                _not_pickled.add(kind)
    try:
        return copy.deepcopy(value)
    except Exception:
        return value  # a lock, a connection: no value, and nothing that could be stored or sent


_not_pickled: set[type] = set()
_CONTAINERS: Final = frozenset({tuple, list, dict, Row, collections.deque, collections.OrderedDict})
