"""Keyed state with a time to live: every value, list element and map entry is stored with the time of its last update.

Time is processing time, which stands still within an epoch, so a replay expires what the first attempt expired.
What has expired is removed when it is read, and whole tables are swept at every full snapshot (the first one and each
compaction): entries of keys that never come again go then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from penstock.common.values import own
from penstock.functions import AggregateFunction, ReduceFunction
from penstock.functions.state import AggregatingState, ListState, ReducingState, ValueState
from penstock.functions.state_ttl import StateTtlConfig
from penstock.state.backend import OperatorState
from penstock.state.keys import normal_key, user_key
from penstock.state.list_table import ListTable
from penstock.state.overlay import MISSING, MapTable, OverlayTable
from penstock.state.states import KeyedMapState, _Handle

Stamped: TypeAlias = tuple[int, Any]  # (time of the last update, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """When things expire, and what becomes of them."""

    ttl_ms: int
    refresh_on_read: bool
    return_expired: bool
    sweep: bool  # at full snapshots
    clock: Callable[[], int]

    @staticmethod
    def of(config: StateTtlConfig, clock: Callable[[], int]) -> Lifetime:
        """The lifetime that a configuration describes, with the clock of the subtask."""
        strategies = config.get_cleanup_strategies()
        return Lifetime(
            ttl_ms=config.get_ttl().to_milliseconds(),
            refresh_on_read=config.get_update_type() is StateTtlConfig.UpdateType.OnReadAndWrite,
            return_expired=config.get_state_visibility() is StateTtlConfig.StateVisibility.ReturnExpiredIfNotCleanedUp,
            sweep=strategies.is_cleanup_in_background() or strategies.in_full_snapshot(),
            clock=clock,
        )

    def stamp(self, value: Any) -> Stamped:
        """The value with the time now."""
        return self.clock(), value

    def expired(self, stamped: Stamped) -> bool:
        """True if the value's time is over."""
        return stamped[0] + self.ttl_ms <= self.clock()

    def visible(self, stamped: Stamped) -> bool:
        """True if the value may be read."""
        return self.return_expired or not self.expired(stamped)

    # What is left of a stored entry at a full snapshot; MISSING if nothing is.

    def left_of_value(self, stored: Stamped) -> Any:
        """The stored value, or MISSING if it has expired."""
        return MISSING if self.expired(stored) else stored

    def left_of_list(self, stored: list[Stamped]) -> Any:
        """The elements that have not expired, or MISSING if none are left."""
        left = [element for element in stored if not self.expired(element)]
        return (stored if len(left) == len(stored) else left) if left else MISSING


class _ExpiringHandle(_Handle):
    """One stored value that expires as a whole."""

    def __init__(self, backend: OperatorState, table: OverlayTable, namespaced: bool, lifetime: Lifetime) -> None:
        super().__init__(backend, table, namespaced)
        self._lifetime = lifetime

    def _read(self) -> Any:
        """The value, or MISSING. Reading removes what has expired, also when it is returned this once."""
        entry, lifetime = self._entry(), self._lifetime
        stored = self._table.get(entry)
        if stored is MISSING:
            return MISSING
        if lifetime.expired(stored):
            self._table.delete(entry)
            return own(stored[1]) if lifetime.return_expired else MISSING
        if lifetime.refresh_on_read:
            self._table.put(entry, lifetime.stamp(stored[1]))
        return own(stored[1])

    def _usable(self) -> Any:
        """The value to add to, or MISSING: adding is a write, so nothing else is touched."""
        stored = self._table.get(self._entry())
        return stored[1] if stored is not MISSING and self._lifetime.visible(stored) else MISSING

    def _write(self, value: Any) -> None:
        self._table.put(self._entry(), self._lifetime.stamp(value))


class ExpiringValueState(_ExpiringHandle, ValueState[Any]):
    """A ValueState whose value expires."""

    def value(self) -> Any:
        value = self._read()
        return None if value is MISSING else value

    def update(self, value: Any) -> None:
        if value is None:
            self.clear()
        else:
            self._write(own(value))


