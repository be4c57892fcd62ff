"""Triggers that fire at the end of a window, and those that also fire in between."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Final, TypeVar

from penstock.common.time import Interval
from penstock.common.typeinfo import Types
from penstock.errors import JobDefinitionError
from penstock.functions.elementwise import ReduceFunction
from penstock.functions.state import ReducingState, ReducingStateDescriptor
from penstock.functions.window.triggers import TimelessTrigger, Trigger, TriggerResult
from penstock.functions.window.windows import TimeWindow

T = TypeVar("T")


class EventTimeTrigger(TimelessTrigger[T, TimeWindow]):
    """Fires when the watermark passes the end of the window, and at once for every record that is late but allowed.
    The default of event-time windows."""

    def on_element(self, element: T, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        # The clean-up timer of a window with allowed lateness comes here too, with a later time.
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        # A result that has ended already needs no timer: `on_element`, called next, fires at once.
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(window.max_timestamp())

    @staticmethod
    def create() -> EventTimeTrigger[Any]:
        """The trigger; it has no settings."""
        return EventTimeTrigger()


class ProcessingTimeTrigger(TimelessTrigger[T, TimeWindow]):
    """Fires when processing time passes the end of the window. The default of processing-time windows."""

    def on_element(self, element: T, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        if window.max_timestamp() > ctx.get_current_processing_time():
            ctx.register_processing_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_processing_time_timer(window.max_timestamp())

    @staticmethod
    def create() -> ProcessingTimeTrigger[Any]:
        """The trigger; it has no settings."""
        return ProcessingTimeTrigger()


class _Min(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return min(value1, value2)


# The next time a pane fires. When panes merge, the earliest of theirs counts.
_FIRE_TIME: Final = ReducingStateDescriptor("fire-time", _Min(), Types.LONG())


class _ContinuousTrigger(TimelessTrigger[T, TimeWindow]):
    """Fires at multiples of an interval, by timers of one of the two times."""

    def __init__(self, interval: int) -> None:
        self.interval = _positive(interval)

    @abstractmethod
    def _register(self, time: int, ctx: Trigger.TriggerContext) -> None: ...

    @abstractmethod
    def _delete(self, time: int, ctx: Trigger.TriggerContext) -> None: ...

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(_FIRE_TIME)
        next_fire = ctx.get_partitioned_state(_FIRE_TIME).get()
        if next_fire is not None:
            self._register(next_fire, ctx)

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        fire_time: ReducingState[int] = ctx.get_partitioned_state(_FIRE_TIME)
        next_fire = fire_time.get()
        if next_fire is not None:
            self._delete(next_fire, ctx)
            fire_time.clear()

    def register_next_fire_timestamp(
        self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext, fire_timestamp_state: ReducingState[int]
    ) -> None:
        """Fire an interval after `time`, at the window's end at the latest."""
        next_fire = min(time + self.interval, window.max_timestamp())
        fire_timestamp_state.add(next_fire)
        self._register(next_fire, ctx)


class ContinuousEventTimeTrigger(_ContinuousTrigger[T]):
    """Fires whenever the watermark passes a multiple of the interval while the window has records, and at its end."""

    @staticmethod
    def of(interval: Interval) -> ContinuousEventTimeTrigger[Any]:
        """Fires at multiples of `interval` of event time."""
        return ContinuousEventTimeTrigger(interval.to_milliseconds())

    def on_element(self, element: T, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        if window.max_timestamp() <= ctx.get_current_watermark():
            return TriggerResult.FIRE
        ctx.register_event_time_timer(window.max_timestamp())
        fire_time: ReducingState[int] = ctx.get_partitioned_state(_FIRE_TIME)
        if fire_time.get() is None:
            self.register_next_fire_timestamp(timestamp - timestamp % self.interval, window, ctx, fire_time)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        if time == window.max_timestamp():
            return TriggerResult.FIRE
        fire_time: ReducingState[int] = ctx.get_partitioned_state(_FIRE_TIME)
        if fire_time.get() != time:
            return TriggerResult.CONTINUE
        fire_time.clear()
        self.register_next_fire_timestamp(time, window, ctx, fire_time)
        return TriggerResult.FIRE

    def _register(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.register_event_time_timer(time)

    def _delete(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(time)


class ContinuousProcessingTimeTrigger(_ContinuousTrigger[T]):
    """Fires at every multiple of the interval in processing time while the window has records, and at its end."""

    @staticmethod
    def of(interval: Interval) -> ContinuousProcessingTimeTrigger[Any]:
        """Fires at multiples of `interval` of processing time."""
        return ContinuousProcessingTimeTrigger(interval.to_milliseconds())

    def on_element(self, element: T, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        fire_time: ReducingState[int] = ctx.get_partitioned_state(_FIRE_TIME)
        if fire_time.get() is None:
            now = ctx.get_current_processing_time()
            self.register_next_fire_timestamp(now - now % self.interval, window, ctx, fire_time)
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        fire_time: ReducingState[int] = ctx.get_partitioned_state(_FIRE_TIME)
        if fire_time.get() != time:
            return TriggerResult.CONTINUE
        fire_time.clear()
        # Flink registers the end of the window once more here. Where the window outlives that timer (an event-time
        # window whose end lies in the past of the wall clock) it would fire forever at one and the same time.
        if time < window.max_timestamp():
            self.register_next_fire_timestamp(time, window, ctx, fire_time)
        return TriggerResult.FIRE

    def _register(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.register_processing_time_timer(time)

    def _delete(self, time: int, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_processing_time_timer(time)


def _positive(interval: int) -> int:
    if interval <= 0:
        raise JobDefinitionError(f"The interval of a continuous trigger must be positive, but is {interval} ms")
    return interval
