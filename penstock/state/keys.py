"""Which keys are one key: Flink's answer, where Python's `==` gives another.

State tables are dicts, and dicts compare with `==`. For two floats that is wrong: NaN equals nothing, so that every record
would be a key of its own, and 0.0 equals -0.0, which Flink keeps apart. So inside of state a key is in its *normal* form:
there is one NaN, which equals itself, and one -0.0, which equals nothing else; alone or inside of tuples and Rows. Users
are shown the plain float again (`user_key`). And two moments are two keys, also where a clock shows the same for both.
Lists, dicts, sets and bytearrays, which Python cannot hash, are `FrozenKey`s inside of state.

Keys → key groups → subtasks, by a stable hash of a canonical encoding (Python's own `hash` differs per process).

Keys that are equal in Python (1, 1.0, True) encode alike, because the state tables compare keys with `==`; for NaN and
-0.0 see above.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import math
import struct
import uuid
import zlib
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from penstock.common.types import Row
from penstock.errors import PenstockError


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


class FrozenKey:
    """A list, dict, set or bytearray as a key. Two are equal if they are of one kind and hold equal parts; of dicts and sets
    the order does not count."""

    __slots__ = ("_hash", "kind", "parts")

    def __init__(self, kind: str, parts: tuple[Any, ...]) -> None:
        """`parts` are normal keys: the elements of a list, sorted pairs of a dict, sorted elements of a set, the bytes."""
        self.kind, self.parts = kind, parts
        self._hash = hash((kind, parts))

    def __eq__(self, other: object) -> bool:
        return type(other) is FrozenKey and self.kind == other.kind and self.parts == other.parts

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type[FrozenKey], tuple[str, tuple[Any, ...]]]:
        return FrozenKey, (self.kind, self.parts)

    def __repr__(self) -> str:
        return repr(self.thawed(_plain_float))

    def thawed(self, of_float: Callable[[float], float]) -> Any:
        """A new object that equals the one that was frozen."""
        parts = [_rebuilt(part, of_float, thaw=True) for part in self.parts]
        match self.kind:
            case "list":
                return parts
            case "dict":
                return dict(parts)
            case "set":
                return set(parts)
            case _:
                return bytearray(parts[0])


def _frozen(key: Any, of_float: Callable[[float], float]) -> FrozenKey | None:
    """None: it is none of those."""
    if isinstance(key, list):
        return FrozenKey("list", tuple([_rebuilt(item, of_float) for item in key]))
    if isinstance(key, dict):
        pairs = [(_rebuilt(name, of_float), _rebuilt(value, of_float)) for name, value in key.items()]
        return FrozenKey("dict", tuple(sorted(pairs, key=canonical)))
    if isinstance(key, set):
        return FrozenKey("set", tuple(sorted((_rebuilt(item, of_float) for item in key), key=canonical)))
    if isinstance(key, bytearray):
        return FrozenKey("bytearray", (bytes(key),))
    return None


# Of these every value is its own normal form.
PLAIN_KEYS: Final = frozenset(
    {str, int, bool, bytes, type(None), datetime.date, datetime.time, datetime.timedelta, uuid.UUID}
)


def normal_key(key: Any) -> Any:
    """The form of a key that state tables and routers compare."""
    kind = type(key)
    if kind in PLAIN_KEYS or (kind is tuple and PLAIN_KEYS.issuperset(map(type, key))):
        return key
    return _rebuilt(key, _normal_float)


def user_key(key: Any) -> Any:
    """A key of a state table as users know it."""
    return key if type(key) in PLAIN_KEYS else _rebuilt(key, _plain_float, thaw=True)


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


def _rebuilt(key: Any, of_float: Callable[[float], float], *, thaw: bool = False) -> Any:
    kind = type(key)
    if kind is float or kind is ExactFloat:
        return of_float(key)
    if kind is FrozenKey:
        return key.thawed(of_float) if thaw else key
    if isinstance(key, tuple):
        if PLAIN_KEYS.issuperset(map(type, key)):
            return key
        items = [item if type(item) in PLAIN_KEYS else _rebuilt(item, of_float, thaw=thaw) for item in key]
        if all(map(_same, items, key)):
            return key
        return kind(*items) if hasattr(key, "_fields") else tuple(items)
    if isinstance(key, Row):
        values = [_rebuilt(value, of_float, thaw=thaw) for value in key]
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
    return key if thaw else _frozen(key, of_float) or key


def _moment(key: datetime.datetime) -> datetime.datetime:
    """Python compares two moments of one zone by what a clock shows, which is the same for two in the hour that comes twice
    in autumn. Only those are in UTC."""
    other = key.replace(fold=1 - key.fold)
    return key if other.utcoffset() == key.utcoffset() else key.astimezone(datetime.UTC)


def _same(one: Any, other: Any) -> bool:
    return one is other


DEFAULT_MAX_PARALLELISM: Final = 128

_pack_int = struct.Struct("<q").pack
_pack_float = struct.Struct("<d").pack
_NAN: Final = b"f" + _pack_float(float("nan"))  # whatever its sign and payload are
_NEGATIVE_ZERO: Final = b"f" + _pack_float(-0.0)


class UnsupportedKeyError(PenstockError):
    """A key's type has no canonical encoding."""


