"""Evictors: what removes elements from a window before or after it is evaluated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.common.metrics import MetricGroup
from penstock.errors import PenstockError

T = TypeVar("T")
W = TypeVar("W")


@dataclass(frozen=True, slots=True)
class TimestampedValue(Generic[T]):
    """An element of a window and when it was; `timestamp` is None for one that has no event time."""

    value: T
    timestamp: int | None = None

    def get_value(self) -> T:
        return self.value

    def get_timestamp(self) -> int:
        if self.timestamp is None:
            raise PenstockError(
                f"the timestamp of {self.value!r} was asked for, but it has none: ask has_timestamp() first, or call "
                "assign_timestamps_and_watermarks(...) before the window"
            )
        return self.timestamp

    def has_timestamp(self) -> bool:
        return self.timestamp is not None


class Evictor(ABC, Generic[T, W]):
    """Decides which elements of a pane stay. One instance serves all panes of a subtask and keeps nothing between calls.

    Both methods get the elements as a list in the order of arrival and remove from it, in place, what is to go: `del
    elements[:n]`, `elements[:] = …`. What is removed is gone for good, also from later firings of the window.
    """

    class EvictorContext(ABC):
        """Valid during the call it is passed to."""

        @abstractmethod
        def get_current_processing_time(self) -> int: ...

        @abstractmethod
        def get_metric_group(self) -> MetricGroup: ...

        @abstractmethod
        def get_current_watermark(self) -> int: ...

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
    def evict(self, elements: list[TimestampedValue[Any]]) -> None: ...

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
