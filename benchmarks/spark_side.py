"""Spark's own side of each measurement; every run is a process of its own: `python -m benchmarks.spark_side SPEC`.

SPEC is JSON: `job` (window, keyed), `input`, `folder`, `sink` (parquet, noop). The result goes to FOLDER/run.json.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from benchmarks.dataset import BOUND_MS, FILES_PER_EPOCH, WINDOW_FILES_PER_EPOCH, WINDOW_MS
from benchmarks.rates import EpochEnd, Run

CORES = 2


class RunningTotal(StatefulProcessor):
    """The same as Penstock's side, in the way of this API: the state is read and written once for each visit of a key,
    which is as cheap as it gets here."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.total = handle.getValueState("total", "total long")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        (total,) = self.total.get() or (0,)
        for row in rows:
            total += row.amount
            yield Row(key=key[0], total=total)
        self.total.update((total,))

    def close(self) -> None:
        pass


def session() -> SparkSession:
    return (
        SparkSession.builder.master(f"local[{CORES}]")
        .appName("benchmark")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", CORES)
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .config("spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled", "true")
        .config("spark.sql.streaming.numRecentProgressUpdates", "10000")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )


def events(spark: SparkSession, folder: str, files: int) -> DataFrame:
    return (
        spark.readStream.schema("key long, event_time long, amount long")
        .option("maxFilesPerTrigger", files)
        .parquet(folder)
    )


def window(frame: DataFrame) -> DataFrame:
    return (
        frame.select("key", "amount", F.timestamp_millis("event_time").alias("at"))
        .withWatermark("at", f"{BOUND_MS} milliseconds")
        .groupBy(F.window("at", f"{WINDOW_MS} milliseconds"), "key")
        .agg(F.count("*").alias("number"), F.sum("amount").alias("total"))
        .select("key", F.unix_millis("window.start").alias("window_start"), "number", "total")
    )


def keyed(frame: DataFrame) -> DataFrame:
    return (
        frame.select("key", "amount")
        .groupBy("key")
        .transformWithState(RunningTotal(), "key long, total long", "Append", "None")
    )


JOBS = {"window": window, "keyed": keyed}


def run(spec: dict[str, Any]) -> Run:
    spark = session()
    spark.sparkContext.setLogLevel("ERROR")
    files = WINDOW_FILES_PER_EPOCH if spec["job"].startswith("window") else FILES_PER_EPOCH
    result = JOBS[spec["job"]](events(spark, spec["input"], files))
    if spec["sink"] == "noop":  # nothing to compare afterwards but the totals
        result = result.observe("out", F.sum("number").alias("number"), F.sum("total").alias("total"))
    writer = result.writeStream.outputMode("append").option("checkpointLocation", spec["folder"] + "/checkpoint")
    writer = writer.format(spec["sink"])
    if spec["sink"] == "parquet":
        writer = writer.option("path", spec["folder"] + "/out").option("compression", "snappy")
    started = time.time()
    query = writer.trigger(processingTime="0 seconds").start()
    query.processAllAvailable()
    query.stop()
    done = Run(started=started, epochs=_epochs(query), details=_details(query))
    spark.stop()
    return done


def _epochs(query: StreamingQuery) -> list[EpochEnd]:
    ends = []
    for progress in query.recentProgress:
        if "addBatch" in progress.durationMs:  # a batch, and not just a look for new files
            begun = datetime.fromisoformat(progress.timestamp).timestamp()
            at = begun + progress.durationMs["triggerExecution"] / 1000
            ends.append(EpochEnd(at=at, records=progress.numInputRows, checkpoint=True))
    return ends


def _details(query: StreamingQuery) -> dict[str, Any]:
    batches = [p for p in query.recentProgress if "addBatch" in p.durationMs]
    observed = [p.observedMetrics["out"] for p in batches if "out" in p.observedMetrics]
    return {
        "batch_ms": [p.durationMs["triggerExecution"] for p in batches],
        "add_batch_ms": [p.durationMs["addBatch"] for p in batches],
        "observed": {name: sum(int(row[name] or 0) for row in observed) for name in ("number", "total") if observed},
    }


def main(argv: list[str]) -> None:
    spec = json.loads(argv[0])
    (Path(spec["folder"]) / "run.json").write_text(json.dumps(run(spec).to_json()))


if __name__ == "__main__":
    main(sys.argv[1:])
