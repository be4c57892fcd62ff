"""What every user function is, and what it is given when it opens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from penstock.common.metrics import MetricGroup

if TYPE_CHECKING:
    from penstock.datastream.state import (
        AggregatingState,
        AggregatingStateDescriptor,
        ListState,
        ListStateDescriptor,
        MapState,
        MapStateDescriptor,
        ReducingState,
        ReducingStateDescriptor,
        ValueState,
        ValueStateDescriptor,
    )


class KeyedStateStore(ABC):
    """State scoped to the current key. Asking twice for one name gives the same state; a name cannot be used for two
    kinds of state."""

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]: ...

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]: ...

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]: ...

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]: ...

    @abstractmethod
    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]: ...


class RuntimeContext(KeyedStateStore):
    """Where a function runs; the same object for the life of the function. State only on keyed streams."""

    @abstractmethod
    def get_task_name(self) -> str: ...

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
    def get_metrics_group(self) -> MetricGroup: ...


class Function(ABC):  # noqa: B024 - users subclass the kinds below, all hooks here are optional
    """Any user function. It travels pickled to the slots; there is one instance per subtask, used by one thread."""

    def open(self, runtime_context: RuntimeContext) -> None:  # noqa: B027 - optional hook
        """Called once per instance before the first record: the place to get state and open connections."""

    def close(self) -> None:  # noqa: B027 - optional hook
        """Called once after the last record, also after a failure. Not called when the process is killed."""
