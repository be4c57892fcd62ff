"""RuntimeContext, TimerService, state and metrics as user functions see them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final

from penstock.common.accumulators import Accumulator
from penstock.common.metrics import Counter, Distribution, Meter, MetricGroup
from penstock.common.time import MAX_LONG_VALUE
from penstock.errors import JobDefinitionError
from penstock.functions import KeyedStateStore, RuntimeContext
from penstock.functions.base import TimerService
from penstock.functions.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from penstock.operators.base import Operator, OperatorContext
from penstock.state.backend import OperatorState
from penstock.state.specification import declare
from penstock.state.states import (
    KeyedAggregatingState,
    KeyedListState,
    KeyedMapState,
    KeyedReducingState,
    KeyedValueState,
    NamespacedValueState,
    _Handle,
)
from penstock.state.ttl import (
    ExpiringAggregatingState,
    ExpiringListState,
    ExpiringMapState,
    ExpiringReducingState,
    ExpiringValueState,
    Lifetime,
)


class StatesByDescriptor(KeyedStateStore):
    """A KeyedStateStore whose methods differ only in the kind of the descriptor."""

    @abstractmethod
    def _state(self, descriptor: StateDescriptor) -> Any:
        """A state of the kind that the descriptor says."""

    def get_state(self, state_descriptor: Any) -> Any:
        return self._state(state_descriptor)

    get_list_state = get_map_state = get_reducing_state = get_aggregating_state = get_state


# By descriptor: the kind of table, and the handle of a state without and with a time to live.
_KEYED: Final[Mapping[type[StateDescriptor], tuple[str, Callable[..., _Handle], Callable[..., _Handle]]]] = {
    ValueStateDescriptor: ("value", KeyedValueState, ExpiringValueState),
    ListStateDescriptor: ("list", KeyedListState, ExpiringListState),
    MapStateDescriptor: ("map", KeyedMapState, ExpiringMapState),
    ReducingStateDescriptor: ("reducing", KeyedReducingState, ExpiringReducingState),
    AggregatingStateDescriptor: ("aggregating", KeyedAggregatingState, ExpiringAggregatingState),
}


def keyed_state(
    state: OperatorState, descriptor: StateDescriptor, clock: Callable[[], int], *, namespaced: bool = False
) -> _Handle:
    """The handle of a keyed state; `namespaced` state belongs to a key and a window. `clock` is processing time."""
    name = descriptor.get_name()
    keyed = next((handles for described, handles in _KEYED.items() if isinstance(descriptor, described)), None)
    if keyed is None:
        raise JobDefinitionError(f"state {name!r}: {type(descriptor).__name__} is not a keyed state descriptor")
    kind, plain, expiring = keyed
    if namespaced and kind == "value":
        plain = NamespacedValueState
    given: list[Any] = []
    if descriptor.ttl_config is not None:
        lifetime = Lifetime.of(descriptor.ttl_config, clock)
        given = [lifetime]
        if lifetime.sweep:
            state.sweepers[name] = lifetime.left_of_list if kind == "list" else lifetime.left_of_value
        # Stored with a time, so of another kind: state with and without a time to live cannot be taken for one another.
        kind, plain = f"{kind}-ttl", expiring
    match descriptor:
        case ReducingStateDescriptor():
            given.append(descriptor.get_reduce_function())
        case AggregatingStateDescriptor():
            given.append(descriptor.get_agg_function())
    table = state.table(name, kind, namespaced=namespaced)
    declare(state, descriptor, table, kind)
    return plain(state, table, namespaced, *given)


class OperatorRuntimeContext(StatesByDescriptor, RuntimeContext):
    """The RuntimeContext of the functions of one operator in one subtask."""

    def __init__(self, ctx: OperatorContext) -> None:
        self._ctx = ctx
        self._metrics = OperatorMetricGroup(ctx)
        self._declared: dict[str, StateDescriptor] = {}
        self._given: dict[int, tuple[StateDescriptor, Any, Any]] = {}  # by descriptor: its time to live, and the handle

    def _state(self, descriptor: StateDescriptor) -> Any:
        given = self._given.get(id(descriptor))  # assigners, and many users, ask for every record
        if given is not None and given[1] is descriptor.ttl_config:
            return given[2]
        handle = self._new_state(descriptor)
        self._given[id(descriptor)] = descriptor, descriptor.ttl_config, handle
        return handle

    def _new_state(self, descriptor: StateDescriptor) -> Any:
        known = self._declared.setdefault(descriptor.get_name(), descriptor)
        if known.type_info != descriptor.type_info and type(known) is type(descriptor):  # another kind: refused below
            raise JobDefinitionError(
                f"operator {self._ctx.name!r} (uid {self._ctx.uid or self._ctx.operator_id!r}) declares state "
                f"{descriptor.get_name()!r} as {descriptor.type_info}, but has declared it as {known.type_info} before: give "
                "one of the two another name"
            )
        return keyed_state(self._ctx.state, descriptor, self._ctx.processing_time)

    def get_task_name(self) -> str:
        return self._ctx.name

    def get_number_of_parallel_subtasks(self) -> int:
        return self._ctx.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self._ctx.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self._ctx.subtask

    def get_attempt_number(self) -> int:
        return self._ctx.attempt

    def get_task_name_with_subtasks(self) -> str:
        return f"{self._ctx.name} ({self._ctx.subtask + 1}/{self._ctx.parallelism})"

    def get_job_parameter(self, key: str, default_value: str) -> str:
        return self._ctx.job_parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        return self._metrics

    def add_accumulator(self, name: str, accumulator: Accumulator[Any, Any]) -> None:
        self._ctx.state.accumulators.add(name, accumulator)

    def get_accumulator(self, name: str) -> Accumulator[Any, Any] | None:
        return self._ctx.state.accumulators.get(name)


class OperatorTimerService(TimerService):
    """Timers of the operator's current key and of `namespace` (None, or the current window)."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._state = operator.ctx.state
        self._processing_time = operator.ctx.processing_time
        self.namespace: Any = None

    def current_processing_time(self) -> int:
        return self._processing_time()

    def current_watermark(self) -> int:
        return self._operator.current_watermark

    def register_processing_time_timer(self, timestamp: int) -> None:
        self._state.processing_timers.register(_in_time(timestamp), self._state.key(), self.namespace)

    def register_event_time_timer(self, timestamp: int) -> None:
        self._state.event_timers.register(_in_time(timestamp), self._state.key(), self.namespace)

    def delete_processing_time_timer(self, timestamp: int) -> None:
        self._state.processing_timers.delete(_in_time(timestamp), self._state.key(), self.namespace)

    def delete_event_time_timer(self, timestamp: int) -> None:
        self._state.event_timers.delete(_in_time(timestamp), self._state.key(), self.namespace)


