"""Where the confirmed entries of one subtask live: the seam between state and its backends.

Everything above it (overlay, handles, timers, snapshots, retries) is the same for every backend. A keyspace only gives
each table a base: a plain dict, or a mapping that keeps its entries elsewhere (`StoredBase`).
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from penstock.state.keys import canonical
from penstock.state.snapshot_file import StoredColumn

Base: TypeAlias = MutableMapping[Any, Any]


class Shape(Enum):
    """What the opaque entries of a table are made of: a store that orders or groups them has to take them apart."""

    KEY = "key"
    NAMESPACED = "(key, namespace)"
    MAP = "(key, map key)"
    NAMESPACED_MAP = "((key, namespace), map key)"
    LIST = "(key, piece of a list)"
    NAMESPACED_LIST = "((key, namespace), piece of a list)"
    TIMERS = "(key, namespace, timestamp)"
    BLOCKS = "name of a block with rows of many keys"

    @property
    def is_map(self) -> bool:
        """True if entries belong to maps: they can be listed map by map."""
        return self in (Shape.MAP, Shape.NAMESPACED_MAP)


class Keyspace(Protocol):
    """Confirmed entries of all operators of one subtask. Belongs to the subtask's thread, but for `entries`."""

    @property
    def on_disk(self) -> bool:
        """Whether there may be more entries than fit in memory."""
        ...

    def base(self, operator: str, name: str, shape: Shape) -> Base:
        """The base of one table; asked for once."""
        ...

    def entries(self) -> int:
        """How many entries there are in all; backends that would have to count them estimate."""
        ...

    def close(self) -> None:
        """The subtask is gone: release memory and local files. May be repeated."""
        ...


class EntryColumns(NamedTuple):
    """Many entries, cut into columns as snapshots have them."""

    groups: Any  # an array of int32
    parts: tuple[Sequence[Any], ...]  # values, keys, and what the shape has beside them


class StoredBase(MutableMapping[Any, Any]):
    """A base outside of Python's heap. What it returns is decoded for the caller, who may change it in place."""

    @abstractmethod
    def apply(self, changes: Mapping[Any, Any]) -> None:
        """Fold an overlay, tombstones included, in as few writes as possible."""

    @abstractmethod
    def freeze(self) -> Iterator[tuple[Any, Any]]:
        """All entries as they are now, for another thread to read while new ones are written."""

    def read_ahead(self, entries: Iterable[Any]) -> None:
        """These are likely to be asked for next, before anything is written: a backend may read them in one go."""

    @abstractmethod
    def settle(self) -> None:
        """All of a restore's entries were set: make sure that they can be read."""


class ColumnarBase(StoredBase):
    """A stored base that gives and takes many entries as columns of snapshots, without an object for any of them."""

    @abstractmethod
    def freeze_columns(self, entries: int) -> Iterator[EntryColumns]:
        """What `freeze` gives, in columns of so many entries or fewer."""

    @abstractmethod
    def load_columns(self, groups: Any, parts: list[StoredColumn], deleted: Sequence[bool] | None) -> None:
        """Restore entries: their key groups; values, keys, and what the shape has beside them; which of them are gone. Not of
        timers or blocks. To be read after `settle`."""


class OrderedTimers(Protocol):
    """What a base of timers offers that need not be held in memory."""

    @property
    def head(self) -> int:
        """About how many timers to hold in memory."""
        ...

    def after(self, timestamp: int | None) -> Iterator[tuple[Any, Any, int]]:
        """(key, namespace, timestamp) of timers later than this, by time; None: from the first."""
        ...


class MapScan(Protocol):
    """What a base of map entries offers beyond single entries."""

    def scan(self, entry: Hashable) -> Iterator[tuple[Any, Any]]:
        """(map key, value) of one map."""
        ...

    def ordered(self, entry: Hashable) -> Iterator[tuple[bytes, Any]]:
        """(canonical form, map key) of one map, by canonical form; UnsupportedKeyError if a key has none."""
        ...


_MANY: Final = 256  # keys that are worth keeping in order
_ORDERS: Final = 100  # maps
_FEW: Final = 64  # changes to put in one by one
_PART: Final = 512

_Forms: TypeAlias = list[tuple[bytes, Any]]  # (canonical form, key)


