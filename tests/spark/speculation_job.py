"""Counts by key on a cluster where Spark speculates and two tasks are slow, each once:
python -m tests.spark.speculation_job <folder> <master>.

A slow task has its connection to the slot when it stops. Spark starts a second attempt at it, on the other host, which goes
ahead. The first wakes as a zombie when the epoch is over, or as soon as the second attempt is, and then does its work.
"""

from __future__ import annotations

import functools
import pickle
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

import penstock.spark.relay
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.file_sink import FileSink
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.slot.client import SlotStream

RECORDS, KEYS, EPOCH = 1600, 37, 200
LEVEL = 1  # of the keyed state
# The epoch and partition of a slow task, and after how many more epochs it wakes: 0 is in the middle of its own.
SLOW = {(3, 0): 2, (6, 1): 0}


class SlowOnce(SlotStream):
    """A relay's stream that begins late, in the first attempt at one of the tasks above, and says how it went."""

    def __init__(self, folder: str, wire: Any, request: dict[str, Any], rows: Iterator[pa.RecordBatch]) -> None:
        context = TaskContext.get()
        assert context is not None
        self._folder, self._attempt = Path(folder), context.attemptNumber()
        self._task = (int(pickle.loads(request["plan"]).epoch), context.partitionId())
        self._level = request["level"]
        slow = self._level == LEVEL and self._task in SLOW
        self._proof = self._folder / f"attempt-{self._task[0]}-{self._attempt}" if slow else None
        if self._proof is not None and self._attempt == 0:
            self._proof.with_suffix(".began").write_text("")
            self._sleep(self._task[0] + SLOW[self._task])
        super().__init__(wire, request, rows)

    def _sleep(self, until: int) -> None:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline and not (self._folder / f"over-{until}").exists():
            time.sleep(0.02)

    def results(self) -> Iterator[pa.RecordBatch]:
        try:
            yield from super().results()
        except BaseException as error:
            if self._proof is not None:
                self._proof.write_text(f"{type(error).__name__}: {error}")
            raise
        if self._proof is not None:
            self._proof.write_text("done")
        if self._level == LEVEL and self._task[1] == dict(SLOW.keys()).get(self._task[0], 0):
            (self._folder / f"over-{self._task[0]}").write_text("")


class Counting(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        nth = (self.count.value() or 0) + 1
        self.count.update(nth)
        yield f"{value},{nth}"


def main(folder: Path, master: str) -> None:
    (folder / "events").mkdir()
    vars(penstock.spark.relay)["SlotStream"] = functools.partial(SlowOnce, str(folder))
    config = Configuration.from_dict(
        {
            "penstock.job.dir": str(folder / "job"),
            "penstock.epoch.max-records": str(EPOCH),
            "execution.checkpointing.interval": "0 ms",
            "spark.master": master,
            "spark.driver.host": "127.0.0.1",
            "spark.executor.memory": "512m",
            "spark.speculation": "true",
            "spark.speculation.interval": "50ms",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.minTaskRuntime": "300ms",
            "spark.python.task.killTimeout": "10min",  # the loser of the two goes on unseen
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": f"file://{folder / 'events'}",
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(2)
    source = DataGeneratorSource(lambda index: index, RECORDS, splits=2)
    (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        .uid("numbers")
        .key_by(lambda number: number % KEYS)
        .process(Counting(), Types.STRING())
        .uid("count")
        .sink_to(FileSink.text(folder / "out"))
        .uid("out")
    )
    env.execute("speculation")
    deadline = time.monotonic() + 90  # the executors, and with them the zombies, end when this process does
    while time.monotonic() < deadline and not all((folder / f"attempt-{epoch}-0").exists() for epoch, _ in SLOW):
        time.sleep(0.1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
