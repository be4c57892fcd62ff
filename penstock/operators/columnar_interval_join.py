"""The interval join of columns. The contract is that of the interval join of rows (`interval_join`), kept block by block.

Records wait in panes of event time, and meet the panes of the other side that they reach:

    left   ──────────────────●─────────────────────────────▶ event time
                    lower ├──┴──────────┤ upper
    right  ─────────┤ pane ├┤ pane ├┤ pane ├───────────────▶

A pane is dropped when the last record in it has nobody to wait for. Before that a record whose wait is over is left out when
others look for it, so that results do not depend on how wide panes are.

One kind of record is let go before its pane: where nobody who is later is waited for, a record that comes at the very time of
the watermark meets those that come before the next watermark, and is gone then. It is kept beside the panes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from penstock.common.time import MAX_LONG_VALUE, MIN_LONG_VALUE
from penstock.operators.base import OperatorContext
from penstock.operators.columnar_join import LEFT, RIGHT, SIDES, Both, ColumnarJoinOperator, Piece, Types
from penstock.operators.key_runs import Numbers, pairs_within
from penstock.operators.pane_calendar import fired_until, note_fired
from penstock.operators.panes import PaneGrid
from penstock.operators.timed_columns import drop_late, times_of
from penstock.protocol.events import MIN_WATERMARK
from penstock.records import Columns
from penstock.state.specification import Specification

NARROWEST: Final = 1000  # milliseconds of a pane, or all that comes within one would be a block of its own
_MOST: Final = 8  # panes for one block, or it would be cut into crumbs where records are far apart
_EDGE: Final = MIN_LONG_VALUE  # the pane of what is gone at the next watermark; no record has this time


class ColumnarIntervalJoinOperator(ColumnarJoinOperator):
    """Bounds in milliseconds, both inclusive. Results carry the later of both timestamps. A record behind the watermark
    meets nobody: it goes to its side's `late_tags`, or is counted in `metrics.late_dropped`."""

    needs_timestamps = True
    gives_timestamps = True
    holds = "columns that wait for an interval join"

    def __init__(
        self,
        keys: Both,
        chosen: tuple[Mapping[str, str], Mapping[str, str]],
        input_types: Types = (None, None),
        *,
        lower: int,
        upper: int,
        late_tags: tuple[str | None, str | None] = (None, None),
    ) -> None:
        super().__init__(keys, chosen, input_types)
        # By side: from where to where the timestamps of the other side's records may be, relative to a record's own.
        self._reach = ((lower, upper), (-upper, -lower))
        self._late_tags = late_tags
        self._width = max(NARROWEST, (upper - lower) // 4 + 1)

    def reads_of(self, input: int) -> tuple[str, ...] | None:
        return super().reads_of(input) if self._late_tags[input] is None else None  # a late record leaves whole

    def specification(self) -> Specification:
        return replace(super().specification(), reach=self._reach[LEFT])

    def setup(self, ctx: OperatorContext) -> None:
        super().setup(ctx)
        self._fired_until = MIN_WATERMARK

    def restore_state(self) -> None:
        super().restore_state()
        self._fired_until = fired_until(self.ctx.state, self._owned)

    def snapshot_state(self) -> None:
        note_fired(self.ctx.state, self._owned, self._now())

    def _now(self) -> int:
        return max(self.current_watermark, self._fired_until)

    # ---------------------------------------------------------------- records

    def take_in(self, side: int, columns: Columns) -> None:
        stamps = times_of(columns, self.ctx, f"join a {SIDES[side]} record", "join")
        late = stamps < self.current_watermark
        if late.any():
            drop_late(columns, late, self.ctx, self._late_tags[side])
            if late.all():
                return
        piece = self.piece(side, columns, np.flatnonzero(~late) if late.any() else None)
        for pane, part in piece.split(self._panes(side, piece.times)):
            self._meet(side, part)
            self._sides[side].add(pane, part)

    def _panes(self, side: int, times: Numbers) -> Numbers:
        """Where the records of a block are kept. Panes are wider where a block spans many: a few large ones for a block
        are enough, and when they are dropped is told by the records in them."""
        width = self._width
        while int(times.max()) - int(times.min()) > _MOST * width:
            width *= 2
        panes = np.maximum(PaneGrid(size=width, slide=width, offset=0, lateness=0).pane_array(times), _EDGE + 1)
        panes[times <= _within(self._now() - self._waits(side))] = _EDGE
        return panes

    def _waits(self, side: int) -> int:
        """How long after its own time a record of the side can still be met."""
        return max(self._reach[side][1], 0)

    def _meet(self, side: int, piece: Piece) -> None:
        lower, upper = self._reach[side]
        lowest, highest = _moved(piece.times, lower), _moved(piece.times, upper)
        begin, end = int(lowest.min()), int(highest.max())
        here, most = self._sides[1 - side], self.ctx.block_size
        gone = _within(self._now() - self._waits(1 - side))  # who is from then or earlier is waited for no longer
        for pane, (first, last) in list(here.times.items()):
            if last < begin or end < first or (last <= gone and pane != _EDGE):
                continue
            from_ = lowest if pane == _EDGE else np.maximum(lowest, min(gone + 1, MAX_LONG_VALUE))
            for other in here.pieces(pane):
                self.join(side, piece, other, pairs_within(piece.timed_run, other.timed_run, from_, highest, most))

    # ---------------------------------------------------------------- time

    def on_watermark(self, timestamp: int) -> None:
        for side in (LEFT, RIGHT):
            kept = self._sides[side]
            for pane, (_, last) in list(kept.times.items()):
                over = self._fired_until if pane == _EDGE else last + self._waits(side)
                if min(over, MAX_LONG_VALUE) <= timestamp:
                    kept.drop(pane)
        super().on_watermark(timestamp)


def _within(time: int) -> int:
    """The time, or the end of time that is next to it."""
    return max(MIN_LONG_VALUE, min(time, MAX_LONG_VALUE))


def _moved(times: Numbers, by: int) -> Numbers:
    """The times so much later, or at the end of time."""
    by = _within(by)
    if by < 0:
        return np.maximum(times, MIN_LONG_VALUE - by) + by
    return np.minimum(times, MAX_LONG_VALUE - by) + by
