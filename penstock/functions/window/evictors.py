"""Flink's three evictors: keep so many elements, those of so much time, or those close enough to the last one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from penstock.common.time import Interval
from penstock.errors import JobDefinitionError
from penstock.functions.window.evictor import OneTimeEvictor, TimestampedValue

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
        return DeltaEvictor(threshold, delta_function, do_evict_after)

    def evict(self, elements: list[TimestampedValue[Any]]) -> None:
        if elements:
            last = elements[-1].value
            elements[:] = [element for element in elements if self._delta(element.value, last) < self._threshold]
