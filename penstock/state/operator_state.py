"""State that belongs to no key, as functions see it: lists, and broadcast maps.

A broadcast state is a map that every subtask holds whole; the broadcast side writes it and both sides read it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from penstock.common.values import own
from penstock.errors import JobDefinitionError, PenstockError
from penstock.functions.state import (
    BroadcastState,
    ListState,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateStore,
    ReadOnlyBroadcastState,
    StateDescriptor,
)
from penstock.state.backend import OperatorState
from penstock.state.operator_lists import LIST, UNION


class BroadcastWriteError(PenstockError):
    """Broadcast state was changed from the side that may only read it."""


class _Entries:
    """What both sides may do."""

    def __init__(self, name: str, entries: dict[Any, Any]) -> None:
        self._name, self._entries = name, entries

    def get(self, key: Any) -> Any:
        return own(self._entries.get(key))

    def contains(self, key: Any) -> bool:
        return key in self._entries

    def items(self) -> Iterable[tuple[Any, Any]]:
        return [(key, own(value)) for key, value in self._entries.items()]

    def keys(self) -> Iterable[Any]:
        return list(self._entries)

    def values(self) -> Iterable[Any]:
        return [own(value) for value in self._entries.values()]

    def is_empty(self) -> bool:
        return not self._entries


class ReadableBroadcast(_Entries, ReadOnlyBroadcastState[Any, Any]):
    """The data side's view."""

    def _refuse(self, *_: Any) -> NoReturn:
        """Always refused: only the broadcast side writes."""
        raise BroadcastWriteError(
            f"broadcast state {self._name!r} was written outside of process_broadcast_element: there each subtask sees other "
            "records, so the copies would drift apart. Write it from the broadcast side, or use keyed state"
        )

    # Not part of the read-only interface: they are here for the sake of the message.
    clear = put = put_all = remove = __setitem__ = __delitem__ = _refuse


class WritableBroadcast(_Entries, BroadcastState[Any, Any]):
    """The broadcast side's view."""

    def put(self, key: Any, value: Any) -> None:
        self._entries[key] = own(value)

    def put_all(self, dict_value: dict[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._entries.pop(key, None)

    def clear(self) -> None:
        self._entries.clear()


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
    """The operator state of one subtask, as functions see it."""

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
