"""Window assigners: what decides which windows a record belongs to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable
from typing import Any, Generic, TypeVar

from penstock.common.constants import MAX_LONG_VALUE, MIN_LONG_VALUE
from penstock.common.serializer import TypeSerializer
from penstock.errors import PenstockError
from penstock.functions.base import RuntimeContext
from penstock.functions.window.trigger import Trigger
from penstock.functions.window.windows import TimeWindow

T = TypeVar("T")
W = TypeVar("W")
W2 = TypeVar("W2")


class WindowAssigner(ABC, Generic[T, W]):
    """Puts records into windows. One instance serves all keys of a subtask and keeps nothing between calls."""

    class WindowAssignerContext(ABC):
        """What an assigner may ask for."""

        @abstractmethod
        def get_current_processing_time(self) -> int: ...

        @abstractmethod
        def get_runtime_context(self) -> RuntimeContext:
            """For state of the current key."""

    @abstractmethod
    def assign_windows(
        self, element: T, timestamp: int, context: WindowAssigner.WindowAssignerContext
    ) -> Collection[W]:
        """The windows of `element`, maybe none. `timestamp` is the smallest long when it has no event time."""

    @abstractmethod
    def get_default_trigger(self, env: Any) -> Trigger[T, W]:
        """The trigger when the user sets none; `env` is the stream execution environment."""

    @abstractmethod
    def get_window_serializer(self) -> TypeSerializer[W]: ...

    @abstractmethod
    def is_event_time(self) -> bool:
        """Whether windows end by the watermark; else by processing time."""


class MergingWindowAssigner(WindowAssigner[T, W]):
    """An assigner whose windows can merge: every record first gets a window of its own."""

    class MergeCallback(ABC, Generic[W2]):
        """Receives what is to be merged."""

        @abstractmethod
        def merge(self, to_be_merged: Iterable[W2], merge_result: W2) -> None:
            """`to_be_merged` (two or more, each in one call only) become `merge_result`, which may be one of them."""

    @abstractmethod
    def merge_windows(self, windows: Iterable[W], callback: MergingWindowAssigner.MergeCallback[W]) -> None:
        """Find out which of the windows of one key are to be merged and call `callback` for each group."""


def event_time(timestamp: int | None, assigner: WindowAssigner[Any, Any]) -> int:
    """The timestamp of a record that needs one."""
    if timestamp is None or timestamp <= MIN_LONG_VALUE:
        raise PenstockError(
            f"{assigner!r} cannot place a record that has no timestamp. Call "
            "assign_timestamps_and_watermarks(...) with a timestamp assigner before the window, "
            "or use processing-time windows."
        )
    return timestamp


def time_window(start: int, size: int) -> TimeWindow:
    """The window of this start and size, cut off where time ends. One that would begin before time does is refused: no
    64-bit number could name it."""
    if start < MIN_LONG_VALUE:
        raise begins_too_early(start)
    return TimeWindow(start, min(start + size, MAX_LONG_VALUE))


def begins_too_early(start: int) -> PenstockError:
    return PenstockError(
        f"a window would begin before {MIN_LONG_VALUE}, the smallest timestamp there is, at {start}: the timestamp of its "
        "record is no time in milliseconds; correct the timestamp assigner, or filter such records out before the window"
    )
