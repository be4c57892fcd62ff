"""The state of one operator in one subtask: keyed tables and timers, operator lists, broadcast maps.

Working state and checkpoints are separate: a backend only says where a table's confirmed entries live (`Keyspace`);
the overlay above them, and so snapshot, retry and incremental checkpoints, are the same for every backend.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.errors import JobDefinitionError, PenstockError
from penstock.state.bulk_keys import key_groups_in_bulk
from penstock.state.keys import PLAIN_KEYS, key_group, restored_key
from penstock.state.keyspace import ColumnarBase, EntryColumns, HashMapKeyspace, Keyspace, Shape, StoredBase
from penstock.state.list_table import LIST_KINDS, ListTable
from penstock.state.operator_lists import BROADCAST, LIST, OPERATOR_KINDS, Accumulators, OperatorLists
from penstock.state.overlay import MISSING, TOMBSTONE, MapTable, OverlayTable
from penstock.state.panes import PANES, encode_panes, restore_panes
from penstock.state.snapshot_file import StoredColumn, TableDelta
from penstock.state.timers import TimerQueue

EVENT_TIMERS = "timer-event"
PROCESSING_TIMERS = "timer-processing"
MAP_KINDS = frozenset({"map", "map-ttl"})


class NoKeyError(PenstockError):
    """Keyed state was used where there is no current key."""


class _NoKey:
    def __repr__(self) -> str:
        return "<no key>"


NO_KEY = _NoKey()


class OperatorState:
    """All state of one operator in one subtask. Single-threaded, like the subtask."""

    def __init__(self, operator: str, max_parallelism: int, keyspace: Keyspace | None = None) -> None:
        self.operator = operator
        self.max_parallelism = max_parallelism
        self._keyspace: Keyspace = HashMapKeyspace() if keyspace is None else keyspace
        self.current_key: Any = NO_KEY
        self.tables: dict[str, OverlayTable] = {}
        self._kinds: dict[str, tuple[str, bool]] = {}  # name → (kind, keys are (key, namespace))
        self.event_timers = TimerQueue(self._internal(EVENT_TIMERS))
        self.processing_timers = TimerQueue(self._internal(PROCESSING_TIMERS))
        # By table: what is left of a value once what has expired is taken out of it; MISSING if nothing is.
        self.sweepers: dict[str, Callable[[Any], Any]] = {}
        self.declared: set[str] = set()  # states whose schema was compared with what was restored
        self.lists = OperatorLists(operator)
        self.accumulators = Accumulators(operator, self.lists)
        self._maps: dict[str, dict[Any, Any]] = {}

    def _internal(self, kind: str) -> OverlayTable:
        table = self.tables[kind] = OverlayTable(self._keyspace.base(self.operator, kind, Shape.TIMERS))
        self._kinds[kind] = (kind, True)
        return table

    def table(self, name: str, kind: str, *, namespaced: bool = False) -> OverlayTable:
        """The table of a keyed state, created on first use. The same name must always have the same kind."""
        known = self._kinds.get(name)
        if known is None:
            self._kinds[name] = (kind, namespaced)
            shape = _shape(kind, namespaced)
            base = self._keyspace.base(self.operator, name, shape)
            made = MapTable if shape.is_map else ListTable if kind in LIST_KINDS else OverlayTable
            self.tables[name] = made(base)
        elif known != (kind, namespaced):
            raise JobDefinitionError(
                f"operator {self.operator!r} declares state {name!r} as {kind}, but it is {known[0]} already "
                "(declared earlier or restored from a checkpoint): give the new state another name"
            )
        return self.tables[name]

    def key(self) -> Any:
        """The current key; NoKeyError outside of a keyed element."""
        if self.current_key is NO_KEY:
            raise NoKeyError(
                f"operator {self.operator!r} used keyed state or a timer outside of a keyed element: "
                "call key_by() before it, and use the state inside process_element or on_timer"
            )
        return self.current_key

    def read_ahead(self, keys: Iterable[Any]) -> Iterable[Any]:
        """The keys of a block's records, in their order. Where state is on disk, what is kept by key alone is read in one go."""
        if not self._keyspace.on_disk:
            return keys
        known = list(keys)
        for name, table in self.tables.items():
            kind, namespaced = self._kinds[name]
            if isinstance(table.base, StoredBase) and _shape(kind, namespaced) is Shape.KEY:
                table.base.read_ahead(key for key in known if key not in table.overlay)
        return known

    def operator_list(self, name: str, kind: str = LIST) -> list[Any]:
        """The list of this name, of operator state; created on first use, changed in place."""
        return self.lists.get(name, kind)

    def broadcast_map(self, name: str) -> dict[Any, Any]:
        """Broadcast state: the map itself, the same one at every call."""
        if name not in self._maps:
            entries: dict[Any, Any] = {}
            entries.update(self.lists.bind(name, BROADCAST, entries.items))
            self._maps[name] = entries
        return self._maps[name]

    def confirmed_list(self, name: str) -> list[Any]:
        """An operator list as it was when the last epoch that counts had ended, whatever this one has done to it."""
        return self.lists.confirmed(name)

    # ---------------------------------------------------------------- epoch life cycle

    def fold(self, *, checkpointed: bool) -> None:
        """The epoch is confirmed: its changes become part of the base. `checkpointed` if a checkpoint holds them."""
        for table in self.tables.values():
            table.fold(checkpointed=checkpointed)
        self.event_timers.folded()
        self.processing_timers.folded()
        self.lists.fold(checkpointed=checkpointed)

    def rollback(self) -> None:
        """Drops everything since the last confirmed epoch."""
        self.declared.clear()
        self.lists.rollback()
        self.accumulators.forget()
        self._maps.clear()
        for table in self.tables.values():
            table.rollback()
        self.event_timers.rebuild()
        self.processing_timers.rebuild()
        self.current_key = NO_KEY

    def changed(self) -> int:
        """How many entries changed since the last confirmed epoch."""
        return sum(len(table.delta()) for table in self.tables.values())

    def size(self) -> int:
        """Confirmed entries, counted: backends on disk read all of them. Reports use `Keyspace.entries`."""
        return sum(len(table.base) for table in self.tables.values())

    # ---------------------------------------------------------------- snapshots

    def snapshot(self, *, full: bool, frozen: bool = False) -> list[TableDelta]:
        """The entries and operator lists that changed since the last checkpoint, or with `full` all of them. What has
        expired is removed before a full one. `frozen`: the full one's confirmed entries come from `freeze`."""
        if full:
            self._sweep()
        out = []
        for name, table in self.tables.items():
            everything = full and not frozen
            entries: Iterable[tuple[Any, Any]] = table.rows() if everything else table.delta().items()
            delta = self._encode(name, entries, everything)
            if delta is not None:
                out.append(delta)
        return out + self.lists.snapshot(full=full)

    def freeze(self, entries: int) -> Iterator[TableDelta]:
        """All confirmed entries as they are now, in tables of so many, for another thread. Together with what changed
        since (`snapshot(full=True, frozen=True)`) they are a full snapshot, of which little is ever in memory."""
        frozen: list[Iterator[TableDelta]] = []
        for name, table in self.tables.items():
            if isinstance(table.base, ColumnarBase) and self._kinds[name][0] != PANES:
                frozen.append(map(functools.partial(self._cut, name), table.base.freeze_columns(entries)))
            elif isinstance(table.base, StoredBase):
                frozen.append(self._encoded(name, table.base.freeze(), entries))
        return itertools.chain.from_iterable(frozen)

    def _encoded(self, name: str, pairs: Iterator[tuple[Any, Any]], entries: int) -> Iterator[TableDelta]:
        while (some := self._encode(name, itertools.islice(pairs, entries), full=True)) is not None:
            yield some

    def _cut(self, name: str, columns: EntryColumns) -> TableDelta:
        kind, namespaced = self._kinds[name]
        values, keys, *beside = columns.parts
        map_keys = beside.pop() if kind in MAP_KINDS or kind in LIST_KINDS else None
        return TableDelta(
            operator=self.operator,
            name=name,
            kind=kind,
            full=True,
            key_groups=columns.groups,
            keys=keys,
            namespaces=beside.pop() if namespaced else None,
            map_keys=map_keys,
            values=values,
        )

    def _sweep(self) -> None:
        """Remove what has expired. A full snapshot looks at every entry anyway; and as removals are writes of the epoch
        that ends, a retry of it finds them undone."""
        for name, left_of in self.sweepers.items():
            table = self.tables[name]
            for entry, value in table.items():
                left = left_of(value)
                if left is MISSING:
                    table.delete(entry)
                elif left is not value:
                    table.put(entry, left)

    def _encode(self, name: str, entries: Iterable[tuple[Any, Any]], full: bool) -> TableDelta | None:
        kind, namespaced = self._kinds[name]
        pairs = list(entries)
        if not pairs:
            return None
        if kind == PANES:
            return encode_panes(self.operator, name, pairs, full)
        keys: list[Any] = []
        namespaces: list[Any] | None = None
        map_keys: list[Any] | None = None
        if kind in MAP_KINDS or kind in LIST_KINDS:
            map_keys = [m for (_, m), _ in pairs]
            pairs = [(entry, value) for (entry, _), value in pairs]
        if kind in (EVENT_TIMERS, PROCESSING_TIMERS):
            keys = [k for (k, _, _), _ in pairs]
            namespaces = [(n, t) for (_, n, t), _ in pairs]
        elif namespaced:
            keys = [k for (k, _), _ in pairs]
            namespaces = [n for (_, n), _ in pairs]
        else:
            keys = [k for k, _ in pairs]
        values = [v for _, v in pairs]
        deleted = None
        if not full and any(value is TOMBSTONE for value in values):
            deleted = [v is TOMBSTONE for v in values]
            values = [None if d else v for v, d in zip(values, deleted, strict=True)]
        groups = self._key_groups(keys)
        return TableDelta(
            operator=self.operator,
            name=name,
            kind=kind,
            full=full,
            key_groups=groups,
            keys=keys,
            namespaces=namespaces,
            map_keys=map_keys,
            values=values,
            deleted=deleted,
        )

    def _key_groups(self, keys: list[Any]) -> list[int] | npt.NDArray[np.int32]:
        limit = self.max_parallelism
        groups = key_groups_in_bulk(keys, limit)
        if groups is not None:
            return groups
        cache: dict[Any, int] = {}
        out = []
        for key in keys:
            group = cache.get(key)
            if group is None:
                group = cache[key] = key_group(key, limit)
            out.append(group)
        return out

    def restore(self, delta: TableDelta, owned: range) -> None:
        """Load one table of a snapshot file, keeping only the key groups this subtask owns. Files come oldest first."""
        if delta.kind in OPERATOR_KINDS:
            self.lists.restore(delta)
            return
        if delta.kind == PANES:  # blocks with rows of many key groups: cut, not dealt out
            restore_panes(self.table(delta.name, PANES), delta, owned, self.max_parallelism)
            return
        timers = delta.kind in (EVENT_TIMERS, PROCESSING_TIMERS)
        namespaced = delta.namespaces is not None
        table = self.tables[delta.name] if timers else self.table(delta.name, delta.kind, namespaced=namespaced)
        mine = _owned(delta.key_groups, owned)
        if not timers and self._restored_columns(table, delta, mine):
            return
        delta = delta.decoded()
        keys, values = _restored_keys(_pick(delta.keys, mine)), _pick(delta.values, mine)
        if delta.deleted is not None:
            gone = _pick(delta.deleted, mine)
            values = [TOMBSTONE if away else value for value, away in zip(values, gone, strict=True)]
        entries: Iterable[Hashable] = keys
        if delta.namespaces is not None:
            namespaces = _pick(delta.namespaces, mine)
            entries = zip(keys, namespaces, strict=True)
            if timers:
                entries = ((key, inner, at) for key, (inner, at) in entries)
        if delta.map_keys is not None:
            entries = zip(entries, _restored_keys(_pick(delta.map_keys, mine)), strict=True)
        pairs = zip(entries, values, strict=True)
        if delta.map_keys is None and isinstance(table, (MapTable, ListTable)):
            for entry, value in pairs:
                table.load_whole(entry, value)
        else:
            table.load_all(pairs, deletes=delta.deleted is not None)

    def _restored_columns(self, table: OverlayTable, delta: TableDelta, mine: npt.NDArray[np.int64] | None) -> bool:
        """Whether the entries went into the base as columns, without an object for any of them."""
        base, kinds = table.base, self._kinds[delta.name]
        pieces = kinds[0] in MAP_KINDS or kinds[0] in LIST_KINDS
        beside = [delta.namespaces] * kinds[1] + [delta.map_keys] * pieces
        columns = [part for part in (delta.values, delta.keys, *beside) if isinstance(part, StoredColumn)]
        if not isinstance(base, ColumnarBase) or len(columns) < 2 + len(beside):
            return False
        groups, deleted = np.asarray(delta.key_groups), delta.deleted
        if mine is not None:
            columns = [column.chosen(mine) for column in columns]
            groups, deleted = groups[mine], None if deleted is None else _pick(deleted, mine)
        base.load_columns(groups, columns, deleted)
        return True

    def restored(self) -> None:
        """All files are loaded: rebuild what is derived from the tables."""
        for table in self.tables.values():
            if isinstance(table.base, StoredBase):
                table.base.settle()
        self.lists.restored()
        self.accumulators.forget()
        self.event_timers.rebuild()
        self.processing_timers.rebuild()


def _owned(key_groups: Any, owned: range) -> npt.NDArray[np.int64] | None:
    """Which entries are in these key groups; None: all."""
    groups = np.asarray(key_groups)
    inside = (groups >= owned.start) & (groups < owned.stop)
    return None if inside.all() else np.flatnonzero(inside)


def _pick(column: Sequence[Any], chosen: npt.NDArray[np.int64] | None) -> Sequence[Any]:
    return column if chosen is None else [column[index] for index in chosen.tolist()]


def _restored_keys(keys: Sequence[Any]) -> Sequence[Any]:
    """Asked once for all of them: a restore is of millions."""
    return keys if PLAIN_KEYS.issuperset(map(type, keys)) else list(map(restored_key, keys))


def _shape(kind: str, namespaced: bool) -> Shape:
    if kind == PANES:
        return Shape.BLOCKS
    if kind in MAP_KINDS:
        return Shape.NAMESPACED_MAP if namespaced else Shape.MAP
    if kind in LIST_KINDS:
        return Shape.NAMESPACED_LIST if namespaced else Shape.LIST
    return Shape.NAMESPACED if namespaced else Shape.KEY
