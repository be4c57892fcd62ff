"""What triggers, assigners and window functions see of the window operator: one object each, set to one pane.

Windows as state namespaces: small tuples, so that snapshots stay small and the order of timers is canonical.
"""

from __future__ import annotations

import copy
import io
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.errors import JobDefinitionError
from penstock.functions import KeyedStateStore, ProcessAllWindowFunction, ProcessWindowFunction, RuntimeContext
from penstock.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from penstock.functions.window import (
    CountWindow,
    CountWindowSerializer,
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    GlobalWindow,
    GlobalWindowSerializer,
    MergingWindowAssigner,
    TimeWindow,
    TimeWindowSerializer,
    Trigger,
    Window,
    WindowAssigner,
)
from penstock.operators.runtime_context import StatesByDescriptor, keyed_state
from penstock.operators.window_contents import (
    AggregateContents,
    ListContents,
    ReduceContents,
    WindowClocks,
    merge_namespaces,
)

if TYPE_CHECKING:
    from penstock.operators.window import WindowOperator


WindowNamespace: TypeAlias = tuple[Any, ...]

ALL_KEY: Final = 0  # the one key of windows over a whole stream


def kind_of_windows(assigner: WindowAssigner[Any, Any]) -> str:
    """For a state's specification: windows of another kind cannot be read, or mean something else."""
    clock = "event" if assigner.is_event_time() else "processing"
    match assigner.get_window_serializer():
        case TimeWindowSerializer():
            return f"{clock} time, merging" if isinstance(assigner, MergingWindowAssigner) else f"{clock} time"
        case CountWindowSerializer():
            return repr(assigner)  # a window is the number of a position that depends on the size
        case GlobalWindowSerializer():
            return "global"
    return f"{clock} time, of {type(assigner).__qualname__}"


def described_windows(assigner: WindowAssigner[Any, Any]) -> str | None:
    """For a state's specification: which windows there are; None: the kind says it."""
    if isinstance(assigner.get_window_serializer(), CountWindowSerializer):
        return None
    ours = type(assigner).__module__.startswith("penstock.")
    dynamic = isinstance(assigner, (DynamicEventTimeSessionWindows, DynamicProcessingTimeSessionWindows))
    # Users may rename what they hand over.
    return repr(assigner) if ours and not dynamic else type(assigner).__qualname__


class WindowCodec:
    """(start, end) for a time window, (id,) for a count window, () for the global window; a user's own kind of window
    is (bytes,), as its assigner's serializer writes it."""

    __slots__ = ("_serializer",)

    def __init__(self, assigner: WindowAssigner[Any, Any]) -> None:
        self._serializer = assigner.get_window_serializer()

    def namespace(self, window: Any) -> WindowNamespace:
        """The namespace under which state of a window is kept."""
        kind = type(window)
        if kind is TimeWindow:
            return (window.start, window.end)
        if kind is CountWindow:
            return (window.id,)
        if kind is GlobalWindow:
            return ()
        stream = io.BytesIO()
        self._serializer.serialize(window, stream)
        return (stream.getvalue(),)

    def window(self, namespace: WindowNamespace) -> Window:
        """The window of a namespace."""
        match namespace:
            case (start, end):
                return TimeWindow(start, end)
            case ():
                return GlobalWindow.get()
            case (bytes() as data,):
                own: Window = self._serializer.deserialize(io.BytesIO(data))
                return own
        return CountWindow(namespace[0])


_NONE: WindowNamespace = ()


class AssignerContext(WindowClocks, WindowAssigner.WindowAssignerContext):
    """The context that a window operator gives its assigner."""

    def get_runtime_context(self) -> RuntimeContext:
        return self._operator.runtime_context


