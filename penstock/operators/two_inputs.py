"""Operators with two inputs: co-map, co-flat-map, co-process. Event time is the minimum of both, which the gate sees to.

On keyed streams both inputs share the keyed state and the timers of a key.

The broadcast state pattern: input 0 is the data, input 1 is broadcast to every subtask.

The state is in memory as plain dicts and is stored as operator state, of which a job that starts with another parallelism
gives every subtask a copy of the first one's.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from penstock.common.typeinfo import TypeInformation
from penstock.errors import JobDefinitionError
from penstock.functions import (
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
)
from penstock.functions.base import TimeDomain, TimerService
from penstock.functions.state import BroadcastState, MapStateDescriptor, ReadOnlyBroadcastState
from penstock.operators.base import OperatorContext
from penstock.operators.keyed import Calls, TimedOperator, timestamp_of
from penstock.operators.keyed_records import keyed_records
from penstock.operators.lean_rows import Reader
from penstock.records import Block
from penstock.state.keys import user_key
from penstock.state.operator_state import ReadableBroadcast, WritableBroadcast

Selector: TypeAlias = Callable[[Any], Any]


class TwoInputOperator(TimedOperator):
    """`selectors` gives the key of each input's records; None for an input without keys."""

    def __init__(
        self,
        function: Any,
        selectors: tuple[Selector | None, Selector | None] = (None, None),
        input_types: tuple[TypeInformation | None, TypeInformation | None] = (None, None),
    ) -> None:
        super().__init__()
        self.function = function
        self.selectors = selectors
        self.input_types = input_types

    def setup(self, ctx: OperatorContext) -> None:
        super().setup(ctx)
        self._timestamp: int | None = None  # of the record or timer in hand
        self._domain = TimeDomain.EVENT_TIME

    def user_functions(self) -> Iterable[Any]:
        return (self.function,)

    context: Any  # of records, and of timers if there are any

    @abstractmethod
    def calls(self, input: int) -> tuple[Calls, Reader | None]:
        """The function that takes the records of an input; and who reads them, if that is the user's function alone."""

    def process(self, input: int, block: Block) -> None:
        selector, kind = self.selectors[input], self.input_types[input]
        calls, reader = self.calls(input)
        self._domain = TimeDomain.EVENT_TIME
        self.call_for_each(
            calls, keyed_records(block, kind, selector, None if reader is None else [reader]), selector, block, kind
        )

    def on_timer(self, timestamp: int, namespace: Any, domain: TimeDomain) -> None:
        self._timestamp, self._domain = timestamp, domain
        try:
            self.collector.take(self.function.on_timer(timestamp, self.context), timestamp)
        except Exception as error:
            self.fail(error, f"on_timer({timestamp}) for key {self.ctx.state.current_key!r}", None)


class CoMapOperator(TwoInputOperator):
    """One result for each record; None is dropped, as in PyFlink."""

    def calls(self, input: int) -> tuple[Calls, Reader | None]:
        function = self.function.map1 if input == 0 else self.function.map2

        def results(value: Any, _: Any) -> Iterable[Any]:
            result = function(value)
            return () if result is None else (result,)

        return Calls(f"map{input + 1}", results, None, self), Reader(function)


class CoFlatMapOperator(TwoInputOperator):
    """Runs a CoFlatMapFunction."""

    def calls(self, input: int) -> tuple[Calls, Reader | None]:
        function = self.function.flat_map1 if input == 0 else self.function.flat_map2
        return Calls(f"flat_map{input + 1}", lambda value, _: function(value), None, self), Reader(function)


class CoProcessContext(KeyedCoProcessFunction.OnTimerContext, CoProcessFunction.Context):
    """One object for every call: element and timer context, keyed or not."""

    def __init__(self, operator: TwoInputOperator) -> None:
        self._operator = operator

    def timer_service(self) -> TimerService:
        return self._operator.timers

    def timestamp(self) -> int:
        return timestamp_of(self._operator._timestamp)

    def get_current_key(self) -> Any:
        return user_key(self._operator.ctx.state.key())

    def time_domain(self) -> TimeDomain:
        return self._operator._domain


class CoProcessOperator(TwoInputOperator):
    """CoProcessFunction and, with selectors, KeyedCoProcessFunction."""

    def setup(self, ctx: OperatorContext) -> None:
        super().setup(ctx)
        self.context = CoProcessContext(self)

    def calls(self, input: int) -> tuple[Calls, Reader | None]:
        process = self.function.process_element1 if input == 0 else self.function.process_element2
        return Calls(f"process_element{input + 1}", process, self.context, self), Reader(process, 2)


class _Clocks:
    def __init__(self, operator: BroadcastOperator) -> None:
        self._operator = operator

    def timestamp(self) -> int:
        return timestamp_of(self._operator._timestamp)

    def current_processing_time(self) -> int:
        return self._operator.ctx.processing_time()

    def current_watermark(self) -> int:
        return self._operator.current_watermark


class BroadcastSideContext(_Clocks, BroadcastProcessFunction.Context, KeyedBroadcastProcessFunction.Context):
    """The context of the broadcast side, which writes broadcast state."""

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        return WritableBroadcast(state_descriptor.name, self._operator.entries(state_descriptor))


class DataSideContext(_Clocks, BroadcastProcessFunction.ReadOnlyContext, KeyedBroadcastProcessFunction.OnTimerContext):
    """The context of the other side, which reads broadcast state."""

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> ReadOnlyBroadcastState[Any, Any]:
        return ReadableBroadcast(state_descriptor.name, self._operator.entries(state_descriptor))

    def timer_service(self) -> TimerService:
        return self._operator.timers

    def get_current_key(self) -> Any:
        return user_key(self._operator.ctx.state.key())

    def time_domain(self) -> TimeDomain:
        return self._operator._domain


class BroadcastOperator(TwoInputOperator):
    """BroadcastProcessFunction and, with a selector, KeyedBroadcastProcessFunction."""

    def __init__(
        self,
        function: Any,
        names: Sequence[str],
        selector: Selector | None = None,
        input_types: tuple[TypeInformation | None, TypeInformation | None] = (None, None),
    ) -> None:
        super().__init__(function, (selector, None), input_types)
        self.names = tuple(names)

    def setup(self, ctx: OperatorContext) -> None:
        super().setup(ctx)
        self.context, self._broadcast_side = DataSideContext(self), BroadcastSideContext(self)

    def restore_state(self) -> None:
        for name in self.names:
            self.ctx.state.broadcast_map(name)

    def entries(self, descriptor: MapStateDescriptor) -> dict[Any, Any]:
        """The map of a broadcast state; JobDefinitionError for one that `broadcast` was not given."""
        if descriptor.name not in self.names:
            raise JobDefinitionError(
                f"operator {self.ctx.name!r} asks for broadcast state {descriptor.name!r}, but its stream was broadcast with "
                f"{', '.join(map(repr, self.names))}: pass the descriptor to broadcast() as well"
            )
        return self.ctx.state.broadcast_map(descriptor.name)

    def calls(self, input: int) -> tuple[Calls, Reader | None]:
        if input == 0:
            process = self.function.process_element
            return Calls("process_element", process, self.context, self), Reader(process, 2)
        process = self.function.process_broadcast_element
        return Calls("process_broadcast_element", process, self._broadcast_side, self), Reader(process, 2)
