"""The textbook cases of barriers, on real Spark.

fast      1 2 3 4 5 │ 6 7 8 …        the barrier has come here
held up   a b ……………………… │            and not here, for as long as the test wants
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.common import Types, WatermarkStrategy
from penstock.common.restart_strategy import RestartStrategies
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.files import FileSink, committed_files
from penstock.datastream import CheckpointingMode, StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction, MapFunction
from penstock.datastream.state import MapStateDescriptor
from penstock.driver.client import JobClient
from tests.pipelined.jobs import Note, environment, wait_until

pytestmark = pytest.mark.spark

FAST = 40  # records


class Held(MapFunction):
    """Subtask 1 stands still while the file is there."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def open(self, runtime_context: Any) -> None:
        self.holds = runtime_context.get_index_of_this_subtask() == 1

    def map(self, value: Any) -> Any:
        while self.holds and self.file.exists():
            time.sleep(0.005)
        return "slow", value


class Count(KeyedProcessFunction):
    """How often each record was counted. Says what it sees, and fails where it is told to."""

    def __init__(self, seen: Note, crash: Path) -> None:
        self.seen, self.crash = seen, crash

    def open(self, runtime_context: Any) -> None:
        self.counts = runtime_context.get_map_state(MapStateDescriptor("counts", Types.STRING(), Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        if self.crash.exists():
            self.crash.unlink()
            raise RuntimeError("as the test wants it")
        name = f"{value[0]} {value[1]}"
        self.seen.add(name)
        times = (self.counts.get(name) or 0) + 1
        self.counts.put(name, times)
        yield f"{name} {times}"


class Textbook:
    def __init__(self, folder: Path) -> None:
        self.folder, self.hold, self.crash = folder, folder / "hold", folder / "crash"
        self.sent, self.seen = Note(folder / "sent"), Note(folder / "seen")

    def start(self, env: StreamExecutionEnvironment) -> JobClient:
        sent = self.sent

        def tell(value: Any) -> Any:
            sent.add(value)
            return "fast", value

        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
        fast = env.from_source(
            DataGeneratorSource(lambda i: i + 1, FAST, rate_per_second=20), WatermarkStrategy.no_watermarks(), "fast"
        ).set_parallelism(1)
        slow = env.from_source(
            DataGeneratorSource(lambda i: i, FAST, splits=2, rate_per_second=20),
            WatermarkStrategy.no_watermarks(),
            "held up",
        )
        everything = fast.map(tell).set_parallelism(1).union(slow.map(Held(self.hold)))
        counts = everything.key_by(lambda _: 0).process(Count(self.seen, self.crash)).set_parallelism(1).uid("count")
        counts.sink_to(FileSink.text(str(self.folder / "out"))).set_parallelism(1)
        return env.execute_async("textbook")

    def fast(self) -> int:
        """How many records of the fast channel the operator has seen."""
        return sum(line.startswith("fast") for line in self.seen.lines())

    def hold_the_barrier(self, client: JobClient) -> tuple[Any, int, int]:
        """A checkpoint whose barrier has come on the fast channel only; what was seen then, and a while later."""
        wait_until(lambda: self.fast() >= 3, "records")
        self.hold.touch()
        time.sleep(0.3)  # until subtask 1 stands still
        checkpoint = client.trigger_checkpoint()
        time.sleep(0.3)
        before, sent = self.fast(), len(self.sent.lines())
        wait_until(lambda: len(self.sent.lines()) >= sent + 4, "records behind the barrier")
        time.sleep(0.1)
        return checkpoint, before, self.fast()

    def counted(self) -> Counter[str]:
        """The last count of every record."""
        counts: Counter[str] = Counter()
        for path in committed_files(str(self.folder / "out")):
            for line in Path(path).read_text().splitlines():
                name, _, times = line.rpartition(" ")
                counts[name] = max(counts[name], int(times))
        return counts


@pytest.fixture
def book(tmp_path: Path, spark: SparkSession) -> Textbook:
    return Textbook(tmp_path)


def env_of(folder: Path, mode: CheckpointingMode, *, unaligned: bool = False) -> StreamExecutionEnvironment:
    env = environment(folder, 2, execution_checkpointing_interval="1 h")
    env.get_checkpoint_config().set_checkpointing_mode(mode).enable_unaligned_checkpoints(unaligned)
    return env


def test_an_aligned_barrier_holds_the_records_behind_it_back(book: Textbook) -> None:
    client = book.start(env_of(book.folder, CheckpointingMode.EXACTLY_ONCE))
    checkpoint, before, later = book.hold_the_barrier(client)
    assert later == before, "records behind the barrier were processed"
    book.hold.unlink()
    epoch = checkpoint.result()
    client.get_job_execution_result().result()
    assert set(book.counted().values()) == {1}
    assert len(book.counted()) == 2 * FAST
    (report,) = [r for r in client.epoch_reports() if r.epoch == epoch]
    (count,) = [v["subtasks"] for v in report.vertices if v["level"] == 1]
    assert count["alignment_ms"][0] > 300
    assert count["alignment_buffered_bytes"][0] > 0


def crash_behind_the_checkpoint(book: Textbook, client: JobClient) -> int:
    checkpoint, before, later = book.hold_the_barrier(client)
    book.hold.unlink()
    checkpoint.result()
    book.crash.touch()
    client.get_job_execution_result().result()
    assert not book.crash.exists(), "the job did not fail"
    return later - before


def test_at_least_once_counts_what_came_behind_the_early_barrier_twice(book: Textbook) -> None:
    client = book.start(env_of(book.folder, CheckpointingMode.AT_LEAST_ONCE))
    assert crash_behind_the_checkpoint(book, client) >= 2, "nothing was processed behind the early barrier"
    counts = book.counted()
    assert set(counts.values()) == {1, 2}
    assert sum(times == 2 for name, times in counts.items() if name.startswith("fast")) >= 2
    assert len(counts) == 2 * FAST


def under_back_pressure(folder: Path, *, unaligned: bool) -> float:
    """How long a checkpoint took while an operator was slower than its source, in milliseconds."""
    in_flight = {
        "penstock_block_size": 1,
        "penstock_pipelined_in__flight__memory": "1 mb",
        "penstock_epoch_max__records": 20,  # of a grant: a barrier comes behind what was granted
    }
    env = environment(folder, 1, execution_checkpointing_interval="1 h", **in_flight)
    env.get_checkpoint_config().enable_unaligned_checkpoints(unaligned)
    seen = Note(folder / "seen")

    def slowly(value: Any) -> Any:
        seen.add(value[0])
        time.sleep(0.01)
        return str(value[0])

    numbers = env.from_source(
        DataGeneratorSource(lambda i: (i, os.urandom(60_000)), None), WatermarkStrategy.no_watermarks(), "numbers"
    )
    numbers.rebalance().map(slowly).sink_to(FileSink.text(str(folder / "out")))
    client = env.execute_async("slow")
    wait_until(lambda: len(seen.lines()) > 50, "records")
    epoch = client.trigger_checkpoint().result()
    (record,) = [r for r in client.checkpoint_statistics().history if r.checkpoint_id == epoch]
    client.cancel().result()
    assert (record.overtaken > 0) == unaligned
    return record.duration_ms


def test_under_back_pressure_an_unaligned_checkpoint_does_not_wait_for_the_slow_operator(
    spark: SparkSession, tmp_path: Path
) -> None:
    aligned, unaligned = tmp_path / "aligned", tmp_path / "unaligned"
    aligned.mkdir()
    unaligned.mkdir()
    took = under_back_pressure(aligned, unaligned=False), under_back_pressure(unaligned, unaligned=True)
    print(f"aligned {took[0]:.0f} ms, unaligned {took[1]:.0f} ms")
    assert took[1] < took[0] / 2


def test_an_unaligned_barrier_holds_nothing_back_and_counts_everything_once(book: Textbook) -> None:
    client = book.start(env_of(book.folder, CheckpointingMode.EXACTLY_ONCE, unaligned=True))
    assert crash_behind_the_checkpoint(book, client) >= 2, "records waited behind the barrier"
    assert set(book.counted().values()) == {1}
    assert len(book.counted()) == 2 * FAST
