"""Process functions: records, time, timers and state together, on one stream, on two, and with a broadcast one.

A result is yielded; `yield output_tag, value` with an `OutputTag` goes to that side output. Contexts are only valid
during the call they are passed to.

Every subtask sees every broadcast element and keeps its own copy of the broadcast state. The copies stay equal only
if `process_broadcast_element` does the same in all of them; that is why the other side may only read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.common.absent import Explaining
from penstock.common.typeinfo import RowTypeInfo, TypeInformation, Types
from penstock.functions.base import Function, TimeDomain, TimerService

if TYPE_CHECKING:
    from penstock.functions.state import BroadcastState, MapStateDescriptor, ReadOnlyBroadcastState


class ProcessFunction(Function):
    """On a stream without keys: no state and no timers of its own."""

    class Context(ABC):
        """Tells a function about the current record; valid during the call it is passed to."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Only for reading the clocks: timers need a keyed stream."""

        @abstractmethod
        def timestamp(self) -> int:
            """The record's event time, the smallest long (-2**63) without one."""

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any] | None:
        """Yields the records to emit for `value`; to yield `(tag, record)` emits to a side output. `ctx` gives the
        timestamp and is valid only during the call.
        """


class KeyedProcessFunction(Function):
    """On a keyed stream: state and timers belong to the key of the current record.

    Example:

        class Count(KeyedProcessFunction):
            def open(self, runtime_context):
                self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

            def process_element(self, value, ctx):
                self.seen.update((self.seen.value() or 0) + 1)
                yield ctx.get_current_key(), self.seen.value()
    """

    class Context(ProcessFunction.Context):
        """In `on_timer`, `timestamp` is the timer's."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """The key of the current record or timer."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """The clocks, and the timers of the current key."""

    class OnTimerContext(Context):
        """The context of `on_timer`."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """The clock of the timer that fired."""

    @abstractmethod
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any] | None:
        """Yields the records to emit for `value`; to yield `(tag, record)` emits to a side output. `ctx` gives the
        key, the timestamp and the timer service, and is valid only during the call.
        """

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any] | None:
        """A timer of this key has fired; timers fire in the order of their timestamps."""
        return None


class CoProcessFunction(Function):
    """On two connected streams without keys; both methods share the instance."""

    class Context(ProcessFunction.Context):
        """Tells a function about the current record; valid during the call it is passed to."""

    @abstractmethod
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any] | None:
        """Yields the records to emit for a record of the first stream."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any] | None:
        """Yields the records to emit for a record of the second stream."""


class KeyedCoProcessFunction(Function):
    """On two connected keyed streams: both sides of one key share state and timers."""

    class Context(KeyedProcessFunction.Context):
        """Tells a function about the current record and its key; valid during the call it is passed to."""

    class OnTimerContext(Context, KeyedProcessFunction.OnTimerContext):
        """The context of `on_timer`."""

    @abstractmethod
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any] | None:
        """Yields the records to emit for a record of the first stream, with the state of its key."""

    @abstractmethod
    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any] | None:
        """Yields the records to emit for a record of the second stream, with the state of its key."""

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterable[Any] | None:
        """Called when a timer of the key that either method registered is due; yields the records to emit."""
        return None


IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")


class BaseBroadcastProcessFunction(Function):
    """Base of the keyed and the plain broadcast function."""

    class BaseContext(ABC):
        """Time, for both sides; valid during the call it is passed to."""

        @abstractmethod
        def timestamp(self) -> int:
            """The element's event time, the smallest long (-2**63) without one."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """The processing time in milliseconds."""

        @abstractmethod
        def current_watermark(self) -> int:
            """The watermark of the subtask in milliseconds."""

    class Context(BaseContext):
        """The context of the broadcast side."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
            """The broadcast state that the descriptor names, to read and write. It must be one that `broadcast` was
            given.
            """

    class ReadOnlyContext(BaseContext):
        """The context of the side that is not broadcast."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
            """The broadcast state that the descriptor names, to read. It must be one that `broadcast` was given."""


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """The side that is not broadcast has no keys."""

    class Context(BaseBroadcastProcessFunction.Context, ABC):
        """The context of `process_broadcast_element`."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext, ABC):
        """The context of `process_element`."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: BroadcastProcessFunction.ReadOnlyContext) -> Iterable[OUT] | None:
        """Yields the records to emit for a record of the stream that is not broadcast; broadcast state can be read."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: BroadcastProcessFunction.Context) -> Iterable[OUT] | None:
        """Called in every subtask for each broadcast record; broadcast state can be written, and must be written alike
        everywhere.
        """


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """The side that is not broadcast is keyed, with state and timers; broadcast elements have no key."""

    class Context(BaseBroadcastProcessFunction.Context, ABC):
        """The context of `process_broadcast_element`; there is no key, and so neither keyed state nor timers."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext, ABC):
        """The context of `process_element`."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """The clocks, and the timers of the current key."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """The key of the current record or timer."""

    class OnTimerContext(ReadOnlyContext, ABC):
        """The context of `on_timer`."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """The clock of the timer that fired."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> Iterable[OUT] | None:
        """Yields the records to emit for a record of the keyed stream, with the state of its key; broadcast state can
        be read.
        """

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: KeyedBroadcastProcessFunction.Context) -> Iterable[OUT] | None:
        """Called in every subtask for each broadcast record; broadcast state can be written, and must be written alike
        everywhere.
        """

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Iterable[OUT] | None:
        """A timer that `process_element` registered for the current key has fired."""
        return None


class OutputTag(Explaining):
    """Names a side output and the type of what it carries; emitted to with `yield tag, value`.

    Tags are the same output when their ids are equal: the instance that emits lives in another process than the one
    `get_side_output` was called with.
    """

    __slots__ = ("tag_id", "type_info")

    def __init__(self, tag_id: str, type_info: TypeInformation | list[TypeInformation] | None = None) -> None:
        if not tag_id:
            raise ValueError(f"The tag_id of an OutputTag must be a non-empty string, not {tag_id!r}")
        self.tag_id = tag_id
        match type_info:
            case None:
                self.type_info = Types.PICKLED_BYTE_ARRAY()
            case list():
                self.type_info = RowTypeInfo(type_info)
            case TypeInformation():
                self.type_info = type_info
            case _:
                raise TypeError(
                    f"The type_info of OutputTag {tag_id!r} must be None, a list or a TypeInformation, "
                    f"not {type_info!r}"
                )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputTag) and self.tag_id == other.tag_id

    def __hash__(self) -> int:
        return hash((OutputTag, self.tag_id))

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r}, {self.type_info})"
