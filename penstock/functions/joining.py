"""Functions that bring records of two streams together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from penstock.functions.base import Function


class JoinFunction(Function):
    """Makes one result of each pair of a window join."""

    @abstractmethod
    def join(self, first: Any, second: Any) -> Any:
        """`first` is of the stream that join() was called on. What is returned is the result, None included."""


class CoGroupFunction(Function):
    """Sees all records that a key has in a window, of both streams."""

    @abstractmethod
    def co_group(self, first: Iterable[Any], second: Iterable[Any]) -> Iterable[Any] | None:
        """Each in the order of arrival. One of them may be empty, never both: this is how outer joins are written."""


class ProcessJoinFunction(Function):
    """Called for each pair of an interval join."""

    class Context(ABC):
        """Valid during the call it is passed to."""

        @abstractmethod
        def get_left_timestamp(self) -> int: ...

        @abstractmethod
        def get_right_timestamp(self) -> int: ...

        @abstractmethod
        def get_timestamp(self) -> int:
            """The later of both: the timestamp of the results."""

    @abstractmethod
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterable[Any] | None:
        """Any number of results; a side output is a pair (OutputTag, value)."""
