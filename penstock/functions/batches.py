"""A function over whole blocks of a columnar stream."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.functions.base import Function

# A batch or a table, or one with the event times of its rows (milliseconds, or timestamps), or None for nothing.
BatchResult: TypeAlias = pa.RecordBatch | pa.Table | tuple[pa.RecordBatch | pa.Table, Any] | None


class MapBatchesFunction(Function):
    """Arrow in, Arrow out (not in PyFlink), for `map_batches`.

    How a stream is cut into blocks is not specified and changes with block size, parallelism and retries: the result for
    a row must not depend on the other rows of its block. Called on the subtask's thread, and again when an epoch is
    replayed.
    """

    @abstractmethod
    def map_batch(self, batch: pa.RecordBatch, timestamps: pa.Int64Array | None) -> BatchResult:
        """The results for the rows of `batch`, whose event times are `timestamps` (None: they have none).

        A result with as many rows keeps the timestamps, row by row. One with more or fewer, or with other timestamps, is
        returned with its own: `(batch, timestamps)`.
        """
