"""Session windows: bursts of records of a key with gaps of silence in between."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

from penstock.common.time import Interval
from penstock.errors import JobDefinitionError, PenstockError
from penstock.functions.window.assigners import (
    InEventTime,
    InProcessingTime,
    MergingWindowAssigner,
    TimeWindows,
    time_window,
)
from penstock.functions.window.windows import TimeWindow

T = TypeVar("T")


class SessionWindowTimeGapExtractor(ABC):
    """Reads from a record how long its session stays open."""

    @abstractmethod
    def extract(self, element: Any) -> int:
        """The gap after `element` in milliseconds, more than 0."""


class _SessionWindows(MergingWindowAssigner[T, TimeWindow], TimeWindows[T]):
    """Each record opens [t, t + gap); windows that overlap or touch merge."""

    @abstractmethod
    def _gap_of(self, element: T) -> int: ...

    def _windows_at(self, time: int, element: T) -> Collection[TimeWindow]:
        return [time_window(time, self._gap_of(element))]

    def merge_windows(
        self, windows: Iterable[TimeWindow], callback: MergingWindowAssigner.MergeCallback[TimeWindow]
    ) -> None:
        TimeWindow.merge_windows(windows, callback)


class _StaticGap(_SessionWindows[T]):
    def __init__(self, session_gap: int) -> None:
        if session_gap <= 0:
            raise JobDefinitionError(f"The gap of {type(self).__name__} must be positive, but is {session_gap} ms")
        self._session_gap = session_gap

    def _gap_of(self, element: T) -> int:
        return self._session_gap

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._session_gap})"


class _DynamicGap(_SessionWindows[T]):
    def __init__(self, session_window_time_gap_extractor: SessionWindowTimeGapExtractor) -> None:
        self._session_window_time_gap_extractor = session_window_time_gap_extractor

    def _gap_of(self, element: T) -> int:
        gap = self._session_window_time_gap_extractor.extract(element)
        if gap <= 0:
            raise PenstockError(
                f"{type(self._session_window_time_gap_extractor).__name__}.extract gave a session gap of {gap} ms for "
                f"the record {element!r}: a gap must be positive"
            )
        return gap

    def __repr__(self) -> str:
        return f"{type(self).__name__}({type(self._session_window_time_gap_extractor).__name__})"


class EventTimeSessionWindows(InEventTime[T], _StaticGap[T]):
    """Sessions that end when nothing came for one gap of event time."""

    @staticmethod
    def with_gap(size: Interval) -> EventTimeSessionWindows[Any]:
        """Sessions that end after this gap; it must be positive."""
        return EventTimeSessionWindows(size.to_milliseconds())

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicEventTimeSessionWindows[Any]:
        """Sessions whose gap `extractor` takes from each record."""
        return DynamicEventTimeSessionWindows(extractor)


class ProcessingTimeSessionWindows(InProcessingTime[T], _StaticGap[T]):
    """Sessions that end when nothing came for one gap of processing time."""

    @staticmethod
    def with_gap(size: Interval) -> ProcessingTimeSessionWindows[Any]:
        """Sessions that end after this gap; it must be positive."""
        return ProcessingTimeSessionWindows(size.to_milliseconds())

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicProcessingTimeSessionWindows[Any]:
        """Sessions whose gap `extractor` takes from each record."""
        return DynamicProcessingTimeSessionWindows(extractor)


class DynamicEventTimeSessionWindows(InEventTime[T], _DynamicGap[T]):
    """Event-time sessions whose records say how long to wait for the next."""

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicEventTimeSessionWindows[Any]:
        """Sessions whose gap `extractor` takes from each record."""
        return DynamicEventTimeSessionWindows(extractor)


class DynamicProcessingTimeSessionWindows(InProcessingTime[T], _DynamicGap[T]):
    """Processing-time sessions whose records say how long to wait for the next."""

    @staticmethod
    def with_dynamic_gap(extractor: SessionWindowTimeGapExtractor) -> DynamicProcessingTimeSessionWindows[Any]:
        """Sessions whose gap `extractor` takes from each record."""
        return DynamicProcessingTimeSessionWindows(extractor)
