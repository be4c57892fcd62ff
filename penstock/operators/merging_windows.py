"""Which windows of a key are in flight when windows can merge, and where the contents of each are stored.

elements      a          b                    c                (gap between them closes only with c)
windows    [──a──)   [──b──)
with c     [──────────────────)   one window; its contents stay under a's window, its "state window",
                                  so that only b's contents move.

They are a map of the key, from state window to window: a session that opens, grows or ends is one entry, however many there
are. Sets that were used of late are also kept as objects, those of many windows in order of time, until the epoch is run again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.functions.window import MergingWindowAssigner
from penstock.functions.window.session_assigners import EventTimeSessionWindows
from penstock.state.backend import OperatorState
from penstock.state.overlay import MapTable

if TYPE_CHECKING:
    from penstock.operators.window_context import WindowCodec

IN_FLIGHT: Final = "windows-in-flight"
_MANY: Final = 8  # windows of a set that are kept in order
_BEFORE: Final = "merging-windows"  # of older checkpoints: by key all pairs (window, state window) as one value

# (result, merged windows, state window of the result, state windows whose contents move there)
MergeWindows: TypeAlias = Callable[[Any, list[Any], Any, list[Any]], None]


class _Groups(MergingWindowAssigner.MergeCallback[Any]):
    def __init__(self) -> None:
        self.found: list[tuple[Any, list[Any]]] = []

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.found.append((merge_result, list(to_be_merged)))


class MergingWindowSet:
    """The windows of one key. `changed` holds what is not stored yet: by state window the window, or None if it is gone."""

    __slots__ = ("_assigner", "_order", "_touching", "changed", "mapping")

    def __init__(self, assigner: MergingWindowAssigner[Any, Any], mapping: Mapping[Any, Any]) -> None:
        self._assigner = assigner
        self.mapping: dict[Any, Any] = dict(mapping)  # window → state window
        self._touching = _merge_by_touch(assigner)
        # Of many sessions, which merge if they touch and so never do afterwards: in order of time, to find those near a new one.
        self._order: list[Any] | None = sorted(self.mapping) if self._touching and len(self.mapping) >= _MANY else None
        self.changed: dict[Any, Any] = {}

    def state_window(self, window: Any) -> Any | None:
        """The window under which the contents of `window` are kept; None if it is unknown."""
        return self.mapping.get(window)

    def retire(self, window: Any) -> None:
        """Forgets a window that has ended."""
        if window in self.mapping:
            self.changed[self._pop(window)] = None

    def add(self, new: Any, merge: MergeWindows) -> Any:
        """The window that `new` is part of from now on; `merge` is called for windows in flight that became one.

        A window equal to one in flight changes nothing. (Flink points it to an empty state window of its own, which
        loses contents when the one in flight had been merged before: possible with dynamic gaps.)
        """
        if new in self.mapping:
            return new
        result, absorbed = new, False
        for merged_to, members in self._groups(new):
            in_flight = [window for window in members if window != new]
            if len(in_flight) < len(members):
                result, absorbed = merged_to, True
            if not in_flight or in_flight == [merged_to]:
                continue  # a window that only took the new one in and did not grow
            states = [self._pop(window) for window in in_flight]
            self.changed.update(dict.fromkeys(states))
            self._put(merged_to, states[0])
            merge(merged_to, in_flight, states[0], states[1:])
        if not absorbed:
            self._put(result, result)
        return result

    def _groups(self, new: Any) -> Iterable[tuple[Any, list[Any]]]:
        """(result, windows that become it), as the assigner says; of sessions it is known."""
        if not self._touching:
            groups = _Groups()
            self._assigner.merge_windows([*self.mapping, new], groups)
            return groups.found
        near = self._near(new)
        if not near:
            return ()
        return (((near[0] if len(near) == 1 else near[0].cover(near[-1])).cover(new), [*near, new]),)

    def _near(self, new: Any) -> list[Any]:
        """The windows that `new` touches, in order of time."""
        order, start, end = self._order, new.start, new.end
        if order is None:
            return sorted([window for window in self.mapping if window.start <= end and start <= window.end])
        last = bisect_right(order, end, key=_start)
        first = bisect_left(order, start, hi=last, key=_end)  # they do not touch, so their ends are in order too
        return order[first:last]

    def _pop(self, window: Any) -> Any:
        if self._order is not None:
            del self._order[bisect_left(self._order, window.start, key=_start)]
        return self.mapping.pop(window)

    def _put(self, window: Any, state: Any) -> None:
        self.mapping[window], self.changed[state] = state, window
        if self._order is not None:
            insort(self._order, window, key=_start)
        elif self._touching and len(self.mapping) >= _MANY:
            self._order = sorted(self.mapping)


def _start(window: Any) -> int:
    start: int = window.start
    return start


def _end(window: Any) -> int:
    end: int = window.end
    return end


def _merge_by_touch(assigner: MergingWindowAssigner[Any, Any]) -> bool:
    return type(assigner).merge_windows is EventTimeSessionWindows.merge_windows


class WindowSets:
    """The sets of all keys of an operator."""

    _KEPT: Final = 10_000  # sets

    def __init__(self, state: OperatorState, assigner: MergingWindowAssigner[Any, Any], codec: WindowCodec) -> None:
        table = state.table(IN_FLIGHT, "map")
        assert isinstance(table, MapTable)
        self._table, self._state = table, state
        self._assigner, self._codec = assigner, codec
        self._touching = _merge_by_touch(assigner)
        self._kept: dict[Any, MergingWindowSet] = {}

    def restored(self) -> None:
        """The state was loaded, or the epoch is run again."""
        self._kept.clear()
        before = self._state.tables.get(_BEFORE)
        if before is not None:
            for key, pairs in list(before.items()):
                for window, stored in pairs:
                    self._table.put((key, stored), window)
                before.delete(key)

    def of(self, key: Any) -> MergingWindowSet:
        """The windows of a key."""
        found = self._kept.get(key)
        if found is None:
            window = self._codec.window
            pairs = [(b, a) for a, b in self._table.unsorted(key)]
            if not self._touching:
                pairs.sort()  # a user's assigner may look at the order, which must not be that of arrival
            found = MergingWindowSet(self._assigner, {window(b): window(a) for b, a in pairs})
            if self._touching:
                if len(self._kept) >= self._KEPT:
                    self._kept.clear()
                self._kept[key] = found
        return found

    def store(self, key: Any, windows: MergingWindowSet) -> None:
        """Writes what has changed in a set."""
        namespace, table = self._codec.namespace, self._table
        for state_window, window in windows.changed.items():
            entry = (key, namespace(state_window))
            if window is None:
                table.delete(entry)
            else:
                table.put(entry, namespace(window))
        windows.changed.clear()
        if not windows.mapping:
            self._kept.pop(key, None)
