"""State as user functions see it, and the descriptors that name it.

State is scoped to the key of the current record (broadcast state: to the subtask). All of it is part of every
checkpoint. Values handed out may be the stored objects themselves: change them only through the state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from penstock.common.typeinfo import TypeInformation, Types, check_type
from penstock.functions.elementwise import AggregateFunction, ReduceFunction, ReduceFunctionWrapper
from penstock.functions.state_ttl import StateTtlConfig

__all__ = [
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "BroadcastState",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "MergingState",
    "OperatorStateStore",
    "ReadOnlyBroadcastState",
    "ReducingState",
    "ReducingStateDescriptor",
    "State",
    "StateDescriptor",
    "StateTtlConfig",
    "ValueState",
    "ValueStateDescriptor",
]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class OperatorStateStore(ABC):
    """State of an operator that belongs to no key, see `CheckpointedFunction`. Each subtask has its own. Asking twice for
    one name gives the same state."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list whose elements are dealt out evenly when the parallelism changes."""

    @abstractmethod
    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list of which every subtask gets the elements of all subtasks whenever it is restored from a checkpoint: each
        picks its own, and puts only those back."""

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """A map that is the same in every subtask; the function must change it in the same way in each."""


class State(ABC):
    """Base of all state handles."""

    @abstractmethod
    def clear(self) -> None:
        """Remove it for the current key."""


class ValueState(State, Generic[T]):
    """State of one value for each key."""

    @abstractmethod
    def value(self) -> T | None:
        """The value; None if there is none."""

    @abstractmethod
    def update(self, value: T | None) -> None:
        """Replace it; None removes it."""


class AppendingState(State, Generic[IN, OUT]):
    """State that is added to."""

    @abstractmethod
    def get(self) -> OUT | None:
        """The result of everything that was added; None if nothing was."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Adds a value."""


class MergingState(AppendingState[IN, OUT]):
    """State that can be merged when windows are."""


class ReducingState(MergingState[T, T]):
    """One value, the reduction of all that were added; None when there were none."""


class AggregatingState(MergingState[IN, OUT]):
    """An accumulator; `get` gives its result, None when nothing was added."""


class ListState(MergingState[T, Iterable[T]]):
    """A list, in the order things were added; `get` never gives None."""

    @abstractmethod
    def get(self) -> Iterable[T]:
        """The values in the order they were added; empty if there are none."""

    @abstractmethod
    def update(self, values: list[T]) -> None:
        """Replace the whole list."""

    @abstractmethod
    def add_all(self, values: list[T]) -> None:
        """Adds the values in this order."""

    def __iter__(self) -> Iterator[T]:
        return iter(self.get())


class _ReadableMap(State, Generic[K, V]):
    @abstractmethod
    def get(self, key: K) -> V | None:
        """None when there is no such entry."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """True if the map has this key."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """The keys and values of the map."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """The keys of the map."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """The values of the map."""

    @abstractmethod
    def is_empty(self) -> bool:
        """True if the map has no entry."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())


class _WritableMap(_ReadableMap[K, V]):
    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Sets the value of a key of the map."""

    @abstractmethod
    def put_all(self, dict_value: dict[K, V]) -> None:
        """Sets the values of several keys; the other entries stay."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Nothing happens when there is no such entry."""

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)


class MapState(_WritableMap[K, V]):
    """A map; each entry is read, written and expires on its own."""


class ReadOnlyBroadcastState(_ReadableMap[K, V]):
    """Broadcast state as the side that is not broadcast sees it."""


class BroadcastState(ReadOnlyBroadcastState[K, V], _WritableMap[K, V]):
    """Broadcast state as the broadcast side sees it."""


