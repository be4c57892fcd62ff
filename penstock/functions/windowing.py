"""Functions that evaluate the contents of a window."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from penstock.functions.base import Function, KeyedStateStore

IN = TypeVar("IN")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
W = TypeVar("W")
W2 = TypeVar("W2")


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Called with a key's window each time its trigger fires."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """`inputs` in the order of arrival, or the one result of a reduce or aggregate before it."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """A window function over a whole stream without keys."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT]:
        """Yields the records to emit when the window fires; `inputs` holds its records, or the one result of reduce or
        aggregate.
        """


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """A window function over a whole stream without keys that also sees state."""

    class Context(ABC, Generic[W2]):
        """Valid during the call it is passed to."""

        @abstractmethod
        def window(self) -> W2:
            """The window that fires or is dropped."""

        @abstractmethod
        def window_state(self) -> KeyedStateStore:
            """State of this key in this window; clear it in `clear`. Not for session windows, which merge."""

        @abstractmethod
        def global_state(self) -> KeyedStateStore:
            """State of this key across all its windows."""

    @abstractmethod
    def process(self, context: ProcessAllWindowFunction.Context[Any], elements: Iterable[IN]) -> Iterable[OUT]:
        """Yields the records to emit when the window fires; `elements` holds its records, or the one result of reduce
        or aggregate. `context` is valid only during the call.
        """

    def clear(self, context: ProcessAllWindowFunction.Context[Any]) -> None:
        """Called when the window is dropped: after its allowed lateness, once."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """A window function that also sees time and state.

    Example:

        class CountWithWindow(ProcessWindowFunction):
            def process(self, key, context, elements):
                yield key, context.window().start, len(list(elements))
    """

    class Context(ProcessAllWindowFunction.Context[W2]):
        """Valid during the call it is passed to."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """The processing time in milliseconds."""

        @abstractmethod
        def current_watermark(self) -> int:
            """The watermark of the subtask in milliseconds."""

    @abstractmethod
    def process(self, key: KEY, context: ProcessWindowFunction.Context[Any], elements: Iterable[IN]) -> Iterable[OUT]:
        """Yields the records to emit when the window of `key` fires; `elements` holds its records, or the one result
        of reduce or aggregate. `context` is valid only during the call.
        """

    def clear(self, context: ProcessWindowFunction.Context[Any]) -> None:
        """Called when the window is dropped: after its allowed lateness, once."""


class PassThroughWindowFunction(WindowFunction[IN, IN, KEY, W]):
    """Emits what the window holds: how `reduce` and `aggregate` on their own end."""

    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[IN]:
        yield from inputs


class PassThroughAllWindowFunction(AllWindowFunction[IN, IN, W]):
    """Emits what a window of a stream without keys holds, as it is."""

    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[IN]:
        yield from inputs
