"""Session windows over columnar streams: no Python object per record, no lookup per key.

    block ─▶ gather ─▶ late? ─▶ group what touches ─▶ append a block of parts     when many, before an end, at a barrier
    parts that end ─┬─▶ touch one that goes on? ─▶ back, with its end
                    └─▶ merge ─▶ finish ─▶ one block, in order of time and key       when the watermark passes their ends

A part is what a group of records adds to a session: it begins where the first of them does and lasts until the gap after the
last one is over, and the session lasts at least as long. Only when a part ends is it compared with others of its key; if one
that ends later touches it, both are of one session, which goes on until then at least.

The contract is that of the window operator for rows: the same sessions, the same late records. A record is late if the session
that it would be in is over, not if it is behind the watermark: one that touches an open session joins it, and may be what lets
an earlier one join after it. Which key comes first when the watermark fires sessions it may differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.typeinfo import TypeInformation, schema_of
from penstock.functions.aggregates import Aggregate
from penstock.functions.window import EventTimeSessionWindows
from penstock.operators import session_rows
from penstock.operators.aggregation import PartialAggregation
from penstock.operators.base import Operator, OperatorContext
from penstock.operators.pane_calendar import FIRED
from penstock.operators.session_blocks import SessionBlocks, column, ended_by
from penstock.operators.timed_columns import drop_late, last_timestamps, times_of
from penstock.protocol.events import MAX_WATERMARK, MIN_WATERMARK
from penstock.records import Block, Columns, TimestampArray
from penstock.records.convert import require_columns
from penstock.records.dense_groups import Longs
from penstock.records.key_numbers import KeySet, key_numbers
from penstock.records.sizes import BLOCK_BYTES
from penstock.records.touching import TouchingGroups, sorted_by, touching
from penstock.state.keys import key_group_range
from penstock.state.panes import END, PANES, START, BlockName, block_name
from penstock.state.specification import SESSIONS, PartialName, Specification

_GATHERED_ROWS: Final = 1 << 18  # before they are grouped
_GATHERED_BYTES: Final = BLOCK_BYTES


class ColumnarSessionOperator(Operator):
    """Event-time sessions with one gap for all, of a stream keyed by columns.

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
        assigner: EventTimeSessionWindows[Any],
        aggregates: Mapping[str, Aggregate],
        late_tag: str | None = None,
        input_type: TypeInformation | None = None,
    ) -> None:
        """`input_type` lets rows of that type in; without it only columns are taken."""
        super().__init__()
        self.assigner = assigner
        self.gap = assigner._session_gap
        self.aggregation = PartialAggregation(keys, aggregates)
        self.late_tag = late_tag
        self.input_type = input_type
        self.reads = None if late_tag is not None else self.aggregation.reads  # a late record leaves whole

    def setup(self, ctx: OperatorContext) -> None:
        super().setup(ctx)
        self._owned = key_group_range(ctx.subtask, ctx.parallelism, ctx.max_parallelism)
        self._keys = self.aggregation.key_names
        self._blocks = SessionBlocks(ctx.state.table("panes", PANES), self._owned, self._keys)
        self._fired_until = MIN_WATERMARK
        self._forget_gathered()

    def _forget_gathered(self) -> None:
        # Records that are in no block yet, with all their columns if some of them may leave as late ones.
        self._gathered: list[tuple[pa.Table, TimestampArray, Columns | None]] = []
        self._gathered_rows = self._gathered_bytes = 0
        self._gathered_from = MAX_WATERMARK  # the earliest of them
        self._maybe_late = False  # some of them would be over if they were sessions of their own

    # ---------------------------------------------------------------- state

    def specification(self) -> Specification:
        return Specification(
            holds=SESSIONS,
            keys=self.aggregation.keys,
            windows=f"sessions with gaps of {self.gap} ms",
            lateness=0,
            partials=self.aggregation.partials,
            columns=self.aggregation.columns_in(self.input_type),
        )

    def formerly(self) -> Specification | None:
        return session_rows.specification(self.aggregation.keys, self.assigner, self.aggregation.aggregates)

    def migrate_state(self, before: Specification) -> None:
        table = self.ctx.state.table("panes", PANES)
        if before.holds != SESSIONS:
            rows = session_rows.take(self.ctx.state, self.assigner)
            if rows:
                table.put(block_name(0, 0, self._owned), self._block_of_rows(rows, before.partials or ()))
            return
        blocks: list[tuple[Any, Any]] = list(table.items())
        for name, block in blocks:
            reordered = self.aggregation.reordered(block, before.partials or ())
            for bound in (START, END):
                reordered = reordered.append_column(bound, block.column(bound))
            table.put(name, reordered)

    def _block_of_rows(self, rows: list[session_rows.Row], kept: Sequence[PartialName]) -> pa.RecordBatch:
        """Parts, one for each open session of rows."""
        keys, starts, ends, accumulators = zip(*rows, strict=True)
        if len(self._keys) == 1:
            keys = tuple((key,) for key in keys)
        columns = [list(values) for values in zip(*keys, strict=True)]
        partials = [[values[kept.index(partial)] for values in accumulators] for partial in self.aggregation.partials]
        bounds = {START: pa.array(starts, pa.int64()), END: pa.array(ends, pa.int64())}
        return self.aggregation.block_of_values(columns, partials, schema_of(self.input_type), **bounds)

    def restore_state(self) -> None:
        """What has ended is not written per part: all up to this watermark has. At an aligned barrier it is the same in every
        subtask; if not, the smallest counts for what comes, and of blocks from a subtask that was ahead its own."""
        watermarks = {
            (first, end): watermark
            for first, end, watermark in self.ctx.state.operator_list(FIRED, "operator-union")
            if first < self._owned.stop and self._owned.start < end
        }
        # Nothing is left where time has ended; more can come only from a source that is new.
        self._fired_until = min((w for w in watermarks.values() if w < MAX_WATERMARK), default=MIN_WATERMARK)

        def ended_for(name: BlockName) -> int:
            ranges = [(first, end) for first, end in zip(name[2::2], name[3::2], strict=True)]
            holder = next((held for held in reversed(ranges) if held in watermarks), None)
            return ended_by(self._fired_until if holder is None else watermarks[holder])

        self._blocks.rebuild(ended_by(self._fired_until), ended_for)
        self._forget_gathered()

    def snapshot_state(self) -> None:
        fired = (self._owned.start, self._owned.stop, self._now())
        self.ctx.state.operator_list(FIRED, "operator-union")[:] = [fired]

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
        table = self.aggregation.select(columns.batch, where)
        if self._gathered and not self._gathered[0][0].schema.equals(table.schema):
            self._group()
        maybe_late = lowest <= self._last_over()
        self._gathered.append((table, stamps, columns if maybe_late and self.late_tag is not None else None))
        self._maybe_late = self._maybe_late or maybe_late
        self._gathered_rows += len(stamps)
        self._gathered_bytes += (
            columns.batch.nbytes
        )  # of all columns: those nobody reads are kept in memory by the others
        self._gathered_from = min(self._gathered_from, lowest)
        if self._gathered_rows >= _GATHERED_ROWS or self._gathered_bytes >= _GATHERED_BYTES:
            self._group()

    def end_epoch(self) -> None:
        self._group()

    def _last_over(self) -> int:
        """The latest record that, as a session of its own, would be over."""
        ended = ended_by(self._now())
        return ended if ended == MAX_WATERMARK else ended - self.gap

    def _group(self) -> None:
        """What was gathered becomes parts of sessions. The watermark is still the one at which it came."""
        if not self._gathered:
            return
        gathered, maybe_late = self._gathered, self._maybe_late
        self._forget_gathered()
        table = pa.concat_tables([table for table, _, _ in gathered])
        stamps = np.concatenate([stamps for _, stamps, _ in gathered])
        if maybe_late:
            taken = self._taken(table, stamps)
            begin = 0
            for _, some, columns in gathered:
                drop_late(columns, ~taken[begin : begin + len(some)], self.ctx, self.late_tag)
                begin += len(some)
            table, stamps = table.filter(pa.array(taken)), stamps[taken]
            if len(stamps) == 0:
                return
        numbers, size = key_numbers([table.column(name) for name in self._keys])
        groups = touching(numbers, size, stamps, self._ends(stamps))
        partials = self.aggregation.group_by_number(table, groups.of_rows)
        ended = ended_by(self._now())
        ends = groups.ends
        if maybe_late:
            ends = self._ends_of_sessions(table, groups, ended)
        self._blocks.append(self._block(table, groups.first_rows, partials, groups.starts, ends), ended)
        self._blocks.settle(ended, self._merged)

    def _ends(self, stamps: TimestampArray) -> TimestampArray:
        """Of sessions with these last records: no later than time ends."""
        return np.where(stamps > MAX_WATERMARK - self.gap, MAX_WATERMARK, stamps + self.gap)

    def _block(
        self, table: pa.Table, rows: Longs, partials: Sequence[pa.Array], starts: TimestampArray, ends: TimestampArray
    ) -> pa.RecordBatch:
        """Parts with the keys of these rows of the table."""
        indices = pa.array(rows)
        keys = [table.column(name).combine_chunks().take(indices) for name in self._keys]
        return self.aggregation.block(keys, partials, **{START: pa.array(starts), END: pa.array(ends)})

    def _merged(self, blocks: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """One block in place of many."""
        table = self._bounds(blocks)
        groups = self._touching(table)
        partials = self.aggregation.merge_by_number(blocks, groups.of_rows)
        return self._block(table, groups.first_rows, partials, groups.starts, groups.ends)

    def _bounds(self, blocks: Sequence[pa.RecordBatch]) -> pa.Table:
        """Keys, starts and ends of parts."""
        tables = [pa.Table.from_batches([block.select([*self._keys, START, END])]) for block in blocks]
        return pa.concat_tables(tables, promote_options="permissive")

    def _touching(self, table: pa.Table) -> TouchingGroups:
        numbers, size = key_numbers([table.column(name) for name in self._keys])
        return touching(numbers, size, table.column(START).to_numpy(), table.column(END).to_numpy())

    # ---------------------------------------------------------------- late records

    def _taken(self, table: pa.Table, stamps: TimestampArray) -> npt.NDArray[np.bool_]:
        """Which records are not late. The open sessions of a key all last beyond the watermark, so a record that would be over
        by itself touches one exactly if the earliest of them begins before that record's gap ends; and then it may be the
        earliest beginning for those that come after it."""
        over = stamps <= self._last_over()
        taken = ~over
        if not over.any():
            return taken
        keys = table.select(self._keys)
        few = KeySet([column.combine_chunks().filter(pa.array(over)) for column in keys.columns])
        rows = np.flatnonzero(few.mask([column.combine_chunks() for column in keys.columns]))
        parts = [block.select([*self._keys, START]) for block in self._blocks.open_of(few, ended_by(self._now()))]
        before = pa.concat_tables(
            [
                *(pa.Table.from_batches([part]) for part in parts),
                keys.take(pa.array(rows)).append_column(START, pa.array(stamps[rows])),
            ],
            promote_options="permissive",
        )
        held = before.num_rows - len(rows)  # parts, before all records
        numbers, size = key_numbers([before.column(name) for name in self._keys])
        order = sorted_by(numbers, size, np.arange(before.num_rows))
        asked = np.concatenate([np.zeros(held, np.bool_), over[rows]])
        earliest, known = _earliest_before(numbers[order], before.column(START).to_numpy()[order], asked[order])
        those = np.flatnonzero(asked[order])  # in the order of keys, and of their arrival within a key
        late_or_not = stamps[rows[order[those] - held]]
        reach = self._ends(late_or_not)
        joins = known[those] & (earliest[those] <= reach)
        if joins.any():
            mine = numbers[order[those]]
            joins = _joining(mine.tolist(), late_or_not.tolist(), reach.tolist(), joins.tolist())
            taken[rows[order[those[joins]] - held]] = True
        return taken

    def _ends_of_sessions(self, table: pa.Table, groups: TouchingGroups, ended: int) -> TimestampArray:
        """The ends of these groups, where those that are over by themselves have the end of the open part they touch."""
        over = np.flatnonzero(groups.ends <= ended)
        if not len(over):
            return groups.ends
        indices = pa.array(groups.first_rows[over])
        keys = [table.column(name).combine_chunks().take(indices) for name in self._keys]
        bounds = {START: pa.array(groups.starts[over]), END: pa.array(groups.ends[over])}
        single = pa.RecordBatch.from_arrays([*keys, *bounds.values()], [*self._keys, *bounds])
        found = self._touching(self._bounds([single, *self._blocks.open_of(KeySet(keys), ended)]))
        ends = groups.ends.copy()
        ends[over] = found.ends[found.of_rows[: len(over)]]
        return ends

    # ---------------------------------------------------------------- firing

    def on_watermark(self, timestamp: int) -> None:
        now, until = self._now(), ended_by(timestamp)
        if timestamp > now:
            # Records that may be late are over by themselves: what was gathered with them is always grouped here.
            if self._gathered and self._next_end() <= until:
                self._group()
            if self._blocks.next_end is not None and self._next_end() <= until:
                self._fire(ended_by(now), until)
        super().on_watermark(timestamp)

    def _next_end(self) -> int:
        """No open part ends earlier."""
        gathered = min(self._gathered_from + self.gap, MAX_WATERMARK)
        return min(gathered, MAX_WATERMARK if self._blocks.next_end is None else self._blocks.next_end)

    def _fire(self, ended: int, until: int) -> None:
        """Sessions that end in between leave. A part of one that goes on is put back with the end of what it touches."""
        ending = self._blocks.ending(ended, until)
        rows = sum(block.num_rows for block in ending)
        bounds = self._bounds(ending)
        keys = KeySet([bounds.column(name).combine_chunks() for name in self._keys])
        groups = self._touching(self._bounds([*ending, *self._blocks.open_of(keys, until)]))
        mine, firsts, numbers = _occurring(groups.of_rows[:rows], len(groups.starts))
        partials = self.aggregation.merge_by_number(ending, numbers)
        merged = self._block(bounds, firsts, partials, groups.starts[mine], groups.ends[mine])
        over = groups.ends[mine] <= until
        if over.all():
            self._emit(merged)
        else:
            if over.any():
                self._emit(merged.filter(pa.array(over)))
            self._blocks.append(merged.filter(pa.array(~over)), until)
        self._blocks.settle(until, self._merged)

    def _emit(self, merged: pa.RecordBatch) -> None:
        """Results carry the time of their session's last millisecond."""
        merged = self.aggregation.sorted_by_key(merged)
        merged = merged.take(pa.array(np.argsort(column(merged, END), kind="stable")))
        ends = column(merged, END)
        result = self.aggregation.finish(merged, column(merged, START), ends)
        stamps = last_timestamps(ends)
        self.ctx.metrics.records_out += result.num_rows
        rows = -(-result.num_rows // max(1, -(-result.nbytes // BLOCK_BYTES)))
        for begin in range(0, result.num_rows, rows):
            self.ctx.output.block(Columns(result.slice(begin, rows), stamps[begin : begin + rows]))


def _occurring(numbers: Longs, size: int) -> tuple[Longs, Longs, Longs]:
    """Of numbers less than `size`: the distinct ones, the first row of each, and which of them is in each row."""
    occurs = np.zeros(size, np.bool_)
    occurs[numbers] = True
    distinct = np.flatnonzero(occurs)
    places = (np.cumsum(occurs) - 1)[numbers]
    firsts = np.empty(len(distinct), np.int64)
    firsts[places[::-1]] = np.arange(len(numbers))[::-1]
    return distinct, firsts, places


def _earliest_before(
    keys: Longs, starts: TimestampArray, asked: npt.NDArray[np.bool_]
) -> tuple[TimestampArray, npt.NDArray[np.bool_]]:
    """For every row the earliest start in the rows of its key up to it that are not `asked`, and whether there is one."""
    distinct, places = np.unique(starts, return_inverse=True)
    none = len(distinct)
    below = np.cumsum(np.append(False, keys[1:] != keys[:-1])) * (
        none + 1
    )  # a key's places are lower than those before it
    found = np.minimum.accumulate(np.where(asked, none, places) - below) + below
    return distinct[np.minimum(found, none - 1)], found < none


def _joining(keys: list[int], stamps: list[int], reach: list[int], joins: list[bool]) -> Any:
    """Which records join a session, if some join for sure and each that does may be what a later one of its key touches."""
    key, earliest, found = -1, MAX_WATERMARK, []
    for number, stamp, end, sure in zip(keys, stamps, reach, joins, strict=True):
        if number != key:
            key, known = number, False
        joined = sure or (known and earliest <= end)
        if joined:
            earliest = min(stamp, earliest) if known else stamp
            known = True
        found.append(joined)
    return np.array(found)
