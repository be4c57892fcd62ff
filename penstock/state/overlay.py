"""The overlay: one mechanism, three uses.

During an epoch all writes of a table go to an overlay above its confirmed entries. A retried task drops the overlay and
starts again; frozen at the barrier, the overlay is the incremental snapshot; and because frozen means immutable it can be
written out while the next epoch fills a new one. It folds into the base when the next epoch starts.

The table of a map state: one entry for each map key, so that a change costs, and snapshots, one entry.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, MutableMapping
from heapq import merge
from operator import itemgetter
from typing import Any, Final, cast

from penstock.common.values import ATOMS, own
from penstock.state.keys import UnsupportedKeyError, canonical, restored_key
from penstock.state.keyspace import MapScan, StoredBase


class _Marker:
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


MISSING: Final = _Marker("MISSING")
TOMBSTONE: Final = _Marker("TOMBSTONE")


class OverlayTable:
    """Entries of one state of one operator. Keys are opaque and hashable: a key, or (key, namespace)."""

    __slots__ = ("_shared", "_since_checkpoint", "base", "overlay")

    def __init__(self, base: MutableMapping[Hashable, Any] | None = None) -> None:
        self.base: MutableMapping[Hashable, Any] = {} if base is None else base
        self._shared = not isinstance(self.base, StoredBase)  # what the base returns is its own object
        self.overlay: dict[Hashable, Any] = {}
        # Changes folded by epochs that were not checkpoints; the next checkpoint's delta starts from them.
        self._since_checkpoint: dict[Hashable, Any] = {}

    def get(self, key: Hashable) -> Any:
        """The value, or MISSING: an object of the running epoch, which the operator may change in place, but nobody else.
        What comes from the base is a copy unless it is immutable: `acc.append(x)` would otherwise change confirmed state,
        and a retry of the epoch would see it. State handles, which users have, give and take copies."""
        value = self.overlay.get(key, MISSING)
        if value is MISSING:
            value = self.base.get(key, MISSING)
            return self.own(value) if type(value) not in ATOMS else value
        return MISSING if value is TOMBSTONE else value

    def read(self, key: Hashable) -> Any:
        """The value as an object for a user to keep and change, or MISSING."""
        value = self.overlay.get(key, MISSING)
        if value is MISSING:
            value = self.base.get(key, MISSING)
            return self.own(value) if type(value) not in ATOMS else value
        if type(value) in ATOMS:
            return value
        return MISSING if value is TOMBSTONE else own(value)

    def own(self, value: Any) -> Any:
        """A value of the base as an object that the caller may change."""
        return own(value) if self._shared and value is not MISSING else value

    def peek(self, key: Hashable) -> Any:
        """Like `get` without the copy: for callers that only look."""
        value = self.overlay.get(key, MISSING)
        if value is MISSING:
            return self.base.get(key, MISSING)
        return MISSING if value is TOMBSTONE else value

    def put(self, key: Hashable, value: Any) -> None:
        """Sets the value of a key, in this epoch."""
        self.overlay[key] = value

    def delete(self, key: Hashable) -> None:
        """Removes a key, in this epoch; nothing happens if it is not there."""
        if key in self.base:
            self.overlay[key] = TOMBSTONE
        else:
            self.overlay.pop(key, None)

    def items(self) -> Iterator[tuple[Hashable, Any]]:
        """Every entry. The caller may write to the table meanwhile; entries it has written may then come twice."""
        for key, value in self.base.items():
            if key not in self.overlay:
                yield key, value
        for key, value in list(self.overlay.items()):
            if value is not TOMBSTONE:
                yield key, value

    def rows(self) -> Iterator[tuple[Hashable, Any]]:
        """Every entry as snapshots hold it."""
        return self.items()

    def __len__(self) -> int:
        added = sum(1 for k, v in self.overlay.items() if v is not TOMBSTONE and k not in self.base)
        removed = sum(1 for k, v in self.overlay.items() if v is TOMBSTONE and k in self.base)
        return len(self.base) + added - removed

    def delta(self) -> dict[Hashable, Any]:
        """Everything that changed since the last checkpoint; TOMBSTONE marks a removal."""
        if not self._since_checkpoint:
            return self.overlay
        return {**self._since_checkpoint, **self.overlay}

    def fold(self, *, checkpointed: bool) -> None:
        """The epoch is confirmed: make the overlay part of the base."""
        overlay = self.overlay
        if checkpointed:
            self._since_checkpoint = {}
        elif overlay:
            self._since_checkpoint.update(overlay)
        base = self.base
        if isinstance(base, StoredBase):
            if overlay:
                base.apply(overlay)
        elif any(value is TOMBSTONE for value in overlay.values()):  # not `in`: a value's == may be its own
            for key, value in overlay.items():
                if value is TOMBSTONE:
                    base.pop(key, None)
                else:
                    base[key] = value
        else:
            base.update(overlay)
        self.overlay = {}

    def rollback(self) -> None:
        """The epoch will be run again: forget what it wrote."""
        self.overlay = {}

    def load(self, key: Hashable, value: Any) -> None:
        """Restore one entry of a snapshot straight into the base; deltas come in order."""
        if value is TOMBSTONE:
            self.base.pop(key, None)
        else:
            self.base[key] = value

    def load_all(self, entries: Iterable[tuple[Hashable, Any]], *, deletes: bool) -> None:
        """The same of many; `deletes`: some may be tombstones."""
        if deletes:
            for key, value in entries:
                self.load(key, value)
        else:
            self.base.update(entries)


class MapTable(OverlayTable):
    """Entries are (entry, map key), where `entry` is a key or (key, namespace)."""

    __slots__ = ("_touched",)

    def __init__(self, base: Any) -> None:
        super().__init__(base)
        self._touched: dict[Hashable, dict[Any, None]] = {}  # map keys in the overlay, by entry

    def put(self, key: Any, value: Any) -> None:
        self.overlay[key] = value
        entry, map_key = key
        touched = self._touched.get(entry)
        if touched is None:
            touched = self._touched[entry] = {}
        touched[map_key] = None

    def delete(self, key: Any) -> None:
        super().delete(key)
        self._touched.setdefault(key[0], {})[key[1]] = None

    def entries_of(self, entry: Hashable) -> list[tuple[Any, Any]]:
        """One whole map, its values as objects for a user to keep and change, in the canonical order of its keys: the order
        must not depend on the backend, or on which checkpoint the map was restored from. Map keys without a canonical form
        keep the order of insertion."""
        found = list(self.unsorted(entry))
        try:
            return sorted(found, key=lambda item: canonical(item[0]))
        except UnsupportedKeyError:
            return found

    def keys_of(self, entry: Hashable) -> Iterator[Any]:
        """The keys of one map as they are now, in the order of `entries_of`, one after the other: the first of many costs
        little."""
        touched = {key: self._present((entry, key)) for key in self._touched.get(entry, ())}
        try:
            mine = sorted(((canonical(key), key) for key, present in touched.items() if present), key=itemgetter(0))
            stored = cast("MapScan", self.base).ordered(entry)
        except UnsupportedKeyError:
            return iter([key for key, _ in self.unsorted(entry)])
        if not touched:
            return (key for _, key in stored)
        left = ((form, key) for form, key in stored if key not in touched)
        return (key for _, key in merge(left, mine, key=itemgetter(0)))

    def _present(self, flat: Hashable) -> bool:
        value = self.overlay.get(flat, MISSING)
        return value is not MISSING and value is not TOMBSTONE

    def unsorted(self, entry: Hashable) -> Iterator[tuple[Any, Any]]:
        """One whole map, its values as objects for a user to keep and change, in whatever order it is stored."""
        touched = self._touched.get(entry, {})
        for key, value in self._stored(entry):
            if key not in touched:
                yield key, self.own(value)
        for key in touched:
            if self._present((entry, key)):
                yield key, own(self.overlay[(entry, key)])

    def _stored(self, entry: Hashable) -> Iterator[tuple[Any, Any]]:
        return cast("MapScan", self.base).scan(entry)

    def is_empty(self, entry: Hashable) -> bool:
        """True if a map has no entry."""
        return next(self.unsorted(entry), None) is None

    def clear(self, entry: Hashable) -> None:
        """Removes every entry of a map."""
        for key, _ in list(self.unsorted(entry)):
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
