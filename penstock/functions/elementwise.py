"""Functions that look at one record at a time, or at two that meet, or at a whole block of columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, TypeAlias

import pyarrow as pa

from penstock.functions.base import Function


class MapFunction(Function):
    """One record in, one out."""

    @abstractmethod
    def map(self, value: Any) -> Any:
        """The record to emit for `value`. Called once for each record, in one thread for each subtask."""


class FlatMapFunction(Function):
    """One record in, any number out."""

    @abstractmethod
    def flat_map(self, value: Any) -> Iterable[Any] | None:
        """A generator or an iterable of results; None for none."""


class FilterFunction(Function):
    """Keeps or drops a record."""

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """True keeps it. Must not change the record."""


class CoMapFunction(Function):
    """A map over two connected streams; both methods share the instance. A result of None is dropped."""

    @abstractmethod
    def map1(self, value: Any) -> Any:
        """The record to emit for a record of the first stream."""

    @abstractmethod
    def map2(self, value: Any) -> Any:
        """The record to emit for a record of the second stream."""


class CoFlatMapFunction(Function):
    """A flat map over two connected streams; both methods share the instance."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Iterable[Any] | None:
        """Yields the records to emit for a record of the first stream; None emits nothing."""

    @abstractmethod
    def flat_map2(self, value: Any) -> Iterable[Any] | None:
        """Yields the records to emit for a record of the second stream; None emits nothing."""


class ReduceFunction(Function):
    """Folds two values into one of the same type. Must be associative: how values are grouped is not specified."""

    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any:
        """`value1` came before `value2`. Neither is called for a first value: that is the result itself."""


class ReduceFunctionWrapper(ReduceFunction):
    """A plain function of two values as a ReduceFunction."""

    def __init__(self, func: Any) -> None:
        self._func = func

    def reduce(self, value1: Any, value2: Any) -> Any:
        return self._func(value1, value2)


class AggregateFunction(Function):
    """Folds values into an accumulator, from which the result is made."""

    @abstractmethod
    def create_accumulator(self) -> Any:
        """A fresh one; never share a mutable accumulator between calls."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """The accumulator with `value` in it; may change and return the one it was given."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """May be called many times, with `add` in between: must not use the accumulator up."""

    @abstractmethod
    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """Both in one, when session windows merge; may change and return either."""


class KeySelector(Function):
    """Gives a record its key. Deterministic: equal records must have equal keys, in every process."""

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """The key of a record. It must be hashable, and equal for equal records in every process."""


class NullByteKeySelector(KeySelector):
    """One key for all: how a non-parallel window over a whole stream is keyed."""

    def get_key(self, value: Any) -> Any:
        return 0


class Partitioner(Function):
    """Chooses the channel of a record by its key."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """From 0 to `num_partitions` - 1. Deterministic, as replayed epochs must send records the same way."""


class JoinFunction(Function):
    """Makes one result of each pair of a window join."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Any:
        """`first` is of the stream that join() was called on. What is returned is the result, None included."""


class CoGroupFunction(Function):
    """Sees all records that a key has in a window, of both streams."""

    @abstractmethod
    def co_group(self, first: Iterable[Any], second: Iterable[Any]) -> Iterable[Any] | None:
        """Each in the order of arrival. One of them may be empty, never both: this is how outer joins are written."""


class ProcessJoinFunction(Function):
    """Called for each pair of an interval join."""

    class Context(ABC):
        """Valid during the call it is passed to."""

        @abstractmethod
        def get_left_timestamp(self) -> int:
            """The event time of the left record."""

        @abstractmethod
        def get_right_timestamp(self) -> int:
            """The event time of the right record."""

        @abstractmethod
        def get_timestamp(self) -> int:
            """The later of both: the timestamp of the results."""

    @abstractmethod
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterable[Any] | None:
        """Yields any number of results for a pair; to yield `(tag, record)` emits to a side output."""


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
