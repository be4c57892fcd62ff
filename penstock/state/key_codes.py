"""Keys of whole columns as whole numbers: equal keys have equal numbers, in every block and whatever their layout.

    int64, times, floats    the value itself (of a float its bits, after all NaN have become one)
    text, bytes             a CRC of the value, made once for each that is distinct in the block
    several columns         the numbers of all of them, mixed
    null                    one number that is nobody's alone

Where a number is not the value itself, other keys may have it too: who finds two rows of one number must compare the keys.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records.arrow_columns import one_nan, plain, plain_type
from penstock.state.column_keys import hashes_of_distinct
from penstock.state.keys import canonical, normal_key

Codes = npt.NDArray[np.int64]

_t = pa.types
_NULL: Final = np.int64(-(2**63))
_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
_BITS: Final = np.uint64(24)  # what is left of 64 can be sorted together with the number of a row


class KeyCodes:
    """The keys of some rows: `codes`, and `exact` if rows with equal codes have equal keys for sure."""

    __slots__ = ("_columns", "codes", "exact")

    def __init__(self, columns: Sequence[pa.Array]) -> None:
        """One array for each key column, in an order that all blocks share."""
        self._columns = [_comparable(column) for column in columns]
        if len(columns) == 1:
            (column,) = self._columns
            self.codes = _codes(column)
            self.exact = _is_number(column.type) and column.null_count == 0
            return
        mixed = np.zeros(len(self._columns[0]), np.uint64)
        for column in self._columns:
            mixed = (mixed ^ _codes(column).view(np.uint64)) * _GOLDEN
            mixed ^= mixed >> np.uint64(29)
        self.codes = (mixed >> _BITS).view(np.int64)
        self.exact = False

    def same(self, rows: Any, other: KeyCodes, other_rows: Any) -> npt.NDArray[np.bool_]:
        """Of pairs of rows, one here and one there: whether their keys are equal. Null equals null."""
        equal = np.ones(len(rows), np.bool_)
        for mine, theirs in zip(self._columns, other._columns, strict=True):
            left, right = mine.take(pa.array(rows)), theirs.take(pa.array(other_rows))
            alike = pc.and_(left.is_null(), right.is_null())
            if not _t.is_null(left.type) and not _t.is_null(right.type):
                alike = pc.or_(alike, pc.fill_null(pc.equal(left, right), False))
            equal &= alike.to_numpy(zero_copy_only=False)
        return equal


def kind_of_key(kind: pa.DataType) -> str:
    """Columns of one kind can be compared as keys, whatever their layout; `any` with all."""
    kind = plain_type(kind)
    if _t.is_null(kind):
        return "any"
    if (_t.is_integer(kind) and not _t.is_uint64(kind)) or _t.is_boolean(kind):
        return "whole numbers"
    if _t.is_floating(kind):
        return "floats"
    if _t.is_string(kind) or _t.is_large_string(kind):
        return "text"
    return "bytes" if _t.is_binary(kind) or _t.is_large_binary(kind) else str(kind)


def _comparable(column: pa.Array) -> pa.Array:
    """The same keys as numbers, where they are some."""
    column = plain(column)
    kind = column.type
    if _t.is_boolean(kind) or (_t.is_integer(kind) and not _t.is_uint64(kind)):
        return column.cast(pa.int64())
    if _t.is_floating(kind):
        return one_nan(column.cast(pa.float64())).view(pa.int64())
    if _t.is_date32(kind) or _t.is_time32(kind):
        return column.cast(pa.int32()).cast(pa.int64())
    if _t.is_uint64(kind) or _t.is_temporal(kind):
        return column.view(pa.int64()) if not _t.is_interval(kind) else column
    return column


def _is_number(kind: pa.DataType) -> bool:
    return bool(_t.is_int64(kind))


def _codes(column: pa.Array) -> Codes:
    if _t.is_null(column.type):
        return np.full(len(column), _NULL)
    if _is_number(column.type):
        numbers = pc.fill_null(column, int(_NULL)) if column.null_count else column
        codes: Codes = numbers.to_numpy(zero_copy_only=False)
        return codes
    encoded = column.dictionary_encode()
    distinct = hashes_of_distinct(encoded.dictionary)
    if distinct is None:
        values = encoded.dictionary.to_pylist()
        distinct = np.fromiter((zlib.crc32(canonical(normal_key(value))) for value in values), np.uint32, len(values))
    known = np.append(distinct.astype(np.int64), _NULL)
    places = pc.fill_null(encoded.indices.cast(pa.int64()), len(distinct)).to_numpy(zero_copy_only=False)
    found: Codes = known[places]
    return found
