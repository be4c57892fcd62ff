"""The best records of each key with their ranks, over columns.

kept        ann │ 9 │ 7 │ 4 │             three of each key, in places that say nothing; their order is found in each step
gathered    ann 8, ann 1                   1 is behind the last of three: it is dropped first
sorted      ann 9  8  7 │ 4                by key, then by rank; 8 takes the place of 4
emitted     ann 2 → 8, ann 3 → 7           every rank that has another record now
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.typeinfo import TypeInformation
from penstock.operators.base import OperatorContext
from penstock.operators.gathering import MOST_ROWS, GatheringOperator, declared_types, stamps_of
from penstock.operators.running_aggregation import latest
from penstock.records import Columns
from penstock.records.arrow_columns import one_nan, plain
from penstock.records.convert import column_of, single_batch
from penstock.records.key_index import Longs
from penstock.records.ordering import ranks
from penstock.state.keyed_rows import PLACE, Groups, KeyedRows
from penstock.state.keys import key_group_range
from penstock.state.panes import PANES
from penstock.state.specification import Specification

ROWS: Final = "rows"  # the table of what is kept
_ARRIVAL: Final = "arrival"  # a number: of equal records the one that came first is before the others
_MOST_CELLS: Final = 1 << 21  # that a step looks at
_WORST: Final = np.iinfo(np.int64).max


class TopOperator(GatheringOperator):
    """Emits the columns of records and a rank, from 1 on, for every rank of a key that has another record after a step. The time of
    a row is the latest of its key's records that came among the best in the step."""

    def __init__(
        self,
        keys: Sequence[str],
        number: int,
        by: str,
        descending: bool,
        rank: str,
        input_type: TypeInformation | None = None,
    ) -> None:
        super().__init__(input_type)
        self.keys, self.number, self.by, self.descending, self.rank = tuple(keys), number, by, descending, rank
        self.most_rows = max(1, min(MOST_ROWS, _MOST_CELLS // number))

    def setup(self, ctx: OperatorContext) -> None:
        super().setup(ctx)
        owned = key_group_range(ctx.subtask, ctx.parallelism, ctx.max_parallelism)
        names = [f"k{number}" for number in range(len(self.keys))]
        self._stored_as = dict(zip(self.keys, names, strict=True))
        self._kept = KeyedRows(ctx.state.table(ROWS, PANES), owned, names, self.number)
        self._arrived = 0

    def specification(self) -> Specification:
        order = "descending" if self.descending else "ascending"
        return Specification(
            holds="the best records of keys",
            function=f"{self.number} by column {self.by!r}, {order}",
            keys=self.keys,
            values=None if self.input_type is None else str(self.input_type),
            columns=declared_types(self.input_type, [*self.keys, self.by]),
        )

    def restore_state(self) -> None:
        self._kept.rebuild()
        self._arrived = self._kept.largest(_ARRIVAL) + 1

    def _name(self, column: str) -> str:
        return self._stored_as.get(column, f"c:{column}")

    def step(self, blocks: Sequence[Columns]) -> None:
        names = blocks[0].batch.schema.names
        column_of(blocks[0].batch, self.by, self.where)
        keys = [one_nan(self.column(blocks, name)) for name in self.keys]
        groups = self._kept.groups(keys)
        cells = (groups.numbers[:, None] * self.number + np.arange(self.number)).ravel()
        positions = self._kept.positions(cells)
        taken = np.flatnonzero(positions >= 0)
        rows, row_ranks, old, old_ranks = self._best(blocks, groups, taken, positions)
        if not len(rows):
            return
        # Ranks from the first new record of a key on have changed.
        changed = np.full(len(groups.numbers), self.number, np.int64)
        group = groups.of_row[rows]
        np.minimum.at(changed, group, row_ranks)
        places = self._places(group, taken, old)
        self._put(blocks, groups, rows, places % self.number)
        at = np.concatenate([places, old])
        rank = np.concatenate([row_ranks, old_ranks])
        moved = np.flatnonzero(rank >= changed[at // self.number])
        moved = moved[np.lexsort((rank[moved], at[moved] // self.number))]
        at, rank = at[moved], rank[moved]
        stamps = stamps_of(blocks)
        times = None if stamps is None else latest(stamps[rows], group, len(changed))[at // self.number]
        for begin in range(0, len(at), self.ctx.block_size):
            part = slice(begin, begin + self.ctx.block_size)
            table = single_batch(
                self._kept.take(self._kept.positions(cells[at[part]]), [self._name(name) for name in names])
            )
            result = pa.RecordBatch.from_arrays([*table.columns, pa.array(rank[part] + 1)], [*names, self.rank])
            self.give(result, None if times is None else times[part])

    def _best(
        self, blocks: Sequence[Columns], groups: Groups, taken: Longs, positions: Longs
    ) -> tuple[Longs, Longs, Longs, Longs]:
        """The rows that are among the best, those in `taken` that still are, and the ranks of both, from 0 on."""
        by = self.column(blocks, self.by)
        group = taken // self.number
        if len(taken):
            kept = self._kept.take(positions[taken], [self._name(self.by), _ARRIVAL])
            in_order = np.argsort(kept[_ARRIVAL].to_numpy(), kind="stable")
            taken, group = taken[in_order], group[in_order]
            order = self._order([kept[self._name(self.by)].combine_chunks().take(pa.array(in_order)), by])
        else:
            order = self._order([by])
        before, here = order[: len(taken)], order[len(taken) :]
        rows = np.flatnonzero(self._may_be_among(groups, group, before, here))
        # Those that are kept first, and rows as they came: sorting leaves equal ones in this order.
        group, order = np.concatenate([group, groups.of_row[rows]]), np.concatenate([before, here[rows]])
        entries = np.argsort(order, kind="stable")
        entries = entries[np.argsort(_narrow(group[entries], len(groups.numbers)), kind="stable")]
        group = group[entries]
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        rank = np.arange(len(group)) - np.repeat(starts, np.diff(np.append(starts, len(group))))
        entries, rank = entries[rank < self.number], rank[rank < self.number]
        new = entries >= len(taken)
        return rows[entries[new] - len(taken)], rank[new], taken[entries[~new]], rank[~new]

    def _order(self, columns: list[pa.Array]) -> Longs:
        """Less is better; null is the worst."""
        column = pa.concat_arrays(columns)
        order = ranks(column)
        if self.descending:
            return ~order
        return np.where(column.is_null().to_numpy(zero_copy_only=False), _WORST, order) if column.null_count else order

    def _may_be_among(self, groups: Groups, group: Longs, before: Longs, here: Longs) -> npt.NDArray[np.bool_]:
        full = np.bincount(group, minlength=len(groups.numbers)) == self.number
        worst = np.full(len(full), np.iinfo(np.int64).min, np.int64)
        np.maximum.at(worst, group, before)
        among: npt.NDArray[np.bool_] = ~full[groups.of_row] | (here < worst[groups.of_row])
        return among

    def _places(self, group: Longs, taken: Longs, stays: Longs) -> Longs:
        """A cell for each new record, whose groups are in order: those without one that stays among the best."""
        free = np.ones((int(group[-1]) + 1) * self.number, np.bool_)
        free[stays[stays < len(free)]] = False
        cells = np.flatnonzero(free)
        first = np.searchsorted(cells, group * self.number)
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        nth = np.arange(len(group)) - np.repeat(starts, np.diff(np.append(starts, len(group))))
        places: Longs = cells[first + nth]
        return places

    def _put(self, blocks: Sequence[Columns], groups: Groups, rows: Longs, places: Longs) -> None:
        table = pa.concat_tables([self._stored(block.batch) for block in blocks])
        new = single_batch(table.take(pa.array(rows)))
        columns = [*new.columns, pa.array(places.astype(np.int32)), pa.array(self._arrived + rows)]
        self._arrived += table.num_rows
        stored = pa.RecordBatch.from_arrays(columns, [*new.schema.names, PLACE, _ARRIVAL])
        self._kept.put(groups.numbers[groups.of_row[rows]], stored)

    def _stored(self, batch: pa.RecordBatch) -> pa.Table:
        columns = [plain(column) for column in batch.columns]
        named = zip(columns, batch.schema.names, strict=True)
        return pa.table(
            [one_nan(column) if name in self._stored_as else column for column, name in named],
            [self._name(name) for name in batch.schema.names],
        )

    def end_epoch(self) -> None:
        super().end_epoch()
        self._kept.settle()


def _narrow(numbers: Longs, limit: int) -> npt.NDArray[np.integer]:
    """Numbers below `limit` in two bytes, if they fit: those are sorted several times as fast."""
    return numbers.astype(np.uint16) if limit <= 1 << 16 else numbers
