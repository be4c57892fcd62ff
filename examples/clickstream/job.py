"""The clickstream job, as you would write it for your own shop.

                      ┌─ key_by user ─▶ running totals (value state) ─▶ totals/*.parquet
    clicks ─watermarks┤
                      └─ key_by page ─▶ 1 s windows ─┬─ results ─────▶ windows/*.parquet
                                                     └─ late clicks ─▶ late/*.parquet

Run it by itself with `python -m examples.clickstream.job FOLDER opens_ms=… clicks=…`. Start it again with the same
arguments after it was killed and it resumes from the newest checkpoint in FOLDER/job.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from examples.clickstream.clicks import SCHEMA, Click
from examples.clickstream.shop import DISORDER_MS, LiveClicks, Shop
from penstock.common import Configuration, Duration, Time, TimestampAssigner, Types, WatermarkStrategy
from penstock.connectors.files import FileSink
from penstock.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TimeWindow, TumblingEventTimeWindows

WINDOW_MS = 1_000
LATE = OutputTag("late-clicks")

TOTALS = pa.schema([("user", pa.int64()), ("event_id", pa.int64()), ("clicks", pa.int64()), ("spent", pa.int64())])
WINDOWS = pa.schema([("page", pa.string()), ("start", pa.int64()), ("clicks", pa.int64()), ("revenue", pa.int64())])


class ClickTime(TimestampAssigner):
    """Event time is in the click itself."""

    def extract_timestamp(self, value: Click, record_timestamp: int) -> int:
        return value.event_time


class RunningTotals(KeyedProcessFunction):
    """For every click: how often this user has clicked by now, and what they have spent.

    The numbers of a user must come out as 1, 2, 3, … without a gap or a repetition. State that was lost, or applied
    twice, in any crash shows at once. Two gauges tell how long the newest thousand clicks took from being made to here.
    """

    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def open(self, runtime_context: RuntimeContext) -> None:
        self._took: deque[float] = deque(maxlen=1_000)
        for share in (50, 99):
            runtime_context.get_metrics_group().gauge(f"latency_p{share}_ms", partial(self._latency_ms, share))
        descriptor = ValueStateDescriptor("clicks-and-spent", Types.TUPLE([Types.LONG(), Types.LONG()]))
        self.totals = runtime_context.get_state(descriptor)

    def process_element(self, value: Click, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        clicks, spent = self.totals.value() or (0, 0)
        clicks, spent = clicks + 1, spent + value.amount
        self.totals.update((clicks, spent))
        self._took.append(time.time() * 1000 - self._shop.made_ms(value.event_id))
        yield value.user, value.event_id, clicks, spent

    def _latency_ms(self, share: int) -> int:
        ordered = sorted(self._took) or [0.0]
        return round(ordered[len(ordered) * share // 100])


class ClicksAndRevenue(AggregateFunction):
    """Folds a window's clicks into two numbers as they come, so a window never holds its clicks."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Click, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value.amount

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class WithPageAndStart(ProcessWindowFunction[tuple[int, int], tuple[str, int, int, int], str, TimeWindow]):
    """Says which page and which second the two numbers are about."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[tuple[int, int]]
    ) -> Iterable[tuple[str, int, int, int]]:
        for clicks, revenue in elements:
            yield key, context.window().start, clicks, revenue


def build(env: StreamExecutionEnvironment, shop: Shop, folder: Path) -> None:
    # Clicks are up to half a second out of order. Watermarks are made per split; the slowest split decides.
    watermarks = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(DISORDER_MS)
    ).with_timestamp_assigner(ClickTime())
    clicks = env.from_source(LiveClicks(shop), watermarks, "clicks").uid("clicks")

    totals = clicks.key_by(lambda click: click.user).process(RunningTotals(shop)).name("totals per user").uid("totals")
    totals.sink_to(FileSink.parquet(folder / "totals", TOTALS)).name("totals.parquet").uid("totals-sink")

    windows = (
        clicks.key_by(lambda click: click.page)
        .window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS)))
        .side_output_late_data(LATE)  # a click whose window is closed is not dropped: it goes to a file of its own
        .aggregate(ClicksAndRevenue(), WithPageAndStart())
        .name("windows per page")
        .uid("windows")
    )
    windows.sink_to(FileSink.parquet(folder / "windows", WINDOWS)).name("windows.parquet").uid("windows-sink")
    late = windows.get_side_output(LATE)
    late.sink_to(FileSink.parquet(folder / "late", SCHEMA)).name("late.parquet").uid("late-sink")


def main(argv: list[str]) -> None:
    folder = Path(argv[0])
    options = dict(argument.split("=", 1) for argument in argv[1:])
    shop = Shop(opens_ms=int(options.pop("opens_ms")), clicks=int(options.pop("clicks")))

    config = Configuration()
    config.set_string("penstock.job.dir", str(folder / "job"))  # checkpoints; a job finds its own here and resumes
    config.set_string("execution.checkpointing.interval", "500 ms")  # output appears with checkpoints
    config.set_string("penstock.epoch.max-records", "30000")  # a backlog is worked off in bites
    # After a failure back to the last checkpoint, soon; the default begins with a second.
    config.set_string("restart-strategy.type", "fixed-delay")
    config.set_string("restart-strategy.fixed-delay.attempts", "10")
    config.set_string("restart-strategy.fixed-delay.delay", "100 ms")
    config.set_string("spark.master", "local[8,4]")  # a thread for each of the job's tasks, which all run at once
    # A run of half a minute is over before a JVM's second compiler pays off; with the first alone Spark is up sooner.
    # A job that stays leaves this line out.
    config.set_string("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    for key, value in options.items():  # anything else on the command line: spark.driver.memory=1g …
        config.set_string(key, value)

    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(2)
    build(env, shop, folder)
    env.execute("clickstream")


if __name__ == "__main__":
    main(sys.argv[1:])
