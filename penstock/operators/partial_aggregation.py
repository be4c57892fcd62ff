"""Group, merge, finish: the relational half of columnar windows, in Arrow's kernels.

Always on one thread and in the order of arrival, so that a replayed epoch gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.datastream.aggregates import Aggregate, Partial
from penstock.errors import JobDefinitionError, PenstockError
from penstock.records import TimestampArray
from penstock.state.panes import with_keys

_PANE = "pane"
_TOUCHED = "touched"


class PartialAggregation:
    """A block of partial results has the columns k0, k1, … (the key) and p0, p1, … (the distinct partials)."""

    def __init__(self, keys: Sequence[str], aggregates: Mapping[str, Aggregate]) -> None:
        self.keys = tuple(keys)
        self.aggregates = dict(aggregates)
        self._check()
        self._partials: list[Partial] = list(dict.fromkeys(p for a in self.aggregates.values() for p in a.partials))
        self._columns = list(dict.fromkeys(p.column for p in self._partials if p.column is not None))
        self._key_names = [f"k{index}" for index in range(len(self.keys))]
        self._partial_names = [f"p{index}" for index in range(len(self._partials))]

    def _check(self) -> None:
        if not self.keys or not self.aggregates:
            raise JobDefinitionError("a columnar window needs at least one key column and at least one aggregate")
        names = [*self.keys, "window_start", "window_end", *self.aggregates]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise JobDefinitionError(
                f"the result of a columnar window would have several columns named {twice}: its columns are the keys "
                f"{list(self.keys)}, window_start, window_end and the aggregates {list(self.aggregates)}"
            )
        for name, aggregate in self.aggregates.items():
            if not isinstance(aggregate, Aggregate):
                raise JobDefinitionError(f"aggregate {name!r} must be count(), sum_(…), …, not {aggregate!r}")

    def select(self, batch: pa.RecordBatch, where: str) -> pa.Table:
        """The columns that matter, as k… and v…; dictionaries are decoded, since those of two blocks may differ."""
        columns: dict[str, Any] = {}
        for source, name in [*zip(self._key_names, self.keys, strict=True), *((f"v:{c}", c) for c in self._columns)]:
            index = batch.schema.get_field_index(name)
            if index < 0:
                raise PenstockError(
                    f"{where}: column {name!r} is not in the stream, or twice; its columns are {batch.schema.names}"
                )
            column = batch.column(index)
            columns[source] = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        return pa.table(columns)

    def group(self, table: pa.Table) -> pa.RecordBatch:
        """Partial results of selected rows of one pane."""
        return self._aggregate(table, self._key_names)

    def group_by_pane(self, table: pa.Table, panes: TimestampArray) -> list[tuple[int, pa.RecordBatch]]:
        """The same for rows of several panes, in the order of panes."""
        batch = self._aggregate(table.append_column(_PANE, pa.array(panes)), [_PANE, *self._key_names])
        starts = batch.column(0).to_numpy()
        order = np.argsort(starts, kind="stable")
        batch, starts = batch.take(pa.array(order)).drop_columns([_PANE]), starts[order]
        bounds = [0, *(np.flatnonzero(np.diff(starts)) + 1).tolist(), len(starts)]
        return [(int(starts[begin]), batch.slice(begin, end - begin)) for begin, end in pairwise(bounds)]

    def _aggregate(self, table: pa.Table, by: list[str]) -> pa.RecordBatch:
        wanted = [([] if p.column is None else f"v:{p.column}", p.function) for p in self._partials]
        return self._named(table.group_by(by, use_threads=False).aggregate(wanted), [*by, *self._partial_names])

    def merge(self, blocks: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """One block in place of many."""
        if len(blocks) == 1:
            return blocks[0]
        grouped = pa.Table.from_batches(blocks).group_by(self._key_names, use_threads=False)
        merged = grouped.aggregate([(n, p.merge) for n, p in zip(self._partial_names, self._partials, strict=True)])
        return self._named(merged, [*self._key_names, *self._partial_names])

    def merge_touched(self, blocks: Sequence[pa.RecordBatch], touched: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """The same, but only keys that occur in `touched`, which are some of the blocks."""
        marked = []
        for block in blocks:
            mark = any(block is other for other in touched)
            marked.append(block.append_column(_TOUCHED, pa.array(np.full(block.num_rows, mark, dtype=np.int8))))
        grouped = pa.Table.from_batches(marked).group_by(self._key_names, use_threads=False)
        wanted = [(name, partial.merge) for name, partial in zip(self._partial_names, self._partials, strict=True)]
        merged = grouped.aggregate([*wanted, (_TOUCHED, "max")])
        kept = merged.filter(pc.equal(merged.column(merged.num_columns - 1), 1))
        return self._named(kept.drop_columns([f"{_TOUCHED}_max"]), [*self._key_names, *self._partial_names])

    def finish(self, merged: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
        """The result of a window, sorted by key."""
        merged = merged.sort_by([(name, "ascending") for name in self._key_names])
        rows = merged.num_rows
        arrays = [merged.column(name) for name in self._key_names]
        arrays += [pa.array(np.full(rows, value, dtype=np.int64)) for value in (start, end)]
        for aggregate in self.aggregates.values():
            parts = [merged.column(self._partial_names[self._partials.index(p)]) for p in aggregate.partials]
            arrays.append(aggregate.finish(parts))
        return pa.RecordBatch.from_arrays(arrays, [*self.keys, "window_start", "window_end", *self.aggregates])

    def _named(self, table: pa.Table, names: list[str]) -> pa.RecordBatch:
        """One batch with our names. Arrow names results after its kernels, but in the order they were asked for."""
        whole = table.combine_chunks()
        arrays = [_one_chunk(column) for column in whole.columns]
        schema = pa.schema([pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)])
        return pa.RecordBatch.from_arrays(arrays, schema=with_keys(schema, self._key_names))


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], type=column.type)
