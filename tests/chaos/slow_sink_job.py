"""The job that `make slow-sink` watches: numbers, counted by key, into files through a sink that can be made slow.

`python -m tests.chaos.slow_sink_job FOLDER key=value…` runs until it is stopped. While FOLDER/slow holds JSON such as
`{"write_s": 0.001}` the sink sleeps so long for each record it writes; `commit_s` is for each commit, whatever is in it.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.checkpoint.storage import Storage
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.connectors.base import Committer, Sink, SinkWriter, WriterContext
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.files import FileSink
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.records import Block

KEYS = 1000  # state is bounded: what grows is not the job's own
SCHEMA = pa.schema([("index", pa.int64()), ("nth", pa.int64())])


class Switch:
    """A file that says how slow. Read again while it is waited for, so that switching back has effect at once."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def wait(self, what: str, times: float) -> None:
        started = time.monotonic()
        while (left := started + self._seconds(what) * times - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))

    def _seconds(self, what: str) -> float:
        try:
            return float(json.loads(self._path.read_text()).get(what, 0.0))
        except FileNotFoundError:
            return 0.0


class SlowFiles(Sink):
    """A FileSink that is as slow as a switch says."""

    def __init__(self, folder: str, switch: str) -> None:
        self._files, self._switch = FileSink.parquet(folder, schema=SCHEMA), switch

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _SlowWriter(self._files.create_writer(context), Switch(self._switch))

    def create_committer(self, sink_id: str) -> Committer:
        return _SlowCommitter(self._files.create_committer(sink_id), Switch(self._switch))


class _SlowWriter(SinkWriter):
    def __init__(self, files: SinkWriter, switch: Switch) -> None:
        self._files, self._switch = files, switch

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        self._files.begin_epoch(epoch, attempt)

    def write(self, block: Block) -> None:
        self._switch.wait("write_s", len(block))
        self._files.write(block)

    def prepare_commit(self) -> list[Any]:
        return self._files.prepare_commit()

    def close(self) -> None:
        self._files.close()


class _SlowCommitter(Committer):
    def __init__(self, files: Committer, switch: Switch) -> None:
        self._files, self._switch = files, switch

    def open(self, storage: Storage | None) -> None:
        self._files.job_id = self.job_id
        self._files.open(storage)

    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        self._switch.wait("commit_s", 1 if committables else 0)
        self._files.commit(epoch, committables)

    def discard_after(self, epoch: int) -> None:
        self._files.discard_after(epoch)

    def close(self) -> None:
        self._files.close()


class Counting(KeyedProcessFunction):
    """Each number with how many of its key have come: lost or repeated ones show."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        nth = (self.count.value() or 0) + 1
        self.count.update(nth)
        yield value, nth


def build(env: StreamExecutionEnvironment, folder: Path, rate: float) -> None:
    source = DataGeneratorSource(lambda index: index, None, splits=2, rate_per_second=rate)
    counted = (
        env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
        .uid("numbers")
        .key_by(lambda n: n % KEYS)
        .process(Counting(), Types.TUPLE([Types.LONG(), Types.LONG()]))
        .name("count")
        .uid("count")
    )
    sink = SlowFiles(str(folder / "output"), str(folder / "slow"))
    counted.rebalance().sink_to(sink).name("files").uid("files")  # a vertex of its own


def main(argv: list[str]) -> None:
    folder = Path(argv[0])
    options = dict(argument.split("=", 1) for argument in argv[1:])
    rate = float(options.pop("rate", "8000"))
    settings = {
        "penstock.job.dir": str(folder / "job"),
        "penstock.epoch.target": "1 s",
        "execution.checkpointing.interval": "1 s",
        **options,
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings)).set_parallelism(2)
    build(env, folder, rate)
    env.execute("slow sink")


if __name__ == "__main__":
    main(sys.argv[1:])
