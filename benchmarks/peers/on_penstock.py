"""Penstock, pipelined or in epochs: an exactly-once checkpoint every second."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from benchmarks.dataset import WINDOW_MS
from benchmarks.peers.program import Job, main
from benchmarks.peers.workloads import DISORDER_MS
from benchmarks.penstock_side import PRICES, RUNNING, RunningTotal, environment
from penstock.common import Duration, Time, WatermarkStrategy
from penstock.connectors.files import FileSink, FileSource
from penstock.connectors.program import DiscardingSink
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.aggregates import count, sum_
from penstock.datastream.window import TumblingEventTimeWindows


def stateless(env: StreamExecutionEnvironment, folder: str) -> DataStream:
    source = FileSource.parquet(folder, columns=["key", "amount"])
    events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("events")
    return events.map(lambda event: (event[0], event[1] * 2)).filter(lambda event: event[1] % 4 == 0)


def windows(env: StreamExecutionEnvironment, folder: str) -> DataStream:
    source = FileSource.parquet(folder, event_time_column="event_time")
    bounded = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(DISORDER_MS))
    events = env.from_source(source, bounded, "events").uid("events")
    in_windows = events.key_by("key").window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS)))
    return in_windows.agg(number=count(), total=sum_("amount")).uid("windows")


def running(env: StreamExecutionEnvironment, folder: str) -> DataStream:
    source = FileSource.parquet(folder, columns=["key", "amount"])
    events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("events")
    return events.key_by("key").process(RunningTotal()).uid("running")


# An epoch of about a second, as a checkpoint is at the end of one.
_EPOCH: Final = {"W1": 20_000_000, "W2": 10_000_000, "W3": 2_500_000}
_BUILT: Final = {"W1": (stateless, PRICES), "W2": (windows, None), "W3": (running, RUNNING)}


def job(name: str) -> Job:
    """One workload."""
    build, schema = _BUILT[name]

    def run(source: str, output: str | None, spec: Mapping[str, Any]) -> None:
        # A folder of its own for each run: a job would go on from the checkpoint of the one before.
        settings = {"folder": f"{spec['folder']}/run-{spec['run']}", "checkpoint_interval_ms": 1000}
        if spec["mode"] == "epochs":
            settings["max_records"] = _EPOCH[name]
        env = environment({**spec, **settings})
        stream = build(env, source)
        stream.sink_to(_sink(output, schema) if output else DiscardingSink()).uid("sink")
        env.execute(f"peers-{name}")

    return run


def _sink(output: str, schema: pa.Schema | None) -> FileSink:
    return FileSink.parquet(output, schema) if schema else FileSink.parquet(output)


if __name__ == "__main__":
    main({name: job(name) for name in _BUILT})