class ExpiringReducingState(_ExpiringHandle, ReducingState[Any]):
    """A ReducingState whose value expires; a value added after that starts anew."""

    def __init__(
        self,
        backend: OperatorState,
        table: OverlayTable,
        namespaced: bool,
        lifetime: Lifetime,
        function: ReduceFunction,
    ) -> None:
        super().__init__(backend, table, namespaced, lifetime)
        self._reduce = function.reduce

    def get(self) -> Any:
        value = self._read()
        return None if value is MISSING else value

    def add(self, value: Any) -> None:
        current = self._usable()
        result = value if current is MISSING else self._reduce(current, value)
        self._write(result if result is current else own(result))


class ExpiringAggregatingState(_ExpiringHandle, AggregatingState[Any, Any]):
    """An AggregatingState whose accumulator expires; a value added after that starts anew."""

    def __init__(
        self,
        backend: OperatorState,
        table: OverlayTable,
        namespaced: bool,
        lifetime: Lifetime,
        function: AggregateFunction,
    ) -> None:
        super().__init__(backend, table, namespaced, lifetime)
        self._function = function

    def get(self) -> Any:
        accumulator = self._read()
        return None if accumulator is MISSING else own(self._function.get_result(accumulator))

    def add(self, value: Any) -> None:
        accumulator = self._usable()
        if accumulator is MISSING:
            accumulator = own(self._function.create_accumulator())
        result = self._function.add(value, accumulator)
        self._write(result if result is accumulator else own(result))


class ExpiringListState(_ExpiringHandle, ListState[Any]):
    """Each element lives on its own."""

    _table: ListTable

    def get(self) -> Iterable[Any]:
        entry, lifetime = self._entry(), self._lifetime
        stored = self._table.peek(entry)
        if stored is MISSING:
            return []
        alive = [element for element in stored if not lifetime.expired(element)]
        if lifetime.refresh_on_read or len(alive) < len(stored):
            self._store([lifetime.stamp(value) for _, value in alive] if lifetime.refresh_on_read else alive)
        return [own(value) for _, value in (stored if lifetime.return_expired else alive)]

    def add(self, value: Any) -> None:
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        added = [self._lifetime.stamp(own(value)) for value in values]
        if added:
            self._table.extend(self._entry(), added)

    def update(self, values: Iterable[Any]) -> None:
        self._store([self._lifetime.stamp(own(value)) for value in values])

    def _store(self, elements: list[Stamped]) -> None:
        if elements:
            self._table.put(self._entry(), elements)
        else:
            self.clear()


class ExpiringMapState(_ExpiringHandle, KeyedMapState):
    """Each entry lives on its own."""

    _table: MapTable

    def get(self, key: Any) -> Any:
        stamped = self._look(key)
        return None if stamped is None else own(stamped[1])

    def contains(self, key: Any) -> bool:
        return self._look(key) is not None

    def _look(self, key: Any) -> Stamped | None:
        """One entry, if it can be seen; as with a value, reading removes it when it has expired."""
        lifetime, flat = self._lifetime, (self._entry(), normal_key(key))
        stamped = self._table.get(flat)
        if stamped is MISSING:
            return None
        if lifetime.expired(stamped):
            self._table.delete(flat)
            return stamped if lifetime.return_expired else None
        if lifetime.refresh_on_read:
            self._table.put(flat, lifetime.stamp(stamped[1]))
        found: Stamped = stamped
        return found

    def put(self, key: Any, value: Any) -> None:
        self._table.put((self._entry(), normal_key(key)), self._lifetime.stamp(own(value)))

    def items(self) -> Iterable[tuple[Any, Any]]:
        lifetime, entry, seen = self._lifetime, self._entry(), []
        for key, stamped in self._table.entries_of(entry):
            if lifetime.visible(stamped):
                seen.append((user_key(key), stamped[1]))
            if lifetime.expired(stamped):
                self._table.delete((entry, key))
            elif lifetime.refresh_on_read:
                self._table.put((entry, key), lifetime.stamp(own(stamped[1])))
        return seen

    def keys(self) -> Iterable[Any]:
        return [key for key, _ in self.items()]

    def is_empty(self) -> bool:
        return not any(self._lifetime.visible(stamped) for _, stamped in self._table.entries_of(self._entry()))
