"""Blocks may be larger where all operators of a chain work on columns, and only there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.common import Time, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.connectors.files import FileSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.aggregates import count
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.testing import ListSink
from tests.engine.test_stream_run import Level


class _Looking(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value.t)


@pytest.mark.parametrize(
    ("before", "behind", "read", "sent"),
    [
        (False, False, 80_000, 80_000),
        (True, False, 10_000, 80_000),
        (False, True, 80_000, None),
    ],
    ids=["columns everywhere", "rows looked at in front of the exchange", "rows made behind it"],
)
def test_blocks_are_larger_where_nobody_makes_rows(
    before: bool, behind: bool, read: int, sent: int | None, tmp_path: Path
) -> None:
    pq.write_table(pa.table({"k": [1], "t": [0]}), tmp_path / "events.parquet")
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    source = FileSource.parquet(str(tmp_path), event_time_column="t")
    strategy = WatermarkStrategy.no_watermarks()
    if before:
        strategy = strategy.with_timestamp_assigner(_Looking())
    stream: Any = env.from_source(source, strategy, "events")
    windows = stream.key_by("k").window(TumblingEventTimeWindows.of(Time.milliseconds(10))).agg(n=count())
    if behind:
        windows = windows.map(lambda row: row)
    windows.rebalance().sink_to(ListSink("column blocks"))
    task = Level(env._describe("column blocks"), 0).held.task
    assert task.head.ctx.block_size == read
    assert [router.column_rows for router in task._routers] == [sent]
