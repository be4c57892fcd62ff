"""Aggregates of columnar windows, in two halves: over the records of a block, then over the results of many blocks.

    from penstock.datastream.aggregates import count, sum_
    stream.key_by("page").window(...).agg(views=count(), bytes=sum_("size"))

Nulls count for nothing but `count()`; an aggregate of nulls only is null, as in SQL. Sums of integers are 64 bits wide
and wrap around; sums and means of floats depend in their last digits on how records were grouped into blocks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Aggregate", "Partial", "count", "max_", "mean", "min_", "sum_"]


@dataclass(frozen=True, slots=True)
class Partial:
    """One column of a partial result: `function` over records, `merge` over partial results (Arrow's hash kernels)."""

    column: str | None  # None: about records as such
    function: str
    merge: str


class Aggregate(ABC):
    """What to compute of the records of a key and window."""

    __slots__ = ()

    @property
    @abstractmethod
    def partials(self) -> tuple[Partial, ...]:
        """What is kept per key and pane."""

    @abstractmethod
    def finish(self, merged: Sequence[pa.Array]) -> pa.Array:
        """The result from the merged partials, in the order of `partials`."""


@dataclass(frozen=True, slots=True)
class _Simple(Aggregate):
    """The merged partial is the result."""

    partial: Partial

    @property
    def partials(self) -> tuple[Partial, ...]:
        return (self.partial,)

    def finish(self, merged: Sequence[pa.Array]) -> pa.Array:
        return merged[0]


@dataclass(frozen=True, slots=True)
class _Mean(Aggregate):
    column: str

    @property
    def partials(self) -> tuple[Partial, ...]:
        return (Partial(self.column, "sum", "sum"), Partial(self.column, "count", "sum"))

    def finish(self, merged: Sequence[pa.Array]) -> pa.Array:
        total, number = merged
        # Without a value that is not null the sum is null, and so is the quotient: nothing is divided by zero.
        return pc.divide(total.cast(pa.float64(), safe=False), number.cast(pa.float64(), safe=False))


def count() -> Aggregate:
    """How many records, also those with nulls."""
    return _Simple(Partial(None, "count_all", "sum"))


def sum_(column: str) -> Aggregate:
    return _Simple(Partial(column, "sum", "sum"))


def min_(column: str) -> Aggregate:
    return _Simple(Partial(column, "min", "min"))


def max_(column: str) -> Aggregate:
    return _Simple(Partial(column, "max", "max"))


def mean(column: str) -> Aggregate:
    """The arithmetic mean as a float."""
    return _Mean(column)
