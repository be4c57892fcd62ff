"""Where the confirmed entries of one subtask live: the seam between state and its backends.

Everything above it (overlay, handles, timers, snapshots, retries) is the same for every backend. A keyspace only gives
each table a base: a plain dict, or a mapping that keeps its entries elsewhere (`StoredBase`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, MutableMapping
from enum import Enum
from typing import Any, Protocol, TypeAlias

Base: TypeAlias = MutableMapping[Any, Any]


class Shape(Enum):
    """What the opaque entries of a table are made of: a store that orders or groups them has to take them apart."""

    KEY = "key"
    NAMESPACED = "(key, namespace)"
    MAP = "(key, map key)"
    NAMESPACED_MAP = "((key, namespace), map key)"
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


class StoredBase(MutableMapping[Any, Any]):
    """A base outside of Python's heap. What it returns is decoded for the caller, who may change it in place."""

    @abstractmethod
    def apply(self, changes: Mapping[Any, Any]) -> None:
        """Fold an overlay, tombstones included, in as few writes as possible."""

    @abstractmethod
    def freeze(self) -> Iterator[tuple[Any, Any]]:
        """All entries as they are now, for another thread to read while new ones are written."""

    @abstractmethod
    def settle(self) -> None:
        """All of a restore's entries were set: make sure that they can be read."""


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


class NestedMaps(MutableMapping[Any, Any]):
    """Map entries on the heap: one dict a map, so that a map can be listed without looking at the others."""

    __slots__ = ("_count", "_maps")

    def __init__(self) -> None:
        self._maps: dict[Hashable, dict[Any, Any]] = {}
        self._count = 0

    def scan(self, entry: Hashable) -> Iterator[tuple[Any, Any]]:
        """The keys and values of one map."""
        return iter(self._maps.get(entry, {}).items())

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
        self._count += flat[1] not in entries
        entries[flat[1]] = value

    def __delitem__(self, flat: Any) -> None:
        entries = self._maps[flat[0]]
        del entries[flat[1]]
        self._count -= 1
        if not entries:
            del self._maps[flat[0]]

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
