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
from penstock.connectors.program import DiscardingSink
from penstock.datastream import CheckpointingMode, StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction, MapFunction
from penstock.datastream.state import MapStateDescriptor
from penstock.driver.client import JobClient
from penstock.errors import PenstockError
from tests.pipelined.controlled import ControlledSource
from tests.pipelined.jobs import Note, completes, environment, wait_until

pytestmark = pytest.mark.spark

NONE = WatermarkStrategy.no_watermarks()
IN_FRONT, BEHIND = 5, 5  # records of the fast channel, of the barrier


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
        self.sent, self.seen, self.marked = Note(folder / "sent"), Note(folder / "seen"), Note(folder / "marked")
        self.fast_source = ControlledSource(folder / "of-fast", 10)
        self.slow_source = ControlledSource(folder / "of-slow", 10, 10)
        self.marks = ControlledSource(folder / "of-marks", 10)
        self.client: JobClient | None = None

    def start(self, env: StreamExecutionEnvironment) -> JobClient:
        sent, marked = self.sent, self.marked

        def tell(value: Any) -> Any:
            sent.add(value[1])
            return "fast", value[1]

        def mark(value: Any) -> Any:
            marked.add(value[1])
            return value

        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
        fast = env.from_source(self.fast_source, NONE, "fast").set_parallelism(1).uid("fast")
        slow = env.from_source(self.slow_source, NONE, "held up")
        everything = fast.map(tell).set_parallelism(1).union(slow.map(Held(self.hold)))
        counts = everything.key_by(lambda _: 0).process(Count(self.seen, self.crash)).set_parallelism(1).uid("count")
        counts.sink_to(FileSink.text(str(self.folder / "out"))).set_parallelism(1)
        marks = env.from_source(self.marks, NONE, "marks").set_parallelism(1).map(lambda v: v).set_parallelism(1)
        marks.rebalance().map(mark).set_parallelism(1).sink_to(DiscardingSink()).set_parallelism(1)
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

    def hold_the_barrier(self, client: JobClient) -> Any:
        """A checkpoint whose barrier comes on the fast channel only. Behind it there some more records have been sent."""
        self.fast_source.allow(0, IN_FRONT)
        self.slow_source.allow(0, 3)
        self.slow_source.allow(1, 3)
        wait_until(lambda: len(self.seen.lines()) == IN_FRONT + 6, "the records in front")
        self.hold.touch()
        self.slow_source.allow(1, 4)
        wait_until((self.folder / "standing").exists, "that subtask 1 stands still")
        checkpoint = client.trigger_checkpoint()
        wait_until(
            lambda: not client._job.master.requests.waiting, "the barrier: what is granted from now on is behind it"
        )
        self.fast_source.allow(0, IN_FRONT + BEHIND)
        wait_until(lambda: len(self.sent.lines()) == IN_FRONT + BEHIND, "records behind the barrier")
        return checkpoint

    def take_in(self) -> None:
        """The operator's host has taken in all that the fast channel's host has sent so far: marks come behind it on the same
        way, to a vertex that waits for no barrier. The second comes when all that came with the first has been looked at."""
        for number in (1, 2):
            self.marks.allow(0, number)
            wait_until(lambda number=number: len(self.marked.lines()) == number, f"mark {number}")  # type: ignore[misc]

    def finish(self, client: JobClient, *, crash: bool) -> None:
        """Some last records, which the job fails at first if it is to, and the end."""
        if crash:
            self.crash.touch()
        self.fast_source.allow(0, IN_FRONT + BEHIND + 1)
        self.slow_source.allow(0, 4)
        self.slow_source.allow(1, 5)
        last = {f"fast {IN_FRONT + BEHIND}", "slow (0, 3)", "slow (1, 4)"}
        wait_until(lambda: last <= set(self.seen.lines()), "the last records")
        assert not self.crash.exists(), "the job did not fail"
        client.stop_with_savepoint(False, str(self.folder / "savepoints")).result()
        client.get_job_execution_result().result()
        assert int(client._job.master.job_attempt) == crash

    def counted(self) -> Counter[str]:
        """The last count of every record."""
        counts: Counter[str] = Counter()
        for path in committed_files(str(self.folder / "out")):
            for line in Path(path).read_text().splitlines():
                name, _, times = line.rpartition(" ")
                counts[name] = max(counts[name], int(times))
        assert len(counts) == IN_FRONT + BEHIND + 1 + 4 + 5
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
    checkpoint = book.hold_the_barrier(client)
    book.take_in()
    assert book.fast() == IN_FRONT, "records behind the barrier were processed"
    time.sleep(0.3)
    book.hold.unlink()
    epoch = checkpoint.result()
    assert client.read_checkpoint(lambda manifest, _: manifest.sources["fast"].state) == [IN_FRONT]
    book.finish(client, crash=False)
    assert set(book.counted().values()) == {1}
    (report,) = [r for r in client.epoch_reports() if r.epoch == epoch]
    (count,) = [v["subtasks"] for v in report.vertices if "count" in v["operators"]]
    assert count["alignment_ms"][0] > 290
    assert count["alignment_buffered_bytes"][0] > 0


