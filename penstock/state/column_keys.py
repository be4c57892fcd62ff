"""Key groups of whole columns: for every row exactly what `key_group` gives for the row as a Python value.

The canonical encoding of a key is fed to CRC-32 byte by byte, for all rows at once:

    ("ann", 7)   t │ 0 0 0 4 │ s a n n │ 0 0 0 9 │ i 7 0 0 0 0 0 0 0
    ("bo", None) t │ 0 0 0 3 │ s b o   │ 0 0 0 1 │ n

Integers, booleans, strings and bytes need no Python object. Keys of other types are encoded one by one, each distinct value
(or combination) of a block once.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records.arrow_columns import plain
from penstock.state.keys import key_group, normal_key

_LONGEST: Final = 256  # bytes of a string: one pass over the rows for each

Crc = npt.NDArray[np.uint32]


def key_groups_of_columns(columns: list[pa.Array], max_parallelism: int) -> npt.NDArray[np.int32]:
    """The plain value is the key for one column, a tuple for several."""
    if len(columns) == 1:
        column = columns[0] if pa.types.is_dictionary(columns[0].type) else plain(columns[0])
        if _is_int(column.type) and column.null_count == 0:
            return _groups(_with_column(_START, column, nested=False), max_parallelism)
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode(null_encoding="encode")
        distinct = plain(encoded.dictionary)
        if _hashable(distinct):
            groups = _groups(_with_column(_START, distinct, nested=False), max_parallelism)
        else:
            keys = distinct.to_pylist()
            groups = np.fromiter((key_group(key, max_parallelism) for key in keys), np.int32, len(keys))
        indices = encoded.indices
        if indices.null_count:  # a dictionary that came with the data: its nulls are beside it
            groups = np.append(groups, np.int32(key_group(None, max_parallelism)))
            indices = pc.fill_null(indices.cast(pa.int64()), len(distinct))
        chosen: npt.NDArray[np.int32] = groups[indices.to_numpy(zero_copy_only=False)]
        return chosen
    columns = [plain(column) for column in columns]
    if all(map(_hashable, columns)):
        crc = _constant(_START, b"t")
        for column in columns:
            crc = _with_column(crc, column, nested=True)
        return _groups(crc, max_parallelism)
    return _one_by_one(columns, max_parallelism)


def hashes_of_distinct(column: pa.Array) -> Crc | None:
    """What `zlib.crc32` gives for each row's canonical encoding; None of a type or length that is only encoded one by one."""
    return _with_column(_START, column, nested=False) ^ np.uint32(0xFFFFFFFF) if _hashable(column) else None


def _one_by_one(columns: list[pa.Array], max_parallelism: int) -> npt.NDArray[np.int32]:
    cache: dict[Any, int] = {}
    out = np.empty(len(columns[0]), np.int32)
    for index, values in enumerate(zip(*(column.to_pylist() for column in columns), strict=True)):
        row = normal_key(values)
        group = cache.get(row)
        if group is None:
            group = cache[row] = key_group(row, max_parallelism)
        out[index] = group
    return out


def _is_int(kind: pa.DataType) -> bool:
    return pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and not pa.types.is_uint64(kind))


def _is_text(kind: pa.DataType) -> bool:
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string)) or _is_bytes(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _hashable(column: pa.Array) -> bool:
    if _is_text(column.type):
        longest = pc.max(pc.binary_length(column)).as_py()
        return longest is None or longest <= _LONGEST
    return _is_int(column.type)


# ------------------------------------------------------------------ CRC-32, a byte of every row at a time


def _crc_table() -> Crc:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, np.uint32(0xEDB88320) ^ (table >> 1), table >> 1).astype(np.uint32)
    return table


_CRC_TABLE: Final = _crc_table()


# As long as all rows have had the same bytes, one CRC stands for all.
_START: Final = np.full(1, 0xFFFFFFFF, dtype=np.uint32)


def _update(crc: Crc, octets: Any) -> Crc:
    updated: Crc = _CRC_TABLE[(crc ^ octets) & np.uint32(0xFF)] ^ (crc >> np.uint32(8))
    return updated