def canonical(key: Any) -> bytes:
    """A byte string that is the same in every process and equal for equal keys; also the order in which timers of
    one timestamp fire and window results of one window are emitted."""
    if isinstance(key, str):
        return b"s" + key.encode("utf-8", "surrogatepass")
    if isinstance(key, int):  # bool and IntEnum too: they equal their int
        return b"i" + _pack_int(key) if -(2**63) <= key < 2**63 else b"I" + str(int(key)).encode()
    if key is None:
        return b"n"
    if isinstance(key, float):
        if key.is_integer():
            return canonical(int(key)) if key or math.copysign(1.0, key) > 0 else _NEGATIVE_ZERO
        return b"f" + _pack_float(key) if key == key else _NAN
    if isinstance(key, bytes):
        return b"b" + key
    if isinstance(key, (tuple, list, Row)):
        return b"t" + _sequence(key)
    return _canonical_object(key)


def _canonical_object(key: Any) -> bytes:
    kind = type(key)
    if isinstance(key, FrozenKey):
        return b"k" + key.kind.encode() + b":" + _sequence(key.parts)
    if isinstance(key, frozenset):
        return b"kfrozenset:" + _sequence(sorted(key, key=canonical))
    if isinstance(key, enum.Enum):
        return b"e" + f"{kind.__qualname__}.{key.name}".encode()
    if isinstance(key, np.generic):
        return canonical(key.item())
    if isinstance(key, datetime.datetime) and key.tzinfo is not None:  # one instant is equal in every zone
        return b"d" + key.astimezone(datetime.UTC).isoformat().encode()
    if isinstance(key, (datetime.date, datetime.time)):
        return b"d" + key.isoformat().encode()
    if isinstance(key, decimal.Decimal):
        if key.is_nan():
            return _NAN
        if key == key.to_integral_value():
            return canonical(int(key))
        return canonical(float(key)) if key == float(key) else b"x" + str(key.normalize()).encode()
    if isinstance(key, (uuid.UUID, datetime.timedelta)):
        return b"x" + str(key).encode()
    canonical_key = getattr(key, "__canonical_key__", None)
    if canonical_key is not None:
        return b"o" + canonical(canonical_key())
    raise UnsupportedKeyError(
        f"a key of type {kind.__module__}.{kind.__qualname__} cannot be used: {key!r}. Keys are None, bool, int, float, "
        "str, bytes, date and time types, Decimal, UUID, enums, and tuples, Rows, lists, dicts or sets of these; return one of "
        "them from the key selector, or give the class a __canonical_key__() method that does"
    )


def _sequence(items: Iterable[Any]) -> bytes:
    parts = []
    for item in items:
        encoded = canonical(item)
        parts.append(len(encoded).to_bytes(4, "big") + encoded)
    return b"".join(parts)


def _mix(h: int) -> int:
    """Murmur3's finaliser: CRC alone leaves the low bits of similar keys alike."""
    h ^= h >> 16
    h = (h * 0x85EBCA6B) & 0xFFFFFFFF
    h ^= h >> 13
    h = (h * 0xC2B2AE35) & 0xFFFFFFFF
    return h ^ (h >> 16)


def key_group(key: Any, max_parallelism: int) -> int:
    """The key group of a key: the same in every process, for equal keys."""
    return _mix(zlib.crc32(canonical(key))) % max_parallelism


def subtask_of(group: int, parallelism: int, max_parallelism: int) -> int:
    """The subtask that owns a key group: contiguous ranges, as in Flink, so files can be split by range."""
    return group * parallelism // max_parallelism


def key_group_range(subtask: int, parallelism: int, max_parallelism: int) -> range:
    """The key groups of a subtask. Those of all subtasks cover every group once."""
    start = (subtask * max_parallelism + parallelism - 1) // parallelism
    end = ((subtask + 1) * max_parallelism + parallelism - 1) // parallelism
    return range(start, end)
