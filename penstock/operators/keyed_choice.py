"""The first or the last record of each key, over columns.

    gathered ─▶ number the keys ─▶ the best of each key in the step ─▶ better than the one before? ─▶ emit it as it came

Of the record that was emitted last only what it was chosen by is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final, Literal, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.common.typeinfo import TypeInformation
from penstock.errors import PenstockError
from penstock.operators.base import OperatorContext
from penstock.operators.gathering import GatheringOperator, declared_types, stamps_of
from penstock.records import Columns
from penstock.records.arrow_columns import one_nan, take_rows
from penstock.records.key_index import Longs
from penstock.records.ordering import ranks
from penstock.state.keyed_rows import Groups, KeyedRows
from penstock.state.keys import key_group_range
from penstock.state.panes import PANES
from penstock.state.specification import Specification

Which: TypeAlias = Literal["first", "last"]
By: TypeAlias = str | Literal[True] | None  # a column, True: event time, None: as records come

ROWS: Final = "rows"  # the table of what is kept
_BY: Final = "by"
_LEAST: Final = np.iinfo(np.int64).min


class KeyedChoiceOperator(GatheringOperator):
    """Emits a record when it is the first, or newest, of its key so far; of those of one step only the best of each key. Of records
    that are equal in `by` the first one is the first, and the last one the last."""

    def __init__(self, keys: Sequence[str], which: Which, by: By, input_type: TypeInformation | None = None) -> None:
        super().__init__(input_type)
        self.keys, self.which, self.by = tuple(keys), which, by
        self.needs_timestamps = by is True
        self._remembers = not (
            which == "last" and by is None
        )  # the last that came is always newer than what was before

    def setup(self, ctx: OperatorContext) -> None:
        super().setup(ctx)
        owned = key_group_range(ctx.subtask, ctx.parallelism, ctx.max_parallelism)
        self._names = [f"k{number}" for number in range(len(self.keys))]
        self._kept = KeyedRows(ctx.state.table(ROWS, PANES), owned, self._names)

    def specification(self) -> Specification:
        by = "arrival" if self.by is None else "event time" if self.by is True else f"column {self.by!r}"
        types = declared_types(self.input_type, [*self.keys, *([self.by] if isinstance(self.by, str) else [])])
        return Specification(
            holds="the first or last record of keys", function=f"{self.which} by {by}", keys=self.keys, columns=types
        )

    def restore_state(self) -> None:
        self._kept.rebuild()

    def step(self, blocks: Sequence[Columns]) -> None:
        keys = [one_nan(self.column(blocks, name)) for name in self.keys]
        groups = self._kept.groups(keys)
        rows, best = self._chosen(blocks, groups)
        if self._remembers and len(rows):
            columns = [*(key.take(pa.array(rows)) for key in keys), *([] if best is None else [best])]
            names = [*self._names, *([] if best is None else [_BY])]
            self._kept.put(groups.numbers[groups.of_row[rows]], pa.RecordBatch.from_arrays(columns, names))
        self._emit(blocks, np.sort(rows))

    def _chosen(self, blocks: Sequence[Columns], groups: Groups) -> tuple[Longs, pa.Array | None]:
        """The rows that are emitted, one of a key at most, and what they were chosen by."""
        positions = self._kept.positions(groups.numbers)
        if self.by is None:
            if self.which == "first":
                return groups.firsts[positions < 0], None
            return last_of_each(groups.of_row, np.arange(len(groups.of_row)), len(groups.firsts)), None
        by = self._by(blocks)
        rows, known = len(by), np.flatnonzero(positions >= 0)
        kept = self._kept.take(positions[known], [_BY])[_BY].combine_chunks() if len(known) else by.slice(0, 0)
        if not kept.type.equals(by.type):
            raise PenstockError(
                f"{self.where}: column {self.by!r} was of {kept.type} and is now of {by.type}: cast it to one type before key_by"
            )
        both = pa.concat_arrays([by, kept])
        order = ranks(both)
        if self.which == "first":  # the least is the best, but null is later than everything
            order = np.where(both.is_null().to_numpy(zero_copy_only=False), _LEAST, ~order)
        here, before = order[:rows], order[rows:]
        best = np.full(len(groups.firsts), _LEAST, np.int64)
        np.maximum.at(best, groups.of_row, here)
        new = np.ones(len(best), np.bool_)
        new[known] = best[known] > before if self.which == "first" else best[known] >= before
        candidates = np.flatnonzero((here == best[groups.of_row]) & new[groups.of_row])
        if self.which == "first":
            candidates = candidates[::-1]
        chosen = last_of_each(groups.of_row[candidates], candidates, len(best))
        return chosen, by.take(pa.array(chosen))

    def _by(self, blocks: Sequence[Columns]) -> pa.Array:
        if isinstance(self.by, str):
            return self.column(blocks, self.by)
        stamps = stamps_of(blocks)
        if stamps is None:
            raise PenstockError(
                f"{self.where} chooses by event time, and its records have none: call assign_timestamps_and_watermarks(...) with a "
                "timestamp assigner before key_by"
            )
        return pa.array(stamps)

    def _emit(self, blocks: Sequence[Columns], rows: Longs) -> None:
        ends = list(accumulate(map(len, blocks), initial=0))
        for block, (begin, end) in zip(blocks, pairwise(ends), strict=True):
            first, last = np.searchsorted(rows, (begin, end))
            if last - first == len(block):
                self.give(block.batch, block.timestamps)
            elif first < last:
                mine = rows[first:last] - begin
                stamps = None if block.timestamps is None else block.timestamps[mine]
                self.give(take_rows(block.batch, pa.array(mine)), stamps)

    def end_epoch(self) -> None:
        super().end_epoch()
        self._kept.settle()


def last_of_each(groups: Longs, rows: Longs, number: int) -> Longs:
    """Of each group that occurs the last of its rows."""
    last = np.full(number, -1, np.int64)
    last[groups] = rows  # of several for one place the last one stays
    return last[last >= 0]
