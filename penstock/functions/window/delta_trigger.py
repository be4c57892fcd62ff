"""The trigger that fires when values have moved far enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from penstock.common.typeinfo import Types
from penstock.errors import JobDefinitionError
from penstock.functions.state import ValueState, ValueStateDescriptor
from penstock.functions.window.trigger import Trigger, TriggerResult

T = TypeVar("T")
W = TypeVar("W")

_LAST: Final = ValueStateDescriptor("last-element", Types.PICKLED_BYTE_ARRAY())


class DeltaTrigger(Trigger[T, W]):
    """Fires at an element whose delta to the one that fired last, `delta_function(last, element)`, is above the
    threshold. The first element of a pane does not fire: it is what the next ones are measured by."""

    def __init__(self, threshold: float, delta_function: Callable[[T, T], float]) -> None:
        if not callable(delta_function):
            raise JobDefinitionError(f"DeltaTrigger takes a function of two values, not {delta_function!r}")
        self._threshold, self._delta = threshold, delta_function

    @staticmethod
    def of(threshold: float, delta_function: Callable[[Any, Any], float]) -> DeltaTrigger[Any, Any]:
        return DeltaTrigger(threshold, delta_function)

    def on_element(self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        last: ValueState[tuple[T]] = ctx.get_partitioned_state(_LAST)
        before = last.value()
        if before is None:  # in a tuple, so that None is an element like any other
            last.update((element,))
            return TriggerResult.CONTINUE
        if self._delta(before[0], element) <= self._threshold:
            return TriggerResult.CONTINUE
        last.update((element,))
        return TriggerResult.FIRE

    def on_processing_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Never called: which of several last elements would be the last is not defined, so can_merge() says no."""

    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(_LAST).clear()
