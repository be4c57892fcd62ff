"""Triggers: what decides when a window is evaluated.

Here are those that do not look at time: by count, by how far values have moved, never, and the one that purges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from penstock.common.metrics import MetricGroup
from penstock.common.typeinfo import Types
from penstock.errors import JobDefinitionError
from penstock.functions.elementwise import ReduceFunction
from penstock.functions.state import (
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)
from penstock.functions.window.windows import GlobalWindow

T = TypeVar("T")
W = TypeVar("W")


class TriggerResult(Enum):
    """The decision of a trigger: whether the window function runs and whether the contents are dropped. An empty
    window is never evaluated.
    """

    CONTINUE = (False, False)  # nothing
    FIRE_AND_PURGE = (True, True)  # evaluate, then empty
    FIRE = (True, False)  # evaluate and keep
    PURGE = (False, True)  # empty without evaluating

    def is_fire(self) -> bool:
        """True if the window function is to run."""
        return self.value[0]

    def is_purge(self) -> bool:
        """True if the contents of the window are to be dropped, after the window function if it runs."""
        return self.value[1]


_CONTINUE, _FIRE, _FIRE_AND_PURGE = TriggerResult.CONTINUE, TriggerResult.FIRE, TriggerResult.FIRE_AND_PURGE


class Trigger(ABC, Generic[T, W]):
    """Decides for every pane (a key's window) on its own.

    One instance serves all panes of a subtask, so it must not keep anything in attributes: what it needs to remember
    goes into `ctx.get_partitioned_state`. Purging a window leaves its trigger state alone; `clear` removes it.
    """

    class TriggerContext(ABC):
        """Time, timers and state of one pane; valid during the call it is passed to."""

        @abstractmethod
        def get_current_processing_time(self) -> int:
            """The processing time in milliseconds."""

        @abstractmethod
        def get_metric_group(self) -> MetricGroup:
            """The metrics of the window operator."""

        @abstractmethod
        def get_current_watermark(self) -> int:
            """The watermark of the subtask in milliseconds."""

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Call `on_processing_time` for this pane at `time`."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Call `on_event_time` for this pane when the watermark reaches `time`."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None:
            """Takes back a timer of this pane, if there is one at `time`."""

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None:
            """Takes back a timer of this pane, if there is one at `time`."""

        @abstractmethod
        def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
            """The state of this pane: a `ValueState`, `ReducingState` and so on, as the descriptor says."""

    class OnMergeContext(TriggerContext):
        """The context of the window that others were merged into."""

        @abstractmethod
        def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
            """Merge this state of all merged windows into that of the result. Only for list, reducing and
            aggregating state."""

    @abstractmethod
    def on_element(self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """Called for every record after it was added; with merging windows, after the merge."""

    @abstractmethod
    def on_processing_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """A processing-time timer of this pane has fired."""

    @abstractmethod
    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        """An event-time timer of this pane has fired."""

    def can_merge(self) -> bool:
        """Whether it can be used with merging windows (sessions)."""
        return False

    @abstractmethod
    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Windows were merged into `window`: merge their state and register its timers. The merged windows are
        cleared afterwards, one by one."""

    @abstractmethod
    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        """The window is dropped: delete its timers and clear its state."""


class TimelessTrigger(Trigger[T, W]):
    """A trigger to which a timer means nothing, unless a kind of it says otherwise for one of the two clocks."""

    def on_processing_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE


class _Sum(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1 + value2


_COUNT: Final = ReducingStateDescriptor("count", _Sum(), Types.LONG())


class CountTrigger(TimelessTrigger[T, W]):
    """Fires on every `window_size`-th record of a pane. It replaces firing by time: an incomplete rest stays."""

    def __init__(self, window_size: int) -> None:
        if window_size <= 0:
            raise JobDefinitionError(
                f"A CountTrigger must wait for at least one record, but its count is {window_size}"
            )
        self._window_size = window_size

    @staticmethod
    def of(window_size: int) -> CountTrigger[Any, Any]:
        """Fires on every `window_size`-th record."""
        return CountTrigger(window_size)

    def on_element(self, element: T, timestamp: int, window: W, ctx: Trigger.TriggerContext) -> TriggerResult:
        count: ReducingState[int] = ctx.get_partitioned_state(_COUNT)
        count.add(1)
        if (count.get() or 0) < self._window_size:
            return _CONTINUE
        count.clear()
        return _FIRE

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
        """Makes every firing of `nested_trigger` empty the window."""
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
    return _FIRE_AND_PURGE if result is _FIRE else result


class NeverTrigger(TimelessTrigger[T, GlobalWindow]):
    """Never fires. The default of global windows: they need a trigger of the user's choice."""

    def on_element(
        self, element: T, timestamp: int, window: GlobalWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: GlobalWindow, ctx: Trigger.OnMergeContext) -> None:
        pass

    def clear(self, window: GlobalWindow, ctx: Trigger.TriggerContext) -> None:
        pass


_LAST: Final = ValueStateDescriptor("last-element", Types.PICKLED_BYTE_ARRAY())


class DeltaTrigger(TimelessTrigger[T, W]):
    """Fires at an element whose delta to the one that fired last, `delta_function(last, element)`, is above the
    threshold. The first element of a pane does not fire: it is what the next ones are measured by."""

    def __init__(self, threshold: float, delta_function: Callable[[T, T], float]) -> None:
        if not callable(delta_function):
            raise JobDefinitionError(f"DeltaTrigger takes a function of two values, not {delta_function!r}")
        self._threshold, self._delta = threshold, delta_function

    @staticmethod
    def of(threshold: float, delta_function: Callable[[Any, Any], float]) -> DeltaTrigger[Any, Any]:
        """Fires when `delta_function(last, element)` is above `threshold`."""
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

    def on_merge(self, window: W, ctx: Trigger.OnMergeContext) -> None:
        """Never called: which of several last elements would be the last is not defined, so can_merge() says no."""

    def clear(self, window: W, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(_LAST).clear()
