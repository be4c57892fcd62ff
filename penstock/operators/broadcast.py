"""The broadcast state pattern: input 0 is the data, input 1 is broadcast to every subtask.

The state is in memory as plain dicts and is stored as operator state, of which a job that starts with another parallelism
gives every subtask a copy of the first one's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.errors import JobDefinitionError
from penstock.functions import BroadcastProcessFunction, KeyedBroadcastProcessFunction
from penstock.functions.state import BroadcastState, MapStateDescriptor, ReadOnlyBroadcastState
from penstock.functions.timerservice import TimeDomain, TimerService
from penstock.operators.base import OperatorContext
from penstock.operators.co import Call, Selector, TwoInputOperator
from penstock.operators.keyed import timestamp_of
from penstock.state.broadcast import ReadableBroadcast, WritableBroadcast
from penstock.state.keys import user_key


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
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        return WritableBroadcast(state_descriptor.name, self._operator.entries(state_descriptor))


class DataSideContext(_Clocks, BroadcastProcessFunction.ReadOnlyContext, KeyedBroadcastProcessFunction.OnTimerContext):
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
        self._data_side, self._broadcast_side = DataSideContext(self), BroadcastSideContext(self)

    def restore_state(self) -> None:
        for name in self.names:
            self.ctx.state.broadcast_map(name)

    def entries(self, descriptor: MapStateDescriptor) -> dict[Any, Any]:
        if descriptor.name not in self.names:
            raise JobDefinitionError(
                f"operator {self.ctx.name!r} asks for broadcast state {descriptor.name!r}, but its stream was broadcast with "
                f"{', '.join(map(repr, self.names))}: pass the descriptor to broadcast() as well"
            )
        return self.ctx.state.broadcast_map(descriptor.name)

    def call(self, input: int) -> tuple[str, Call]:
        if input == 0:
            process, data = self.function.process_element, self._data_side
            return "process_element", lambda value: process(value, data)
        process_broadcast, side = self.function.process_broadcast_element, self._broadcast_side
        return "process_broadcast_element", lambda value: process_broadcast(value, side)

    def on_timer(self, timestamp: int, namespace: Any, domain: TimeDomain) -> None:
        self._timestamp, self._domain = timestamp, domain
        try:
            self.collector.take(self.function.on_timer(timestamp, self._data_side), timestamp)
        except Exception as error:
            self.fail(error, f"on_timer({timestamp}) for key {self.ctx.state.current_key!r}", None)