class _Order:
    """The keys of a map by canonical form, as of the last time it was asked for, and those that have come or gone since.

    In parts, which like the list of parts are replaced and never changed: somebody may still walk over them.
    """

    __slots__ = ("_parts", "changed")

    def __init__(self, keys: Iterable[Any]) -> None:
        self.changed: dict[Any, None] = {}
        self._parts = self._sorted(keys)

    @staticmethod
    def _sorted(keys: Iterable[Any]) -> list[_Forms]:
        forms = sorted(((canonical(key), key) for key in keys), key=_form)
        return [forms[start : start + _PART] for start in range(0, len(forms), _PART)]

    def of(self, entries: Mapping[Any, Any]) -> Iterator[tuple[bytes, Any]]:
        """All keys of `entries`, in order."""
        if len(self.changed) > _FEW or not self._parts:
            self._parts = self._sorted(entries)
        elif self.changed:
            parts = self._parts.copy()
            for key in self.changed:
                form = canonical(key)
                number = min(bisect_left(parts, form, key=_last), len(parts) - 1)
                part = parts[number].copy()
                place = bisect_left(part, form, key=_form)
                there = place < len(part) and part[place][0] == form
                part[place : place + there] = [(form, key)] if key in entries else []
                half = len(part) // 2
                parts[number : number + 1] = (
                    [part[:half], part[half:]] if len(part) > 2 * _PART else [part] if part else []
                )
                if not parts:
                    break  # the map is empty, or all of its keys are new
            self._parts = parts or self._sorted(entries)
        self.changed = {}
        return itertools.chain.from_iterable(self._parts)


def _form(key: tuple[bytes, Any]) -> bytes:
    return key[0]


def _last(part: _Forms) -> bytes:
    return part[-1][0]


class NestedMaps(MutableMapping[Any, Any]):
    """Map entries on the heap: one dict a map, so that a map can be listed without looking at the others."""

    __slots__ = ("_count", "_maps", "_orders")

    def __init__(self) -> None:
        self._maps: dict[Hashable, dict[Any, Any]] = {}
        self._count = 0
        self._orders: dict[Hashable, _Order] = {}  # of large maps whose keys were listed

    def scan(self, entry: Hashable) -> Iterator[tuple[Any, Any]]:
        """The keys and values of one map."""
        return iter(self._maps.get(entry, {}).items())

    def ordered(self, entry: Hashable) -> Iterator[tuple[bytes, Any]]:
        """The keys of one map, by their canonical form. What is sorted once is kept, if it is much."""
        entries = self._maps.get(entry, {})
        order = self._orders.get(entry)
        if order is None:
            order = _Order(entries)
            if len(entries) >= _MANY:
                if len(self._orders) >= _ORDERS:
                    self._orders.clear()
                self._orders[entry] = order
        return order.of(entries)

    def get(self, flat: Any, default: Any = None) -> Any:
        found = self._maps.get(flat[0])
        return default if found is None else found.get(flat[1], default)

    def __contains__(self, flat: Any) -> bool:
        found = self._maps.get(flat[0])
        return found is not None and flat[1] in found

    def __getitem__(self, flat: Any) -> Any:
        return self._maps[flat[0]][flat[1]]

    def __setitem__(self, flat: Any, value: Any) -> None:
        entries = self._maps.setdefault(flat[0], {})
        if flat[1] not in entries:
            self._count += 1
            self._changed(flat)
        entries[flat[1]] = value

    def update(self, changes: Any) -> None:  # type: ignore[override]
        """Sets many at once, of a mapping or pairs: an epoch's changes."""
        maps, orders = self._maps, self._orders
        for flat, value in changes.items() if isinstance(changes, Mapping) else changes:
            entry, key = flat
            entries = maps.get(entry)
            if entries is None:
                entries = maps[entry] = {}
            if key not in entries:
                self._count += 1
                if orders:
                    self._changed(flat)
            entries[key] = value

    def __delitem__(self, flat: Any) -> None:
        entries = self._maps[flat[0]]
        del entries[flat[1]]
        self._count -= 1
        self._changed(flat)
        if not entries:
            del self._maps[flat[0]]
            self._orders.pop(flat[0], None)

    def _changed(self, flat: Any) -> None:
        order = self._orders.get(flat[0]) if self._orders else None
        if order is not None:
            order.changed[flat[1]] = None

    def __iter__(self) -> Iterator[Any]:
        return ((entry, key) for entry, entries in self._maps.items() for key in entries)

    def __len__(self) -> int:
        return self._count


class HashMapKeyspace:
    """Live objects on the heap."""

    on_disk = False

    def __init__(self) -> None:
        self._bases: list[Base] = []

    def base(self, operator: str, name: str, shape: Shape) -> Base:
        """A new table."""
        base: Base = NestedMaps() if shape.is_map else {}
        self._bases.append(base)
        return base

    def entries(self) -> int:
        """How many entries all tables have."""
        return sum(map(len, self._bases))

    def close(self) -> None:
        """Forgets all tables."""
        self._bases.clear()


def hashmap_keyspaces(*_: object) -> Callable[[], HashMapKeyspace]:
    """The factory of the backend `hashmap`, which has no settings."""
    return HashMapKeyspace
