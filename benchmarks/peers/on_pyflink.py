"""PyFlink's DataStream API: Python functions in processes beside the JVM (`process`) or inside it (`thread`).

A checkpoint every second.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pyflink.common import Configuration, Duration, Encoder, Types, WatermarkStrategy  # type: ignore[import-not-found,unused-ignore]
from pyflink.common.time import Time  # type: ignore[import-not-found,unused-ignore]
from pyflink.common.watermark_strategy import TimestampAssigner  # type: ignore[import-not-found,unused-ignore]
from pyflink.datastream import (  # type: ignore[import-not-found,unused-ignore]
    AggregateFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.connectors.file_system import FileSink, FileSource  # type: ignore[import-not-found,unused-ignore]
from pyflink.datastream.formats.parquet import ParquetColumnarRowInputFormat  # type: ignore[import-not-found,unused-ignore]
from pyflink.datastream.state import ValueStateDescriptor  # type: ignore[import-not-found,unused-ignore]
from pyflink.datastream.window import TumblingEventTimeWindows  # type: ignore[import-not-found,unused-ignore]
from pyflink.java_gateway import get_gateway  # type: ignore[import-not-found,unused-ignore]
from pyflink.table.types import DataTypes  # type: ignore[import-not-found,unused-ignore]

from benchmarks.peers.program import Job, main

_DISORDER_S: Final = 5
_WINDOW_S: Final = 10
_COLUMNS: Final = ["key", "event_time", "amount"]


def _longs(number: int) -> Any:
    """A tuple of longs. Made anew for each use: a type that has been used holds an object of Java's, and functions that hold it
    cannot be pickled."""
    return Types.TUPLE([Types.LONG() for _ in range(number)])


class EventTime(TimestampAssigner):  # type: ignore[misc,unused-ignore]
    """The column of the event."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class RunningTotal(KeyedProcessFunction):  # type: ignore[misc,unused-ignore]
    """Value state read and written for every event, one result for every event."""

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        total = (self.total.value() or 0) + value[2]
        self.total.update(total)
        yield value[0], total


class CountAndSum(AggregateFunction):  # type: ignore[misc,unused-ignore]
    """(count, sum) of amounts."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Any, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value[2]

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
        return one[0] + other[0], one[1] + other[1]


class Named(ProcessWindowFunction):  # type: ignore[misc,unused-ignore]
    """(key, start, count, sum)."""

    def process(self, key: int, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
        for number, total in elements:
            yield key, context.window().start, number, total


def stateless(events: Any) -> Any:
    result = _longs(2)
    return events.map(lambda e: (e[0], e[2] * 2), output_type=result).filter(lambda e: e[1] % 4 == 0)


def _typed(events: Any) -> Any:
    """Rows of a file have a type that only a function can take."""
    return events.map(tuple, output_type=_longs(3))


def windows(events: Any) -> Any:
    in_order = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(_DISORDER_S))
    timed = _typed(events).assign_timestamps_and_watermarks(in_order.with_timestamp_assigner(EventTime()))
    in_windows = timed.key_by(lambda e: e[0], key_type=Types.LONG()).window(
        TumblingEventTimeWindows.of(Time.seconds(_WINDOW_S))
    )
    return in_windows.aggregate(CountAndSum(), Named(), _longs(2), _longs(4))


def running(events: Any) -> Any:
    keyed = _typed(events).key_by(lambda e: e[0], key_type=Types.LONG())
    return keyed.process(RunningTotal(), output_type=_longs(2))


_BUILT: Final = {"W1": stateless, "W2": windows, "W3": running}


def environment(spec: Mapping[str, Any]) -> Any:
    """Two of each; else as PyFlink comes."""
    config = Configuration()
    for key, value in {
        "python.execution-mode": spec["mode"],
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "execution.checkpointing.dir": f"file://{spec['folder']}/checkpoints",
        "pipeline.jars": ";".join(f"file://{jar}" for jar in spec["jars"]),
    }.items():
        config.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(2)
    env.enable_checkpointing(1000)
    return env


def job(name: str) -> Job:
    """One workload."""

    def run(source: str, output: str | None, spec: Mapping[str, Any]) -> None:
        env = environment(spec)
        row = DataTypes.ROW([DataTypes.FIELD(column, DataTypes.BIGINT()) for column in _COLUMNS])
        files = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(row_type=row), f"file://{source}").build()
        events = env.from_source(files, WatermarkStrategy.no_watermarks(), "events")
        results = _BUILT[name](events)
        if output:
            lines = results.map(lambda result: ",".join(map(str, result)), output_type=Types.STRING())
            lines.sink_to(FileSink.for_row_format(f"file://{output}", Encoder.simple_string_encoder()).build())
        else:
            sink = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()
            results._j_data_stream.sinkTo(sink)
        env.execute(f"peers-{name}")

    return run


if __name__ == "__main__":
    main({name: job(name) for name in _BUILT})
