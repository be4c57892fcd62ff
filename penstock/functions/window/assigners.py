"""Window assigners: what decides which windows a record belongs to.

Tumbling and sliding time windows: windows of one size on a grid.

Cumulating windows: they start together and each is one step longer than the one before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Any, Generic, TypeVar

from penstock.common.serialization import TypeSerializer
from penstock.common.time import MAX_LONG_VALUE, MIN_LONG_VALUE, Interval
from penstock.errors import JobDefinitionError, PenstockError
from penstock.functions.base import RuntimeContext
from penstock.functions.window.time_triggers import EventTimeTrigger, ProcessingTimeTrigger
from penstock.functions.window.triggers import Trigger
from penstock.functions.window.windows import TimeWindow, TimeWindowSerializer

T = TypeVar("T")
W = TypeVar("W")
W2 = TypeVar("W2")


class WindowAssigner(ABC, Generic[T, W]):
    """Puts records into windows. One instance serves all keys of a subtask and keeps nothing between calls."""

    class WindowAssignerContext(ABC):
        """Time and the runtime context, for an assigner; valid during the call it is passed to."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """The processing time in milliseconds."""

        @abstractmethod
        def get_runtime_context(self) -> RuntimeContext:
            """For state of the current key."""

    @abstractmethod
    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[W]:
        """The windows of `element`, maybe none. `timestamp` is the smallest long when it has no event time."""

    @abstractmethod
    def get_default_trigger(self, env: Any) -> Trigger[T, W]:
        """The trigger when the user sets none; `env` is the stream execution environment."""

    @abstractmethod
    def get_window_serializer(self) -> TypeSerializer[W]:
        """Writes and reads the windows of this assigner in state."""

    @abstractmethod
    def is_event_time(self) -> bool:
        """Whether windows end by the watermark; else by processing time."""


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows can merge: every record first gets a window of its own."""

    class MergeCallback(ABC, Generic[W2]):
        """Receives what is to be merged."""

        @abstractmethod
        def merge(self, to_be_merged: Iterable[W2], merge_result: W2) -> None:
            """`to_be_merged` (two or more, each in one call only) become `merge_result`, which may be one of them."""

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergingWindowAssigner.MergeCallback[W]) -> None:
        """Find out which of the windows of one key are to be merged and call `callback` for each group."""


def event_time(timestamp: int | None, assigner: WindowAssigner[Any, Any]) -> int:
    """The timestamp of a record that needs one."""
    if timestamp is None or timestamp <= MIN_LONG_VALUE:
        raise PenstockError(
            f"{assigner!r} cannot place a record that has no timestamp. Call "
            "assign_timestamps_and_watermarks(...) with a timestamp assigner before the window, "
            "or use processing-time windows."
        )
    return timestamp


def time_window(start: int, size: int) -> TimeWindow:
    """The window of this start and size, cut off where time ends. One that would begin before time does is refused: no
    64-bit number could name it."""
    if start < MIN_LONG_VALUE:
        raise begins_too_early(start)
    return TimeWindow(start, min(start + size, MAX_LONG_VALUE))


def begins_too_early(start: int) -> PenstockError:
    """The error for a window that would begin before the smallest timestamp there is."""
    return PenstockError(
        f"a window would begin before {MIN_LONG_VALUE}, the smallest timestamp there is, at {start}: the timestamp of its "
        "record is no time in milliseconds; correct the timestamp assigner, or filter such records out before the window"
    )


def _millis(interval: Interval | None) -> int:
    return 0 if interval is None else interval.to_milliseconds()


class TimeWindows(WindowAssigner[T, TimeWindow]):
    """Windows of time. `InEventTime` or `InProcessingTime` says which clock places records and ends windows."""

    @abstractmethod
    def _windows_at(self, time: int, element: T) -> Collection[TimeWindow]: ...

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        return TimeWindowSerializer()


class InEventTime(TimeWindows[T]):
    """Records are placed by their timestamps, and windows end by the watermark."""

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self._windows_at(event_time(timestamp, self), element)

    def get_default_trigger(self, env: Any) -> Trigger[T, TimeWindow]:
        return EventTimeTrigger()

    def is_event_time(self) -> bool:
        return True


class InProcessingTime(TimeWindows[T]):
    """Records are placed by the clock of the machine, which also ends windows."""

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        return self._windows_at(context.get_current_processing_time(), element)

    def get_default_trigger(self, env: Any) -> Trigger[T, TimeWindow]:
        return ProcessingTimeTrigger()

    def is_event_time(self) -> bool:
        return False


class _TumblingWindows(TimeWindows[T]):
    def __init__(self, size: int, offset: int) -> None:
        if abs(offset) >= size:
            raise JobDefinitionError(
                f"{type(self).__name__} must satisfy abs(offset) < size, but size is {size} ms and "
                f"offset is {offset} ms"
            )
        self._size = size
        self._offset = offset

    def _windows_at(self, time: int, element: T) -> Collection[TimeWindow]:
        return [time_window(TimeWindow.get_window_start_with_offset(time, self._offset, self._size), self._size)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._size}, {self._offset})"