def crash_behind_the_checkpoint(book: Textbook, client: JobClient) -> None:
    checkpoint = book.hold_the_barrier(client)
    wait_until(lambda: book.fast() == IN_FRONT + BEHIND, "records behind the early barrier")
    assert not checkpoint.done(), "its barrier has come on the other channel"
    book.hold.unlink()
    checkpoint.result()
    book.finish(client, crash=True)


def test_at_least_once_counts_what_came_behind_the_early_barrier_twice(book: Textbook) -> None:
    client = book.start(env_of(book.folder, CheckpointingMode.AT_LEAST_ONCE))
    crash_behind_the_checkpoint(book, client)
    twice = {name for name, times in book.counted().items() if times == 2}
    assert twice == {f"fast {n}" for n in range(IN_FRONT, IN_FRONT + BEHIND)}
    assert set(book.counted().values()) == {1, 2}


@pytest.mark.parametrize("unaligned", [False, True])
def test_under_back_pressure_an_unaligned_barrier_overtakes_what_waits_for_the_slow_operator(
    spark: SparkSession, tmp_path: Path, unaligned: bool
) -> None:
    in_flight = {
        "penstock_block_size": 1,
        "penstock_pipelined_in__flight__memory": "1 mb",
        "penstock_epoch_max__records": 20,  # of a grant: a barrier comes behind what was granted
    }
    env = environment(tmp_path, 1, execution_checkpointing_interval="1 h", **in_flight)
    env.get_checkpoint_config().enable_unaligned_checkpoints(unaligned)
    seen = Note(tmp_path / "seen")

    def slowly(value: Any) -> Any:
        seen.add(value[0])
        time.sleep(0.01)
        return str(value[0])

    numbers = env.from_source(DataGeneratorSource(lambda i: (i, os.urandom(60_000)), None), NONE, "numbers")
    numbers.rebalance().map(slowly).sink_to(FileSink.text(str(tmp_path / "out")))
    client = env.execute_async("slow")
    wait_until(lambda: len(seen.lines()) > 50, "records")
    records = []
    for _ in range(
        10 if unaligned else 1
    ):  # where the source stood still for a moment there may be nothing to overtake
        epoch = client.trigger_checkpoint().result()
        records += [r for r in client.checkpoint_statistics().history if r.checkpoint_id == epoch]
        if records[-1].overtaken > 0:
            break
    client.cancel().result()
    assert (records[-1].overtaken > 0) == unaligned
    print(f"{'unaligned' if unaligned else 'aligned'}: {records[-1].duration_ms:.0f} ms")


def test_an_unaligned_barrier_holds_nothing_back_and_counts_everything_once(book: Textbook) -> None:
    client = book.start(env_of(book.folder, CheckpointingMode.EXACTLY_ONCE, unaligned=True))
    crash_behind_the_checkpoint(book, client)
    assert set(book.counted().values()) == {1}


def test_a_checkpoint_that_times_out_holds_neither_records_nor_the_next_one_up(book: Textbook) -> None:
    env = env_of(book.folder, CheckpointingMode.EXACTLY_ONCE)
    config = env.get_checkpoint_config().set_tolerable_checkpoint_failure_number(20)
    config.set_checkpoint_timeout(2000)
    client = book.start(env)
    checkpoint = book.hold_the_barrier(client)
    wait_until(lambda: book.fast() == IN_FRONT + BEHIND, "records behind the barrier of the aborted checkpoint")
    assert book.hold.exists(), "its barrier has not come on the other channel"
    with pytest.raises(PenstockError, match="not acknowledged within 2 s"):
        checkpoint.result()
    book.hold.unlink()
    epoch = completes(client)
    book.finish(client, crash=True)
    first, *_ = client.checkpoint_statistics().history
    assert (first.status, first.checkpoint_id < epoch) == ("failed", True)
    assert set(book.counted().values()) == {1}