class PaneStates:
    """States of a key and a window. `scope` keeps names of triggers, window functions and global state apart."""

    def __init__(self, operator: WindowOperator, scope: str) -> None:
        self._state = operator.ctx.state
        self._clock = operator.ctx.processing_time
        self._scope = scope
        self._handles: dict[str, Any] = {}

    def get(self, descriptor: StateDescriptor, namespace: WindowNamespace) -> Any:
        """The state of a key and window that the descriptor names."""
        handle = self._handles.get(descriptor.name)
        if handle is None:
            scoped = copy.copy(descriptor)
            scoped.name = f"{self._scope}:{descriptor.name}"
            handle = self._handles[descriptor.name] = keyed_state(self._state, scoped, self._clock, namespaced=True)
        handle.namespace = namespace
        return handle


class TriggerContext(WindowClocks, Trigger.OnMergeContext):
    """The context that a window operator gives its trigger, for the pane that `at` chose."""

    def __init__(self, operator: WindowOperator) -> None:
        super().__init__(operator)
        self._timers = operator.timers
        self._states = PaneStates(operator, "trigger")
        self.namespace: WindowNamespace = _NONE
        self.merged: list[WindowNamespace] = []

    def at(self, namespace: WindowNamespace) -> TriggerContext:
        """Chooses the pane that the next calls are about."""
        self.namespace = self._timers.namespace = namespace
        return self

    def register_processing_time_timer(self, time: int) -> None:
        self._timers.register_processing_time_timer(time)

    def register_event_time_timer(self, time: int) -> None:
        self._timers.register_event_time_timer(time)

    def delete_processing_time_timer(self, time: int) -> None:
        self._timers.delete_processing_time_timer(time)

    def delete_event_time_timer(self, time: int) -> None:
        self._timers.delete_event_time_timer(time)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> Any:
        return self._states.get(state_descriptor, self.namespace)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        match state_descriptor:
            case ListStateDescriptor():
                merge = ListContents().merge
            case ReducingStateDescriptor():
                merge = ReduceContents(state_descriptor.get_reduce_function()).merge
            case AggregatingStateDescriptor():
                merge = AggregateContents(state_descriptor.get_agg_function()).merge
            case _:
                raise JobDefinitionError(
                    f"{type(self._operator.trigger).__name__}.on_merge merges state {state_descriptor.name!r}, but "
                    f"{type(state_descriptor).__name__} cannot be merged: use list, reducing or aggregating state"
                )
        handle = self._states.get(state_descriptor, self.namespace)
        merge_namespaces(handle._table, self._operator.ctx.state.key(), self.namespace, self.merged, merge)


class WindowStateStore(StatesByDescriptor):
    """`context.window_state()`: state of the current key in the current window."""

    def __init__(self, operator: WindowOperator) -> None:
        self._states = PaneStates(operator, "window")
        self.namespace: WindowNamespace = _NONE

    def _state(self, descriptor: StateDescriptor) -> Any:
        return self._states.get(descriptor, self.namespace)


class WindowContext(ProcessWindowFunction.Context[Any], ProcessAllWindowFunction.Context[Any]):
    """The context of keyed and all-window process functions."""

    def __init__(self, operator: WindowOperator) -> None:
        self._operator = operator
        self._window_state = WindowStateStore(operator)
        self._window: Any = None

    def at(self, window: Any, namespace: WindowNamespace) -> WindowContext:
        """Chooses the window that the next calls are about."""
        self._window = window
        self._window_state.namespace = namespace
        return self

    def window(self) -> Any:
        return self._window

    def current_processing_time(self) -> int:
        return self._operator.ctx.processing_time()

    def current_watermark(self) -> int:
        return self._operator.current_watermark

    def window_state(self) -> KeyedStateStore:
        if self._operator.merging:
            raise JobDefinitionError(
                f"window_state() was asked for in operator {self._operator.ctx.name!r}, whose windows merge "
                f"({self._operator.assigner!r}): when two of them become one, two states of one name cannot. Use "
                "global_state(), which belongs to the key, or windows that do not merge"
            )
        return self._window_state

    def global_state(self) -> KeyedStateStore:
        return self._operator.runtime_context
