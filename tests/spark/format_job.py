"""`python -m tests.spark.format_job FORMAT JARS FOLDER`: commits of SparkSink to a table format, in a Spark of its own, because
these formats are part of a session from its start. Prints how many rows the table has after each step, as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.checkpoint.storage import LocalStorage
from penstock.connectors.base import WriterContext
from penstock.records import Rows
from penstock.spark.sink import SparkSink

SCHEMA = pa.schema([("n", pa.int64()), ("shop", pa.string())])


def session(format: str, jars: str, folder: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    conf = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.jars": jars,
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
    }
    if format == "delta":
        conf["spark.sql.extensions"] = "io.delta.sql.DeltaSparkSessionExtension"
        conf["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    else:
        conf["spark.sql.catalog.lake"] = "org.apache.iceberg.spark.SparkCatalog"
        conf["spark.sql.catalog.lake.type"] = "hadoop"
        conf["spark.sql.catalog.lake.warehouse"] = f"{folder}/lake"
    builder = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def commits(sink: SparkSink, folder: Path, count: Callable[[], int]) -> dict[str, int]:
    """Each step is what a driver does; rows are counted by who reads the table."""
    storage = LocalStorage(folder / "job")

    def staged(epoch: int, rows: int) -> list[object]:
        context = WriterContext(job_id="job", sink_id="out", subtask=0, parallelism=1, storage=storage)
        writer = sink.create_writer(context)
        writer.begin_epoch(epoch, "a")
        writer.write(Rows([(n, f"shop {n}") for n in range(rows)]))
        return writer.prepare_commit()

    def commit(epoch: int, outputs: list[object]) -> int:
        committer = sink.create_committer("out")  # as of a driver that was started again
        committer.open(storage)
        committer.commit(epoch, outputs)
        return count()

    one, two, again = staged(1, 1), staged(2, 10), staged(2, 100)
    return {
        "an epoch": commit(1, one),
        "the same again": commit(1, one),
        "the next": commit(2, two),
        "again, after a crash": commit(2, two),
        "an epoch of the same number with other rows": commit(2, again),
        "and that again": commit(2, again),
    }


if __name__ == "__main__":
    format, jars, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    spark = session(format, jars, folder)
    spark.sparkContext.setLogLevel("OFF")
    if format == "delta":
        sink, name = SparkSink.delta(f"{folder}/table", schema=SCHEMA, partition_by=["shop"]), f"delta.`{folder}/table`"
    else:
        sink, name = SparkSink.iceberg("lake.db.totals", schema=SCHEMA, partition_by=["shop"]), "lake.db.totals"
    print(json.dumps(commits(sink, folder, lambda: spark.table(name).count())))
    spark.stop()
