"""`python -m tests.spark.table_job FORMAT JARS FOLDER STEP`: a job from a table of Delta's or Iceberg's to another one, in a Spark
of its own. STEP is `fill` (makes the table that is read, a commit a time), `run` (the job, from its job folder), or
`look` (prints what the second table holds, as JSON)."""

from __future__ import annotations

import json
import sys
import time
from datetime import UTC
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.spark.sink import SparkSink
from tests.spark.format_job import session

COMMITS, ROWS, SHOPS = 12, 100, 7
TOTAL = pa.schema([("shop", pa.string()), ("n", pa.int64()), ("total", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
_PAUSE_S = 0.005  # a record: long enough for the job to be killed in the middle


def fill(spark: SparkSession, format: str, folder: Path) -> None:
    for commit in range(COMMITS):
        first = commit * ROWS
        rows = spark.range(first, first + ROWS, 1, 1).selectExpr(
            "id n",
            f"concat('shop ', id % {SHOPS}) shop",
            "timestamp_millis(1700000000000 + id) at",
            "map('weight', id) facts",
            "named_struct('city', concat('city ', id % 3), 'floor', id % 5) place",
        )
        if format == "delta":
            rows.write.format("delta").mode("append").save(f"{folder}/events")
        else:
            rows.write.format("iceberg").mode("append").saveAsTable("lake.db.events")


def read(spark: SparkSession, format: str, folder: Path) -> DataFrame:
    if format == "delta":
        return spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(f"{folder}/events")
    limited = spark.readStream.format("iceberg").option("streaming-max-files-per-micro-batch", 1)
    return limited.load("lake.db.events")


def sink(format: str, folder: Path) -> SparkSink:
    if format == "delta":
        return SparkSink.delta(f"{folder}/totals", schema=TOTAL)
    return SparkSink.iceberg("lake.db.totals", schema=TOTAL)


def numbered(row: Any) -> tuple[str, int, int, Any]:
    time.sleep(_PAUSE_S)
    assert row.facts == {"weight": row.n}, row.facts
    assert row.place.city == f"city {row.n % 3}", row.place
    return row.shop, row.n, row.n, row.at.replace(tzinfo=UTC)  # the session's zone


def run(spark: SparkSession, format: str, folder: Path) -> None:
    config = Configuration()
    config.set_string("penstock.job.dir", str(folder / "job"))
    config.set_string("execution.checkpointing.interval", "0 ms")
    config.set_string("penstock.epoch.interval", "20 ms")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(2)
    (
        env.from_spark(read(spark, format, folder), bounded=True)
        .uid("events")
        .map(numbered)
        .uid("numbered")
        .key_by(lambda row: row[0])
        .reduce(lambda a, b: (b[0], b[1], a[2] + b[2], b[3]))  # a running total: a record twice, or lost, shows
        .uid("totals")
        .sink_to(sink(format, folder))
        .uid("table")
    )
    env.execute("from table to table")


def look(spark: SparkSession, format: str, folder: Path) -> list[list[Any]]:
    name = f"delta.`{folder}/totals`" if format == "delta" else "lake.db.totals"
    rows = spark.table(name).selectExpr("shop", "n", "total", "unix_millis(at)").collect()
    return sorted([list(row) for row in rows], key=lambda row: int(row[1]))


def expected() -> list[list[Any]]:
    totals: dict[str, int] = {}
    rows = []
    for n in range(COMMITS * ROWS):
        shop = f"shop {n % SHOPS}"
        totals[shop] = totals.get(shop, 0) + n
        rows.append([shop, n, totals[shop], 1_700_000_000_000 + n])
    return rows


if __name__ == "__main__":
    format, jars, folder, step = sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]
    spark = session(format, jars, folder)
    spark.sparkContext.setLogLevel("OFF")
    if step == "fill":
        fill(spark, format, folder)
    elif step == "run":
        run(spark, format, folder)
    else:
        print(json.dumps(look(spark, format, folder)))
    spark.stop()
