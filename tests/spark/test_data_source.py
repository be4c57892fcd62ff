"""Penstock's sources read by plain PySpark."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from examples.clickstream.clicks import Clickstream
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.program import CollectionSource
from penstock.spark.data_source import read_stream

pytestmark = pytest.mark.spark


def collect(frame: DataFrame, folder: Path) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []

    def take(batch: DataFrame, number: int) -> None:
        rows.extend(tuple(row) for row in batch.collect())

    query = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(folder)).start()
    query.processAllAvailable()
    query.stop()
    return rows


def test_a_row_source_with_epochs_is_read_whole(spark: SparkSession, tmp_path: Path) -> None:
    source = CollectionSource([(n, f"v{n}") for n in range(10)], epochs=[3, 7])
    assert sorted(collect(read_stream(spark, source, "n long, v string"), tmp_path)) == [
        (n, f"v{n}") for n in range(10)
    ]


def test_a_columnar_source_with_splits_is_read_whole(spark: SparkSession, tmp_path: Path) -> None:
    source = DataGeneratorSource(Clickstream(), 1000, splits=3)
    rows = collect(read_stream(spark, source, "event_id long, user long"), tmp_path)
    assert sorted(row[0] for row in rows) == list(range(1000))  # type: ignore[type-var]


def test_instants_are_the_same_in_any_zone(spark: SparkSession, tmp_path: Path) -> None:
    source = CollectionSource([(n, datetime.fromtimestamp(1_000_000 + n, UTC)) for n in range(3)])
    frame = read_stream(spark, source, "n long, at timestamp").selectExpr("n", "unix_millis(at)")
    assert sorted(collect(frame, tmp_path)) == [(n, (1_000_000 + n) * 1000) for n in range(3)]
