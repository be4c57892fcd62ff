"""What every user function is, and what it is given: its context when it opens, time and timers, checkpoints.

A function takes part in checkpoints with state of its own that belongs to no key, or by being told of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.common.accumulators import Accumulator, DoubleCounter, Histogram, IntCounter, LongCounter
from penstock.common.metrics import MetricGroup
from penstock.errors import JobDefinitionError

if TYPE_CHECKING:
    from penstock.functions.state import (
        AggregatingState,
        AggregatingStateDescriptor,
        ListState,
        ListStateDescriptor,
        MapState,
        MapStateDescriptor,
        OperatorStateStore,
        ReducingState,
        ReducingStateDescriptor,
        ValueState,
        ValueStateDescriptor,
    )


A = TypeVar("A", IntCounter, LongCounter, DoubleCounter, Histogram)


class KeyedStateStore(ABC):
    """State scoped to the current key. Asking twice for one name gives the same state; a name cannot be used for two
    kinds of state."""

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """The ValueState that the descriptor names, of the current key."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """The ListState that the descriptor names, of the current key."""

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """The MapState that the descriptor names, of the current key."""

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """The ReducingState that the descriptor names, of the current key."""

    @abstractmethod
    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """The AggregatingState that the descriptor names, of the current key."""


class RuntimeContext(KeyedStateStore):
    """Tells a function where it runs, and gives it state, metrics and accumulators. The same object for the life of
    the function; state only on keyed streams.
    """

    @abstractmethod
    def get_task_name(self) -> str:
        """The name of the operator this function belongs to."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """The parallelism of the operator."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """The maximum parallelism: the number of key groups."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """From 0 to parallelism - 1."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """0 for the first run of this subtask, one more for each restart."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """The task's name with the subtask counted from 1, such as `Map (3/4)#0`."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """A global job parameter, see `ExecutionConfig.set_global_job_parameters`."""

    @abstractmethod
    def get_metrics_group(self) -> MetricGroup:
        """The metrics of this function in this subtask; new ones are registered through it."""

    @abstractmethod
    def add_accumulator(self, name: str, accumulator: Accumulator[Any, Any]) -> None:
        """In `open`: from then on the job's accumulator of this name includes this one. After a failure it has what was
        added up to the state the function goes on from. A name can be added once in an operator, and everywhere with the
        same class."""

    @abstractmethod
    def get_accumulator(self, name: str) -> Accumulator[Any, Any] | None:
        """The one that was added under this name; None when there is none."""

    def get_int_counter(self, name: str) -> IntCounter:
        """The counter of this name, made when it is not there yet; the same goes for the next three."""
        return self._accumulator(name, IntCounter)

    def get_long_counter(self, name: str) -> LongCounter:
        """The accumulator of this name, made as a LongCounter if it is new; refused if it is of another class."""
        return self._accumulator(name, LongCounter)

    def get_double_counter(self, name: str) -> DoubleCounter:
        """The accumulator of this name, made as a DoubleCounter if it is new; refused if it is of another class."""
        return self._accumulator(name, DoubleCounter)

    def get_histogram(self, name: str) -> Histogram:
        """The accumulator of this name, made as a Histogram if it is new; refused if it is of another class."""
        return self._accumulator(name, Histogram)

    def _accumulator(self, name: str, kind: type[A]) -> A:
        found = self.get_accumulator(name)
        if found is None:
            found = kind()
            self.add_accumulator(name, found)
        if type(found) is not kind:
            raise JobDefinitionError(
                f"{self.get_task_name()!r} asks for accumulator {name!r} as a {kind.__name__}, but it is a {type(found).__name__}"
            )
        return found


class Function(ABC):  # noqa: B024 - users subclass the kinds below, all hooks here are optional
    """Base of all user functions. It travels pickled to the slots; there is one instance per subtask, used by one
    thread.
    """

    def open(self, runtime_context: RuntimeContext) -> None:  # noqa: B027 - optional hook
        """Called once per instance before the first record: the place to get state and open connections."""

    def close(self) -> None:  # noqa: B027 - optional hook
        """Called once after the last record, also after a failure. Not called when the process is killed."""


class FunctionInitializationContext(ABC):
    """The state that a function starts from. Only valid during `initialize_state`; the state it gives is valid on."""

    @abstractmethod
    def is_restored(self) -> bool:
        """True if there is state from a checkpoint or an earlier epoch; False when the function starts from nothing."""

    @abstractmethod
    def get_restored_checkpoint_id(self) -> int | None:
        """The checkpoint, or the epoch of a retried task, it goes on from; None when it starts from nothing."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """The store of the function's operator state; what a checkpoint held is already in it."""

    @abstractmethod
    def get_keyed_state_store(self) -> KeyedStateStore:
        """On keyed streams only: its states need a current key when they are used."""


class FunctionSnapshotContext(ABC):
    """The barrier that has come. Only valid during `snapshot_state`."""

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """The number of the epoch that ends. Repeated when the epoch is run again."""

    @abstractmethod
    def get_checkpoint_timestamp(self) -> int:
        """The epoch's processing time, in milliseconds."""


class CheckpointedFunction(ABC):
    """A mix-in for any function (`class Mine(MapFunction, CheckpointedFunction)`) or sink writer with operator state."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Once per instance, before `open`: get the states, and read what they hold if the function is restored."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """At the end of every epoch, whether it is a checkpoint or not, because a task may be run again from there: put
        what lives in attributes into the states. Nothing can be emitted here."""


class CheckpointListener(ABC):
    """A mix-in for any function or sink writer that wants to know when a checkpoint counts.

    Called on the subtask's thread at the start of a later epoch, before its records. A notification may come again, to
    a fresh instance after a failure, and may be left out when a newer checkpoint is complete: whoever acts on one also does
    what earlier ones would have asked for. An exception fails the epoch, not the checkpoint."""

    @abstractmethod
    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is durable, and sinks have committed it."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:  # noqa: B027 - optional hook
        """The attempt at this checkpoint has failed; the job went back, and will take one of this number again. Left out
        when the driver died."""


class TimeDomain(Enum):
    """The clock of a timer: event time, which is the watermark, or the processing time of the machine."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1


class TimerService(ABC):
    """The clocks of a subtask and the timers of the current key.

    There is at most one timer per key, time domain and timestamp: registering it again changes nothing. Timers are
    part of every checkpoint. Only functions on a keyed stream may register or delete timers.
    """

    @abstractmethod
    def current_processing_time(self) -> int:
        """Milliseconds since the epoch; one value for a whole epoch of the job, so that a replay sees the same."""

    @abstractmethod
    def current_watermark(self) -> int:
        """The operator's event time; the smallest long before the first watermark."""

    @abstractmethod
    def register_processing_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` once processing time has reached `timestamp`."""

    @abstractmethod
    def register_event_time_timer(self, timestamp: int) -> None:
        """Call `on_timer` once the watermark has reached `timestamp`; if it already has, at the next advance."""

    @abstractmethod
    def delete_processing_time_timer(self, timestamp: int) -> None:
        """Forget this timer of the current key; nothing happens if there is none."""

    @abstractmethod
    def delete_event_time_timer(self, timestamp: int) -> None:
        """Forget this timer of the current key; nothing happens if there is none."""
