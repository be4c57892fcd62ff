"""Timers are entries of an overlay table plus an index by time. The index is derived: a rollback rebuilds it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Any, TypeAlias

from penstock.state.key_groups import canonical
from penstock.state.overlay import OverlayTable

Namespace: TypeAlias = Hashable
Fire: TypeAlias = Callable[[int, Any, Any], None]


def firing_order(entry: tuple[Any, Any]) -> tuple[bytes, bytes]:
    """Timers of one timestamp fire in canonical key order: arrival order would not survive a restore."""
    key, namespace = entry
    return canonical(key), canonical(namespace)


class TimerQueue:
    """One time domain of one operator. At most one timer per (key, namespace, timestamp), as in Flink."""

    __slots__ = ("_buckets", "_heap", "closed", "table")

    def __init__(self, table: OverlayTable) -> None:
        self.table = table
        self._buckets: dict[int, dict[tuple[Any, Any], None]] = {}
        self._heap: list[int] = []
        self.closed = False  # batch mode, while a key's timers fire: time is at its end, new ones are ignored

    def register(self, timestamp: int, key: Any, namespace: Namespace = None) -> None:
        if self.closed:
            return
        bucket = self._buckets.get(timestamp)
        if bucket is None:
            bucket = self._buckets[timestamp] = {}
            heapq.heappush(self._heap, timestamp)
        entry = (key, namespace)
        if entry not in bucket:
            bucket[entry] = None
            self.table.put((key, namespace, timestamp), True)

    def delete(self, timestamp: int, key: Any, namespace: Namespace = None) -> None:
        bucket = self._buckets.get(timestamp)
        if bucket is not None and (key, namespace) in bucket:
            del bucket[(key, namespace)]
            self.table.delete((key, namespace, timestamp))

    def next_timestamp(self) -> int | None:
        while self._heap:
            timestamp = self._heap[0]
            if self._buckets.get(timestamp):
                return timestamp
            heapq.heappop(self._heap)
            self._buckets.pop(timestamp, None)
        return None

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
                key, namespace = entry
                self.table.delete((key, namespace, timestamp))
                fire(timestamp, key, namespace)
                if self._heap and self._heap[0] < timestamp:  # it registered an earlier one: that one goes first
                    break

    def drain(self, fire: Fire) -> None:
        """Fire every timer there is, in time order: the end of a key in batch mode."""
        entries = [(timestamp, entry) for timestamp, bucket in self._buckets.items() for entry in bucket]
        for timestamp, entry in sorted(entries, key=lambda timer: (timer[0], firing_order(timer[1]))):
            if entry in self._buckets.get(timestamp, ()):  # else deleted by a timer that fired just now
                self.delete(timestamp, *entry)
                fire(timestamp, *entry)

    def rebuild(self) -> None:
        self._buckets = {}
        entry: Any
        for entry, _ in self.table.items():
            key, namespace, timestamp = entry
            self._buckets.setdefault(timestamp, {})[(key, namespace)] = None
        self._heap = sorted(self._buckets)

    def __len__(self) -> int:
        return sum(len(bucket) for bucket in self._buckets.values())
