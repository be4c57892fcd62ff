"""Operator state as a user's function sees it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.errors import JobDefinitionError
from penstock.functions.state import (
    BroadcastState,
    ListState,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateStore,
    StateDescriptor,
)
from penstock.state.backend import OperatorState
from penstock.state.broadcast import WritableBroadcast
from penstock.state.operator_lists import LIST, UNION


class OperatorListState(ListState[Any]):
    """The list is stored whole, and its elements may be changed in place, as in Flink: they are not copied."""

    def __init__(self, elements: list[Any]) -> None:
        self._elements = elements

    def get(self) -> Iterable[Any]:
        return list(self._elements)

    def add(self, value: Any) -> None:
        self._elements.append(value)

    def add_all(self, values: list[Any]) -> None:
        self._elements.extend(values)

    def update(self, values: list[Any]) -> None:
        self._elements[:] = values

    def clear(self) -> None:
        self._elements.clear()


class SubtaskStateStore(OperatorStateStore):
    def __init__(self, state: OperatorState, operator: str) -> None:
        self._state, self._operator = state, operator

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        self._check(state_descriptor, ListStateDescriptor)
        return OperatorListState(self._state.operator_list(state_descriptor.name, LIST))

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        self._check(state_descriptor, ListStateDescriptor)
        return OperatorListState(self._state.operator_list(state_descriptor.name, UNION))

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        self._check(state_descriptor, MapStateDescriptor)
        return WritableBroadcast(state_descriptor.name, self._state.broadcast_map(state_descriptor.name))

    def _check(self, descriptor: StateDescriptor, kind: type[StateDescriptor]) -> None:
        if not isinstance(descriptor, kind):
            raise JobDefinitionError(
                f"operator {self._operator!r}: operator state is described by a {kind.__name__}, not by {descriptor!r}"
            )
        if descriptor.ttl_config is not None:
            raise JobDefinitionError(
                f"operator {self._operator!r}: operator state {descriptor.name!r} cannot have a time to live; only keyed state can"
            )
