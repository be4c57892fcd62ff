"""Filter, project and window the same records over rows and over columns: what the columnar path is worth, without
Spark, exchanges or sources in the way.

    python -m benchmarks.columnar_paths

Operators only, on one thread: blocks are handed from one to the next as inside a chain.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.typeinfo import Types
from penstock.datastream.aggregates import count, mean, sum_
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.operators.aggregation import AggregatedRow, RowAggregation
from penstock.operators.base import Operator
from penstock.operators.column_operators import FilterColumnsOperator, SelectOperator
from penstock.operators.columnar_window import ColumnarWindowOperator
from penstock.operators.selectors import ColumnKeySelector
from penstock.operators.simple import FilterOperator, MapOperator
from penstock.operators.window import WindowOperator
from penstock.operators.window_contents import AggregateContents
from penstock.records import Block, Columns
from penstock.testing.harness import OperatorHarness

RECORDS, BLOCK, KEYS, WINDOW_MS = 500_000, 10_000, 1_000, 60_000
AGGREGATES = {"n": count(), "total": sum_("amount"), "mean": mean("amount")}
EVENT = Types.ROW_NAMED(["user", "amount", "page"], [Types.LONG(), Types.LONG(), Types.STRING()])


def blocks() -> list[Columns]:
    random = np.random.default_rng(7)
    made = []
    for start in range(0, RECORDS, BLOCK):
        batch = pa.record_batch(
            {
                "user": random.integers(0, KEYS, BLOCK),
                "amount": random.integers(0, 100, BLOCK),
                "page": pa.array(["home", "cart", "help", "find"]).take(pa.array(random.integers(0, 4, BLOCK))),
            }
        )
        made.append(Columns(batch, np.arange(start, start + BLOCK, dtype=np.int64)))
    return made


def over_columns() -> list[Operator]:
    return [
        FilterColumnsOperator(pc.field("amount") >= 10, EVENT),
        SelectOperator(("user", "amount"), ("user", "amount"), (0, 1)),
        ColumnarWindowOperator(("user",), TumblingEventTimeWindows(WINDOW_MS, 0), AGGREGATES),
    ]


def over_rows() -> list[Operator]:
    window = WindowOperator(
        selector=ColumnKeySelector(("user",)),
        assigner=TumblingEventTimeWindows(WINDOW_MS, 0),
        contents=AggregateContents(RowAggregation(AGGREGATES)),
        function=AggregatedRow(("user",), AGGREGATES),
    )
    return [
        FilterOperator(lambda row: row.amount >= 10, EVENT),
        MapOperator(lambda row: {"user": row.user, "amount": row.amount}),
        window,
    ]


def run(operators: Sequence[Operator], data: Sequence[Block]) -> tuple[float, list[Any]]:
    """Seconds, and the results sorted."""
    *stages, last = [OperatorHarness(operator) for operator in operators]
    started = time.perf_counter()
    for number, block in enumerate(data, start=1):
        current = [block]
        for stage in stages:
            for part in current:
                stage.push_block(part)
            current = list(stage.output.blocks)
            stage.clear_output()
        for part in current:
            last.push_block(part)
        last.advance_watermark(number * BLOCK - 1)
    last.end_input()
    seconds = time.perf_counter() - started
    return seconds, sorted(map(tuple, last.values()))


def main() -> None:
    data = blocks()
    by_rows, row_results = run(over_rows(), data)
    by_columns, column_results = run(over_columns(), data)
    assert row_results == column_results
    for name, seconds in (("rows", by_rows), ("columns", by_columns)):
        print(f"{name:8} {RECORDS / seconds:12,.0f} records/s")
    print(f"columns are {by_rows / by_columns:.0f} times as fast; {len(row_results)} results, equal")


if __name__ == "__main__":
    main()
