"""Tumbling and sliding time windows: windows of one size on a grid."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar

from penstock.common.serializer import TypeSerializer
from penstock.common.time import Interval
from penstock.errors import JobDefinitionError
from penstock.functions.window.assigner import WindowAssigner, event_time, time_window
from penstock.functions.window.serializers import TimeWindowSerializer
from penstock.functions.window.time_triggers import EventTimeTrigger, ProcessingTimeTrigger
from penstock.functions.window.trigger import Trigger
from penstock.functions.window.windows import TimeWindow

T = TypeVar("T")


def _millis(interval: Interval | None) -> int:
    return 0 if interval is None else interval.to_milliseconds()


class _TumblingWindows(WindowAssigner[T, TimeWindow]):
    def __init__(self, size: int, offset: int) -> None:
        if abs(offset) >= size:
            raise JobDefinitionError(
                f"{type(self).__name__} must satisfy abs(offset) < size, but size is {size} ms and "
                f"offset is {offset} ms"
            )
        self._size = size
        self._offset = offset

    def _window_of(self, timestamp: int) -> Collection[TimeWindow]:
        start = TimeWindow.get_window_start_with_offset(timestamp, self._offset, self._size)
        return [time_window(start, self._size)]

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        return TimeWindowSerializer()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._size}, {self._offset})"


class TumblingEventTimeWindows(_TumblingWindows[T]):
    """Windows of `size` without gaps or overlap, in event time: [offset + n * size, offset + (n + 1) * size)."""

    @staticmethod
    def of(size: Interval, offset: Interval | None = None) -> TumblingEventTimeWindows[Any]:
        return TumblingEventTimeWindows(size.to_milliseconds(), _millis(offset))

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self._window_of(event_time(timestamp, self))

    def get_default_trigger(self, env: Any) -> Trigger[T, TimeWindow]:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


class TumblingProcessingTimeWindows(_TumblingWindows[T]):
    """The same in processing time."""

    @staticmethod
    def of(size: Interval, offset: Interval | None = None) -> TumblingProcessingTimeWindows[Any]:
        return TumblingProcessingTimeWindows(size.to_milliseconds(), _millis(offset))

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self._window_of(context.get_current_processing_time())

    def get_default_trigger(self, env: Any) -> Trigger[T, TimeWindow]:
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False


class _SlidingWindows(WindowAssigner[T, TimeWindow]):
    def __init__(self, size: int, slide: int, offset: int) -> None:
        if abs(offset) >= slide or size <= 0:
            raise JobDefinitionError(
                f"{type(self).__name__} must satisfy abs(offset) < slide and size > 0, but size is {size} ms, "
                f"slide is {slide} ms and offset is {offset} ms"
            )
        self._size = size
        self._slide = slide
        self._offset = offset

    def _windows_of(self, timestamp: int) -> Collection[TimeWindow]:
        """Latest first, as Flink lists them; none when the timestamp falls between windows (slide > size)."""
        last_start = TimeWindow.get_window_start_with_offset(timestamp, self._offset, self._slide)
        starts = range(last_start, timestamp - self._size, -self._slide)
        return [time_window(start, self._size) for start in starts]

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        return TimeWindowSerializer()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._size}, {self._slide}, {self._offset})"


class SlidingEventTimeWindows(_SlidingWindows[T]):
    """Windows of `size` that start every `slide`, in event time: a record is in size / slide of them."""

    @staticmethod
    def of(size: Interval, slide: Interval, offset: Interval | None = None) -> SlidingEventTimeWindows[Any]:
        return SlidingEventTimeWindows(size.to_milliseconds(), slide.to_milliseconds(), _millis(offset))

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self._windows_of(event_time(timestamp, self))

    def get_default_trigger(self, env: Any) -> Trigger[T, TimeWindow]:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


class SlidingProcessingTimeWindows(_SlidingWindows[T]):
    """The same in processing time."""

    @staticmethod
    def of(size: Interval, slide: Interval, offset: Interval | None = None) -> SlidingProcessingTimeWindows[Any]:
        return SlidingProcessingTimeWindows(size.to_milliseconds(), slide.to_milliseconds(), _millis(offset))

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self._windows_of(context.get_current_processing_time())

    def get_default_trigger(self, env: Any) -> Trigger[T, TimeWindow]:
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False
