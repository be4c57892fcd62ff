"""Readings of meters, numbered and summed per meter, to exactly-once files: `penstock run … job.py OUTPUT READINGS RATE`."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.files import FileSink
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor

METERS = 100


def reading(index: int) -> tuple[int, int]:
    """(meter, index)"""
    return index * 31 % METERS, index


class Running(KeyedProcessFunction):
    """Numbers and sums the readings of a meter: a lost or repeated one shows in every one after it."""

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("so far", Types.PICKLED_BYTE_ARRAY()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        meter, index = value
        number, total = self.state.value() or (0, 0)
        self.state.update((number + 1, total + index))
        yield meter, number + 1, index, total + index


def main(output: str, readings: int, rate: float) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    source = DataGeneratorSource(reading, readings, splits=2, rate_per_second=rate)
    schema = pa.schema([(name, pa.int64()) for name in ("meter", "number", "index", "total")])
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "meters")
        .uid("meters")
        .key_by(lambda value: value[0])
        .process(Running())
        .uid("running")
        .sink_to(FileSink.parquet(output, schema=schema))
        .uid("readings")
    )
    env.execute("meters")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
