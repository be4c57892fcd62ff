"""The table of a map state: one entry for each map key, so that a change costs, and snapshots, one entry."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any, cast

from penstock.common.values import own
from penstock.state.key_groups import UnsupportedKeyError, canonical
from penstock.state.keys import restored_key
from penstock.state.keyspace import MapScan
from penstock.state.overlay import MISSING, TOMBSTONE, OverlayTable


class MapTable(OverlayTable):
    """Entries are (entry, map key), where `entry` is a key or (key, namespace)."""

    __slots__ = ("_touched",)

    def __init__(self, base: Any) -> None:
        super().__init__(base)
        self._touched: dict[Hashable, dict[Any, None]] = {}  # map keys in the overlay, by entry

    def put(self, key: Any, value: Any) -> None:
        self.overlay[key] = value
        self._touched.setdefault(key[0], {})[key[1]] = None

    def delete(self, key: Any) -> None:
        super().delete(key)
        self._touched.setdefault(key[0], {})[key[1]] = None

    def entries_of(self, entry: Hashable) -> list[tuple[Any, Any]]:
        """One whole map, its values as objects for a user to keep and change, in the canonical order of its keys: the order
        must not depend on the backend, or on which checkpoint the map was restored from. Map keys without a canonical form
        keep the order of insertion."""
        found = list(self._merged(entry))
        try:
            return sorted(found, key=lambda item: canonical(item[0]))
        except UnsupportedKeyError:
            return found

    def _merged(self, entry: Hashable) -> Iterator[tuple[Any, Any]]:
        touched = self._touched.get(entry, {})
        for key, value in self._stored(entry):
            if key not in touched:
                yield key, self.own(value)
        for key in touched:
            value = self.overlay.get((entry, key), MISSING)
            if value is not MISSING and value is not TOMBSTONE:
                yield key, own(value)

    def _stored(self, entry: Hashable) -> Iterator[tuple[Any, Any]]:
        return cast("MapScan", self.base).scan(entry)

    def is_empty(self, entry: Hashable) -> bool:
        return next(self._merged(entry), None) is None

    def clear(self, entry: Hashable) -> None:
        for key, _ in list(self._merged(entry)):
            self.delete((entry, key))

    def fold(self, *, checkpointed: bool) -> None:
        super().fold(checkpointed=checkpointed)
        self._touched = {}

    def rollback(self) -> None:
        super().rollback()
        self._touched = {}

    def load_whole(self, entry: Hashable, value: Any) -> None:
        """Restore a map that an older snapshot wrote as one value."""
        for key, _ in list(self._stored(entry)):
            del self.base[(entry, key)]
        for key, single in ({} if value is TOMBSTONE else value).items():
            self.base[(entry, restored_key(key))] = single
