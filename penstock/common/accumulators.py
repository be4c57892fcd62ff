"""Accumulators: values that every subtask adds to, and that come together when the job ends.

Java's classes (`org.apache.flink.api.common.accumulators`); PyFlink has only their results.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Any, Final, Generic, TypeVar

from penstock.errors import JobDefinitionError
from penstock.pickling import dump_by_value, load_stored

V = TypeVar("V")
R = TypeVar("R")


class Accumulator(ABC, Generic[V, R]):
    """Must be picklable. `merge` must not depend on order or grouping."""

    @abstractmethod
    def add(self, value: V) -> None:
        """Adds a value in this subtask."""

    @abstractmethod
    def get_local_value(self) -> R:
        """The value that this subtask has added up so far; of a merged accumulator, the result."""

    @abstractmethod
    def reset_local(self) -> None:
        """Back to nothing added."""

    @abstractmethod
    def merge(self, other: Any) -> None:
        """Take in what another accumulator of the same class has."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.get_local_value()!r})"


class SimpleAccumulator(Accumulator[V, V]):
    """One whose result is of the type that is added."""


class _Folded(SimpleAccumulator[V]):
    """A value, and how another one changes it."""

    _empty: V

    def __init__(self, value: V | None = None) -> None:
        self._value: V = self._empty if value is None else value

    def _fold(self, one: V, other: V) -> V:
        raise AssertionError("each kind has its own")

    def add(self, value: V) -> None:
        self._value = self._fold(self._value, value)

    def get_local_value(self) -> V:
        return self._value

    def get_local_value_primitive(self) -> V:
        """Another name of `get_local_value`, as in Flink."""
        return self._value

    def reset_local(self) -> None:
        self._value = self._empty

    def merge(self, other: Any) -> None:
        self._value = self._fold(self._value, other._value)


class IntCounter(_Folded[int]):
    """A sum of ints. Python's have no bound, so it is the same as LongCounter."""

    _empty = 0

    def _fold(self, one: int, other: int) -> int:
        return one + other


class LongCounter(IntCounter):
    """A sum of ints."""


class DoubleCounter(_Folded[float]):
    """A sum of floats; its last digits depend on the order of additions, as in Flink."""

    _empty = 0.0

    def _fold(self, one: float, other: float) -> float:
        return one + other


class _Minimum(_Folded[Any]):
    def _fold(self, one: Any, other: Any) -> Any:
        return min(one, other)


class _Maximum(_Folded[Any]):
    def _fold(self, one: Any, other: Any) -> Any:
        return max(one, other)


class IntMinimum(_Minimum):
    """The smallest int that was added; 2³¹ − 1, Java's largest, when nothing was."""

    _empty = 2**31 - 1  # Java's largest int, as in Flink


class IntMaximum(_Maximum):
    """The largest int that was added; −2³¹, Java's smallest, when nothing was."""

    _empty = -(2**31)


class LongMinimum(_Minimum):
    """The smallest int that was added; 2⁶³ − 1, Java's largest long, when nothing was."""

    _empty = 2**63 - 1


class LongMaximum(_Maximum):
    """The largest int that was added; −2⁶³, Java's smallest long, when nothing was."""

    _empty = -(2**63)


class DoubleMinimum(_Minimum):
    """The smallest float that was added; infinity when nothing was."""

    _empty = float("inf")


class DoubleMaximum(_Maximum):
    """The largest float that was added; minus infinity when nothing was."""

    _empty = float("-inf")


class AverageAccumulator(SimpleAccumulator[float]):
    """The mean; 0.0 when nothing was added."""

    def __init__(self) -> None:
        self._count, self._sum = 0, 0.0

    def add(self, value: float) -> None:
        self._count += 1
        self._sum += value

    def get_local_value(self) -> float:
        return self._sum / self._count if self._count else 0.0

    def reset_local(self) -> None:
        self._count, self._sum = 0, 0.0

    def merge(self, other: Any) -> None:
        self._count += other._count
        self._sum += other._sum


class Histogram(Accumulator[int, dict[int, int]]):
    """How often each int was added, in the order of the ints."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}

    def add(self, value: int) -> None:
        self._counts[value] = self._counts.get(value, 0) + 1

    def get_local_value(self) -> dict[int, int]:
        return dict(sorted(self._counts.items()))

    def reset_local(self) -> None:
        self._counts.clear()

    def merge(self, other: Any) -> None:
        for value, count in other._counts.items():
            self._counts[value] = self._counts.get(value, 0) + count


_PIECE: Final = 256


class ListAccumulator(Accumulator[Any, list[Any]]):
    """Everything that was added; how subtasks' lists follow each other is not specified. It goes through the driver with
    every epoch: for few things. What was added in earlier epochs is kept pickled, in pieces, so that an epoch copies bytes and
    no elements."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._values: list[Any] = []  # behind the pieces

    def add(self, value: Any) -> None:
        self._values.append(value)

    def get_local_value(self) -> list[Any]:
        return [value for piece in self._pieces for value in load_stored(piece)] + self._values

    def reset_local(self) -> None:
        self._pieces, self._values = [], []

    def merge(self, other: Any) -> None:
        self._pieces.extend(other._pieces)
        self._values.extend(other._values)

    def __getstate__(self) -> dict[str, Any]:
        if len(self._values) >= _PIECE:
            self._pieces.append(dump_by_value(self._values))
            self._values = []
        return {"_pieces": self._pieces, "_values": self._values}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._pieces, self._values = state.get("_pieces", []), state["_values"]  # without pieces: of an older release


def merge_into(merged: dict[str, Accumulator[Any, Any]], name: str, other: Accumulator[Any, Any]) -> None:
    """Add one to those of its name. Both must be of one class; `other` itself is not changed."""
    known = merged.get(name)
    if known is None:
        known = merged[name] = _empty_copy(other)
    if type(known) is not type(other):
        raise JobDefinitionError(
            f"accumulator {name!r} is a {type(known).__name__} in one place and a {type(other).__name__} in another: "
            "give them different names"
        )
    known.merge(other)


def _empty_copy(accumulator: Accumulator[Any, Any]) -> Accumulator[Any, Any]:
    copied = copy.deepcopy(accumulator)
    copied.reset_local()
    return copied
