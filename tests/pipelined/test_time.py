"""Time in a pipelined job is the clock's: timers, time-outs of checkpoints, loops, asynchronous requests.

How fast that is, is measured at night; by day the tests show that nothing waits for a barrier, since none comes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.common import Time, Types, WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.files import FileSink, committed_files
from penstock.connectors.program import DiscardingSink
from penstock.datastream import AsyncDataStream
from penstock.datastream.functions import AsyncFunction, CheckpointListener, KeyedProcessFunction, MapFunction
from penstock.errors import PenstockError
from penstock.runtime.pipelined import job as pipelined_job
from tests.pipelined.controlled import ControlledSource
from tests.pipelined.jobs import Note, completes, environment, soon_enough, wait_until

pytestmark = pytest.mark.spark

NONE = WatermarkStrategy.no_watermarks()


def lines(folder: Path) -> list[str]:
    return [line for path in committed_files(str(folder)) for line in Path(path).read_text().splitlines()]


@pytest.fixture
def no_barriers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings with which none comes unless something asks for it: else there is one a second where nothing does."""
    monkeypatch.setattr(pipelined_job, "_QUIET_S", 3600.0)
    return {"execution_checkpointing_interval": "1 h"}


class Alarm(KeyedProcessFunction):
    """Says how many milliseconds after its time each processing-time timer has fired."""

    def __init__(self, late: Note) -> None:
        self.late = late

    def process_element(self, value: Any, ctx: Any) -> Any:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 50)
        return []

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        self.late.add(time.time() * 1000 - timestamp)
        return []


def test_processing_time_timers_fire_while_nothing_comes(
    spark: SparkSession, tmp_path: Path, no_barriers: dict[str, Any]
) -> None:
    source, late = ControlledSource(tmp_path / "source", 10), Note(tmp_path / "late")
    env = environment(tmp_path, **no_barriers)
    env.from_source(source, NONE, "records").key_by(lambda v: v[1]).process(Alarm(late)).sink_to(DiscardingSink())
    client = env.execute_async("alarms")
    for number in (1, 2, 10):
        source.allow(0, number)
        wait_until(lambda number=number: len(late.lines()) == number, f"{number} timers")  # type: ignore[misc]
    client.cancel().result()
    assert client.epoch_reports() == [], "a barrier came"
    assert min(map(float, late.lines())) >= 0


