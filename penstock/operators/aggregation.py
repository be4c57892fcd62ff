"""Group, merge, finish: the relational half of columnar windows, in Arrow's kernels.

Always on one thread and in the order of arrival, so that a replayed epoch gives the same bytes.

Built-in aggregates over single records: for windows that have no panes, such as sessions, or whose records are not
columns. Gives the rows that columnar windows give.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation
from penstock.common.types import _create_row
from penstock.errors import PenstockError
from penstock.functions import AggregateFunction, ProcessWindowFunction
from penstock.functions.aggregates import WINDOW_BOUNDS, Aggregate, Partial, fold, partial_names, result_columns
from penstock.functions.window import TimeWindow
from penstock.operators.selectors import read_column
from penstock.records import TimestampArray
from penstock.records.arrow_columns import one_nan, plain, plain_type
from penstock.records.convert import column_of, single_batch
from penstock.records.exact_sums import grouped, partial_array, unified
from penstock.records.key_index import Longs
from penstock.state.panes import with_keys
from penstock.state.specification import PartialName

_PANE = "pane"
_ROW = "row"


class PartialAggregation:
    """A block of partial results has the columns k0, k1, … (the key) and p0, p1, … (the distinct partials)."""

    def __init__(
        self, keys: Sequence[str], aggregates: Mapping[str, Aggregate], bounds: Sequence[str] = WINDOW_BOUNDS
    ) -> None:
        """`bounds` are the columns of a result between keys and aggregates."""
        self.keys = tuple(keys)
        self.aggregates = dict(aggregates)
        self._names = result_columns(keys, aggregates, bounds)
        self._partials: list[Partial] = list(dict.fromkeys(p for a in self.aggregates.values() for p in a.partials))
        self._columns = list(dict.fromkeys(p.column for p in self._partials if p.column is not None))
        self.key_names = [f"k{index}" for index in range(len(self.keys))]  # in selected rows and in blocks
        self._partial_names = [f"p{index}" for index in range(len(self._partials))]

    @property
    def partials(self) -> tuple[PartialName, ...]:
        """The partial results that are kept, in the order of columns."""
        return partial_names(self._partials)

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that matter."""
        return tuple(dict.fromkeys([*self.keys, *self._columns]))

    def columns_in(self, type_info: TypeInformation | None) -> dict[str, str] | None:
        """The types of key columns and aggregated columns, where the program declares them."""
        if not isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
            return None
        types = dict(zip(type_info.get_field_names(), type_info.get_field_types(), strict=True))
        return {name: str(types[name]) for name in [*self.keys, *self._columns]}

    def reordered(self, block: pa.RecordBatch, before: Sequence[PartialName]) -> pa.RecordBatch:
        """A block of a program that kept `before`, among them all that this one needs."""
        places = [len(self.keys) + before.index(partial) for partial in self.partials]
        arrays = [block.column(place) for place in [*range(len(self.keys)), *places]]
        names = [*self.key_names, *self._partial_names]
        schema = pa.schema([pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)])
        return pa.RecordBatch.from_arrays(arrays, schema=with_keys(schema, self.key_names))

    def select(self, batch: pa.RecordBatch, where: str) -> pa.Table:
        """The columns that matter, as k… and v…, in a layout that can be grouped; dictionaries of two blocks may differ."""
        columns: dict[str, Any] = {}
        for source, name in zip(self.key_names, self.keys, strict=True):
            columns[source] = one_nan(plain(column_of(batch, name, where)))
            if pa.types.is_nested(columns[source].type):
                raise PenstockError(
                    f"{where}: column {name!r} is a {columns[source].type}, which cannot be a key of columns: key_by a "
                    "function of it, or columns made of its parts"
                )
        for name in self._columns:
            columns[f"v:{name}"] = plain(column_of(batch, name, where))
        return pa.table(columns)

    def group(self, table: pa.Table) -> pa.RecordBatch:
        """Partial results of selected rows of one pane."""
        return self._aggregate(table, self.key_names)

    def group_by_pane(self, table: pa.Table, panes: npt.NDArray[np.uint64]) -> list[tuple[int, pa.RecordBatch]]:
        """The same for rows of several panes, which are numbered, in the order of panes. Numbers that lie close together are
        grouped in arrays, as keys are; starts of panes would not."""
        batch = self._aggregate(table.append_column(_PANE, pa.array(panes.view(np.int64))), [_PANE, *self.key_names])
        numbers = batch.column(0).to_numpy().view(np.uint64)
        batch = batch.drop_columns([_PANE])
        if np.any(numbers[1:] < numbers[:-1]):
            order = np.argsort(numbers, kind="stable")
            batch, numbers = batch.take(pa.array(order)), numbers[order]
        bounds = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]
        return [(int(numbers[begin]), batch.slice(begin, end - begin)) for begin, end in pairwise(bounds)]

    def _aggregate(self, table: pa.Table, by: list[str]) -> pa.RecordBatch:
        wanted = [(None if p.column is None else f"v:{p.column}", p.function) for p in self._partials]
        return self._grouped(table, by, wanted)

    def group_by_number(self, table: pa.Table, numbers: TimestampArray) -> list[pa.Array]:
        """Partial results of selected rows that are numbered, in the order of the numbers, each of which occurs."""
        return self._numbered(
            table, numbers, [(None if p.column is None else f"v:{p.column}", p.function) for p in self._partials]
        )

    def merge_by_number(self, blocks: Sequence[pa.RecordBatch], numbers: TimestampArray) -> list[pa.Array]:
        """The same of the rows of all blocks."""
        return self._numbered(unified(blocks), numbers, self._merges())

    def _numbered(
        self, table: pa.Table, numbers: TimestampArray, wanted: list[tuple[str | None, str]]
    ) -> list[pa.Array]:
        (found,), results = grouped(table.append_column(_ROW, pa.array(numbers)), [_ROW], wanted)
        places = found.to_numpy()
        if np.all(places[1:] > places[:-1]):
            return results
        order = pa.array(np.argsort(places))
        return [result.take(order) for result in results]

    def block(self, keys: Sequence[pa.Array], partials: Sequence[pa.Array], **more: pa.Array) -> pa.RecordBatch:
        """A block of these columns, with `more` of them at its end."""
        return self._named([*keys, *partials, *more.values()], [*self.key_names, *self._partial_names, *more])

    def block_of_values(
        self, keys: Sequence[list[Any]], partials: Sequence[list[Any]], schema: pa.Schema | None, **more: pa.Array
    ) -> pa.RecordBatch:
        """A block of Python values, as windows over rows keep them, of the types that columns of `schema` give."""
        kinds = {} if schema is None else {field.name: field.type for field in schema}
        made = []
        for partial, values in zip(self._partials, partials, strict=True):
            kind = pa.int64() if partial.column is None or partial.function == "count" else kinds.get(partial.column)
            made.append(partial_array(values, kind, partial.function))
        of_keys = [
            one_nan(pa.array(values, plain_type(kinds[name])) if name in kinds else plain(pa.array(values)))
            for name, values in zip(self.keys, keys, strict=True)
        ]
        return self.block(of_keys, made, **more)

    def merge(self, blocks: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """One block in place of many."""
        if len(blocks) == 1:
            return blocks[0]
        return self._grouped(unified(blocks), self.key_names, self._merges())

    def _merges(self) -> list[tuple[str | None, str]]:
        return [(name, partial.merge) for name, partial in zip(self._partial_names, self._partials, strict=True)]

    def running(self, table: pa.Table, before: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """For every selected row the partial result of its key after it: of the blocks `before` and of the rows of its
        key up to and including itself. In the order of the rows."""
        rows = table.num_rows
        numbered = table.append_column(_ROW, pa.array(np.arange(rows)))
        singles = _in_order_of_rows(self._aggregate(numbered, [_ROW, *self.key_names]))
        parts = unified([singles])
        # Late records are few and keys may be many: leave out what cannot be theirs before anything is merged.
        first = self.key_names[0]
        few = pc.unique(singles.column(first))
        before = [part for b in before if (part := b.filter(pc.is_in(b.column(first), few))).num_rows]
        if before:  # behind the rows, so that they keep their numbers
            parts = unified([singles, self.merge(before)])
        order, places = self._runs(parts, rows)
        sums = parts.select(self._partial_names).take(pa.array(order))
        # A prefix sum by doubling: after the pass with distance d each row covers the 2·d rows of its run up to itself.
        distance = 1
        while distance <= places.max():
            reaching = np.flatnonzero(places >= distance)
            number = np.concatenate([np.arange(len(order)), reaching])
            pairs = pa.concat_tables([sums, sums.take(pa.array(reaching - distance))])
            (rows_,), merged = grouped(pairs.append_column(_ROW, pa.array(number)), [_ROW], self._merges())
            sums = _in_order_of_rows(pa.table([rows_, *merged], [_ROW, *self._partial_names]))
            distance *= 2
        back = np.empty(rows, dtype=np.int64)
        back[order[order < rows]] = np.flatnonzero(order < rows)
        result = sums.take(pa.array(back))
        keys = [singles.column(name) for name in self.key_names]
        return self._named([*keys, *single_batch(result).columns], [*self.key_names, *self._partial_names])

    def _runs(self, parts: pa.Table, rows: int) -> tuple[TimestampArray, TimestampArray]:
        """Of the keys that occur in the first `rows` rows: the numbers of all their rows, key by key and in order but for
        those from `rows` on, which come first; and the place of each within its key."""
        number = np.arange(parts.num_rows)
        keys = parts.select(self.key_names).append_column(_ROW, pa.array(number))
        lists = keys.group_by(self.key_names, use_threads=False).aggregate([(_ROW, "list")]).column(f"{_ROW}_list")
        lengths = pc.list_value_length(lists).to_numpy()
        order = pc.list_flatten(lists).to_numpy()
        ends = np.cumsum(lengths)
        run = np.repeat(np.arange(len(lengths)), lengths)
        touched = order[ends - lengths] < rows  # the first of a run is a row, unless the key has none
        # Within a run the block before comes last, because it was appended: move it to the front.
        kept = touched[run]
        order, run = order[kept], run[kept]
        sequence = np.lexsort((order, order < rows, run))
        order, run = order[sequence], run[sequence]
        starts = np.flatnonzero(np.diff(run, prepend=-1))
        places = np.arange(len(order)) - np.repeat(starts, np.diff(np.append(starts, len(order))))
        return order, places

    def advanced(
        self, table: pa.Table, groups: Longs, firsts: Longs, before: pa.Table | None, of: Longs
    ) -> pa.RecordBatch:
        """A row for each group of selected rows: its partial result, added to that of `before`, whose rows are of the groups `of`.
        `firsts` are a row of each group."""
        made = self._aggregate(table.append_column(_ROW, pa.array(groups)), [_ROW])
        if before is not None and before.num_rows:
            parts = unified([single_batch(before.select(self._partial_names)), made.drop_columns([_ROW])])
            numbered = parts.append_column(_ROW, pa.chunked_array([of, made.column(_ROW).to_numpy()]))
            (rows,), merged = grouped(numbered, [_ROW], self._merges())
            made = self._named([rows, *merged], [_ROW, *self._partial_names])
        made = _in_order_of_rows(made)
        keys = [column.combine_chunks().take(pa.array(firsts)) for column in table.select(self.key_names).columns]
        return self._named([*keys, *made.columns], [*self.key_names, *self._partial_names])

    def finish(self, merged: pa.RecordBatch, start: int | TimestampArray, end: int | TimestampArray) -> pa.RecordBatch:
        """The result of a window, a row for each of `merged`; or with arrays of a window for each row."""
        rows = merged.num_rows
        bounds = [pa.array(np.full(rows, value, dtype=np.int64)) for value in (start, end)]
        if isinstance(start, int) or isinstance(end, int):
            return self._finished(merged, bounds, f" of the window from {start} to {end}")
        try:
            return self._finished(merged, bounds, "")
        except PenstockError:
            for row in range(rows):  # which of them was it?
                self.finish(merged.slice(row, 1), int(start[row]), int(end[row]))
            raise

    def results(self, merged: pa.RecordBatch) -> pa.RecordBatch:
        """The result without bounds, a row for each of `merged`."""
        return self._finished(merged, [], "")

    def _finished(self, merged: pa.RecordBatch, bounds: list[pa.Array], of: str) -> pa.RecordBatch:
        arrays = [*(merged.column(name) for name in self.key_names), *bounds]
        for name, aggregate in self.aggregates.items():
            parts = [merged.column(self._partial_names[self._partials.index(p)]) for p in aggregate.partials]
            try:
                arrays.append(aggregate.finish(parts))
            except PenstockError as error:
                raise PenstockError(f"aggregate {name!r}{of}: {error}") from error
        return pa.RecordBatch.from_arrays(arrays, self._names)

    def sorted_by_key(self, merged: pa.RecordBatch) -> pa.RecordBatch:
        """The block in the order of its keys."""
        if len(self.key_names) == 1 and _rises(merged.column(self.key_names[0])):
            return merged
        return merged.sort_by([(name, "ascending") for name in self.key_names])

    def _grouped(self, table: pa.Table, by: list[str], wanted: list[tuple[str | None, str]]) -> pa.RecordBatch:
        keys, results = grouped(table, by, wanted)
        return self._named([*keys, *results], [*by, *self._partial_names])

    def _named(self, arrays: Sequence[pa.Array], names: list[str]) -> pa.RecordBatch:
        schema = pa.schema([pa.field(name, array.type) for name, array in zip(names, arrays, strict=True)])
        return pa.RecordBatch.from_arrays(arrays, schema=with_keys(schema, self.key_names))


def _rises(keys: pa.Array) -> bool:
    """Whether whole numbers are in order, as they come out of arrays."""
    if keys.null_count or not pa.types.is_integer(keys.type):
        return False
    numbers = keys.to_numpy()
    return bool(np.all(numbers[1:] >= numbers[:-1]))


def _in_order_of_rows(groups: Any) -> Any:
    """Groups by row number in the order of the numbers, without them: Arrow gives groups in an order of its own."""
    order = np.argsort(groups.column(_ROW).to_numpy())
    return groups.take(pa.array(order)).drop_columns([_ROW])


class RowAggregation(AggregateFunction):
    """The accumulator is one value for each distinct partial."""

    def __init__(self, aggregates: Mapping[str, Aggregate]) -> None:
        self._aggregates = list(aggregates.values())
        self._partials: list[Partial] = list(dict.fromkeys(p for a in self._aggregates for p in a.partials))
        self._steps = [(partial.column, fold(partial.function)) for partial in self._partials]
        self._positions = [[self._partials.index(p) for p in a.partials] for a in self._aggregates]

    @property
    def partials(self) -> tuple[PartialName, ...]:
        """The partial results that an accumulator holds, in its order."""
        return partial_names(self._partials)

    def create_accumulator(self) -> list[Any]:
        return [0 if partial.merge == "sum" and partial.function != "sum" else None for partial in self._partials]

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        for index, (column, step) in enumerate(self._steps):
            accumulator[index] = step(accumulator[index], None if column is None else read_column(value, column))
        return accumulator

    def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        for index, partial in enumerate(self._partials):
            acc_a[index] = fold(partial.merge)(acc_a[index], acc_b[index])
        return acc_a

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        return [
            aggregate.finish_one([accumulator[index] for index in positions])
            for aggregate, positions in zip(self._aggregates, self._positions, strict=True)
        ]


class AggregatedRow(ProcessWindowFunction[Any, Any, Any, Any]):
    """Key columns, window_start, window_end and the aggregates, as a named Row."""

    def __init__(self, keys: Sequence[str], aggregates: Mapping[str, Aggregate]) -> None:
        self._single = len(keys) == 1
        self._names = [*keys, "window_start", "window_end", *aggregates]

    def process(self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]) -> Iterable[Any]:
        window = context.window()
        if not isinstance(window, TimeWindow):
            raise PenstockError(
                f"agg gives the start and end of every window, and {window!r} has none: use aggregate() or process()"
            )
        keys = (key,) if self._single else key
        for results in elements:
            yield _create_row(self._names, [*keys, window.start, window.end, *results])
