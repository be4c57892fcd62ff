"""Window aggregation over columnar streams: no Python object per record, no lookup per key.

    block ─▶ late? ─▶ group by (pane, key) ─▶ append one small block per pane             at every block
    panes of a window ─▶ merge ─▶ finish ─▶ one block, sorted by key                      when the watermark passes its end

The contract is that of the window operator for rows (same windows, same lateness, same results). One difference: a
window that has ended and gets late records within the allowed lateness fires again once per block for every key in it,
where rows fire it once per record.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.aggregates import Aggregate
from penstock.datastream.window import WindowAssigner
from penstock.errors import PenstockError
from penstock.operators.base import Operator, OperatorContext
from penstock.operators.convert import to_columns, travels_as_arrow
from penstock.operators.pane_blocks import PaneBlocks
from penstock.operators.pane_grid import PaneGrid
from penstock.operators.partial_aggregation import PartialAggregation
from penstock.protocol.events import MIN_WATERMARK
from penstock.records import Block, Columns, TimestampArray
from penstock.state.key_groups import key_group_range
from penstock.state.panes import PANES

FIRED = "fired-until"


class ColumnarWindowOperator(Operator):
    """Tumbling or sliding event-time windows of a stream keyed by columns.

    Emits the key columns, window_start and window_end (milliseconds) and one column per aggregate; timestamps are
    window_end - 1. Late records go to the side output `late_tag` or are counted in `metrics.late_dropped`.
    """

    needs_timestamps = True
    gives_timestamps = True

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

    def setup(self, ctx: OperatorContext) -> None:
        super().setup(ctx)
        self._owned = key_group_range(ctx.subtask, ctx.parallelism, ctx.max_parallelism)
        self._blocks = PaneBlocks(ctx.state.table("panes", PANES), self._owned)
        self._fired_until = MIN_WATERMARK
        # Derived from the blocks: windows that have not ended, and when to drop which pane.
        self._pending: list[tuple[int, int]] = []  # heap of (fires at, window)
        self._known: set[int] = set()  # the windows in it
        self._drops: list[tuple[int, int]] = []  # heap of (dropped at, pane)

    # ---------------------------------------------------------------- state

    def restore_state(self) -> None:
        """Which windows have fired is not written per window: all up to this watermark have. At an aligned barrier it
        is the same in every subtask; if not, the smallest counts, for a result twice is better than none."""
        mine = [
            watermark
            for first, end, watermark in self.ctx.state.operator_list(FIRED, "operator-union")
            if first < self._owned.stop and self._owned.start < end
        ]
        self._fired_until = min(mine, default=MIN_WATERMARK)
        self._blocks.rebuild()
        self._pending, self._known, self._drops = [], set(), []
        for pane in self._blocks:
            self._watch(pane)

    def snapshot_state(self) -> None:
        fired = (self._owned.start, self._owned.stop, self._now())
        self.ctx.state.operator_list(FIRED, "operator-union")[:] = [fired]

    def _now(self) -> int:
        return max(self.current_watermark, self._fired_until)

    # ---------------------------------------------------------------- records

    def process(self, input: int, block: Block) -> None:
        columns = self._columns(block)
        self.ctx.metrics.records_in += len(columns)
        if len(columns) == 0:
            return
        stamps = columns.timestamps
        lowest = MIN_WATERMARK if stamps is None else int(stamps.min())
        if stamps is None or lowest == MIN_WATERMARK:
            raise PenstockError(
                f"operator {self.ctx.name!r} cannot place records that have no timestamp: call "
                "assign_timestamps_and_watermarks(...) with a timestamp assigner before the window"
            )
        table = self.aggregation.select(columns.batch, f"operator {self.ctx.name!r}")
        if not self.grid.all_taken(lowest, self._now()):
            taken = self.grid.taken(stamps, self._now())
            self._late(columns, np.logical_and(~taken, self.grid.late(stamps, self._now())))
            table, stamps = table.filter(pa.array(taken)), stamps[taken]
            if len(stamps) == 0:
                return
        self._add(self._partials(table, stamps))

    def _columns(self, block: Block) -> Columns:
        if isinstance(block, Columns):
            return block
        where = f"operator {self.ctx.name!r}"
        if not travels_as_arrow(self.input_type):
            raise PenstockError(
                f"{where} aggregates columns but was given rows such as {block.values[:1]!r}: declare the row type of the "
                "operator before it (output_type=Types.ROW_NAMED(...)), or use a window over rows"
            )
        assert self.input_type is not None
        columns = to_columns(block, self.input_type, where)
        if not isinstance(columns, Columns):
            raise PenstockError(f"{where} needs a timestamp on every record: some of {block.values[:3]!r} have none")
        return columns

    def _partials(self, table: pa.Table, stamps: TimestampArray) -> list[tuple[int, pa.RecordBatch]]:
        first, last = self.grid.pane(int(stamps.min())), self.grid.pane(int(stamps.max()))
        if first == last:
            return [(first, self.aggregation.group(table))]
        return self.aggregation.group_by_pane(table, self.grid.pane_array(stamps))

    def _add(self, partials: list[tuple[int, pa.RecordBatch]]) -> None:
        now, ended = self._now(), dict[int, list[pa.RecordBatch]]()
        for pane, block in partials:
            known = pane in self._blocks
            self._blocks.append(pane, block)
            if not known:
                self._watch(pane)
            for window in self.grid.windows(pane):
                fires_at = self.grid.fires_at(window)
                if fires_at <= now < fires_at + self.grid.lateness:
                    ended.setdefault(window, []).append(block)
        for window, touched in sorted(ended.items()):
            self._emit_window(
                window, self.aggregation.merge_touched(self._blocks.read(self.grid.panes(window)), touched)
            )
        for pane, _ in partials:
            self._blocks.compact(pane, self.aggregation.merge)

    def _late(self, columns: Columns, late: Any) -> None:
        number = int(np.count_nonzero(late))
        if not number:
            return
        if self.late_tag is None:
            self.ctx.metrics.late_dropped += number
            return
        assert columns.timestamps is not None
        self.ctx.metrics.records_out += number
        self.ctx.output.side(self.late_tag, Columns(columns.batch.filter(pa.array(late)), columns.timestamps[late]))

    # ---------------------------------------------------------------- firing

    def _watch(self, pane: int) -> None:
        """A pane came into being: its windows must fire, and it must be dropped."""
        heapq.heappush(self._drops, (self.grid.dropped_at(pane), pane))
        for window in self.grid.windows(pane):
            fires_at = self.grid.fires_at(window)
            if fires_at > self._now() and window not in self._known:
                self._known.add(window)
                heapq.heappush(self._pending, (fires_at, window))

    def on_watermark(self, timestamp: int) -> None:
        while self._pending and self._pending[0][0] <= timestamp:
            _, window = heapq.heappop(self._pending)
            self._known.discard(window)
            self._emit_window(window, self.aggregation.merge(self._blocks.read(self.grid.panes(window))))
        while self._drops and self._drops[0][0] <= timestamp:
            self._blocks.drop(heapq.heappop(self._drops)[1])
        super().on_watermark(timestamp)

    def _emit_window(self, window: int, merged: pa.RecordBatch) -> None:
        end = window + self.grid.size
        result = self.aggregation.finish(merged, window, end)
        self.ctx.metrics.records_out += result.num_rows
        self.ctx.output.block(Columns(result, np.full(result.num_rows, end - 1, dtype=np.int64)))
