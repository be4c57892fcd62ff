"""Functions that look at one record, or two, at a time."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from penstock.functions.base import Function


class MapFunction(Function):
    """One record in, one out."""

    @abstractmethod
    def map(self, value: Any) -> Any: ...


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
    def map1(self, value: Any) -> Any: ...

    @abstractmethod
    def map2(self, value: Any) -> Any: ...


class CoFlatMapFunction(Function):
    """A flat map over two connected streams; both methods share the instance."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Iterable[Any] | None: ...

    @abstractmethod
    def flat_map2(self, value: Any) -> Iterable[Any] | None: ...


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
    def get_key(self, value: Any) -> Any: ...


class NullByteKeySelector(KeySelector):
    """One key for all: how a non-parallel window over a whole stream is keyed."""

    def get_key(self, value: Any) -> Any:
        return 0


class Partitioner(Function):
    """Chooses the channel of a record by its key."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """From 0 to `num_partitions` - 1. Deterministic, as replayed epochs must send records the same way."""