class StateDescriptor(ABC):  # noqa: B024 - only its kinds below are made
    """The name of a state within its operator, the type of its values and, maybe, their time to live."""

    def __init__(self, name: str, type_info: TypeInformation) -> None:
        check_type(type_info, f"the type of state {name!r}")
        self.name = name
        self.type_info = type_info
        self._ttl_config: StateTtlConfig | None = None
        self._version = 0
        self._migration: Callable[[Any, int], Any] | None = None

    def get_name(self) -> str:
        """The name of the state, unique within its operator."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Must be called before the descriptor is used to get the state."""
        self._ttl_config = ttl_config

    def set_migration(self, version: int, migrate: Callable[[Any, int], Any]) -> None:
        """Values are of `version` from now on; those that a checkpoint or savepoint holds in an older one are replaced by
        `migrate(value, version they have)` when the job starts. State that never had a version has version 0.

        `migrate` gets one value as the program sees it: a list's elements and a map's values one by one, of reducing and
        aggregating state the accumulator. Keys cannot be migrated. Call it before the descriptor is used.
        """
        if version < 1:
            raise ValueError(f"state {self.name!r}: the version of values must be at least 1, not {version}")
        self._version, self._migration = version, migrate

    @property
    def version(self) -> int:
        """The version of the values; 0 unless `set_migration` was called."""
        return self._version

    @property
    def migration(self) -> Callable[[Any, int], Any] | None:
        """The function that `set_migration` gave; None if there is none."""
        return self._migration

    @property
    def ttl_config(self) -> StateTtlConfig | None:
        """The time to live of entries; None if they do not expire, also when the configuration given is disabled."""
        return self._ttl_config if self._ttl_config is not None and self._ttl_config.is_enabled() else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type_info})"


class ValueStateDescriptor(StateDescriptor):
    """Describes a ValueState. Values without a type are pickled."""

    def __init__(self, name: str, value_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, value_type_info or Types.PICKLED_BYTE_ARRAY())


class ListStateDescriptor(StateDescriptor):
    """Its `type_info` is that of the whole list."""

    def __init__(self, name: str, elem_type_info: TypeInformation | None = None) -> None:
        super().__init__(name, Types.LIST(elem_type_info or Types.PICKLED_BYTE_ARRAY()))


class MapStateDescriptor(StateDescriptor):
    """Its `type_info` is that of the whole map."""

    def __init__(
        self, name: str, key_type_info: TypeInformation | None = None, value_type_info: TypeInformation | None = None
    ) -> None:
        pickled = Types.PICKLED_BYTE_ARRAY()
        super().__init__(name, Types.MAP(key_type_info or pickled, value_type_info or pickled))


class ReducingStateDescriptor(StateDescriptor):
    """Describes a ReducingState: its function folds each added value into the one that is kept."""

    def __init__(
        self,
        name: str,
        reduce_function: ReduceFunction | Callable[[Any, Any], Any],
        type_info: TypeInformation | None = None,
    ) -> None:
        super().__init__(name, type_info or Types.PICKLED_BYTE_ARRAY())
        if isinstance(reduce_function, ReduceFunction):
            self._reduce_function: ReduceFunction = reduce_function
        elif callable(reduce_function):
            self._reduce_function = ReduceFunctionWrapper(reduce_function)
        else:
            raise TypeError(
                f"Reducing state {name!r} needs a ReduceFunction or a function of two values, not {reduce_function!r}"
            )

    def get_reduce_function(self) -> ReduceFunction:
        """The function, as a ReduceFunction."""
        return self._reduce_function


class AggregatingStateDescriptor(StateDescriptor):
    """Its `type_info` is that of the accumulator."""

    def __init__(
        self, name: str, agg_function: AggregateFunction, state_type_info: TypeInformation | None = None
    ) -> None:
        super().__init__(name, state_type_info or Types.PICKLED_BYTE_ARRAY())
        if not isinstance(agg_function, AggregateFunction):
            raise TypeError(f"Aggregating state {name!r} needs an AggregateFunction, not {agg_function!r}")
        self._agg_function = agg_function

    def get_agg_function(self) -> AggregateFunction:
        """The function that makes, fills and reads accumulators."""
        return self._agg_function
