"""One join in three forms: over rows, over columns, and in the plainest words; the first two on harnesses that stand for their
subtasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.common.types import Row
from penstock.datastream.joined_columns import PairOfRecords, PairsInInterval
from penstock.datastream.joined_streams import _JoinPairs, _TaggedKey
from penstock.operators.base import Operator
from penstock.operators.columnar_interval_join import ColumnarIntervalJoinOperator
from penstock.operators.columnar_join import ColumnarJoinOverAllTime
from penstock.operators.columnar_window_join import ColumnarWindowJoinOperator
from penstock.operators.interval_join import IntervalJoinOperator
from penstock.operators.panes import PaneGrid
from penstock.operators.selectors import ColumnKeySelector
from penstock.operators.window import WindowOperator
from penstock.operators.window_contents import ListContents
from penstock.records import Block, Columns, Rows
from penstock.records.convert import to_rows
from penstock.state.keys import key_group, normal_key, subtask_of
from penstock.testing.harness import OperatorHarness

Record = tuple[Any, Any, Any, int]  # (key, part of the key, value, timestamp)
LEFT, RIGHT = 0, 1
# Keys are of the same kind on both sides, and not of the same type.
SCHEMAS = (
    pa.schema([("key", pa.string()), ("part", pa.int32()), ("value", pa.int64())]),
    pa.schema([("name", pa.large_string()), ("number", pa.int64()), ("value", pa.int64()), ("unread", pa.int8())]),
)
ALL_KEYS = (("key", "part"), ("name", "number"))
CHOSEN = ({"key": "key", "left": "value"}, {"right": "value", "number": "number"})
RESULT = PairOfRecords(
    ["key", "left", "right", "number"], [[("key", None), ("value", None)], [("value", None), ("number", None)]]
)


def keys(columns: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return ALL_KEYS[LEFT][:columns], ALL_KEYS[RIGHT][:columns]


def row_interval(columns: int, lower: int, upper: int) -> Operator:
    left, right = (ColumnKeySelector(names) for names in keys(columns))
    tags = ("late-left", "late-right")
    return IntervalJoinOperator(PairsInInterval(RESULT), (left, right), lower=lower, upper=upper, late_tags=tags)


def columnar_interval(columns: int, lower: int, upper: int) -> Operator:
    tags = ("late-left", "late-right")
    return ColumnarIntervalJoinOperator(keys(columns), CHOSEN, lower=lower, upper=upper, late_tags=tags)


def row_windows(columns: int, assigner: Any, lateness: int) -> Operator:
    left, right = (ColumnKeySelector(names) for names in keys(columns))
    return WindowOperator(
        selector=_TaggedKey(left, right),
        assigner=assigner,
        contents=ListContents(),
        function=_JoinPairs(RESULT),
        allowed_lateness=lateness,
    )


def columnar_windows(columns: int, assigner: Any, lateness: int) -> Operator:
    return ColumnarWindowJoinOperator(keys(columns), CHOSEN, assigner, lateness)


def columnar_over_all_time(columns: int) -> Operator:
    return ColumnarJoinOverAllTime(keys(columns), CHOSEN)


def column_block(side: int, records: Sequence[Record]) -> Columns:
    *read, stamps = zip(*records, strict=True)
    fields = [*read, (0,) * len(records)][: len(SCHEMAS[side])]
    arrays = [pa.array(values, field.type) for values, field in zip(fields, SCHEMAS[side], strict=True)]
    return Columns(pa.RecordBatch.from_arrays(arrays, schema=SCHEMAS[side]), np.array(stamps, dtype=np.int64))


def row_block(side: int, records: Sequence[Record]) -> Rows:
    names = SCHEMAS[side].names[:3]
    return Rows([Row(**dict(zip(names, r, strict=False))) for r in records], [stamp for *_, stamp in records])


def tagged_block(side: int, records: Sequence[Record]) -> Rows:
    rows = row_block(side, records)
    return Rows([(side, value) for value in rows.values], rows.timestamps)


class Fleet:
    """All subtasks of a join; records go to the subtask of their key, in blocks of at most `block_size`."""

    def __init__(
        self, template: Operator, columns: int, make: Callable[[int, Sequence[Record]], Block], block_size: int
    ) -> None:
        self._template, self._columns, self._make, self._block_size = template, columns, make, block_size
        self.subtasks = [OperatorHarness(template, block_size=3)]
        self._chains: list[list[bytes]] = []

    def push(self, side: int, records: Sequence[Record]) -> None:
        one_input = self._make is tagged_block
        for subtask, harness in enumerate(self.subtasks):
            mine = [record for record in records if self._owner(record) == subtask]
            for start in range(0, len(mine), self._block_size):
                block = self._make(side, mine[start : start + self._block_size])
                harness.push_block(block, input=0 if one_input else side)

    def _owner(self, record: Record) -> int:
        key = record[0] if self._columns == 1 else record[:2]
        return subtask_of(key_group(normal_key(key), 128), len(self.subtasks), 128)

    def advance(self, watermark: int) -> None:
        for harness in self.subtasks:
            harness.advance_watermark(watermark)

    def rescale(self, parallelism: int) -> None:
        """With unchanged parallelism the chain of deltas grows; otherwise every new subtask starts from all chains."""
        if self._chains and len(self._chains) == len(self.subtasks):
            chains = [[*c, h.snapshot(full=False)] for c, h in zip(self._chains, self.subtasks, strict=True)]
        else:
            chains = [[h.snapshot()] for h in self.subtasks]
        before = len(self.subtasks)
        self.subtasks = [
            OperatorHarness(self._template, parallelism=parallelism, subtask=s, block_size=3).restore(
                *([chains[s]] if parallelism == before else chains)
            )
            for s in range(parallelism)
        ]
        self._chains = chains if parallelism == before else []

    def rollback(self) -> None:
        for harness in self.subtasks:
            harness.rollback()

    def take(self) -> tuple[Counter[Any], Counter[Any]]:
        """Since the last call: results with their timestamps, and late records (those that are only counted as None)."""
        results: Counter[Any] = Counter()
        late: Counter[Any] = Counter()
        for harness in self.subtasks:
            for block in harness.output.blocks:
                assert len(block) <= (3 if isinstance(block, Columns) else 10_000)
            results.update((tuple(value), stamp) for value, stamp in harness.records())
            for side, tag in enumerate(("late-left", "late-right")):
                for rows in map(to_rows, harness.output.sides.get(tag, [])):
                    late.update(
                        (side, tuple(v)[:3], t) for v, t in zip(rows.values, rows.timestamps or [], strict=True)
                    )
            late[None] += harness.metrics.late_dropped
            harness.metrics.late_dropped = 0
            harness.clear_output()
        return results, +late


class ByHand:
    """What a join gives, from all records that have ever come. Nothing is forgotten and nothing looked up."""

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self.watermark = -(2**63)
        self.records: list[tuple[int, Record]] = []  # those that are not late, in order
        self.results: Counter[Any] = Counter()
        self.late: Counter[Any] = Counter()

    def take(self) -> tuple[Counter[Any], Counter[Any]]:
        taken = (self.results, self.late)
        self.results, self.late = Counter(), Counter()
        return taken

    def equal(self, one: Record, other: Record) -> bool:
        return one[: self._columns] == other[: self._columns]

    def pair(self, one: tuple[int, Record], other: tuple[int, Record], stamp: int) -> None:
        left, right = (one[1], other[1]) if one[0] == LEFT else (other[1], one[1])
        self.results[((left[0], left[2], right[2], right[1]), stamp)] += 1

    def push(self, side: int, records: Sequence[Record]) -> None:
        for record in records:
            self.add(side, record)

    def add(self, side: int, record: Record) -> None:
        for other in self.records:
            if other[0] != side and self.equal(other[1], record):
                self.pair((side, record), other, max(record[3], other[1][3]))
        self.records.append((side, record))

    def advance(self, watermark: int) -> None:
        self.watermark = max(self.watermark, watermark)


class IntervalByHand(ByHand):
    def __init__(self, columns: int, lower: int, upper: int) -> None:
        super().__init__(columns)
        self._lower, self._upper = lower, upper
        self._seen: list[int] = []  # beside each record: how many watermarks had come before
        self._watermarks: list[int] = []

    def advance(self, watermark: int) -> None:
        if watermark > self.watermark:
            self._watermarks.append(watermark)
        super().advance(watermark)

    def add(self, side: int, record: Record) -> None:
        if record[3] < self.watermark:
            self.late[(side, record[:3], record[3])] += 1
            return
        for (other_side, other), seen in zip(self.records, self._seen, strict=True):
            if other_side == side or not self.equal(other, record):
                continue
            waits = max(self._upper if other_side == LEFT else -self._lower, 0)
            gone = any(watermark >= other[3] + waits for watermark in self._watermarks[seen:])
            left, right = (record, other) if side == LEFT else (other, record)
            if not gone and self._lower <= right[3] - left[3] <= self._upper:
                self.pair((side, record), (other_side, other), max(record[3], other[3]))
        self.records.append((side, record))
        self._seen.append(len(self._watermarks))


class WindowsByHand(ByHand):
    def __init__(self, columns: int, grid: PaneGrid) -> None:
        super().__init__(columns)
        self._grid = grid

    def _fire(self, window: int, key: Record | None = None) -> None:
        inside = [
            r
            for r in self.records
            if self._grid.start(window) <= r[1][3] < window and (key is None or self.equal(key, r[1]))
        ]
        for one in inside:
            for other in inside:
                if one[0] == LEFT and other[0] == RIGHT and self.equal(one[1], other[1]):
                    self.pair(one, other, window - 1)

    def add(self, side: int, record: Record) -> None:
        windows = self._grid.windows(self._grid.pane(record[3]))
        windows = [w for w in windows if self._grid.start(w) <= record[3] < w]
        lateness = self._grid.lateness
        open_ = [w for w in windows if min(w - 1 + lateness, 2**63 - 1) > self.watermark]
        if not open_:
            if record[3] + lateness <= self.watermark:
                self.late[None] += 1
            return
        self.records.append((side, record))
        for window in open_:
            if window - 1 <= self.watermark:
                self._fire(window, record)

    def advance(self, watermark: int) -> None:
        ends = {w for _, r in self.records for w in self._grid.windows(self._grid.pane(r[3]))}
        for window in sorted(ends):
            if self.watermark < window - 1 <= watermark:
                self._fire(window)
        super().advance(watermark)
