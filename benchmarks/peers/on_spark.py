"""Spark Structured Streaming: micro-batches as often as it can, each of them a checkpoint, RocksDB as state store with a changelog.

Python where the workload is one of Python: a loop over Arrow columns for W1, a function of the keyed state for W3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from benchmarks.dataset import WINDOW_MS
from benchmarks.peers.program import Job, main
from benchmarks.peers.workloads import DISORDER_MS
from benchmarks.spark_side import events, session

# Files of 100,000 events that a micro-batch takes: a second or more of work, so that its fixed cost does not decide.
_FILES: Final = {"W1": 10, "W2": 10, "W3": 4}


def stateless(frame: DataFrame) -> DataFrame:
    def double(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            keys, prices = [], []
            for key, amount in zip(batch["key"].to_pylist(), batch["amount"].to_pylist(), strict=True):
                price = amount * 2
                if price % 4 == 0:
                    keys.append(key)
                    prices.append(price)
            yield pa.record_batch([pa.array(keys, pa.int64()), pa.array(prices, pa.int64())], names=["key", "price"])

    return frame.select("key", "amount").mapInArrow(double, "key long, price long")  # type: ignore[arg-type,unused-ignore]


def windows(frame: DataFrame) -> DataFrame:
    return (
        frame.select("key", "amount", F.timestamp_millis("event_time").alias("at"))
        .withWatermark("at", f"{DISORDER_MS} milliseconds")
        .groupBy(F.window("at", f"{WINDOW_MS} milliseconds"), "key")
        .agg(F.count("*").alias("number"), F.sum("amount").alias("total"))
        .select("key", F.unix_millis("window.start").alias("window_start"), "number", "total")
    )


def running(frame: DataFrame) -> DataFrame:
    def total(key: tuple[Any, ...], parts: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        so_far = state.get[0] if state.exists else 0
        for part in parts:
            totals = part["amount"].cumsum() + so_far
            so_far = int(totals.iloc[-1])
            yield pd.DataFrame({"key": part["key"], "total": totals})
        state.update((so_far,))

    return (
        frame.select("key", "amount")
        .groupBy("key")
        .applyInPandasWithState(total, "key long, total long", "total long", "append", GroupStateTimeout.NoTimeout)
    )


_BUILT: Final = {"W1": stateless, "W2": windows, "W3": running}


def job(name: str) -> Job:
    """One workload."""

    def run(source: str, output: str | None, spec: Mapping[str, Any]) -> None:
        spark = session()
        spark.sparkContext.setLogLevel("ERROR")
        stream = _BUILT[name](events(spark, source, _FILES[name])).writeStream.outputMode("append")
        stream = stream.option("checkpointLocation", f"{spec['folder']}/checkpoint-{spec['run']}")
        stream = stream.format("parquet").option("path", output) if output else stream.format("noop")
        query = stream.trigger(processingTime="0 seconds").start()
        query.processAllAvailable()
        query.stop()

    return run


if __name__ == "__main__":
    main({name: job(name) for name in _BUILT})