def _in_time(timestamp: int) -> int:
    """A timer behind the end of time fires with the last watermark, as one at its end does."""
    return min(timestamp, MAX_LONG_VALUE)


class _Counted:
    def __init__(self, values: dict[str, float], name: str) -> None:
        self._values, self._name = values, name
        values.setdefault(name, 0)

    def get_count(self) -> int:
        return int(self._values[self._name])


class _Counter(_Counted, Counter):
    def inc(self, n: int = 1) -> None:
        self._values[self._name] += n

    def dec(self, n: int = 1) -> None:
        self._values[self._name] -= n


class _Meter(_Counted, Meter):
    """Counts; the rate is the difference between two reports over the time between them."""

    def mark_event(self, value: int = 1) -> None:
        self._values[self._name] += value


class _Distribution(Distribution):
    def __init__(self, values: dict[str, float], name: str) -> None:
        self._values, self._name = values, name

    def update(self, value: int) -> None:
        values, name = self._values, self._name
        values[f"{name}.count"] = values.get(f"{name}.count", 0) + 1
        values[f"{name}.sum"] = values.get(f"{name}.sum", 0) + value
        values[f"{name}.min"] = min(values.get(f"{name}.min", value), value)
        values[f"{name}.max"] = max(values.get(f"{name}.max", value), value)


class OperatorMetricGroup(MetricGroup):
    """Metrics that appear, under their name, in the operator's metrics of every epoch."""

    def __init__(self, ctx: OperatorContext, prefix: str = "") -> None:
        self._ctx, self._prefix = ctx, prefix

    def _name(self, name: str) -> str:
        return f"{self._prefix}.{name}" if self._prefix else name

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        parts = [part for part in (self._prefix, name, extra) if part]
        return OperatorMetricGroup(self._ctx, ".".join(parts))

    def counter(self, name: str) -> Counter:
        return _Counter(self._ctx.metrics.user, self._name(name))

    def gauge(self, name: str, obj: Callable[[], int]) -> None:
        self._ctx.metrics.gauges[self._name(name)] = obj

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        return _Meter(self._ctx.metrics.user, self._name(name))

    def distribution(self, name: str) -> Distribution:
        return _Distribution(self._ctx.metrics.user, self._name(name))
