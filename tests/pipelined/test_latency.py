"""Latency markers of a pipelined job on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.common import WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.program import DiscardingSink
from tests.pipelined.jobs import environment, wait_until

pytestmark = pytest.mark.spark


def test_latency_from_a_source_to_each_level_is_told_while_the_job_runs(spark: SparkSession, tmp_path: Path) -> None:
    env = environment(tmp_path, 2, metrics_latency_interval="20 ms", execution_checkpointing_interval="200 ms")
    source = DataGeneratorSource(lambda i: i, 10**9, rate_per_second=500)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    numbers.key_by(lambda n: n % 7).map(lambda n: n).key_by(lambda n: n % 3).map(lambda n: n).sink_to(DiscardingSink())
    client = env.execute_async("markers")

    def measured() -> list[dict[str, Any]] | None:
        reports = client.epoch_reports()
        columns = [v["subtasks"].get("latency") for v in reports[-1].vertices[1:]] if reports else []
        found = [of_source.get("numbers") for column in columns for of_source in column or ()]
        enough = len(found) == 4 and all(f and f["count"] > 20 for f in found)
        # The second exchange takes its time, too. When the machine stood still, late markers have come to the first level only.
        return found if enough and max(f["p50"] for f in found[:2]) < max(f["p99"] for f in found[2:]) else None

    try:
        first = wait_until(measured, "markers have come to both subtasks of both levels")
    finally:
        client.cancel().result()
    assert all(0 < told["p50"] <= told["p95"] <= told["p99"] <= told["max"] < 60_000 for told in first), first
