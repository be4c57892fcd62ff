"""Checkpoints of a pipelined job: their pauses, several in flight, what functions hear, a drain, and accumulators."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.checkpoint import savepoint
from penstock.common import Time, WatermarkStrategy
from penstock.common.accumulators import IntCounter
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.files import FileSink, committed_files
from penstock.connectors.program import DiscardingSink
from penstock.datastream import CheckpointedFunction
from penstock.datastream.functions import CheckpointListener, MapFunction, ProcessWindowFunction
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.driver.client import JobClient
from tests.connectors.lasting import Lasting
from tests.pipelined.controlled import ControlledSource
from tests.pipelined.jobs import Note, environment, wait_until
from tests.pipelined.mortal import RATE, Mortal, assert_was_killed, mortal_environment

pytestmark = pytest.mark.spark

NONE = WatermarkStrategy.no_watermarks()


def lines(folder: Path) -> list[str]:
    return [line for path in committed_files(str(folder)) for line in Path(path).read_text().splitlines()]


def numbers(env: Any, rate: float = 200, records: int | None = None) -> Any:
    source = DataGeneratorSource(lambda i: i, records, rate_per_second=rate)
    return env.from_source(source, NONE, "numbers").uid("numbers")


def completed(client: JobClient) -> list[tuple[float, float]]:
    """When each was triggered, and completed, in milliseconds."""
    found = [r for r in client.checkpoint_statistics().history if r.status == "completed"]
    return [(r.at_ms - r.duration_ms, r.at_ms) for r in found]


def test_between_two_checkpoints_there_is_the_pause_that_was_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    """The interval alone would give one every 20 ms."""
    env = environment(tmp_path, execution_checkpointing_interval="20 ms", execution_checkpointing_min__pause="400 ms")
    numbers(env).map(str).sink_to(FileSink.text(str(tmp_path / "out")))
    client = env.execute_async("pauses")
    wait_until(lambda: len(completed(client)) >= 4, "checkpoints")
    client.cancel().result()
    # From one beginning to the next: that one was complete is noted some time behind what happened.
    apart = [after[0] - before[0] for before, after in pairwise(completed(client))]
    assert all(ms > 390 for ms in apart), apart


class Passing(MapFunction, CheckpointedFunction):
    """Notes which barriers have come through. Stands still while the file is there."""

    def __init__(self, passed: Note, hold: Path | None = None) -> None:
        self.passed, self.hold = passed, hold

    def map(self, value: Any) -> Any:
        while self.hold is not None and self.hold.exists():
            self.hold.with_name("standing").touch()
            time.sleep(0.005)
        return value

    def initialize_state(self, context: Any) -> None:
        pass

    def snapshot_state(self, context: Any) -> None:
        self.passed.add(context.get_checkpoint_id())


@pytest.mark.parametrize("most", [1, 3])
def test_as_many_checkpoints_are_in_flight_as_are_allowed(spark: SparkSession, tmp_path: Path, most: int) -> None:
    hold, first, second = tmp_path / "hold", Note(tmp_path / "first"), Note(tmp_path / "second")
    more = {"execution_checkpointing_max__concurrent__checkpoints": most}
    env = environment(tmp_path, execution_checkpointing_interval="50 ms", **more)
    numbers(env).map(Passing(first)).uid("one").rebalance().map(Passing(second, hold)).uid("two").sink_to(
        DiscardingSink()
    )
    client = env.execute_async("in flight")
    wait_until(lambda: len(completed(client)) >= 2, "checkpoints")
    hold.touch()
    wait_until((tmp_path / "standing").exists, "that the second function stands still")

    def in_flight() -> int:
        """Barriers between the two functions."""
        return len(set(first.lines()) - set(second.lines()))

    wait_until(lambda: in_flight() == most, f"{most} barriers in flight")
    time.sleep(0.5)  # in which ten more would have come
    assert in_flight() == most
    hold.unlink()
    before = client.checkpoint_statistics().completed
    wait_until(lambda: client.checkpoint_statistics().completed >= before + most + 1, "those that waited, and another")
    client.cancel().result()


class Listening(MapFunction, CheckpointListener):
    def __init__(self, heard: Note) -> None:
        self.heard = heard

    def open(self, runtime_context: Any) -> None:
        self.where = runtime_context.get_index_of_this_subtask()

    def map(self, value: Any) -> Any:
        return str(value)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.heard.add(f"{self.where} {checkpoint_id}")


def test_functions_of_every_level_and_subtask_hear_of_every_completed_checkpoint_in_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    heard = [Note(tmp_path / f"heard-{level}") for level in range(2)]
    env = environment(tmp_path, 2)
    first = numbers(env).rebalance().map(Listening(heard[0]))
    first.rebalance().map(Listening(heard[1])).sink_to(FileSink.text(str(tmp_path / "out")))
    client = env.execute_async("listening")
    asked = [client.trigger_checkpoint().result() for _ in range(3)]
    for note in heard:
        for subtask in range(2):
            words = [f"{subtask} {epoch}" for epoch in asked]
            wait_until(lambda words=words, note=note: set(words) <= set(note.lines()), f"{words} in {note.path.name}")  # type: ignore[misc]
    client.cancel().result()
    for note in heard:
        for subtask in range(2):
            told = [int(line.split()[1]) for line in note.lines() if line.startswith(f"{subtask} ")]
            assert told == sorted(set(told)), "in order, and each once"


class Size(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield f"{context.window().start} {len(list(elements))}"


@pytest.mark.parametrize("drain", [True, False])
def test_a_job_that_is_drained_fires_its_windows_before_it_ends_and_one_that_is_stopped_does_not(
    spark: SparkSession, tmp_path: Path, drain: bool
) -> None:
    source = ControlledSource(tmp_path / "source", 10)
    env = environment(tmp_path)
    records = env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "records").uid("records")
    windows = records.key_by(lambda v: 0).window(TumblingEventTimeWindows.of(Time.seconds(1)))
    windows.process(Size()).uid("windows").sink_to(FileSink.text(str(tmp_path / "out"))).uid("out")
    client = env.execute_async("draining")
    source.allow(0, 150)
    wait_until(lambda: lines(tmp_path / "out") == ["0 100"], "the first window")
    path = client.stop_with_savepoint(drain, str(tmp_path / "savepoints")).result()
    client.get_job_execution_result().result()
    assert lines(tmp_path / "out") == ["0 100", *(["1000 50"] if drain else [])]
    assert savepoint.load(path).finished == drain


class Counting(MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen = IntCounter()
        runtime_context.add_accumulator("seen", self.seen)

    def map(self, value: Any) -> Any:
        self.seen.add(1)
        return str(value)


def test_accumulators_count_every_record_once_though_a_worker_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    env = mortal_environment(tmp_path)
    source = Lasting(lambda i: i, 600, until=tmp_path / "killed", splits=2, rate_per_second=RATE)
    stream = env.from_source(source, NONE, "numbers").uid("numbers").rebalance().map(Mortal(tmp_path))
    stream.map(Counting()).sink_to(FileSink.text(str(tmp_path / "out")))
    client = env.execute_async("counting")
    result = client.get_job_execution_result().result()
    assert result.get_accumulator_result("seen") == 600
    assert_was_killed(tmp_path, client)