class Late(KeyedProcessFunction):
    """How many milliseconds after its time each processing-time timer fires."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_processing_time_timer(
            ctx.timer_service().current_processing_time() + 50 + value % 50
        )
        return []

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield str(time.time() * 1000 - timestamp)


def late_by(folder: Path) -> float:
    env = environment(folder)
    numbers = env.from_source(DataGeneratorSource(lambda i: i, 400, rate_per_second=200), NONE, "numbers")
    numbers.key_by(lambda i: i).process(Late()).sink_to(FileSink.text(str(folder / "out")))
    env.execute("timers")
    late = sorted(float(line) for line in lines(folder / "out"))
    assert len(late) >= 350  # not all: timers that are due behind the end do not fire, as in Flink
    assert late[0] >= 0
    p50, p99 = late[len(late) // 2], late[int(len(late) * 0.99)]
    print(f"timers: {len(late)}, late by p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    return p50


@pytest.mark.nightly
def test_processing_time_timers_are_due_within_milliseconds(spark: SparkSession, tmp_path: Path) -> None:
    soon_enough(late_by, tmp_path, 20)  # p99 as well on a quiet machine


def test_records_go_round_a_loop_while_nothing_comes(
    spark: SparkSession, tmp_path: Path, no_barriers: dict[str, Any]
) -> None:
    source, out = ControlledSource(tmp_path / "source", 10), Note(tmp_path / "rounds")
    env = environment(tmp_path, **no_barriers)
    loop = env.from_source(source, NONE, "start").map(lambda v: 0).iterate()
    rounds = loop.key_by(lambda n: 0).map(lambda n: n + 1)
    loop.close_with(rounds.filter(lambda n: n < 200))

    def tell(number: int) -> int:
        out.add(number)
        return number

    rounds.map(tell).sink_to(DiscardingSink())
    client = env.execute_async("loop")
    source.allow(0, 1)
    wait_until(lambda: out.lines()[-1:] == ["200"], "200 rounds")
    client.cancel().result()
    assert client.epoch_reports() == [], "a barrier came"
    assert out.lines() == [str(n + 1) for n in range(200)]


@pytest.mark.nightly
def test_a_loop_of_a_thousand_rounds_takes_seconds(spark: SparkSession, tmp_path: Path) -> None:
    env = environment(tmp_path)
    loop = env.from_collection([0]).map(lambda n: n).iterate()
    rounds = loop.key_by(lambda n: 0).map(lambda n: n + 1)
    loop.close_with(rounds.filter(lambda n: n < 1000))
    started = tmp_path / "started"

    def tell(number: int) -> str:
        if number == 1:
            started.write_text(str(time.time()))
        return f"{number} {time.time()}"

    rounds.filter(lambda n: n in (1, 1000)).map(tell).sink_to(FileSink.text(str(tmp_path / "out")))
    env.execute("loop")
    first, last = sorted((line.split() for line in lines(tmp_path / "out")), key=lambda line: int(line[0]))
    took = float(last[1]) - float(first[1])
    print(f"1,000 rounds in {took:.2f} s")
    assert last[0] == "1000"
    assert took < 10


class Stuck(MapFunction, CheckpointListener):
    """Stands still while the file is there; notes which checkpoints were completed and aborted."""

    def __init__(self, folder: Path) -> None:
        self.hold, self.heard = folder / "hold", Note(folder / "heard")

    def map(self, value: Any) -> Any:
        while self.hold.exists():
            self.hold.with_name("standing").touch()
            time.sleep(0.005)
        return str(value)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.heard.add(f"complete {checkpoint_id}")

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.heard.add(f"aborted {checkpoint_id}")


def test_a_checkpoint_whose_barrier_does_not_come_in_time_is_declined_and_the_job_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, heard = ControlledSource(tmp_path / "source", 10), Note(tmp_path / "heard")
    env = environment(tmp_path, execution_checkpointing_interval="1 h", execution_checkpointing_timeout="1500 ms")
    env.get_checkpoint_config().set_tolerable_checkpoint_failure_number(20)
    stuck = env.from_source(source, NONE, "records").rebalance().map(Stuck(tmp_path))
    stuck.sink_to(FileSink.text(str(tmp_path / "out")))
    client = env.execute_async("stuck")
    source.allow(0, 10)
    first = completes(client)
    (tmp_path / "hold").touch()
    source.allow(0, 20)
    wait_until((tmp_path / "standing").exists, "that the function stands still")
    before = client.checkpoint_statistics().failed
    with pytest.raises(PenstockError, match=r"not acknowledged within 1\.5 s"):
        client.trigger_checkpoint().result()
    assert client.checkpoint_statistics().failed == before + 1
    aborted = client.checkpoint_statistics().history[-1].checkpoint_id
    (tmp_path / "hold").unlink()
    source.allow(0, 30)
    second = completes(client)
    wait_until(lambda: f"complete {second}" in heard.lines(), "word of the checkpoint")
    client.stop_with_savepoint(True, str(tmp_path / "savepoints")).result()
    client.get_job_execution_result().result()
    assert sorted(lines(tmp_path / "out")) == sorted(str((0, n)) for n in range(30)), "nothing was lost"
    told = heard.lines()
    assert told.index(f"complete {first}") < told.index(f"aborted {aborted}") < told.index(f"complete {second}")


class Together(AsyncFunction):
    """A service that answers when a hundred have asked."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Event] = []

    async def async_invoke(self, value: Any) -> list[Any]:
        self.waiting.append(answer := asyncio.Event())
        if len(self.waiting) == 100:
            for other in self.waiting:
                other.set()
            self.waiting.clear()
        await answer.wait()
        return [value]

    def timeout(self, value: Any) -> list[Any]:
        raise TimeoutError(f"no answer for {value}")


