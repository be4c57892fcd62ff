"""State handles over overlay tables: what `runtime_context.get_state(...)` returns.

State holds values: what a function puts into it, or gets out of it, is a copy (`own`) unless it cannot be changed. Only an
accumulator that its function changes in place and returns is not copied: it has been the state's own from the beginning.

`namespace` is None for state of a key, a window for state of a key and window (contents, triggers, per-window state).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from penstock.common.values import ATOMS, own, own_all, take
from penstock.functions import AggregateFunction, ReduceFunction
from penstock.functions.state import AggregatingState, ListState, MapState, ReducingState, ValueState
from penstock.state.backend import NO_KEY, OperatorState
from penstock.state.keys import PLAIN_KEYS, normal_key, user_key
from penstock.state.list_table import ListTable
from penstock.state.overlay import MISSING, TOMBSTONE, MapTable, OverlayTable


class _Handle:
    __slots__ = ("_backend", "_namespaced", "_table", "namespace")

    def __init__(self, backend: OperatorState, table: OverlayTable, namespaced: bool) -> None:
        self._backend = backend
        self._table = table
        self._namespaced = namespaced
        self.namespace: Hashable = None

    def _entry(self) -> Hashable:
        key = self._backend.current_key
        if key is NO_KEY:
            self._backend.key()
        return (key, self.namespace) if self._namespaced else key

    def clear(self) -> None:
        self._table.delete(self._entry())


class KeyedValueState(_Handle, ValueState[Any]):
    """A ValueState of the current key. Most jobs read and write one for every record: the steps of `_entry` and
    `OverlayTable.read` are here without their calls. NO_KEY is never in a table, so reading need not ask for it first."""

    __slots__ = ()

    def value(self) -> Any:
        table = self._table
        value = table.overlay.get(self._backend.current_key, MISSING)
        if type(value) in ATOMS:
            return value
        if value is MISSING:
            value = table.base.get(self._entry(), MISSING)
            if type(value) in ATOMS:
                return value
            return None if value is MISSING else table.own(value)
        return None if value is TOMBSTONE else own(value)

    def update(self, value: Any) -> None:
        entry = self._backend.current_key
        if value is None or entry is NO_KEY:  # as in Flink: None means no value
            self._table.delete(self._entry())
        else:
            self._table.overlay[entry] = value if type(value) in ATOMS else own(value)


class NamespacedValueState(_Handle, ValueState[Any]):
    """A ValueState of the current key and window."""

    __slots__ = ()

    def value(self) -> Any:
        value = self._table.read(self._entry())
        return None if value is MISSING else value

    def update(self, value: Any) -> None:
        if value is None:
            self._table.delete(self._entry())
        else:
            self._table.put(self._entry(), own(value))


class KeyedListState(_Handle, ListState[Any]):
    """A ListState of the current key. What is added is appended to the list's last piece, not to a copy of all."""

    __slots__ = ()

    _table: ListTable

    def get(self) -> Iterable[Any]:
        value = self._table.read(self._entry())
        return [] if value is MISSING else value

    def add(self, value: Any) -> None:
        self._table.extend(self._entry(), [value if type(value) in ATOMS else own(value)])

    def add_all(self, values: Iterable[Any]) -> None:
        added: list[Any] = []
        take(added, values)
        if added:
            self._table.extend(self._entry(), added)

    def update(self, values: Iterable[Any]) -> None:
        items = own_all(list(values))
        if items:
            self._table.put(self._entry(), items)
        else:
            self.clear()


class KeyedMapState(_Handle, MapState[Any, Any]):
    """Each entry of the map is one of the table. Listing is in the canonical order of map keys."""

    __slots__ = ()

    _table: MapTable

    def clear(self) -> None:
        self._table.clear(self._entry())

    def get(self, key: Any) -> Any:
        # As `OverlayTable.read`, without its calls: most jobs with a map ask it for every record.
        table = self._table
        flat = (self._entry(), key if type(key) in PLAIN_KEYS else normal_key(key))
        value = table.overlay.get(flat, MISSING)
        if type(value) in ATOMS:
            return value
        if value is MISSING:
            value = table.base.get(flat, MISSING)
            if type(value) in ATOMS:
                return value
            return None if value is MISSING else table.own(value)
        return None if value is TOMBSTONE else own(value)

    def contains(self, key: Any) -> bool:
        return self._table.peek((self._entry(), normal_key(key))) is not MISSING

    def put(self, key: Any, value: Any) -> None:
        entry, key = self._entry(), key if type(key) in PLAIN_KEYS else normal_key(key)
        self._table.put((entry, key), value if type(value) in ATOMS else own(value))

    def put_all(self, dict_value: dict[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)

    def remove(self, key: Any) -> None:
        self._table.delete((self._entry(), normal_key(key)))

    def items(self) -> Iterable[tuple[Any, Any]]:
        return [(user_key(key), value) for key, value in self._table.entries_of(self._entry())]

    def keys(self) -> Iterable[Any]:
        return _MapKeys(self._table, self._entry())

    def values(self) -> Iterable[Any]:
        return [value for _, value in self.items()]

    def is_empty(self) -> bool:
        return self._table.is_empty(self._entry())


class _MapKeys:
    """The keys of one map: each time it is walked over, those that there are when that begins."""

    __slots__ = ("_entry", "_table")

    def __init__(self, table: MapTable, entry: Hashable) -> None:
        self._table, self._entry = table, entry

    def __iter__(self) -> Iterator[Any]:
        return map(user_key, self._table.keys_of(self._entry))

    def __repr__(self) -> str:
        return repr(list(self))


class KeyedReducingState(_Handle, ReducingState[Any]):
    """A ReducingState of the current key."""

    __slots__ = ("_reduce",)

    def __init__(self, backend: OperatorState, table: OverlayTable, namespaced: bool, function: ReduceFunction) -> None:
        super().__init__(backend, table, namespaced)
        self._reduce = function.reduce

    def get(self) -> Any:
        value = self._table.read(self._entry())
        return None if value is MISSING else value

    def add(self, value: Any) -> None:
        entry = self._entry()
        current = self._table.get(entry)
        result = value if current is MISSING else self._reduce(current, value)
        self._table.overlay[entry] = result if result is current else own(result)


class KeyedAggregatingState(_Handle, AggregatingState[Any, Any]):
    """An AggregatingState of the current key; the table holds the accumulator."""

    __slots__ = ("_function",)

    def __init__(
        self, backend: OperatorState, table: OverlayTable, namespaced: bool, function: AggregateFunction
    ) -> None:
        super().__init__(backend, table, namespaced)
        self._function = function

    def get(self) -> Any:
        value = self._table.get(self._entry())
        return None if value is MISSING else own(self._function.get_result(value))

    def add(self, value: Any) -> None:
        entry = self._entry()
        current = self._table.get(entry)
        if current is MISSING:
            current = own(self._function.create_accumulator())
        result = self._function.add(value, current)
        self._table.overlay[entry] = result if result is current else own(result)
