"""When windows made of panes fire and when their panes are dropped; and up to which watermark that has happened.

Derived from the panes that there are: nothing of the calendar is in a snapshot but one watermark of each subtask.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Final

from penstock.operators.panes import PaneGrid
from penstock.protocol.events import MAX_WATERMARK, MIN_WATERMARK
from penstock.state.backend import OperatorState

FIRED: Final = "fired-until"


class PaneCalendar:
    """The windows that have not ended, and the panes."""

    def __init__(self, grid: PaneGrid) -> None:
        self._grid = grid
        self._pending: list[tuple[int, int]] = []  # heap of (fires at, window)
        self._known: set[int] = set()  # the windows in it
        self._drops: list[tuple[int, int]] = []  # heap of (dropped at, pane)

    def rebuild(self, panes: Iterable[int], now: int) -> None:
        """The panes that were restored or rolled back to, and the watermark up to which windows have fired."""
        self._pending, self._known, self._drops = [], set(), []
        for pane in panes:
            self.watch(pane, now)

    def watch(self, pane: int, now: int) -> None:
        """A pane came into being: its windows must fire, and it must be dropped."""
        heapq.heappush(self._drops, (self._grid.dropped_at(pane), pane))
        for window in self._grid.windows(pane):
            fires_at = self._grid.fires_at(window)
            if fires_at > now and window not in self._known:
                self._known.add(window)
                heapq.heappush(self._pending, (fires_at, window))

    def fired(self, watermark: int) -> Iterator[int]:
        """The windows that fire by this watermark, each once."""
        while self._pending and self._pending[0][0] <= watermark:
            _, window = heapq.heappop(self._pending)
            self._known.discard(window)
            yield window

    def dropped(self, watermark: int) -> Iterator[int]:
        """The panes that nobody needs any more, each once."""
        while self._drops and self._drops[0][0] <= watermark:
            yield heapq.heappop(self._drops)[1]


def fired_until(state: OperatorState, owned: range) -> int:
    """Which windows have fired is not written per window: all up to this watermark have. At an aligned barrier it is the
    same in every subtask; if not, the smallest counts, for a result twice is better than none."""
    mine = [
        watermark
        for first, end, watermark in state.operator_list(FIRED, "operator-union")
        if first < owned.stop
        and owned.start < end
        and watermark < MAX_WATERMARK  # nothing is left of those; more can come only from a source that is new
    ]
    return min(mine, default=MIN_WATERMARK)


def note_fired(state: OperatorState, owned: range, watermark: int) -> None:
    """For the snapshot that is being taken."""
    state.operator_list(FIRED, "operator-union")[:] = [(owned.start, owned.stop, watermark)]
