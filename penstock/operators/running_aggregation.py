"""Running aggregates of keys over columns: of each key that a step has touched, one row with its aggregates so far.

gathered ─▶ number the keys ─▶ group by number ─▶ add what is kept ─▶ keep, and emit        a row for each key of the step
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.common.typeinfo import TypeInformation
from penstock.functions.aggregates import Aggregate
from penstock.operators.aggregation import PartialAggregation
from penstock.operators.base import OperatorContext
from penstock.operators.gathering import GatheringOperator, stamps_of
from penstock.protocol.events import MIN_WATERMARK
from penstock.records import Columns, TimestampArray
from penstock.records.key_index import Longs
from penstock.state.keyed_rows import KeyedRows
from penstock.state.keys import key_group_range
from penstock.state.panes import PANES
from penstock.state.specification import Specification

ROWS: Final = "rows"  # the table of what is kept


class RunningAggregationOperator(GatheringOperator):
    """Emits the key columns and one column per aggregate. The time of a result is the latest of the records that it is new for."""

    def __init__(
        self, keys: Sequence[str], aggregates: Mapping[str, Aggregate], input_type: TypeInformation | None = None
    ) -> None:
        super().__init__(input_type)
        self.aggregation = PartialAggregation(keys, aggregates, bounds=())
        self.reads = self.aggregation.reads

    def setup(self, ctx: OperatorContext) -> None:
        super().setup(ctx)
        owned = key_group_range(ctx.subtask, ctx.parallelism, ctx.max_parallelism)
        self._kept = KeyedRows(ctx.state.table(ROWS, PANES), owned, self.aggregation.key_names)

    def specification(self) -> Specification:
        return Specification(
            holds="running aggregates over columns",
            keys=self.aggregation.keys,
            partials=self.aggregation.partials,
            columns=self.aggregation.columns_in(self.input_type),
        )

    def migrate_state(self, before: Specification) -> None:
        table = self.ctx.state.table(ROWS, PANES)
        for name, block in list(table.items()):
            table.put(name, self.aggregation.reordered(block, before.partials or ()))

    def restore_state(self) -> None:
        self._kept.rebuild()

    def step(self, blocks: Sequence[Columns]) -> None:
        table = pa.concat_tables([self.aggregation.select(block.batch, self.where) for block in blocks])
        kept, names = self._kept, self.aggregation.key_names
        groups = kept.groups([table.column(name).combine_chunks() for name in names])
        positions = kept.positions(groups.numbers)
        known = np.flatnonzero(positions >= 0)
        before = kept.take(positions[known]) if len(known) else None
        now = self.aggregation.advanced(table, groups.of_row, groups.firsts, before, known)
        kept.put(groups.numbers, now)
        stamps = stamps_of(blocks)
        self.give(
            self.aggregation.results(now), None if stamps is None else latest(stamps, groups.of_row, len(groups.firsts))
        )

    def end_epoch(self) -> None:
        super().end_epoch()
        self._kept.settle()


def latest(stamps: TimestampArray, groups: Longs, number: int) -> TimestampArray:
    """The latest of each group."""
    found = np.full(number, MIN_WATERMARK, np.int64)
    np.maximum.at(found, groups, stamps)
    return found
