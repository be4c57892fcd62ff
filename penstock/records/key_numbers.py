"""Keys of many rows as numbers, whatever their types: equal keys have equal numbers, and those of whole numbers have their order.

    key      ann  null  bob  ann           7 9 7 8
    number    0    2     1    0            0 2 0 1

Columns are those of `PartialAggregation.select`, in which all NaN are one; 0.0 and -0.0 are two keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records.dense_groups import Longs

_SPARSE: Final = 8  # numbers for each row, at most, where values are taken as they are
_LARGEST: Final = 2**62


def key_numbers(columns: Sequence[pa.ChunkedArray]) -> tuple[Longs, int]:
    """The number of each row, and one that is larger than all of them."""
    numbers, size = _numbers(columns[0])
    for column in columns[1:]:
        own, own_size = _numbers(column)
        if size * own_size >= _LARGEST:
            numbers, size = dense(numbers)
        numbers, size = numbers * own_size + own, size * own_size
    return numbers, size


def dense(numbers: Longs) -> tuple[Longs, int]:
    """The same order without gaps."""
    distinct, places = np.unique(numbers, return_inverse=True)
    return places.astype(np.int64, copy=False), len(distinct)


def _numbers(column: pa.ChunkedArray) -> tuple[Longs, int]:
    array = _bits(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
    values = _longs(array)
    if values is not None and len(values):
        low, high = int(values.min()), int(values.max())
        if high - low < _SPARSE * len(values):
            return values - low, high - low + 1
    encoded = array.dictionary_encode()
    size = len(encoded.dictionary)
    return encoded.indices.fill_null(size).to_numpy().astype(np.int64), size + 1


def _bits(array: pa.Array) -> pa.Array:
    """Floats as the integers that are stored for them: kernels do not agree on which zeros are equal."""
    if not pa.types.is_floating(array.type):
        return array
    return array.view(pa.int64() if array.type.bit_width == 64 else pa.int32())


def _longs(array: pa.Array) -> Longs | None:
    """Of whole numbers of 64 bits at most, none of them null."""
    if array.null_count or not pa.types.is_integer(array.type) or pa.types.is_uint64(array.type):
        return None
    values: Longs = array.to_numpy().astype(np.int64, copy=False)
    return values


class KeySet:
    """Some keys, to find rows that may have one of them: each column of the key is looked at by itself."""

    def __init__(self, columns: Sequence[pa.ChunkedArray]) -> None:
        self._columns = [_Values(column) for column in columns]

    def mask(self, columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
        """Which rows may have one of the keys; none that has one is left out."""
        found = self._columns[0].mask(columns[0])
        for values, column in zip(self._columns[1:], columns[1:], strict=True):
            found = found & values.mask(column)
        return found


class _Values:
    def __init__(self, column: pa.ChunkedArray) -> None:
        self._type = column.type
        self._values: Any = pc.unique(_bits(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column))
        self._low = 0
        self._table: npt.NDArray[np.bool_] | None = None
        values = _longs(self._values)
        if values is not None and len(values):
            low, high = int(values.min()), int(values.max())
            if high - low < _SPARSE * len(column) + 1024:
                self._low, self._table = low, np.zeros(high - low + 1, np.bool_)
                self._table[values - low] = True

    def mask(self, column: pa.Array) -> npt.NDArray[np.bool_]:
        if column.type != self._type:  # blocks of a stream whose types change: compared when they are brought together
            return np.ones(len(column), np.bool_)
        array = _bits(column)
        values = None if self._table is None else _longs(array)
        if self._table is None or values is None:
            found: npt.NDArray[np.bool_] = pc.is_in(array, value_set=self._values).to_numpy(zero_copy_only=False)
            return found
        inside = (values >= self._low) & (values < self._low + len(self._table))
        return inside & self._table[np.where(inside, values - self._low, 0)]
