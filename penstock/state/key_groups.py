"""Keys → key groups → subtasks, by a stable hash of a canonical encoding (Python's own `hash` differs per process).

Keys that are equal in Python (1, 1.0, True) encode alike, because the state tables compare keys with `==`.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import struct
import uuid
import zlib
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.types import Row
from penstock.errors import PenstockError

DEFAULT_MAX_PARALLELISM: Final = 128

_pack_int = struct.Struct("<q").pack
_pack_float = struct.Struct("<d").pack


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
        return canonical(int(key)) if key.is_integer() else b"f" + _pack_float(key)
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


# ------------------------------------------------------------------ the same hash over whole columns


def _crc_table() -> npt.NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, np.uint32(0xEDB88320) ^ (table >> 1), table >> 1).astype(np.uint32)
    return table


_CRC_TABLE: Final = _crc_table()


def _mix_array(h: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    h = h ^ (h >> np.uint32(16))
    h = h * np.uint32(0x85EBCA6B)
    h = h ^ (h >> np.uint32(13))
    h = h * np.uint32(0xC2B2AE35)
    return h ^ (h >> np.uint32(16))


def _int_key_groups(values: npt.NDArray[np.int64], max_parallelism: int) -> npt.NDArray[np.int32]:
    """`key_group` of many ints at once: CRC-32 of b"i" + little-endian bytes, by table, a byte at a time."""
    crc = np.full(len(values), zlib.crc32(b"i") ^ 0xFFFFFFFF, dtype=np.uint32)
    octets = values.astype("<i8").view(np.uint8).reshape(-1, 8)
    for position in range(8):
        crc = _CRC_TABLE[(crc ^ octets[:, position]) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    groups = _mix_array(crc ^ np.uint32(0xFFFFFFFF)) % np.uint32(max_parallelism)
    return groups.astype(np.int32)


def key_groups_of_columns(columns: list[pa.Array], max_parallelism: int) -> npt.NDArray[np.int32]:
    """Key groups of every row of a columnar key: exactly what `key_group` gives for the row as a Python value (the
    plain value for one column, a tuple for several)."""
    if len(columns) == 1:
        column = columns[0]
        if pa.types.is_integer(column.type) and column.null_count == 0:
            return _int_key_groups(column.cast(pa.int64()).to_numpy(), max_parallelism)
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode(null_encoding="encode")
        distinct = encoded.dictionary.to_pylist()
        groups = np.fromiter((key_group(key, max_parallelism) for key in distinct), np.int32, len(distinct))
        chosen: npt.NDArray[np.int32] = groups[encoded.indices.to_numpy(zero_copy_only=False)]
        return chosen
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    cache: dict[tuple[Any, ...], int] = {}
    out = np.empty(len(columns[0]), np.int32)
    for index, row in enumerate(rows):
        group = cache.get(row)
        if group is None:
            group = cache[row] = key_group(row, max_parallelism)
        out[index] = group
    return out
