"""The job that chaos runs kill: out-of-order clicks → running count per user and tumbling windows → three exact sinks.

Run as a process of its own: `python -m tests.chaos.job FOLDER key=value…`. It resumes FOLDER/job by itself.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.common import Configuration, Duration, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.files import FileSink
from penstock.datastream import OutputTag, StreamExecutionEnvironment
from penstock.datastream.functions import AggregateFunction, KeyedProcessFunction, ProcessWindowFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from tests.connectors.lasting import Lasting

KEYS = 997
WINDOW_MS = 1000
BOUND_MS = 200
LATE = OutputTag("late")


def event(index: int) -> tuple[int, int, int]:
    """(user, event time, index): 1 ms a record, shuffled within 150 ms, and now and then far too late."""
    jitter = (index * 7919) % 150
    return index * 31 % KEYS, index - jitter - (5000 if may_be_late(index) else 0), index


def may_be_late(index: int) -> bool:
    """All others are within the watermark's bound: whatever is killed, they must never be called late."""
    return index % 1009 == 1008 and index > 8000


class EventTime(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class Running(KeyedProcessFunction):
    """Numbers the records of a user: any loss, duplicate or reordering within a key shows."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        yield value[0], number, value[2]


class CountAndSum(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Any, accumulator: Any) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value[2]

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Describe(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        for count, total in elements:
            yield key, context.window().start, count, total


def build(
    env: StreamExecutionEnvironment,
    folder: Path,
    records: int,
    rate: float | None,
    splits: int,
    *,
    lasting: bool = False,
) -> None:
    """One that is `lasting` does not end before the file `may-end` is in the folder."""
    source = DataGeneratorSource(event, records, splits=splits, rate_per_second=rate)
    if lasting:
        source = Lasting(event, records, until=folder / "may-end", splits=splits, rate_per_second=rate)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(BOUND_MS)).with_timestamp_assigner(
        EventTime()
    )
    # So long that no split is ever idle: only subtasks without a split are, and do not hold event time back.
    strategy = strategy.with_idleness(Duration.of_hours(1))
    clicks = env.from_source(source, strategy, "clicks").uid("clicks")
    by_user = clicks.key_by(lambda e: e[0])
    longs = pa.int64()
    by_user.process(Running()).uid("running").sink_to(
        FileSink.parquet(
            str(folder / "running"), schema=pa.schema([("user", longs), ("number", longs), ("index", longs)])
        )
    ).uid("running-sink")
    windows = (
        by_user.window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS)))
        .side_output_late_data(LATE)
        .aggregate(CountAndSum(), Describe())
        .uid("windows")
    )
    windows.sink_to(
        FileSink.parquet(
            str(folder / "windows"),
            schema=pa.schema([("user", longs), ("start", longs), ("count", longs), ("total", longs)]),
        )
    ).uid("windows-sink")
    windows.get_side_output(LATE).sink_to(
        FileSink.parquet(str(folder / "late"), schema=pa.schema([("user", longs), ("time", longs), ("index", longs)]))
    ).uid("late-sink")


def main(argv: list[str]) -> None:
    logging.basicConfig(format="%(asctime)s %(message)s")  # when a recovery is slow, its log says where the time went
    logging.getLogger("penstock").setLevel(logging.INFO)
    folder = Path(argv[0])
    options = dict(argument.split("=", 1) for argument in argv[1:])
    records = int(options.pop("records", "100000"))
    rate = options.pop("rate", "")
    splits = int(options.pop("splits", "3"))
    lasting = bool(options.pop("lasting", ""))
    parallelism = int(options.pop("parallelism", "2"))
    config = Configuration()
    config.set_string("penstock.job.dir", str(folder / "job"))
    config.set_string("execution.checkpointing.interval", "0 ms")
    for key, value in options.items():
        config.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(parallelism)
    build(env, folder, records, float(rate) if rate else None, splits, lasting=lasting)
    print(env.execute("chaos"), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