def _constant(crc: Crc, data: bytes) -> Crc:
    for octet in data:
        crc = _update(crc, np.uint32(octet))
    return crc


def _pair_tables() -> tuple[Crc, ...]:
    """The CRC of eight bytes is the exclusive or of what each of them gives where all others are zero. So a look-up for every two
    of them is enough: the first table is for the first two."""
    pairs = np.arange(1 << 16, dtype=np.uint32)
    tables = [_update(_update(np.zeros_like(pairs), pairs & np.uint32(0xFF)), pairs >> np.uint32(8))]
    while len(tables) < 4:
        tables.insert(0, _constant(tables[0], b"\0\0"))
    return tuple(tables)


_PAIRS: Final = _pair_tables()


def _longs(crc: Crc, values: npt.NDArray[np.int64]) -> Crc:
    """The CRC after the eight bytes of each row's number. The CRC before them is as if its bytes were in the first four."""
    mixed = (values.astype("<i8", copy=False).view("<u8") ^ crc).view("<u2").reshape(-1, 4)
    first: Crc = _PAIRS[0][mixed[:, 0]] ^ _PAIRS[1][mixed[:, 1]]
    if len(values) and values.min() >= 0 and values.max() < 1 << 32:
        return first  # the others are zero, and so is what they give
    whole: Crc = first ^ _PAIRS[2][mixed[:, 2]] ^ _PAIRS[3][mixed[:, 3]]
    return whole


def _with_column(crc: Crc, column: pa.Array, *, nested: bool) -> Crc:
    """The CRC after each row's value; `nested` puts the length of its encoding in front, as tuples do."""
    if _is_int(column.type):
        prefix = (9).to_bytes(4, "big") if nested else b""
        numbers = column.cast(pa.int64())
        values = (pc.fill_null(numbers, 0) if column.null_count else numbers).to_numpy(zero_copy_only=False)
        valid = _longs(_constant(crc, prefix + b"i"), np.ascontiguousarray(values))
    else:
        valid = _with_text(crc, column, nested=nested)
    if column.null_count == 0:
        return valid
    missing = _constant(crc, ((1).to_bytes(4, "big") if nested else b"") + b"n")
    return np.where(column.is_null().to_numpy(zero_copy_only=False), missing, valid)


def _with_text(crc: Crc, column: pa.Array, *, nested: bool) -> Crc:
    crc = np.broadcast_to(crc, len(column))
    if len(column) == 0:
        return crc
    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    _, offset_buffer, data_buffer = column.buffers()
    offsets = np.frombuffer(offset_buffer, dtype=np.int64 if large else np.int32)
    offsets = offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer or b"", dtype=np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    if nested:
        for octet in (lengths + 1).astype(">u4").view(np.uint8).reshape(-1, 4).T:
            crc = _update(crc, octet)
    crc = _constant(crc, b"b" if _is_bytes(column.type) else b"s")
    # Longest first: the rows that have a byte at a position are then the first so many.
    order = np.argsort(-lengths, kind="stable")
    sorted_crc, sorted_starts, sorted_lengths = crc[order], starts[order], -lengths[order]
    for position in range(-int(sorted_lengths[0])):
        count = int(np.searchsorted(sorted_lengths, -position, side="left"))
        sorted_crc[:count] = _update(sorted_crc[:count], data[sorted_starts[:count] + position])
    crc = np.empty_like(crc)
    crc[order] = sorted_crc
    return crc


def _groups(crc: Crc, max_parallelism: int) -> npt.NDArray[np.int32]:
    """Murmur3's finaliser, as in `key_group`."""
    h = crc ^ np.uint32(0xFFFFFFFF)
    h = h ^ (h >> np.uint32(16))
    h = h * np.uint32(0x85EBCA6B)
    h = h ^ (h >> np.uint32(13))
    h = h * np.uint32(0xC2B2AE35)
    h = h ^ (h >> np.uint32(16))
    return (h % np.uint32(max_parallelism)).astype(np.int32)
