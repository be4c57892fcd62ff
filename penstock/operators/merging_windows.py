"""Which windows of a key are in flight when windows can merge, and where the contents of each are stored.

elements      a          b                    c                (gap between them closes only with c)
windows    [──a──)   [──b──)
with c     [──────────────────)   one window; its contents stay under a's window, its "state window",
                                  so that only b's contents move.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from penstock.functions.window import MergingWindowAssigner

# (result, merged windows, state window of the result, state windows whose contents move there)
MergeWindows: TypeAlias = Callable[[Any, list[Any], Any, list[Any]], None]


class _Groups(MergingWindowAssigner.MergeCallback[Any]):
    def __init__(self) -> None:
        self.found: list[tuple[Any, list[Any]]] = []

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.found.append((merge_result, list(to_be_merged)))


class MergingWindowSet:
    """The windows of one key. `changed` says whether the mapping must be stored again."""

    __slots__ = ("_assigner", "changed", "mapping")

    def __init__(self, assigner: MergingWindowAssigner[Any, Any], mapping: Mapping[Any, Any]) -> None:
        self._assigner = assigner
        self.mapping: dict[Any, Any] = dict(mapping)  # window → state window
        self.changed = False

    def state_window(self, window: Any) -> Any | None:
        return self.mapping.get(window)

    def retire(self, window: Any) -> None:
        if self.mapping.pop(window, None) is not None:
            self.changed = True

    def add(self, new: Any, merge: MergeWindows) -> Any:
        """The window that `new` is part of from now on; `merge` is called for windows in flight that became one.

        A window equal to one in flight changes nothing. (Flink points it to an empty state window of its own, which
        loses contents when the one in flight had been merged before: possible with dynamic gaps.)
        """
        if new in self.mapping:
            return new
        groups = _Groups()
        self._assigner.merge_windows([*self.mapping, new], groups)
        result, absorbed = new, False
        for merged_to, members in groups.found:
            in_flight = [window for window in members if window != new]
            if len(in_flight) < len(members):
                result, absorbed = merged_to, True
            if not in_flight or in_flight == [merged_to]:
                continue  # a window that only took the new one in and did not grow
            states = [self.mapping.pop(window) for window in in_flight]
            self.mapping[merged_to] = states[0]
            self.changed = True
            merge(merged_to, in_flight, states[0], states[1:])
        if not absorbed:
            self.mapping[result] = result
            self.changed = True
        return result
