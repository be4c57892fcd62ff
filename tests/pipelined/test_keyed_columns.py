"""What is kept of each key over columns, on Spark: records are gathered between two flushes of a host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.program import DiscardingSink
from penstock.datastream.aggregates import count, max_
from tests.pipelined.jobs import environment, wait_until

pytestmark = pytest.mark.spark

EVENT = Types.ROW_NAMED(["key", "value", "id"], [Types.STRING(), Types.LONG(), Types.LONG()])
RECORDS = [(f"k{number * 7919 % 97}", number * 31 % 1009, number) for number in range(20_000)]


def test_the_last_row_of_a_key_is_the_aggregate_of_all_its_records(spark: SparkSession, tmp_path: Path) -> None:
    stream = environment(tmp_path, 2).from_collection(RECORDS, EVENT)
    seen: dict[str, list[tuple[Any, ...]]] = {}
    for row in stream.key_by("key").agg(n=count(), high=max_("value")).execute_and_collect():
        seen.setdefault(row[0], []).append(tuple(row))
    assert len(seen) == 97
    for key, rows in seen.items():
        values = [value for name, value, _ in RECORDS if name == key]
        assert rows == [(key, n, max(values[:n])) for _, n, _ in rows]
        assert rows[-1][1] == len(values)


def test_a_few_records_give_results_though_neither_watermark_nor_barrier_comes(
    spark: SparkSession, tmp_path: Path
) -> None:
    env = environment(tmp_path, 2, execution_checkpointing_interval="1 h")
    source = DataGeneratorSource(lambda number: (f"k{number % 3}", number, number), 10**9, rate_per_second=50)
    written = str(tmp_path / "written")

    def write(row: Any) -> Any:
        with Path(written).open("a") as file:
            file.write(f"{row[0]}\n")
        return row

    records = env.from_source(source, WatermarkStrategy.no_watermarks(), "records").map(lambda value: value, EVENT)
    records.key_by("key").first().map(write).sink_to(DiscardingSink())
    client = env.execute_async("gathered")
    try:
        wait_until(lambda: Path(written).exists() and len(Path(written).read_text().split()) == 3, "each key has come")
    finally:
        client.cancel().result()
