"""Keys → key groups → subtasks, by a stable hash of a canonical encoding (Python's own `hash` differs per process).

Keys that are equal in Python (1, 1.0, True) encode alike, because the state tables compare keys with `==`; for NaN and
-0.0 see `penstock.state.keys`.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import math
import struct
import uuid
import zlib
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from penstock.common.types import Row
from penstock.errors import PenstockError

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
        "str, bytes, date and time types, Decimal, UUID, enums, and tuples or Rows of these; return one of them from the "
        "key selector, or give the class a __canonical_key__() method that does"
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
    return _mix(zlib.crc32(canonical(key))) % max_parallelism


def subtask_of(group: int, parallelism: int, max_parallelism: int) -> int:
    """The subtask that owns a key group: contiguous ranges, as in Flink, so files can be split by range."""
    return group * parallelism // max_parallelism


def key_group_range(subtask: int, parallelism: int, max_parallelism: int) -> range:
    start = (subtask * max_parallelism + parallelism - 1) // parallelism
    end = ((subtask + 1) * max_parallelism + parallelism - 1) // parallelism
    return range(start, end)
