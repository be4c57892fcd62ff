"""Window aggregation over columnar streams: no Python object per record, no lookup per key.

    block ─▶ late? ─▶ ended windows: fire once per record ─▶ gather
    gathered ─▶ group by (pane, key) ─▶ append one block per pane       when there are many, before a window fires, at a barrier
    panes of a window ─▶ merge ─▶ finish ─▶ one block, sorted by key                      when the watermark passes its end

Grouping costs what the groups cost, and of few records with many keys each is a group of its own: so records are gathered first.

The contract is that of the window operator for rows: the same windows, the same lateness, the same firings of every key in
the same order, and so an ended window fires once more for each late record within the allowed lateness. Those firings are
prefix sums over the late records of a block, also without a Python object per record. Only which key of a window comes
first when the watermark fires it may differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.common.typeinfo import TypeInformation
from penstock.functions.aggregates import Aggregate
from penstock.functions.window import WindowAssigner
from penstock.functions.window.assigners import begins_too_early
from penstock.operators.aggregation import PartialAggregation
from penstock.operators.base import Operator, OperatorContext
from penstock.operators.pane_calendar import PaneCalendar, fired_until, note_fired
from penstock.operators.panes import PaneBlocks, PaneGrid
from penstock.operators.timed_columns import drop_late, last_timestamps, times_of
from penstock.protocol.events import MAX_WATERMARK, MIN_WATERMARK
from penstock.records import Block, Columns, TimestampArray
from penstock.records.convert import require_columns, single_batch
from penstock.records.sizes import BLOCK_BYTES
from penstock.state.keys import key_group_range
from penstock.state.panes import PANES
from penstock.state.specification import PANES as PANES_HELD
from penstock.state.specification import Specification

_GATHERED_ROWS: Final = 1 << 18  # before they are grouped
_GATHERED_BYTES: Final = BLOCK_BYTES


class ColumnarWindowOperator(Operator):
    """Tumbling, sliding or cumulating event-time windows of a stream keyed by columns.

    Emits the key columns, window_start and window_end (milliseconds) and one column per aggregate; timestamps are
    window_end - 1. Late records go to the side output `late_tag` or are counted in `metrics.late_dropped`.
    """

    needs_timestamps = True
    gives_timestamps = True
    columnar = True
    gives = "columns"

    def __init__(
        self,
        keys: Sequence[str],
        assigner: WindowAssigner[Any, Any],
        aggregates: Mapping[str, Aggregate],
        allowed_lateness: int = 0,
        late_tag: str | None = None,
        input_type: TypeInformation | None = None,
    ) -> None:
        """`input_type` lets rows of that type in; without it only columns are taken."""
        super().__init__()
        self.grid = PaneGrid.of(assigner, allowed_lateness)
        self.aggregation = PartialAggregation(keys, aggregates)
        self.late_tag = late_tag
        self.input_type = input_type
        self.reads = None if late_tag is not None else self.aggregation.reads  # a late record leaves whole

    def setup(self, ctx: OperatorContext) -> None:
        super().setup(ctx)
        self._owned = key_group_range(ctx.subtask, ctx.parallelism, ctx.max_parallelism)
        self._blocks = PaneBlocks(ctx.state.table("panes", PANES), self._owned)
        self._fired_until = MIN_WATERMARK
        self._calendar = PaneCalendar(self.grid)  # derived from the blocks
        self._gathered: list[tuple[pa.Table, TimestampArray]] = []  # records in time that are in no pane yet
        self._gathered_rows = self._gathered_bytes = 0
        self._gathered_from = MAX_WATERMARK  # the earliest of them

    # ---------------------------------------------------------------- state

    def specification(self) -> Specification:
        return Specification(
            holds=PANES_HELD,
            keys=self.aggregation.keys,
            windows=self.grid.described,
            lateness=self.grid.lateness,
            partials=self.aggregation.partials,
            columns=self.aggregation.columns_in(self.input_type),
        )

    def migrate_state(self, before: Specification) -> None:
        table = self.ctx.state.table("panes", PANES)
        blocks: list[tuple[Any, Any]] = list(table.items())
        for name, block in blocks:
            table.put(name, self.aggregation.reordered(block, before.partials or ()))

    def restore_state(self) -> None:
        self._fired_until = fired_until(self.ctx.state, self._owned)
        self._blocks.rebuild()
        self._calendar.rebuild(self._blocks, self._now())

    def snapshot_state(self) -> None:
        note_fired(self.ctx.state, self._owned, self._now())

    def _now(self) -> int:
        return max(self.current_watermark, self._fired_until)

    # ---------------------------------------------------------------- records

    def process(self, input: int, block: Block) -> None:
        where = f"operator {self.ctx.name!r}"
        columns = require_columns(block, self.input_type, where)
        self.ctx.metrics.records_in += len(columns)
        if len(columns) == 0:
            return
        stamps = times_of(columns, self.ctx, "place a record", "window")
        lowest = int(stamps.min())
        if self.grid.begin(lowest) < MIN_WATERMARK:
            raise begins_too_early(self.grid.begin(lowest))
        table = self.aggregation.select(columns.batch, where)
        if not self.grid.all_taken(lowest, self._now()):
            taken = self.grid.taken(stamps, self._now())
            drop_late(columns, np.logical_and(~taken, self.grid.late(stamps, self._now())), self.ctx, self.late_tag)
            table, stamps = table.filter(pa.array(taken)), stamps[taken]
            if len(stamps) == 0:
                return
            lowest = int(stamps.min())
        self._refire(table, stamps)
        self._gather(table, stamps, lowest, columns.batch.nbytes)

    def _gather(self, table: pa.Table, stamps: TimestampArray, lowest: int, size: int) -> None:
        if self._gathered and not self._gathered[0][0].schema.equals(table.schema):
            self._group()
        self._gathered.append((table, stamps))
        self._gathered_rows += len(stamps)
        self._gathered_bytes += size  # of all columns: those that nobody reads are kept in memory by the others
        self._gathered_from = min(self._gathered_from, lowest)
        if self._gathered_rows >= _GATHERED_ROWS or self._gathered_bytes >= _GATHERED_BYTES:
            self._group()

    def end_epoch(self) -> None:
        self._group()

    def _group(self) -> None:
        """What was gathered goes to its panes."""
        if not self._gathered:
            return
        tables, times = zip(*self._gathered, strict=True)
        self._gathered, self._gathered_rows, self._gathered_bytes = [], 0, 0
        self._gathered_from = MAX_WATERMARK
        for pane, block in self._partials(pa.concat_tables(tables), np.concatenate(times)):
            known = pane in self._blocks
            self._blocks.append(pane, block)
            if not known:
                self._calendar.watch(pane, self._now())
            self._blocks.compact(pane, self.aggregation.merge)

    def _partials(self, table: pa.Table, stamps: TimestampArray) -> list[tuple[int, pa.RecordBatch]]:
        first, last = self.grid.pane(int(stamps.min())), self.grid.pane(int(stamps.max()))
        if first == last:
            return [(first, self.aggregation.group(table))]
        numbered = self.aggregation.group_by_pane(table, self.grid.pane_numbers(stamps, first))
        return [(first + number * self.grid.width, block) for number, block in numbered]

    def _refire(self, table: pa.Table, stamps: TimestampArray) -> None:
        """Before the records are added: fire each window that has ended once per record for it, with the record and all
        that came before it. The watermark stands still during a block, so no window ends in the middle of it."""
        now, grid = self._now(), self.grid
        if not grid.lateness or grid.fires_at(grid.first_end(grid.pane(int(stamps.min())))) > now:
            return
        self._group()  # what came before
        panes = grid.pane_array(stamps)
        ended: dict[int, list[int]] = {}
        for pane in np.unique(panes).tolist():
            for window in grid.windows(pane):
                if grid.refires(window, now):
                    ended.setdefault(window, []).append(pane)
        if not ended:
            return
        firings, rows = [], []
        for window in sorted(ended, reverse=grid.step is None):  # the order in which one record fires its windows
            mine = np.flatnonzero(np.isin(panes, ended[window]))
            before = self._blocks.read(grid.panes(window))
            running = self.aggregation.running(table.take(pa.array(mine)), before)
            firings.append(self.aggregation.finish(running, grid.start(window), grid.end(window)))
            rows.append(mine)
        order = np.argsort(np.concatenate(rows), kind="stable")
        self._emit(single_batch(pa.Table.from_batches(firings)).take(pa.array(order)))

    # ---------------------------------------------------------------- firing

    def on_watermark(self, timestamp: int) -> None:
        if self._gathered and self.grid.fires_at(self.grid.first_end(self.grid.pane(self._gathered_from))) <= timestamp:
            self._group()
        for window in self._calendar.fired(timestamp):
            merged = self.aggregation.merge(self._blocks.read(self.grid.panes(window)))
            sorted_ = self.aggregation.sorted_by_key(merged)
            self._emit(self.aggregation.finish(sorted_, self.grid.start(window), self.grid.end(window)))
        for pane in self._calendar.dropped(timestamp):
            self._blocks.drop(pane)
        super().on_watermark(timestamp)

    def _emit(self, result: pa.RecordBatch) -> None:
        """Results carry the time of their window's last millisecond."""
        self.ctx.metrics.records_out += result.num_rows
        self.ctx.output.block(Columns(result, last_timestamps(result.column("window_end").to_numpy())))
