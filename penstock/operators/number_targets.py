"""The subtask of every whole number in a range: keys that lie close together are looked up and not hashed.

    keys 7 9 7 1030      targets │ 1 0 0 1 0 1 … │ from 0 to 2047

A table is made when as many records have come as it has places, so it costs each of them no more than hashing it would have; it
grows by doubling, and numbers that are further apart have none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_LEAST: Final = 1 << 10
_MOST: Final = 1 << 20  # places; of one byte, if there are no more than 256 subtasks

Longs = npt.NDArray[np.int64]


class NumberTargets:
    """Of one router, as long as it lives."""

    def __init__(self, find: Callable[[pa.Array], npt.NDArray[Any]], targets: int) -> None:
        """`find` gives the subtasks, of which there are so many, of a column of numbers."""
        self._find, self._type = find, np.min_scalar_type(targets - 1)
        self._low = 0
        self._table: npt.NDArray[Any] = np.empty(0, self._type)
        self._seen = 0  # records

    def of(self, column: pa.Array) -> npt.NDArray[Any]:
        """The subtask of each key."""
        kind = column.type
        if not len(column) or column.null_count or not pa.types.is_integer(kind) or pa.types.is_uint64(kind):
            return self._find(column)
        keys: Longs = column.to_numpy().astype(np.int64, copy=False)
        self._seen += len(keys)
        low, high = int(keys.min()), int(keys.max())
        if not self._covers(low, high) and not self._grow(low, high):
            return self._find(column)
        found: npt.NDArray[Any] = self._table[keys - self._low if self._low else keys]
        return found

    def _covers(self, low: int, high: int) -> bool:
        return self._low <= low and high < self._low + len(self._table)

    def _grow(self, low: int, high: int) -> bool:
        if len(self._table):
            low, high = min(low, self._low), max(high, self._low + len(self._table) - 1)
        step = max(_LEAST // 2, 1 << (high - low).bit_length())
        start = low // step * step
        if 2 * step > min(_MOST, self._seen):
            return False
        numbers = start + np.arange(2 * step)  # beyond the largest long they wrap, and nobody asks for those
        self._low, self._table = start, self._find(pa.array(numbers)).astype(self._type)
        return True
