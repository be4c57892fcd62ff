"""Windows as state namespaces: small tuples, so that snapshots stay small and the order of timers is canonical."""

from __future__ import annotations

import io
from typing import Any, Final, TypeAlias

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
    Window,
    WindowAssigner,
)

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
    return (
        repr(assigner) if ours and not dynamic else type(assigner).__qualname__
    )  # users may rename what they hand over


class WindowCodec:
    """(start, end) for a time window, (id,) for a count window, () for the global window; a user's own kind of window
    is (bytes,), as its assigner's serializer writes it."""

    __slots__ = ("_serializer",)

    def __init__(self, assigner: WindowAssigner[Any, Any]) -> None:
        self._serializer = assigner.get_window_serializer()

    def namespace(self, window: Any) -> WindowNamespace:
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
        match namespace:
            case (start, end):
                return TimeWindow(start, end)
            case ():
                return GlobalWindow.get()
            case (bytes() as data,):
                own: Window = self._serializer.deserialize(io.BytesIO(data))
                return own
        return CountWindow(namespace[0])
