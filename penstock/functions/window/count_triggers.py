"""Triggers that do not look at time: by count, never, and the one that purges."""

from __future__ import annotations

from typing import Any, Final, TypeVar

from penstock.common.typeinfo import Types
from penstock.errors import JobDefinitionError
from penstock.functions.elementwise import ReduceFunction
from penstock.functions.state import ReducingState, ReducingStateDescriptor
from penstock.functions.window.trigger import Trigger, TriggerResult
from penstock.functions.window.windows import GlobalWindow

T = TypeVar("T")
W = TypeVar("W")


class _Sum(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1 + value2


_COUNT: Final = ReducingStateDescriptor("count", _Sum(), Types.LONG())


class CountTrigger(Trigger[T, W]):
    """Fires on every `window_size`-th record of a pane. It replaces firing by time: an incomplete rest stays."""

    def __init__(self, window_size: int) -> None:
        if window_size <= 0:
            raise JobDefinitionError(
                f"A CountTrigger must wait for at least one record, but its count is {window_size}"
            )
        self._window_size = window_size

    @staticmethod
    def of(window_size: int) -> CountTrigger[Any, Any]:
        return CountTrigger(window_size)

    def on_element(self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        count: ReducingState[int] = ctx.get_partitioned_state(_COUNT)
        count.add(1)
        if (count.get() or 0) < self._window_size:
            return TriggerResult.CONTINUE
        count.clear()
        return TriggerResult.FIRE

    def on_processing_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        # The sum may reach the count here; it fires with the record that caused the merge, in `on_element`.
        ctx.merge_partitioned_state(_COUNT)

    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(_COUNT).clear()


class PurgingTrigger(Trigger[T, W]):
    """Fires as the trigger inside does, and empties the window each time."""

    def __init__(self, nested_trigger: Trigger[T, W]) -> None:
        self.nested_trigger = nested_trigger

    @staticmethod
    def of(nested_trigger: Trigger[T, W]) -> PurgingTrigger[T, W]:
        return PurgingTrigger(nested_trigger)

    def on_element(self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_element(element, timestamp, window, ctx))

    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_event_time(time, window, ctx))

    def on_processing_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return _purging(self.nested_trigger.on_processing_time(time, window, ctx))

    def can_merge(self) -> bool:
        return self.nested_trigger.can_merge()

    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        self.nested_trigger.on_merge(window, ctx)

    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        self.nested_trigger.clear(window, ctx)


def _purging(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.is_fire() else result


class NeverTrigger(Trigger[T, GlobalWindow]):
    """Never fires. The default of global windows: they need a trigger of the user's choice."""

    def on_element(
        self, element: T, timestamp: int, window: GlobalWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: GlobalWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: GlobalWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: GlobalWindow, ctx: Trigger.OnMergeContext) -> None:
        pass

    def clear(self, window: GlobalWindow, ctx: Trigger.TriggerContext) -> None:
        pass
