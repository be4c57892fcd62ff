"""Cumulating windows: they start together and each is one step longer than the one before."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar

from penstock.common.serializer import TypeSerializer
from penstock.common.time import Interval
from penstock.errors import JobDefinitionError
from penstock.functions.window.assigner import WindowAssigner, event_time, time_window
from penstock.functions.window.serializers import TimeWindowSerializer
from penstock.functions.window.time_triggers import EventTimeTrigger
from penstock.functions.window.trigger import Trigger
from penstock.functions.window.windows import TimeWindow

T = TypeVar("T")


class CumulativeEventTimeWindows(WindowAssigner[T, TimeWindow]):
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
        shift = 0 if offset is None else offset.to_milliseconds()
        return CumulativeEventTimeWindows(max_size.to_milliseconds(), step.to_milliseconds(), shift)

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[TimeWindow]:
        """Shortest first."""
        time = event_time(timestamp, self)
        start = TimeWindow.get_window_start_with_offset(time, self._offset, self._max_size)
        first = (time - start) // self._step + 1
        windows = [time_window(start, n * self._step) for n in range(first, self._max_size // self._step + 1)]
        return list(dict.fromkeys(windows))  # those that time cuts off are one

    def get_default_trigger(self, env: Any) -> Trigger[T, TimeWindow]:
        return EventTimeTrigger()

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        return TimeWindowSerializer()

    def is_event_time(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"CumulativeEventTimeWindows({self._max_size}, {self._step}, {self._offset})"
