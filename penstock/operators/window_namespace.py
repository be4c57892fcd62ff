"""Windows as state namespaces: small tuples, so that snapshots stay small and the order of timers is canonical."""

from __future__ import annotations

import io
from typing import Any, Final, TypeAlias

from penstock.datastream.window import CountWindow, GlobalWindow, TimeWindow, Window, WindowAssigner

WindowNamespace: TypeAlias = tuple[Any, ...]

ALL_KEY: Final = 0  # the one key of windows over a whole stream


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
