"""The job that `make soak` watches: state, timers and an exact sink, and a failure every so often.

`python -m tests.chaos.soak_job FOLDER key=value…` runs until it is told to end (SIGTERM)."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.files import FileSink
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor

KEYS = 1000  # state is bounded: what grows is not the job's own


class Counting(KeyedProcessFunction):
    """Counts by key, with a timer for each record soon after; fails a while after it was opened."""

    def __init__(self, fail_after_s: float) -> None:
        self._fail_after_s = fail_after_s

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        mine = runtime_context.get_index_of_this_subtask() == 0
        self._fail_at = time.monotonic() + self._fail_after_s if mine else None

    def process_element(self, value: Any, ctx: Any) -> Any:
        if self._fail_at is not None and time.monotonic() > self._fail_at:
            raise RuntimeError("the soak's failure, on purpose")
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 1000)
        if value % 100 == 0:
            yield value, self.count.value()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        return iter(())


def main(argv: list[str]) -> None:
    folder = Path(argv[0])
    options = dict(argument.split("=", 1) for argument in argv[1:])
    fail_after_s, rate = float(options.pop("fail_after_s", "30")), float(options.pop("rate", "2000"))
    settings = {
        "penstock.job.dir": str(folder / "job"),
        "execution.checkpointing.interval": "500 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "1000000",
        "restart-strategy.fixed-delay.delay": "100 ms",
        **options,
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings)).set_parallelism(2)
    source = DataGeneratorSource(lambda index: index, None, splits=2, rate_per_second=rate)
    schema = pa.schema([("index", pa.int64()), ("count", pa.int64())])
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        .uid("numbers")
        .key_by(lambda n: n % KEYS)
        .process(Counting(fail_after_s))
        .uid("counting")
        .sink_to(FileSink.parquet(str(folder / "output"), schema=schema))
        .uid("output")
    )
    env.execute("soak")


if __name__ == "__main__":
    main(sys.argv[1:])
