"""Numbers and sums readings; needs a module and an archive that only `--py-files` and `--archives` bring to the containers."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.files import FileSink
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor


def reading(index: int) -> Any:
    return import_module("shipped_formula").reading(index)


class Running(KeyedProcessFunction):
    """Numbers and sums the readings of a meter: a lost or repeated one shows in every one after it."""

    def open(self, runtime_context: Any) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("so far"))
        self.first = int(Path("constants.zip/first.txt").read_text())
        sockets = os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "false").lower()
        print(f"slot with Unix sockets {sockets} uses {import_module('penstock').__file__}")

    def process_element(self, value: Any, ctx: Any) -> Any:
        meter, index = value
        number, total = self.state.value() or (self.first, 0)
        self.state.update((number + 1, total + index))
        yield meter, number + 1, index, total + index


def main(output: str, readings: int, rate: float, job_dir: str | None = None) -> None:
    config = Configuration()
    if job_dir is not None:  # under spark-submit there is no -D
        config.set_string("penstock.job.dir", job_dir)
        config.set_string("execution.checkpointing.interval", "0 ms")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(2)
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
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:])
