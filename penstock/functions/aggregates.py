"""Built-in window aggregates, in two halves: over records, then over partial results.

    from penstock.functions.aggregates import count, sum_
    stream.key_by("page").window(...).agg(views=count(), bytes=sum_("size"))

Nulls count for nothing but `count()`; an aggregate of nulls only is null, as in SQL. Sums of integers, decimals and durations
are exact, and one that does not fit its type is an error; min and max pass NaN over unless there is nothing else, and -0.0 is
less than 0.0; sums and means of floats depend in their last digits on how records were grouped into blocks. Every aggregate
has two forms that agree on all of this: Arrow's kernels over columns, and Python over single records for windows that cannot
be columnar.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from penstock.common.typeinfo import TypeInformation, Types, type_of_arrow
from penstock.errors import JobDefinitionError
from penstock.records.arrow_columns import plain_type
from penstock.records.exact_sums import exact_add, final_sum, is_less, mean_of, sum_type

__all__ = ["Aggregate", "Partial", "count", "max_", "mean", "min_", "sum_"]


@dataclass(frozen=True, slots=True)
class Partial:
    """One column of a partial result: `function` over records, `merge` over partial results (Arrow's hash kernels)."""

    column: str | None  # None: about records as such
    function: str
    merge: str


def partial_names(partials: Iterable[Partial]) -> tuple[tuple[str | None, str, str], ...]:
    """As a state's specification names them."""
    return tuple((partial.column, partial.function, partial.merge) for partial in partials)


class Aggregate(ABC):
    """A built-in aggregate of the records of a key and window, for `agg`."""

    __slots__ = ()

    @property
    @abstractmethod
    def partials(self) -> tuple[Partial, ...]:
        """The partial results that are kept for each key and pane."""

    @abstractmethod
    def finish(self, merged: Sequence[pa.Array]) -> pa.Array:
        """The result from the merged partials, in the order of `partials`."""

    @abstractmethod
    def finish_one(self, merged: Sequence[Any]) -> Any:
        """The result of one key, from its merged partial results, in Python values."""

    @abstractmethod
    def result_type(self, column_type: TypeInformation | None) -> TypeInformation | None:
        """The type of the result over a column of this type (None: over records as such); None if it has no name here."""


@dataclass(frozen=True, slots=True)
class _Simple(Aggregate):
    """The merged partial is the result."""

    partial: Partial

    @property
    def partials(self) -> tuple[Partial, ...]:
        return (self.partial,)

    def finish(self, merged: Sequence[pa.Array]) -> pa.Array:
        return final_sum(merged[0]) if self.partial.function == "sum" else merged[0]

    def finish_one(self, merged: Sequence[Any]) -> Any:
        return merged[0]

    def result_type(self, column_type: TypeInformation | None) -> TypeInformation | None:
        if self.partial.column is None:
            return Types.LONG()
        kind = None if column_type is None else column_type.to_arrow()
        if kind is None:
            return None
        made = sum_type(kind) if self.partial.function == "sum" else plain_type(kind)
        return None if made is None else type_of_arrow(made)


@dataclass(frozen=True, slots=True)
class _Mean(Aggregate):
    column: str

    @property
    def partials(self) -> tuple[Partial, ...]:
        return (Partial(self.column, "sum", "sum"), Partial(self.column, "count", "sum"))

    def finish(self, merged: Sequence[pa.Array]) -> pa.Array:
        return mean_of(*merged)

    def finish_one(self, merged: Sequence[Any]) -> Any:
        total, number = merged
        return None if total is None else float(total) / float(number)

    def result_type(self, column_type: TypeInformation | None) -> TypeInformation | None:
        return Types.DOUBLE()


def count() -> Aggregate:
    """The number of records, also of those with nulls."""
    return _Simple(Partial(None, "count_all", "sum"))


def sum_(column: str) -> Aggregate:
    """The sum of a number column, exact for integers and decimals; null if the window has no value in it."""
    return _Simple(Partial(column, "sum", "sum"))


def min_(column: str) -> Aggregate:
    """The smallest value of a column; null if the window has no value in it."""
    return _Simple(Partial(column, "min", "min"))


def max_(column: str) -> Aggregate:
    """The largest value of a column; null if the window has no value in it."""
    return _Simple(Partial(column, "max", "max"))


def mean(column: str) -> Aggregate:
    """The arithmetic mean as a float."""
    return _Mean(column)


WINDOW_BOUNDS: Final = ("window_start", "window_end")


def result_columns(
    keys: Sequence[str], aggregates: Mapping[str, Aggregate], bounds: Sequence[str] = WINDOW_BOUNDS
) -> list[str]:
    """The columns of the result; refuses aggregates that cannot be."""
    if not keys or not aggregates:
        raise JobDefinitionError("agg needs at least one key column and at least one aggregate, as in agg(n=count())")
    names = [*keys, *bounds, *aggregates]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise JobDefinitionError(
            f"the result of agg would have several columns named {twice}: its columns are the keys {list(keys)}, "
            f"{''.join(f'{name}, ' for name in bounds)}and the aggregates {list(aggregates)}"
        )
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise JobDefinitionError(f"aggregate {name!r} must be count(), sum_(…), …, not {aggregate!r}")
    return names


# -------------------------------------------------------------------- the same kernels over single values


def fold(function: str) -> Callable[[Any, Any], Any]:
    """`function` of a partial as a step: (the result so far, or None; the next value) → the result. None is null."""
    return _FOLDS[function]


def _count(so_far: Any, value: Any) -> Any:
    return (so_far or 0) + (value is not None)


def _count_all(so_far: Any, value: Any) -> Any:
    return (so_far or 0) + 1


def _sum(so_far: Any, value: Any) -> Any:
    if value is None:
        return so_far
    if so_far is None:
        if isinstance(value, (str, bytes, list, tuple, dict)):  # which have a +, but no sum
            raise TypeError(f"{value!r} cannot be summed: only numbers and durations can")
        if isinstance(value, float):
            return 0.0 + value  # as columns are summed, and SQL: of -0.0 only the sum is 0.0
        return int(value) if isinstance(value, bool) else value
    return exact_add(so_far, value)


def _min(so_far: Any, value: Any) -> Any:
    if value is None or (value != value and so_far is not None):  # NaN
        return so_far
    return value if so_far is None or so_far != so_far or is_less(value, so_far) else so_far


def _max(so_far: Any, value: Any) -> Any:
    if value is None or (value != value and so_far is not None):
        return so_far
    return value if so_far is None or so_far != so_far or is_less(so_far, value) else so_far


_FOLDS: Mapping[str, Callable[[Any, Any], Any]] = {
    "count_all": _count_all,
    "count": _count,
    "sum": _sum,
    "min": _min,
    "max": _max,
}
