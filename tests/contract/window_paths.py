"""One window job in two forms, over rows and over columns, on harnesses that stand for its subtasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.common.types import Row
from penstock.datastream.aggregates import Aggregate, count, max_, mean, min_, sum_
from penstock.operators.aggregation import AggregatedRow, RowAggregation
from penstock.operators.base import Operator
from penstock.operators.columnar_window import ColumnarWindowOperator
from penstock.operators.selectors import ColumnKeySelector
from penstock.operators.window import WindowOperator
from penstock.operators.window_contents import AggregateContents
from penstock.records import Columns, Rows
from penstock.records.convert import to_rows
from penstock.state.keys import key_group, subtask_of
from penstock.testing.harness import OperatorHarness

Record = tuple[Any, Any, Any, int]  # (key, part of the key, value, timestamp)
STATISTICS: Mapping[str, Aggregate] = {
    "n": count(),
    "total": sum_("value"),
    "low": min_("value"),
    "high": max_("value"),
    "mean": mean("value"),
}
SCHEMA = pa.schema([("key", pa.string()), ("part", pa.int32()), ("value", pa.float64())])


def row_windows(keys: Sequence[str], assigner: Any, lateness: int) -> Operator:
    return WindowOperator(
        selector=ColumnKeySelector(tuple(keys)),
        assigner=assigner,
        contents=AggregateContents(RowAggregation(STATISTICS)),
        function=AggregatedRow(keys, STATISTICS),
        allowed_lateness=lateness,
        late_tag="late",
    )


def columnar_windows(keys: Sequence[str], assigner: Any, lateness: int) -> Operator:
    return ColumnarWindowOperator(keys, assigner, STATISTICS, allowed_lateness=lateness, late_tag="late")


def columns(records: Sequence[Record]) -> Columns:
    *fields, stamps = zip(*records, strict=True)
    arrays = [pa.array(values, field.type) for values, field in zip(fields, SCHEMA, strict=True)]
    return Columns(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA), np.array(stamps, dtype=np.int64))


def rows(records: Sequence[Record]) -> Rows:
    return Rows(
        [Row(key=key, part=part, value=value) for key, part, value, _ in records], [stamp for *_, stamp in records]
    )


class Fleet:
    """All subtasks of an operator; records go to the subtask of their key, in blocks of at most `block_size`."""

    def __init__(self, template: Operator, keys: Sequence[str], make: Any, block_size: int) -> None:
        self._template, self._make, self._block_size = template, make, block_size
        self._keys = tuple(keys)
        self.subtasks = [OperatorHarness(template)]
        self._chains: list[list[bytes]] = []

    def push(self, records: Sequence[Record]) -> None:
        for subtask, harness in enumerate(self.subtasks):
            mine = [record for record in records if self._owner(record) == subtask]
            for start in range(0, len(mine), self._block_size):
                harness.push_block(self._make(mine[start : start + self._block_size]))

    def _owner(self, record: Record) -> int:
        key = record[0] if len(self._keys) == 1 else record[:2]
        return subtask_of(key_group(key, 128), len(self.subtasks), 128)

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
            OperatorHarness(self._template, parallelism=parallelism, subtask=s).restore(
                *([chains[s]] if parallelism == before else chains)
            )
            for s in range(parallelism)
        ]
        self._chains = chains if parallelism == before else []

    def rollback(self) -> None:
        for harness in self.subtasks:
            harness.rollback()

    def take(self) -> Any:
        """Since the last call: of every key its firings in order, with their timestamps; and of every subtask its late
        records in order. In which order the keys of a window fire is not part of the contract."""
        fired: dict[Any, list[Any]] = {}
        late = []
        for harness in self.subtasks:
            for value, stamp in harness.records():
                names = tuple(value._fields)
                fired.setdefault(tuple(value[: len(self._keys)]), []).append((names, *value, stamp))
            side = [to_rows(block) for block in harness.output.sides.get("late", [])]
            late.append([(*v, t) for block in side for v, t in zip(block.values, block.timestamps or [], strict=True)])
            assert harness.metrics.late_dropped == 0
            harness.clear_output()
        return fired, late
