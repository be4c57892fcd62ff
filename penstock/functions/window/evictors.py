"""Evictors: what removes elements from a window before or after it is evaluated.

Flink's three evictors: keep so many elements, those of so much time, or those close enough to the last one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from penstock.common.metrics import MetricGroup
from penstock.common.time import Interval
from penstock.errors import JobDefinitionError, PenstockError

T = TypeVar("T")
W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class TimestampedValue(Generic[T]):
    """An element of a window and when it was; `timestamp` is None for one that has no event time."""

    value: T
    timestamp: int | None = None

    def get_value(self) -> T:
        """The element."""
        return self.value

    def get_timestamp(self) -> int:
        """The element's timestamp in milliseconds; PenstockError if it has none."""
        if self.timestamp is None:
            raise PenstockError(
                f"the timestamp of {self.value!r} was asked for, but it has none: ask has_timestamp() first, or call "
                "assign_timestamps_and_watermarks(...) before the window"
            )
        return self.timestamp

    def has_timestamp(self) -> bool:
        """True if the element has an event time."""
        return self.timestamp is not None


class Evictor(ABC, Generic[T, W]):
    """Decides which elements of a pane stay. One instance serves all panes of a subtask and keeps nothing between calls.

    Both methods get the elements as a list in the order of arrival and remove from it, in place, what is to go: `del
    elements[:n]`, `elements[:] = …`. What is removed is gone for good, also from later firings of the window.
    """

    class EvictorContext(ABC):
        """Valid during the call it is passed to."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """The processing time in milliseconds."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """The metrics of the window operator."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """The watermark of the subtask in milliseconds."""

    def can_merge(self) -> bool:
        """Whether it may be used on windows that merge, such as sessions. An evictor that remembers single windows, against
        the rule above, must say no; the job is then refused while it is built. (Not in Flink.)"""
        return True

    @abstractmethod
    def evict_before(
        self, elements: list[TimestampedValue[T]], size: int, window: W, evictor_context: Evictor.EvictorContext
    ) -> None:
        """Called before the window function, which sees what is left (maybe nothing)."""

    @abstractmethod
    def evict_after(
        self, elements: list[TimestampedValue[T]], size: int, window: W, evictor_context: Evictor.EvictorContext
    ) -> None:
        """Called after the window function."""


class OneTimeEvictor(Evictor[Any, Any]):
    """Evicts either before or after the window function, by the same rule."""

    def __init__(self, do_evict_after: bool) -> None:
        self._after = do_evict_after

    @abstractmethod
    def evict(self, elements: list[TimestampedValue[Any]]) -> None:
        """Removes from `elements`, in place, what the window function shall not see or the window not keep."""

    def evict_before(
        self, elements: list[TimestampedValue[Any]], size: int, window: Any, evictor_context: Evictor.EvictorContext
    ) -> None:
        if not self._after:
            self.evict(elements)

    def evict_after(
        self, elements: list[TimestampedValue[Any]], size: int, window: Any, evictor_context: Evictor.EvictorContext
    ) -> None:
        if self._after:
            self.evict(elements)


Delta: TypeAlias = Callable[[Any, Any], float]  # of an older and a newer value


class CountEvictor(OneTimeEvictor):
    """Keeps the last `max_count` elements."""

    def __init__(self, max_count: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        if max_count < 0:
            raise JobDefinitionError(f"CountEvictor: the number of elements to keep must not be negative: {max_count}")
        self._max_count = max_count

    @staticmethod
    def of(max_count: int, do_evict_after: bool = False) -> CountEvictor:
        """Keeps the last `max_count` elements; with `do_evict_after` the rest goes after the window function, not
        before.
        """
        return CountEvictor(max_count, do_evict_after)

    def evict(self, elements: list[TimestampedValue[Any]]) -> None:
        del elements[: max(len(elements) - self._max_count, 0)]


class TimeEvictor(OneTimeEvictor):
    """Keeps the elements that are less than `window_size` ms older than the newest. All, if the first has no timestamp."""

    def __init__(self, window_size: int, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        self._window_size = window_size

    @staticmethod
    def of(window_size: Interval, do_evict_after: bool = False) -> TimeEvictor:
        """Keeps the elements of the last `window_size`; with `do_evict_after` the rest goes after the window function,
        not before.
        """
        return TimeEvictor(window_size.to_milliseconds(), do_evict_after)

    def evict(self, elements: list[TimestampedValue[Any]]) -> None:
        if elements and elements[0].has_timestamp():
            cutoff = max(element.get_timestamp() for element in elements) - self._window_size
            elements[:] = [element for element in elements if element.get_timestamp() > cutoff]


class DeltaEvictor(OneTimeEvictor):
    """Keeps the elements whose delta to the last one, `delta_function(element, last)`, is below the threshold."""

    def __init__(self, threshold: float, delta_function: Delta, do_evict_after: bool = False) -> None:
        super().__init__(do_evict_after)
        if not callable(delta_function):
            raise JobDefinitionError(f"DeltaEvictor takes a function of two values, not {delta_function!r}")
        self._threshold, self._delta = threshold, delta_function

    @staticmethod
    def of(threshold: float, delta_function: Delta, do_evict_after: bool = False) -> DeltaEvictor:
        """Keeps the elements below the threshold; with `do_evict_after` the rest goes after the window function, not
        before.
        """
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def evict(self, elements: list[TimestampedValue[Any]]) -> None:
        if elements:
            last = elements[-1].value
            elements[:] = [element for element in elements if self._delta(element.value, last) < self._threshold]
