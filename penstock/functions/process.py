"""Process functions: records, time, timers and state together.

A result is yielded; `yield output_tag, value` with an `OutputTag` goes to that side output. Contexts are only valid
during the call they are passed to.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from penstock.functions.base import Function
from penstock.functions.time_domain import TimeDomain
from penstock.functions.timerservice import TimerService


class ProcessFunction(Function):
    """On a stream without keys: no state and no timers of its own."""

    class Context(ABC):
        @abstractmethod
        def timer_service(self) -> TimerService:
            """Only for reading the clocks: timers need a keyed stream."""

        @abstractmethod
        def timestamp(self) -> int:
            """The record's event time, the smallest long (-2**63) without one."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any] | None: ...


class KeyedProcessFunction(Function):
    """On a keyed stream: state and timers belong to the key of the current record."""

    class Context(ABC):
        @abstractmethod
        def get_current_key(self) -> Any: ...

        @abstractmethod
        def timer_service(self) -> TimerService: ...

        @abstractmethod
        def timestamp(self) -> int:
            """The record's event time, the smallest long (-2**63) without one; in `on_timer` the timer's."""

    class OnTimerContext(Context):
        @abstractmethod
        def time_domain(self) -> TimeDomain: ...

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None: ...

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any] | None:
        """A timer of this key has fired; timers fire in the order of their timestamps."""
        return None


class CoProcessFunction(Function):
    """On two connected streams without keys; both methods share the instance."""

    class Context(ABC):
        @abstractmethod
        def timer_service(self) -> TimerService:
            """Only for reading the clocks: timers need keyed streams."""

        @abstractmethod
        def timestamp(self) -> int: ...

    @abstractmethod
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any] | None: ...

    @abstractmethod
    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any] | None: ...


class KeyedCoProcessFunction(Function):
    """On two connected keyed streams: both sides of one key share state and timers."""

    class Context(ABC):
        @abstractmethod
        def get_current_key(self) -> Any: ...

        @abstractmethod
        def timer_service(self) -> TimerService: ...

        @abstractmethod
        def timestamp(self) -> int: ...

    class OnTimerContext(Context):
        @abstractmethod
        def time_domain(self) -> TimeDomain: ...

    @abstractmethod
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any] | None: ...

    @abstractmethod
    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any] | None: ...

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterable[Any] | None:
        return None
