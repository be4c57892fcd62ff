"""Triggers: what decides when a window is evaluated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, Generic, TypeVar

from penstock.common.metrics import MetricGroup
from penstock.functions.state import StateDescriptor

T = TypeVar("T")
W = TypeVar("W")


class TriggerResult(Enum):
    """What happens with the contents of a window. An empty window is never evaluated."""

    CONTINUE = (False, False)  # nothing
    FIRE_AND_PURGE = (True, True)  # evaluate, then empty
    FIRE = (True, False)  # evaluate and keep
    PURGE = (False, True)  # empty without evaluating

    def is_fire(self) -> bool:
        return self.value[0]

    def is_purge(self) -> bool:
        return self.value[1]


class Trigger(ABC, Generic[T, W]):
    """Decides for every pane (a key's window) on its own.

    One instance serves all panes of a subtask, so it must not keep anything in attributes: what it needs to remember
    goes into `ctx.get_partitioned_state`. Purging a window leaves its trigger state alone; `clear` removes it.
    """

    class TriggerContext(ABC):
        """Time, timers and state of one pane; valid during the call it is passed to."""

        @abstractmethod
        def get_current_processing_time(self) -> int: ...

        @abstractmethod
        def get_metric_group(self) -> MetricGroup: ...

        @abstractmethod
        def get_current_watermark(self) -> int: ...

        @abstractmethod
        def register_processing_time_timer(self, time: int) -> None:
            """Call `on_processing_time` for this pane at `time`."""

        @abstractmethod
        def register_event_time_timer(self, time: int) -> None:
            """Call `on_event_time` for this pane when the watermark reaches `time`."""

        @abstractmethod
        def delete_processing_time_timer(self, time: int) -> None: ...

        @abstractmethod
        def delete_event_time_timer(self, time: int) -> None: ...

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
