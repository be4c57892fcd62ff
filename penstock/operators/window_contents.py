"""What a window holds between two firings: the elements themselves, their reduction, or an accumulator.

Windows with an evictor: they hold every element with its timestamp, and reduce or aggregate only when they fire.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.common.metrics import MetricGroup
from penstock.common.time import MIN_LONG_VALUE
from penstock.common.values import ATOMS, own, own_all
from penstock.errors import JobDefinitionError
from penstock.functions import AggregateFunction, ReduceFunction
from penstock.functions.window.evictors import Evictor, TimestampedValue
from penstock.operators.lean_rows import Reader
from penstock.state.list_table import ListTable
from penstock.state.overlay import MISSING, OverlayTable
from penstock.state.specification import PartialName

if TYPE_CHECKING:
    from penstock.operators.window import WindowOperator
    from penstock.operators.window_context import WindowNamespace


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
        """Names the contents in the state's specification."""
        return self.kind

    def user_functions(self) -> Iterable[Any]:
        """The user's functions inside, to be opened and closed."""
        return ()

    @abstractmethod
    def first(self, value: Any) -> Any:
        """Contents of a window that gets its first element."""

    @abstractmethod
    def add(self, current: Any, value: Any) -> Any:
        """The contents with one more record."""

    def adder(self) -> Callable[[Any, Any], Any]:
        """`add` with as few calls in between as can be: for loops over many records."""
        return self.add

    def readers(self) -> Sequence[Reader] | None:
        """The functions that get the records of `first` and `add`; None: the records themselves are kept."""
        return None

    @abstractmethod
    def merge(self, current: Any, other: Any) -> Any:
        """Contents of two windows that become one (sessions)."""

    @abstractmethod
    def inputs(self, current: Any) -> list[Any]:
        """The records that a window function is called with."""

    def inputs_of_nothing(self) -> list[Any]:
        """The records that a window function is called with when an evictor has emptied the window."""
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
        self._method = isinstance(function, ReduceFunction)

    @property
    def described(self) -> str:
        return str(getattr(self.function, "described", self.kind))

    def user_functions(self) -> Iterable[Any]:
        return (self.function,)

    def adder(self) -> Callable[[Any, Any], Any]:
        reduce: Callable[[Any, Any], Any] = self.function.reduce if self._method else self.function

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

    def readers(self) -> Sequence[Reader]:
        return (Reader(self.function.add, 2),)

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
    if not sources:
        return
    if isinstance(table, ListTable):  # of which only what moves is looked at
        for source in sources:
            contents: Any = table.get((key, source)) if source != target else MISSING
            if contents is not MISSING:
                table.delete((key, source))
                table.extend((key, target), contents)
        return
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


Element: TypeAlias = tuple[Any, int | None]  # (value, timestamp)


def element(value: Any, timestamp: int) -> Element:
    """A value and its timestamp; None if it has no event time."""
    return value, None if timestamp <= MIN_LONG_VALUE else timestamp


class EvictingContents(ListContents):
    """(value, timestamp) pairs in the order of arrival, read as `inner` would have made of them."""

    kind = "list-with-timestamps"  # not "list": a checkpoint of the same window without evictor does not fit

    def __init__(self, inner: WindowContents) -> None:
        self.inner = inner

    def user_functions(self) -> Iterable[Any]:
        return self.inner.user_functions()

    def inputs(self, current: Any) -> list[Any]:
        if not current:
            return self.inner.inputs_of_nothing()
        contents = self.inner.first(current[0][0])
        for value, _ in current[1:]:
            contents = self.inner.add(contents, value)
        return self.inner.inputs(contents)


class WindowClocks:
    """Time and metrics of the operator, for assigners, triggers and evictors."""

    def __init__(self, operator: WindowOperator) -> None:
        self._operator = operator

    def get_current_processing_time(self) -> int:
        """The processing time in milliseconds."""
        return self._operator.ctx.processing_time()

    def get_metric_group(self) -> MetricGroup:
        """The metrics of the window operator."""
        return self._operator.runtime_context.get_metrics_group()

    def get_current_watermark(self) -> int:
        """The watermark of the subtask in milliseconds."""
        return self._operator.current_watermark


class EvictingWindows(WindowClocks, Evictor.EvictorContext):
    """What the window operator does with an evictor when a pane fires; also what the evictor sees of the operator."""

    def __init__(self, operator: WindowOperator, evictor: Evictor[Any, Any], table: OverlayTable) -> None:
        super().__init__(operator)
        self._evictor, self._table = evictor, table

    def evaluate(self, entry: Any, contents: list[Element], window: Any, namespace: WindowNamespace) -> None:
        """Evicts, runs the window function, evicts again, and keeps what is left."""
        elements: list[TimestampedValue[Any]] = [TimestampedValue(*pair) for pair in contents]
        self._evictor.evict_before(elements, len(elements), window, self)
        self._operator.evaluate(_pairs(elements), window, namespace)
        self._evictor.evict_after(elements, len(elements), window, self)
        if elements:
            self._table.put(entry, _pairs(elements))
        else:
            self._table.delete(entry)


def _pairs(elements: list[TimestampedValue[Any]]) -> list[Element]:
    return [(element.value, element.timestamp) for element in elements]
