"""The textbook cases of barriers, on real Spark.

fast      1 2 3 4 5 │ 6 7 8 …        the barrier has come here
held up   a b ……………………… │            and not here, for as long as the test wants
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
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
from penstock.errors import PenstockError
from tests.pipelined.jobs import Note, environment, wait_until

pytestmark = pytest.mark.spark

FAST = 100  # records, 20 a second: enough for a busy machine to be slow with


class Held(MapFunction):
    """Subtask 1 stands still while the file is there."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def open(self, runtime_context: Any) -> None:
        self.holds = runtime_context.get_index_of_this_subtask() == 1

    def map(self, value: Any) -> Any:
        while self.holds and self.file.exists():
            self.file.with_name("standing").touch()
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
        self.client: JobClient | None = None

    def start(self, env: StreamExecutionEnvironment) -> JobClient:
        sent = self.sent

        def tell(value: Any) -> Any:
            sent.add(value)
            return "fast", value

        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
        fast = (
            env.from_source(
                DataGeneratorSource(lambda i: i + 1, FAST, rate_per_second=20),
                WatermarkStrategy.no_watermarks(),
                "fast",
            )
            .set_parallelism(1)
            .uid("fast")
        )
        slow = env.from_source(
            DataGeneratorSource(lambda i: i, FAST, splits=2, rate_per_second=20),
            WatermarkStrategy.no_watermarks(),
            "held up",
        )
        everything = fast.map(tell).set_parallelism(1).union(slow.map(Held(self.hold)))
        counts = everything.key_by(lambda _: 0).process(Count(self.seen, self.crash)).set_parallelism(1).uid("count")
        counts.sink_to(FileSink.text(str(self.folder / "out"))).set_parallelism(1)
        self.client = env.execute_async("textbook")
        return self.client

    def end(self) -> None:
        """A test that failed leaves no job behind, whose task slots the following ones would lack."""
        self.hold.unlink(missing_ok=True)
        if self.client is not None and not self.client.get_job_execution_result().done():
            self.client.cancel().result()

    def fast(self) -> int:
        """How many records of the fast channel the operator has seen."""
        return sum(line.startswith("fast") for line in self.seen.lines())

    def hold_the_barrier(self, client: JobClient) -> tuple[Any, int]:
        """A checkpoint whose barrier comes on the fast channel only, and how many records are in front of it there, or fewer. Some
        more have been sent behind it."""
        wait_until(lambda: self.fast() >= 3, "records")
        self.hold.touch()
        wait_until((self.folder / "standing").exists, "that subtask 1 stands still")
        checkpoint = client.trigger_checkpoint()
        wait_until(lambda: not client._job.master.requests.waiting, "the barrier")
        before = len(self.sent.lines()) + 10  # at 20 a second: what the source was granted before it
        wait_until(lambda: len(self.sent.lines()) >= before + 4, "records behind the barrier")
        return checkpoint, before

    def counted(self) -> Counter[str]:
        """The last count of every record."""
        counts: Counter[str] = Counter()
        for path in committed_files(str(self.folder / "out")):
            for line in Path(path).read_text().splitlines():
                name, _, times = line.rpartition(" ")
                counts[name] = max(counts[name], int(times))
        return counts


@pytest.fixture
def book(tmp_path: Path, spark: SparkSession) -> Iterator[Textbook]:
    book = Textbook(tmp_path)
    yield book
    book.end()


def env_of(folder: Path, mode: CheckpointingMode, *, unaligned: bool = False) -> StreamExecutionEnvironment:
    env = environment(folder, 2, execution_checkpointing_interval="1 h")
    env.get_checkpoint_config().set_checkpointing_mode(mode).enable_unaligned_checkpoints(unaligned)
    return env


def test_an_aligned_barrier_holds_the_records_behind_it_back(book: Textbook) -> None:
    client = book.start(env_of(book.folder, CheckpointingMode.EXACTLY_ONCE))
    checkpoint, _ = book.hold_the_barrier(client)
    time.sleep(0.3)  # in which what was sent last would have come
    seen, sent = book.fast(), len(book.sent.lines())
    book.hold.unlink()
    epoch = checkpoint.result()
    before = client.read_checkpoint(lambda manifest, _: sum(manifest.sources["fast"].state["positions"]))
    assert seen <= before < sent, "records behind the barrier were processed"
    client.get_job_execution_result().result()
    assert set(book.counted().values()) == {1}
    assert len(book.counted()) == 2 * FAST
    (report,) = [r for r in client.epoch_reports() if r.epoch == epoch]
    (count,) = [v["subtasks"] for v in report.vertices if v["level"] == 1]
    assert count["alignment_ms"][0] > 300
    assert count["alignment_buffered_bytes"][0] > 0


def crash_behind_the_checkpoint(book: Textbook, client: JobClient) -> None:
    checkpoint, before = book.hold_the_barrier(client)
    wait_until(lambda: book.fast() >= before + 2, "records behind the early barrier")
    assert not checkpoint.done(), "its barrier has come on the other channel"
    book.hold.unlink()
    checkpoint.result()
    book.crash.touch()
    client.get_job_execution_result().result()
    assert not book.crash.exists(), "the job did not fail"


def test_at_least_once_counts_what_came_behind_the_early_barrier_twice(book: Textbook) -> None:
    client = book.start(env_of(book.folder, CheckpointingMode.AT_LEAST_ONCE))
    crash_behind_the_checkpoint(book, client)
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
    crash_behind_the_checkpoint(book, client)
    assert set(book.counted().values()) == {1}
    assert len(book.counted()) == 2 * FAST


def test_a_checkpoint_that_times_out_holds_neither_records_nor_the_next_one_up(book: Textbook) -> None:
    env = env_of(book.folder, CheckpointingMode.EXACTLY_ONCE)
    config = env.get_checkpoint_config().set_tolerable_checkpoint_failure_number(3)
    config.set_checkpoint_timeout(2000)
    client = book.start(env)
    checkpoint, before = book.hold_the_barrier(client)
    wait_until(lambda: book.fast() > before, "records behind the barrier of the aborted checkpoint")
    assert book.hold.exists(), "its barrier has not come on the other channel"
    with pytest.raises(PenstockError, match="not acknowledged within 2 s"):
        checkpoint.result()
    following = client.trigger_checkpoint()
    book.hold.unlink()
    epoch = following.result()
    book.crash.touch()
    client.get_job_execution_result().result()
    states = {r.checkpoint_id: r.status for r in client.checkpoint_statistics().history}
    assert states[epoch - 1] == "failed"
    assert set(book.counted().values()) == {1}
    assert len(book.counted()) == 2 * FAST
