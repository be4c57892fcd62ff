"""Timers are entries of an overlay table plus an index by time. The index is derived: a rollback rebuilds it.

On the heap the index holds every timer. Where the base can list its timers by time (`OrderedTimers`) it holds only the
head: all timers up to a *horizon*, and those of the running epoch; when the head runs out, the next part is read.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeAlias

from penstock.state.keys import canonical
from penstock.state.keyspace import OrderedTimers
from penstock.state.overlay import MISSING, TOMBSTONE, OverlayTable

Namespace: TypeAlias = Hashable
Fire: TypeAlias = Callable[[int, Any, Any], None]

_BEGINNING: Final = -(2**63) - 1  # before every timestamp
_END: Final = 2**63  # after every timestamp


def firing_order(entry: tuple[Any, Any]) -> tuple[bytes, bytes]:
    """Timers of one timestamp fire in canonical key order: arrival order would not survive a restore."""
    key, namespace = entry
    return canonical(key), canonical(namespace)


class TimerQueue:
    """One time domain of one operator. At most one timer per (key, namespace, timestamp), as in Flink."""

    __slots__ = ("_buckets", "_count", "_heap", "_horizon", "_stored", "closed", "table")

    def __init__(self, table: OverlayTable) -> None:
        self.table = table
        self._buckets: dict[int, dict[tuple[Any, Any], None]] = {}
        self._heap: list[int] = []
        self._count = 0  # timers in the buckets
        base: Any = table.base
        self._stored: OrderedTimers | None = base if hasattr(base, "after") else None
        self._horizon = _END  # every timer up to here is in the buckets
        self.closed = False  # batch mode, while a key's timers fire: time is at its end, new ones are ignored

    def register(self, timestamp: int, key: Any, namespace: Namespace = None) -> None:
        """Adds a timer; one that is there already stays as it is."""
        if self.closed:
            return
        bucket = self._buckets.get(timestamp)
        if bucket is not None and (key, namespace) in bucket:
            return
        timer = (key, namespace, timestamp)
        if timestamp > self._horizon and self.table.peek(timer) is not MISSING:
            return
        self._index(timestamp, (key, namespace))
        self.table.put(timer, True)

    def _index(self, timestamp: int, entry: tuple[Any, Any]) -> None:
        bucket = self._buckets.get(timestamp)
        if bucket is None:
            bucket = self._buckets[timestamp] = {}
            heapq.heappush(self._heap, timestamp)
        if entry not in bucket:
            bucket[entry] = None
            self._count += 1

    def delete(self, timestamp: int, key: Any, namespace: Namespace = None) -> None:
        """Takes a timer back, if it is there."""
        bucket = self._buckets.get(timestamp)
        if bucket is not None and (key, namespace) in bucket:
            del bucket[(key, namespace)]
            self._count -= 1
            self.table.delete((key, namespace, timestamp))
        elif timestamp > self._horizon:
            self.table.delete((key, namespace, timestamp))

    def next_timestamp(self) -> int | None:
        """The time of the earliest timer; None if there is none."""
        while True:
            while self._heap and not self._buckets.get(self._heap[0]):
                self._buckets.pop(heapq.heappop(self._heap), None)
            first = self._heap[0] if self._heap else _END
            if first <= self._horizon or self._horizon == _END:
                return None if first == _END else first
            self._read_on()

    def advance(self, until: int, fire: Fire) -> None:
        """Fire every timer at or before `until` in time order, also those registered or deleted while firing."""
        while True:
            timestamp = self.next_timestamp()
            if timestamp is None or timestamp > until:
                return
            bucket = self._buckets[timestamp]
            for entry in sorted(bucket, key=firing_order):
                if entry not in bucket:  # deleted by a timer that fired just now
                    continue
                del bucket[entry]
                self._count -= 1
                key, namespace = entry
                self.table.delete((key, namespace, timestamp))
                fire(timestamp, key, namespace)
                if self._heap and self._heap[0] < timestamp:  # it registered an earlier one: that one goes first
                    break

    def drain(self, fire: Fire) -> None:
        """Fire every timer there is, in time order: the end of a key in batch mode."""
        while self._horizon != _END:
            self._read_on()
        entries = [(timestamp, entry) for timestamp, bucket in self._buckets.items() for entry in bucket]
        for timestamp, entry in sorted(entries, key=lambda timer: (timer[0], firing_order(timer[1]))):
            if entry in self._buckets.get(timestamp, ()):  # else deleted by a timer that fired just now
                self.delete(timestamp, *entry)
                fire(timestamp, *entry)

    def rebuild(self) -> None:
        """Reads the timers from the table again, after a restore or a rollback."""
        self._buckets, self._heap, self._count = {}, [], 0
        if self._stored is not None:
            self._horizon = _BEGINNING
            return
        entry: Any
        for entry, _ in self.table.items():
            key, namespace, timestamp = entry
            self._buckets.setdefault(timestamp, {})[(key, namespace)] = None
            self._count += 1
        self._heap = sorted(self._buckets)

    # ---------------------------------------------------------------- the head

    def folded(self) -> None:
        """Every timer is in the base now: let go of those that the head need not hold."""
        stored = self._stored
        if stored is None or (self._horizon == _END and self._count <= 2 * stored.head):
            return
        kept = 0
        horizon = _BEGINNING
        for timestamp in sorted(t for t, bucket in self._buckets.items() if bucket and t <= self._horizon):
            if kept >= stored.head:
                break
            kept += len(self._buckets[timestamp])
            horizon = timestamp
        else:
            horizon = self._horizon  # nothing that is complete has to go
        self._buckets = {t: bucket for t, bucket in self._buckets.items() if bucket and t <= horizon}
        self._heap = sorted(self._buckets)
        self._horizon, self._count = horizon, kept

    def _read_on(self) -> None:
        """The next part of the base's timers, whole timestamps only; what this epoch has deleted stays away."""
        stored, overlay, read = self._stored, self.table.overlay, 0
        assert stored is not None
        last = self._horizon
        after = None if last == _BEGINNING else last
        for timer in stored.after(after):
            timestamp = timer[2]
            if read >= stored.head and timestamp != last:
                self._horizon = last
                return
            last = timestamp
            if overlay.get(timer) is not TOMBSTONE:
                self._index(timestamp, (timer[0], timer[1]))
                read += 1
        self._horizon = _END

    def __len__(self) -> int:
        return self._count if self._horizon == _END else len(self.table)
