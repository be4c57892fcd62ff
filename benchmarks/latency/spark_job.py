"""Spark's own micro-batches, a process of its own: a keyed count and the newest event of each key, as often as Spark can.

Only the newest event of each key in a batch is measured, which is to Spark's advantage: the others have waited longer.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.latency.usage import CoresUsed


def main(spec: dict[str, Any]) -> dict[str, Any]:
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    seen: list[tuple[float, float]] = []

    def note(frame: DataFrame, batch: int) -> None:
        rows = frame.collect()
        now = time.time()
        seen.extend((now, now - row["newest"].timestamp()) for row in rows)

    events = session.readStream.format("rate").option("rowsPerSecond", int(spec["rate"])).load()
    counted = events.groupBy((F.col("value") % 100).alias("key")).agg(
        F.count("*").alias("n"), F.max("timestamp").alias("newest")
    )
    query = (
        counted.writeStream.outputMode("update")
        .foreachBatch(note)
        .option("checkpointLocation", tempfile.mkdtemp(prefix="latency-spark-"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    time.sleep(float(spec["warm_up"]) + 5)
    used = CoresUsed()
    used.begin()
    began = time.time()
    time.sleep(float(spec["seconds"]))
    cores = used.end()
    query.stop()
    values = np.array([late * 1000 for at, late in seen if at >= began])
    return {
        "events": len(values),
        **{f"p{p}": round(float(np.percentile(values, p)), 2) for p in (50, 90, 99)},
        "max": round(float(values.max()), 2),
        "histogram": [round(float(v), 2) for v in np.percentile(values, range(100))],
        "cores": cores,
    }


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    (Path(given["folder"]) / "run.json").write_text(json.dumps(main(given)))
