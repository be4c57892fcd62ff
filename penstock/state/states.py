"""State handles over overlay tables: what `runtime_context.get_state(...)` returns.

`namespace` is None for state of a key, a window for state of a key and window (contents, triggers, per-window state).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any, Protocol

from penstock.datastream.functions import AggregateFunction, ReduceFunction
from penstock.datastream.state import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from penstock.state.backend import NO_KEY, OperatorState
from penstock.state.overlay import MISSING, OverlayTable


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


class KeyedValueState(_Handle, ValueState):  # type: ignore[type-arg]
    __slots__ = ()

    def value(self) -> Any:
        value = self._table.get(self._entry())
        return None if value is MISSING else value

    def update(self, value: Any) -> None:
        if value is None:  # as in Flink: None means no value
            self._table.delete(self._entry())
        else:
            self._table.overlay[self._entry()] = value


class KeyedListState(_Handle, ListState):  # type: ignore[type-arg]
    __slots__ = ()

    def get(self) -> Iterable[Any]:
        value = self._table.get(self._entry())
        return [] if value is MISSING else list(value)

    def add(self, value: Any) -> None:
        self.add_all((value,))

    def add_all(self, values: Iterable[Any]) -> None:
        table, entry = self._table, self._entry()
        current = table.overlay.get(entry, MISSING)
        if type(current) is list:  # this epoch's own list
            current.extend(values)
            return
        base = table.get(entry)  # a private copy
        added = list(values)
        if added or base is not MISSING:
            table.put(entry, added if base is MISSING else [*base, *added])

    def update(self, values: Iterable[Any]) -> None:
        items = list(values)
        if items:
            self._table.put(self._entry(), items)
        else:
            self.clear()


class KeyedMapState(_Handle, MapState):  # type: ignore[type-arg]
    """The whole map of a key is one entry: the first write of an epoch copies it."""

    __slots__ = ()

    def _look(self) -> dict[Any, Any]:
        value: Any = self._table.get(self._entry())
        found: dict[Any, Any] = {} if value is MISSING else value
        return found

    def _own(self) -> dict[Any, Any]:
        table, entry = self._table, self._entry()
        current = table.overlay.get(entry, MISSING)
        if type(current) is not dict:
            base = table.get(entry)
            current = {} if base is MISSING else base
            table.put(entry, current)
        own: dict[Any, Any] = current
        return own

    def get(self, key: Any) -> Any:
        value = self._table.peek(self._entry())
        if value is MISSING or key not in value:
            return None
        own = self._table.overlay.get(self._entry(), MISSING)
        return value[key] if own is value else self._look()[key]

    def contains(self, key: Any) -> bool:
        value = self._table.peek(self._entry())
        return value is not MISSING and key in value

    def put(self, key: Any, value: Any) -> None:
        self._own()[key] = value

    def put_all(self, dict_value: dict[Any, Any]) -> None:
        if dict_value:
            self._own().update(dict_value)

    def remove(self, key: Any) -> None:
        if self.contains(key):
            own = self._own()
            del own[key]
            if not own:
                self.clear()

    def items(self) -> Iterable[tuple[Any, Any]]:
        return list(self._look().items())

    def keys(self) -> Iterable[Any]:
        return list(self._look())

    def values(self) -> Iterable[Any]:
        return list(self._look().values())

    def is_empty(self) -> bool:
        return not self._look()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def __getitem__(self, key: Any) -> Any:
        return self.get(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: Any) -> None:
        self.remove(key)

    def __contains__(self, key: Any) -> bool:
        return self.contains(key)


class Appending(Protocol):
    """State that folds what is added into one stored value: the shape reducing and aggregating state share."""

    def add(self, value: Any) -> None: ...
    def get(self) -> Any: ...
    def clear(self) -> None: ...


class KeyedReducingState(_Handle, ReducingState):  # type: ignore[type-arg]
    __slots__ = ("_reduce",)

    def __init__(self, backend: OperatorState, table: OverlayTable, namespaced: bool, function: ReduceFunction) -> None:
        super().__init__(backend, table, namespaced)
        self._reduce = function.reduce

    def get(self) -> Any:
        value = self._table.get(self._entry())
        return None if value is MISSING else value

    def add(self, value: Any) -> None:
        entry = self._entry()
        current = self._table.get(entry)
        self._table.overlay[entry] = value if current is MISSING else self._reduce(current, value)


class KeyedAggregatingState(_Handle, AggregatingState):  # type: ignore[type-arg]
    __slots__ = ("_function",)

    def __init__(
        self, backend: OperatorState, table: OverlayTable, namespaced: bool, function: AggregateFunction
    ) -> None:
        super().__init__(backend, table, namespaced)
        self._function = function

    def get(self) -> Any:
        value = self._table.get(self._entry())
        return None if value is MISSING else self._function.get_result(value)

    def add(self, value: Any) -> None:
        entry = self._entry()
        current = self._table.get(entry)
        if current is MISSING:
            current = self._function.create_accumulator()
        self._table.overlay[entry] = self._function.add(value, current)
