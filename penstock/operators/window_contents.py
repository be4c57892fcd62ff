"""What a window holds between two firings: the elements themselves, their reduction, or an accumulator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from penstock.common.values import ATOMS, own, own_all
from penstock.errors import JobDefinitionError
from penstock.functions import AggregateFunction, ReduceFunction
from penstock.state.overlay import MISSING, OverlayTable
from penstock.state.specification import PartialName


class WindowContents(ABC):
    """How contents are made, added to, merged and read. Stateless but for the user's function.

    What is passed as `current` belongs to the running epoch (its own object, or a private copy of a confirmed one), so
    it may be changed in place as long as it is also returned. Whatever else a function returns, and what leaves the window,
    is copied unless it cannot be changed.
    """

    kind: str  # of the state table
    partials: tuple[PartialName, ...] | None = None  # of built-in aggregates, in the order of an accumulator

    @property
    def described(self) -> str:
        """For the state's specification."""
        return self.kind

    def user_functions(self) -> Iterable[Any]:
        return ()

    @abstractmethod
    def first(self, value: Any) -> Any:
        """Contents of a window that gets its first element."""

    @abstractmethod
    def add(self, current: Any, value: Any) -> Any: ...

    def adder(self) -> Callable[[Any, Any], Any]:
        """`add` with as few calls in between as can be: for loops over many records."""
        return self.add

    @abstractmethod
    def merge(self, current: Any, other: Any) -> Any:
        """Contents of two windows that become one (sessions)."""

    @abstractmethod
    def inputs(self, current: Any) -> list[Any]:
        """What a window function is called with."""

    def inputs_of_nothing(self) -> list[Any]:
        """The same for a window that an evictor has emptied."""
        return []


class ListContents(WindowContents):
    """All elements in the order of arrival: for `process` and `apply` without a pre-aggregation."""

    kind = "list"

    def first(self, value: Any) -> Any:
        return [value]

    def add(self, current: Any, value: Any) -> Any:
        current.append(value)
        return current

    def merge(self, current: Any, other: Any) -> Any:
        current.extend(other)
        return current

    def inputs(self, current: Any) -> list[Any]:
        # The window may fire again, and its neighbour may hold the same records: what a function does stays in it.
        return list(own_all(current))


class ReduceContents(WindowContents):
    """One value: the reduction of all elements."""

    kind = "reducing"

    def __init__(self, function: Any) -> None:
        if not isinstance(function, ReduceFunction) and not callable(function):
            raise JobDefinitionError(
                f"reduce of a window takes a ReduceFunction or a function of two values, not {function!r}"
            )
        self.function = function

    @property
    def described(self) -> str:
        return str(getattr(self.function, "described", self.kind))

    def user_functions(self) -> Iterable[Any]:
        return (self.function,)

    def adder(self) -> Callable[[Any, Any], Any]:
        reduce: Callable[[Any, Any], Any] = (
            self.function.reduce if isinstance(self.function, ReduceFunction) else self.function
        )

        def reduced(current: Any, value: Any) -> Any:
            result = reduce(current, value)
            return result if type(result) in ATOMS or result is current else own(result)

        return reduced

    def first(self, value: Any) -> Any:
        return own(value)

    def add(self, current: Any, value: Any) -> Any:
        return self.adder()(current, value)

    def merge(self, current: Any, other: Any) -> Any:
        return self.adder()(current, other)

    def inputs(self, current: Any) -> list[Any]:
        return [own(current)]


class AggregateContents(WindowContents):
    """An accumulator; window functions and downstream get its result."""

    kind = "aggregating"

    def __init__(self, function: AggregateFunction, partials: tuple[PartialName, ...] | None = None) -> None:
        if not isinstance(function, AggregateFunction):
            raise JobDefinitionError(f"aggregate of a window takes an AggregateFunction, not {function!r}")
        self.function = function
        self.partials = partials

    def user_functions(self) -> Iterable[Any]:
        return (self.function,)

    def first(self, value: Any) -> Any:
        return self.add(own(self.function.create_accumulator()), value)

    def add(self, current: Any, value: Any) -> Any:
        result = self.function.add(value, current)
        return result if type(result) in ATOMS or result is current else own(result)

    def merge(self, current: Any, other: Any) -> Any:
        return own(self.function.merge(current, other))

    def inputs(self, current: Any) -> list[Any]:
        return [own(self.function.get_result(current))]

    def inputs_of_nothing(self) -> list[Any]:
        return [self.function.get_result(self.function.create_accumulator())]


def merge_namespaces(
    table: OverlayTable, key: Any, target: Any, sources: Sequence[Any], merge: Callable[[Any, Any], Any]
) -> None:
    """Fold the entries of `sources` into the entry of `target`, in order, and remove them."""
    merged = table.get((key, target))
    for source in sources:
        if source == target:
            continue
        contents = table.get((key, source))
        if contents is not MISSING:
            merged = contents if merged is MISSING else merge(merged, contents)
            table.delete((key, source))
    if merged is not MISSING:
        table.put((key, target), merged)
