"""The join by windows of columns. The contract is that of a window over the records of both streams that joins them when it
fires: the same windows, the same lateness, the same pairs of every firing. In which order a firing gives its pairs is not part
of it.

    block ─▶ late? ─▶ ended windows: fire once per record ─▶ one block per pane, for each side
    panes of a window ─▶ left × right by key, a part at a time                     when the watermark passes its end

A record within the allowed lateness fires its window again, with all pairs of its key up to and including itself. That is a
join of the late records with their own side (who came before?) and of the result with the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.functions.window import WindowAssigner
from penstock.functions.window.assigners import begins_too_early
from penstock.functions.window.windows import last_timestamp
from penstock.operators.base import OperatorContext
from penstock.operators.columnar_join import (
    LARGE,
    LEFT,
    RIGHT,
    SIDES,
    Both,
    ColumnarJoinOperator,
    JoinSide,
    Piece,
    Types,
)
from penstock.operators.key_runs import KeyRun, all_pairs, pairs_within
from penstock.operators.pane_calendar import PaneCalendar, fired_until, note_fired
from penstock.operators.panes import PaneGrid
from penstock.operators.timed_columns import drop_late, times_of
from penstock.protocol.events import MIN_WATERMARK
from penstock.records import Columns, TimestampArray
from penstock.state.specification import Specification


class ColumnarWindowJoinOperator(ColumnarJoinOperator):
    """Tumbling, sliding or cumulating event-time windows. Results carry the last timestamp of their window. Records that
    are too late for every window are counted in `metrics.late_dropped`."""

    needs_timestamps = True
    gives_timestamps = True
    holds = "columns that wait for a join by windows"

    def __init__(
        self,
        keys: Both,
        chosen: tuple[Mapping[str, str], Mapping[str, str]],
        assigner: WindowAssigner[Any, Any],
        allowed_lateness: int = 0,
        input_types: Types = (None, None),
    ) -> None:
        super().__init__(keys, chosen, input_types)
        self.grid = PaneGrid.of(assigner, allowed_lateness)

    def specification(self) -> Specification:
        return replace(super().specification(), windows=self.grid.described, lateness=self.grid.lateness)

    def setup(self, ctx: OperatorContext) -> None:
        super().setup(ctx)
        self._fired_until = MIN_WATERMARK
        self._calendar = PaneCalendar(self.grid)

    def restore_state(self) -> None:
        super().restore_state()
        self._fired_until = fired_until(self.ctx.state, self._owned)
        panes = {*self._sides[LEFT].times, *self._sides[RIGHT].times}
        self._calendar.rebuild(panes, self._now())

    def snapshot_state(self) -> None:
        note_fired(self.ctx.state, self._owned, self._now())

    def _now(self) -> int:
        return max(self.current_watermark, self._fired_until)

    # ---------------------------------------------------------------- records

    def take_in(self, side: int, columns: Columns) -> None:
        stamps = times_of(columns, self.ctx, f"join a {SIDES[side]} record", "join")
        grid, now = self.grid, self._now()
        lowest = int(stamps.min())
        if grid.begin(lowest) < MIN_WATERMARK:
            raise begins_too_early(grid.begin(lowest))
        taken = None
        if not grid.all_taken(lowest, now):
            mask = grid.taken(stamps, now)
            drop_late(columns, np.logical_and(~mask, grid.late(stamps, now)), self.ctx, None)
            taken = np.flatnonzero(mask)
            if not len(taken):
                return
        piece = self.piece(side, columns, taken)
        panes = grid.pane_array(piece.times)
        self._refire(side, piece, panes)
        for pane, part in piece.split(panes):
            if not any(pane in each.times for each in self._sides):
                self._calendar.watch(pane, now)
            self._sides[side].add(pane, part)

    def _refire(self, side: int, piece: Piece, panes: TimestampArray) -> None:
        """Before the records are added: fire each window that has ended once per record for it, with all pairs of the
        record's key. The watermark stands still during a block, so no window ends in the middle of it."""
        now, grid = self._now(), self.grid
        if not grid.lateness or grid.fires_at(grid.first_end(grid.pane(int(piece.times.min())))) > now:
            return
        ended: dict[int, list[int]] = {}
        for pane in np.unique(panes).tolist():
            for window in grid.windows(pane):
                if grid.refires(window, now):
                    ended.setdefault(window, []).append(pane)
        for window, mine in ended.items():
            rows = np.flatnonzero(np.isin(panes, mine))
            self._fire_again(side, window, piece if len(rows) == len(panes) else piece.take(rows))

    def _fire_again(self, side: int, window: int, late: Piece) -> None:
        most, number = self.ctx.block_size, np.arange(len(late.times))
        others = self._pieces(self._sides[1 - side], window)
        for own in self._pieces(self._sides[side], window):
            for _, rows in all_pairs(late.run, own.run, most):
                self._join_each(side, own.take(rows), others, window)
        among = KeyRun(late.keys, number)
        for _, rows in pairs_within(late.run, among, np.zeros_like(number), number, most):
            self._join_each(side, late.take(rows), others, window)

    def _join_each(self, side: int, rows: Piece, others: Sequence[Piece], window: int) -> None:
        """The pairs of each row, which is here once for each firing that it is part of."""
        for other in others:
            pairs = all_pairs(rows.run, other.run, self.ctx.block_size)
            self.join(side, rows, other, pairs, last_timestamp(self.grid.end(window)))

    # ---------------------------------------------------------------- firing

    def _pieces(self, side: JoinSide, window: int) -> list[Piece]:
        """What a side has in a window, in few pieces: each is put in order for the other side's."""
        return list(_merged(piece for pane in self._panes(side, window) for piece in side.pieces(pane)))

    def _panes(self, side: JoinSide, window: int) -> Iterator[int]:
        panes = self.grid.panes(window)
        return (pane for pane in (panes if len(panes) <= len(side.times) else sorted(side.times)) if pane in panes)

    def on_watermark(self, timestamp: int) -> None:
        for window in self._calendar.fired(timestamp):
            self._fire(window)
        for pane in self._calendar.dropped(timestamp):
            for side in self._sides:
                side.drop(pane)
        super().on_watermark(timestamp)

    def _fire(self, window: int) -> None:
        left, right = (self._pieces(side, window) for side in self._sides)
        at = last_timestamp(self.grid.end(window))
        for one in left:
            for other in right:
                self.join(LEFT, one, other, all_pairs(one.run, other.run, self.ctx.block_size), at)
        self._send()


def _merged(pieces: Iterator[Piece]) -> Iterator[Piece]:
    """Small pieces together."""
    gathered: list[Piece] = []
    size = 0
    for piece in pieces:
        gathered.append(piece)
        size += piece.batch.nbytes
        if size >= LARGE:
            yield _one(gathered)
            gathered, size = [], 0
    if gathered:
        yield _one(gathered)


def _one(pieces: list[Piece]) -> Piece:
    if len(pieces) == 1:
        return pieces[0]
    return pieces[0].with_batch(pa.concat_batches([piece.batch for piece in pieces]))