def test_a_hundred_requests_are_under_way_at_a_time_and_answers_come_while_nothing_else_does(
    spark: SparkSession, tmp_path: Path, no_barriers: dict[str, Any]
) -> None:
    source, out = ControlledSource(tmp_path / "source", 10), Note(tmp_path / "answers")
    env = environment(tmp_path, **no_barriers)
    numbers = env.from_source(source, NONE, "numbers").rebalance()
    answers = AsyncDataStream.unordered_wait(numbers, Together(), Time.seconds(120), 100, Types.PICKLED_BYTE_ARRAY())

    def tell(value: Any) -> Any:
        out.add(value[1])
        return value

    answers.map(tell).sink_to(DiscardingSink())
    client = env.execute_async("asking")
    for number in (100, 300):
        source.allow(0, number)
        wait_until(lambda number=number: len(out.lines()) == number, f"{number} answers")  # type: ignore[misc]
    client.cancel().result()
    assert client.epoch_reports() == [], "a barrier came"
    assert sorted(map(int, out.lines())) == list(range(300))


class Asks(AsyncFunction):
    """A service that takes 100 ms."""

    async def async_invoke(self, value: Any) -> list[Any]:
        await asyncio.sleep(0.1)
        return [(value[0], time.time() - value[1])]

    def timeout(self, value: Any) -> list[Any]:
        raise TimeoutError(f"no answer for {value}")


def answered_after(folder: Path) -> float:
    env = environment(folder, execution_checkpointing_interval="1 s")
    numbers = env.from_source(
        DataGeneratorSource(lambda i: (i, time.time()), 4000, rate_per_second=1000), NONE, "numbers"
    )
    answers = AsyncDataStream.unordered_wait(
        numbers.rebalance(), Asks(), Time.seconds(10), 1000, Types.PICKLED_BYTE_ARRAY()
    )
    answers.map(lambda a: f"{a[0]} {a[1]}").sink_to(FileSink.text(str(folder / "out")))
    env.execute("asking")
    found = [line.split() for line in lines(folder / "out")]
    assert sorted(int(number) for number, _ in found) == list(range(4000))
    waits = sorted(float(wait) for _, wait in found)
    print(
        f"answers after p50 {waits[2000] * 1000:.0f} ms, p99 {waits[3960] * 1000:.0f} ms, most {waits[-1] * 1000:.0f} ms"
    )
    return waits[2000]


@pytest.mark.nightly
def test_requests_of_100_ms_keep_up_with_a_thousand_records_a_second(spark: SparkSession, tmp_path: Path) -> None:
    soon_enough(answered_after, tmp_path, 0.5)  # else the job has fallen behind


def test_records_of_a_stream_wait_as_long_as_its_buffer_timeout_says_beside_others_in_the_same_host(
    spark: SparkSession, tmp_path: Path, no_barriers: dict[str, Any]
) -> None:
    """With 0 they leave at once; with -1, which is the job's, with the next barrier."""
    env = environment(tmp_path, **no_barriers).set_buffer_timeout(-1)
    sources, seen = {}, {}
    for name in ("quick", "patient"):
        sources[name], seen[name] = ControlledSource(tmp_path / f"of-{name}", 10), Note(tmp_path / name)
        numbers = env.from_source(sources[name], NONE, name)
        if name == "quick":
            numbers.set_buffer_timeout(0)

        def tell(value: Any, note: Note = seen[name]) -> Any:
            note.add(value)
            return value

        numbers.rebalance().map(tell).sink_to(DiscardingSink())
    client = env.execute_async("each for itself")
    for records in (10, 20):
        sources["patient"].allow(0, records)
        sources["quick"].allow(0, records)
        wait_until(lambda: len(seen["quick"].lines()) == records, "those that do not wait")  # noqa: B023
    time.sleep(0.5)
    assert (client.epoch_reports(), seen["patient"].lines()) == ([], []), (
        "no barrier has come, nor those that wait for it"
    )
    client.trigger_checkpoint().result()
    wait_until(lambda: len(seen["patient"].lines()) == 20, "those that waited")
    client.cancel().result()
