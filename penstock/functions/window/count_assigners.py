"""Windows that do not look at time: the global window, and groups of so many records of a key."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, TypeVar

from penstock.common.serialization import TypeSerializer
from penstock.common.typeinfo import Types
from penstock.errors import JobDefinitionError
from penstock.functions.state import ValueStateDescriptor
from penstock.functions.window.assigners import WindowAssigner
from penstock.functions.window.triggers import CountTrigger, NeverTrigger, PurgingTrigger, Trigger
from penstock.functions.window.windows import CountWindow, CountWindowSerializer, GlobalWindow, GlobalWindowSerializer

T = TypeVar("T")

_TUMBLING_COUNT: Final = ValueStateDescriptor("tumble-count-assigner", Types.LONG())
_SLIDING_COUNT: Final = ValueStateDescriptor("slide-count-assigner", Types.LONG())


class GlobalWindows(WindowAssigner[T, GlobalWindow]):
    """Everything of a key in one window that never ends: needs a trigger of the user's choice to emit anything."""

    @staticmethod
    def create() -> GlobalWindows[Any]:
        """The assigner; it has no settings."""
        return GlobalWindows()

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[GlobalWindow]:
        return [GlobalWindow.get()]

    def get_default_trigger(self, env: Any) -> Trigger[T, GlobalWindow]:
        return NeverTrigger()

    def get_window_serializer(self) -> TypeSerializer[GlobalWindow]:
        return GlobalWindowSerializer()

    def is_event_time(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "GlobalWindows()"


class _CountWindows(WindowAssigner[T, CountWindow]):
    _window_size: int

    def get_default_trigger(self, env: Any) -> Trigger[T, CountWindow]:
        # A full count window never gets another record, so emptying it changes no result; PyFlink, which only fires,
        # keeps the records of all count windows forever.
        return PurgingTrigger(CountTrigger(self._window_size))

    def get_window_serializer(self) -> TypeSerializer[CountWindow]:
        return CountWindowSerializer()

    def is_event_time(self) -> bool:
        return False


class CountTumblingWindowAssigner(_CountWindows[T]):
    """The first `window_size` records of a key, the next, and so on."""

    def __init__(self, window_size: int) -> None:
        self._window_size = _positive("size", window_size)

    @staticmethod
    def of(window_size: int) -> CountTumblingWindowAssigner[Any]:
        """Windows of `window_size` records."""
        return CountTumblingWindowAssigner(window_size)

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[CountWindow]:
        position = _next_position(_TUMBLING_COUNT, context)
        return [CountWindow(position // self._window_size)]

    def __repr__(self) -> str:
        return f"CountTumblingWindowAssigner({self._window_size})"


class CountSlidingWindowAssigner(_CountWindows[T]):
    """A window of `window_size` records is opened every `window_slide` records. Only full windows fire: this is
    PyFlink's meaning (in Java every `window_slide`-th record fires, also with fewer)."""

    def __init__(self, window_size: int, window_slide: int) -> None:
        self._window_size = _positive("size", window_size)
        self._window_slide = _positive("slide", window_slide)

    @staticmethod
    def of(window_size: int, window_slide: int) -> CountSlidingWindowAssigner[Any]:
        """Windows of `window_size` records, one opened every `window_slide` records."""
        return CountSlidingWindowAssigner(window_size, window_slide)

    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[CountWindow]:
        """Latest first; window n holds the records from n * slide to n * slide + size - 1."""
        position = _next_position(_SLIDING_COUNT, context)
        last = position // self._window_slide
        # The first window that still reaches `position`: the smallest n >= 0 with n * slide + size > position.
        first = max(0, (position - self._window_size) // self._window_slide + 1)
        return [CountWindow(window_id) for window_id in range(last, first - 1, -1)]

    def __repr__(self) -> str:
        return f"CountSlidingWindowAssigner({self._window_size}, {self._window_slide})"


def _next_position(descriptor: ValueStateDescriptor, context: WindowAssigner.WindowAssignerContext) -> int:
    """How many records of the current key came before this one."""
    count = context.get_runtime_context().get_state(descriptor)
    position: int = count.value() or 0
    count.update(position + 1)
    return position


def _positive(what: str, value: int) -> int:
    if value <= 0:
        raise JobDefinitionError(f"The {what} of a count window must be at least 1, but is {value}")
    return value