class TumblingEventTimeWindows(InEventTime[T], _TumblingWindows[T]):
    """Windows of `size` without gaps or overlap, in event time: [offset + n * size, offset + (n + 1) * size)."""

    @staticmethod
    def of(size: Interval, offset: Interval | None = None) -> TumblingEventTimeWindows[Any]:
        """Windows of `size`; `offset` shifts their starts, for example to a time zone.

        Example:

            TumblingEventTimeWindows.of(Time.days(1), Time.hours(-8))
        """
        return TumblingEventTimeWindows(size.to_milliseconds(), _millis(offset))


class TumblingProcessingTimeWindows(InProcessingTime[T], _TumblingWindows[T]):
    """Windows of `size` without gaps or overlap, in processing time."""

    @staticmethod
    def of(size: Interval, offset: Interval | None = None) -> TumblingProcessingTimeWindows[Any]:
        """Windows of `size`; `offset` shifts their starts."""
        return TumblingProcessingTimeWindows(size.to_milliseconds(), _millis(offset))


class _SlidingWindows(TimeWindows[T]):
    def __init__(self, size: int, slide: int, offset: int) -> None:
        if abs(offset) >= slide or size <= 0:
            raise JobDefinitionError(
                f"{type(self).__name__} must satisfy abs(offset) < slide and size > 0, but size is {size} ms, "
                f"slide is {slide} ms and offset is {offset} ms"
            )
        self._size = size
        self._slide = slide
        self._offset = offset

    def _windows_at(self, time: int, element: T) -> Collection[TimeWindow]:
        """Latest first, as Flink lists them; none when the time falls between windows (slide > size)."""
        last_start = TimeWindow.get_window_start_with_offset(time, self._offset, self._slide)
        return [time_window(start, self._size) for start in range(last_start, time - self._size, -self._slide)]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._size}, {self._slide}, {self._offset})"


class SlidingEventTimeWindows(InEventTime[T], _SlidingWindows[T]):
    """Windows of `size` that start every `slide`, in event time: a record is in size / slide of them."""

    @staticmethod
    def of(size: Interval, slide: Interval, offset: Interval | None = None) -> SlidingEventTimeWindows[Any]:
        """Windows of `size` that start every `slide`; `offset` shifts their starts."""
        return SlidingEventTimeWindows(size.to_milliseconds(), slide.to_milliseconds(), _millis(offset))


class SlidingProcessingTimeWindows(InProcessingTime[T], _SlidingWindows[T]):
    """Windows of `size` that start every `slide`, in processing time."""

    @staticmethod
    def of(size: Interval, slide: Interval, offset: Interval | None = None) -> SlidingProcessingTimeWindows[Any]:
        """Windows of `size` that start every `slide`; `offset` shifts their starts."""
        return SlidingProcessingTimeWindows(size.to_milliseconds(), slide.to_milliseconds(), _millis(offset))


class CumulativeEventTimeWindows(InEventTime[T]):
    """Event-time windows of `step`, 2 * `step` and so on up to `max_size`, then from the start again; in Flink they are
    CUMULATE of its SQL.

        0     step    2·step  3·step = max_size
        ├──────┤       │       ├──────┤
        ├──────────────┤       ├──────────────┤
        ├──────────────────────┼──────────────────────┤
    """

    def __init__(self, max_size: int, step: int, offset: int = 0) -> None:
        if step <= 0 or max_size < step or max_size % step or abs(offset) >= max_size:
            raise JobDefinitionError(
                f"CumulativeEventTimeWindows must satisfy step > 0, abs(offset) < max_size and max_size a multiple of step, "
                f"but max_size is {max_size} ms, step is {step} ms and offset is {offset} ms"
            )
        self._max_size, self._step, self._offset = max_size, step, offset

    @staticmethod
    def of(max_size: Interval, step: Interval, offset: Interval | None = None) -> CumulativeEventTimeWindows[Any]:
        """Windows of one `step` up to `max_size`, which must be a multiple of it; `offset` shifts their starts."""
        return CumulativeEventTimeWindows(max_size.to_milliseconds(), step.to_milliseconds(), _millis(offset))

    def _windows_at(self, time: int, element: T) -> Collection[TimeWindow]:
        """Shortest first."""
        start = TimeWindow.get_window_start_with_offset(time, self._offset, self._max_size)
        first = (time - start) // self._step + 1
        windows = [time_window(start, n * self._step) for n in range(first, self._max_size // self._step + 1)]
        return list(dict.fromkeys(windows))  # those that time cuts off are one

    def __repr__(self) -> str:
        return f"CumulativeEventTimeWindows({self._max_size}, {self._step}, {self._offset})"
