"""One way to a state, by its descriptor, as the five that functions know."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from penstock.functions import KeyedStateStore
from penstock.functions.state import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueState,
    ValueStateDescriptor,
)


class StatesByDescriptor(KeyedStateStore):
    @abstractmethod
    def _state(self, descriptor: StateDescriptor) -> Any:
        """A state of the kind that the descriptor says."""

    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        found: ValueState[Any] = self._state(state_descriptor)
        return found

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        found: ListState[Any] = self._state(state_descriptor)
        return found

    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        found: MapState[Any, Any] = self._state(state_descriptor)
        return found

    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        found: ReducingState[Any] = self._state(state_descriptor)
        return found

    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        found: AggregatingState[Any, Any] = self._state(state_descriptor)
        return found
