"""Penstock's side of each measurement; every run is a process of its own: `python -m benchmarks.penstock_side SPEC`.

SPEC is JSON: `job` (window, window-from-spark, keyed, rows, empty), `mode`, `input`, `folder`, and settings. The result goes to
FOLDER/run.json.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.dataset import BOUND_MS, FILES_PER_EPOCH, WINDOW_FILES_PER_EPOCH, WINDOW_MS
from benchmarks.empty_epochs import measure_empty_epochs
from benchmarks.rates import EpochEnd, Run
from penstock.common import Configuration, Duration, Time, Types, WatermarkStrategy
from penstock.connectors.files import FileSink, FileSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows

CORES = 2
_LONG = pa.int64()
RUNNING = pa.schema([("key", _LONG), ("total", _LONG)])
PRICES = pa.schema([("key", _LONG), ("price", _LONG)])


class RunningTotal(KeyedProcessFunction):
    """Value state read and written for every event, one result for every event."""

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[int, int]]:
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        yield value[0], total


def environment(spec: dict[str, Any]) -> StreamExecutionEnvironment:
    config = Configuration()
    mode = spec.get("mode", "epochs")
    config.set_string("penstock.execution.mode", mode)
    if mode == "epochs":  # else Penstock makes a session with a thread for each task of the job
        config.set_string("spark.master", f"local[{CORES},4]")
    config.set_string("penstock.epoch.interval", "0 ms")
    if spec.get("max_records"):
        config.set_string("penstock.epoch.max-records", str(spec["max_records"]))
    if spec.get("checkpoint_interval_ms") is not None:
        config.set_string("penstock.job.dir", str(Path(spec["folder"]) / "job"))
        config.set_string("execution.checkpointing.interval", f"{spec['checkpoint_interval_ms']} ms")
    for key, value in spec.get("settings", {}).items():
        config.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(CORES)
    return env


def build_keyed(env: StreamExecutionEnvironment, spec: dict[str, Any]) -> None:
    source = FileSource.parquet(
        spec["input"], columns=["key", "amount"], concurrent_files=spec.get("files", FILES_PER_EPOCH)
    )
    events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("events")
    events.key_by("key").process(RunningTotal()).uid("running").sink_to(
        FileSink.parquet(spec["folder"] + "/out", RUNNING, compression="snappy")
    ).uid("sink")


def build_rows(env: StreamExecutionEnvironment, spec: dict[str, Any]) -> None:
    source = FileSource.parquet(
        spec["input"], columns=["key", "amount"], concurrent_files=spec.get("files", FILES_PER_EPOCH)
    )
    events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("events")
    doubled = events.map(lambda event: (event[0], event[1] * 2)).filter(lambda event: event[1] % 4 == 0)
    doubled.sink_to(FileSink.parquet(spec["folder"] + "/out", PRICES, compression="snappy")).uid("sink")


def build_window(env: StreamExecutionEnvironment, spec: dict[str, Any]) -> None:
    source = FileSource.parquet(
        spec["input"], event_time_column="event_time", concurrent_files=spec.get("files", WINDOW_FILES_PER_EPOCH)
    )
    bounded = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(spec.get("bound_ms", BOUND_MS)))
    # Watermarks behind the source: those of the source itself are per file, and files that wait for their epoch hold
    # them back; Spark's, too, are made of what has been read.
    events = (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "events")
        .uid("events")
        .assign_timestamps_and_watermarks(bounded)
        .uid("watermarks")
    )
    _windows(events, spec)


def build_window_from_spark(env: StreamExecutionEnvironment, spec: dict[str, Any]) -> None:
    from pyspark.sql import SparkSession

    from penstock.runtime.epochs.session import spark_session

    session: SparkSession = spark_session(env._effective_configuration())
    frame = (
        session.readStream.schema("key long, event_time long, amount long")
        .option("maxFilesPerTrigger", WINDOW_FILES_PER_EPOCH)
        .parquet(spec["input"])
    )
    bounded = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(BOUND_MS))
    _windows(env.from_spark(frame, timestamp="event_time", watermark_strategy=bounded, bounded=True), spec)


def _windows(events: Any, spec: dict[str, Any]) -> None:
    from penstock.datastream.aggregates import count, sum_

    events.key_by("key").window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS))).agg(
        number=count(), total=sum_("amount")
    ).uid("windows").sink_to(FileSink.parquet(spec["folder"] + "/out", compression="snappy")).uid("sink")


BUILDERS: dict[str, Callable[[StreamExecutionEnvironment, dict[str, Any]], None]] = {
    "keyed": build_keyed,
    "rows": build_rows,
    "window": build_window,
    "window-from-spark": build_window_from_spark,
}


def run_to_the_end(spec: dict[str, Any]) -> Run:
    env = environment(spec)
    BUILDERS[spec["job"]](env, spec)
    started = time.time()
    client = env.execute_async(f"benchmark-{spec['job']}")
    client.get_job_execution_result().result()
    reports = client.epoch_reports()
    return Run(
        started=started,
        epochs=[EpochEnd(at=r.wall_ms / 1000, records=r.records_in, checkpoint=r.checkpoint) for r in reports],
        details={
            "checkpoints": sum(r.checkpoint for r in reports),
            "checkpoint_bytes": sum(r.checkpoint_bytes for r in reports),
            "epoch_ms": [round(r.duration_ms, 1) for r in reports],
            "manifest_ms": [round(r.manifest_ms, 1) for r in reports],
            "commit_ms": [round(r.commit_ms, 1) for r in reports],
            "busy_ms": {
                v["name"]: round(sum(_vertex(r, v["id"])["busy_ms"] for r in reports)) for v in reports[-1].vertices
            },
            "snapshot_ms": [max(v["snapshot_ms"] for v in r.vertices) for r in reports],
        },
    )


def _vertex(report: Any, vertex: int) -> dict[str, Any]:
    found: dict[str, Any] = next(v for v in report.vertices if v["id"] == vertex)
    return found


def main(argv: list[str]) -> None:
    spec = json.loads(argv[0])
    run = measure_empty_epochs(environment(spec), spec) if spec["job"] == "empty" else run_to_the_end(spec)
    (Path(spec["folder"]) / "run.json").write_text(json.dumps(run.to_json()))


if __name__ == "__main__":
    main(sys.argv[1:])
