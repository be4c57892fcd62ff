"""Watermarks in running jobs: custom generators in Python, idleness, splits, ingestion time."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import (
    Configuration,
    Duration,
    Time,
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
)
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.driver.job_master import JobMaster
from penstock.graph.partitioner import Forward
from penstock.operators.base import Operator
from penstock.operators.watermarks import SplitWatermarks, WatermarkOperator
from penstock.operators.window import WindowOperator
from penstock.operators.window_contents import ReduceContents
from penstock.protocol.events import MAX_WATERMARK, MIN_WATERMARK
from penstock.records import Block, Columns, Rows
from penstock.testing import (
    CrashPlan,
    EmbeddedJob,
    Epoch,
    ListSink,
    ManualClock,
    OperatorHarness,
    ScriptedSource,
    Split,
    Stamped,
)
from tests.embedded.jobs import Pipeline, memory_storage, settings


class Watching(Operator):
    """Writes down what event time does: records as they are, watermarks as ("wm", t), idleness as ("idle", flag)."""

    def process(self, input: int, block: Block) -> None:
        assert isinstance(block, Rows)
        self.emit([("record", value) for value in block.values], block.timestamps)

    def on_watermark(self, timestamp: int) -> None:
        self.emit([("wm", timestamp)], None)
        super().on_watermark(timestamp)

    def on_idle(self, idle: bool) -> None:
        self.emit([("idle", idle)], None)
        super().on_idle(idle)


def run(pipeline: Pipeline, sink: ListSink, *, epoch_ms: int = 10, crashes: CrashPlan | None = None) -> EmbeddedJob:
    job = pipeline.sink(sink).build(replace(settings(), epoch_interval_ms=epoch_ms, quiet_interval_ms=epoch_ms))
    running = EmbeddedJob(job, JobMaster(job, memory_storage(), clock=ManualClock(1000)), crashes=crashes)
    running.run()
    return running


def watch(script: list[Any], strategy: WatermarkStrategy, crashes: CrashPlan | None = None) -> list[Any]:
    sink = ListSink(uuid.uuid4().hex)
    source = Pipeline().source(ScriptedSource(script), strategy=strategy)
    run(source.operator(Watching(), by=Forward()), sink, crashes=crashes)
    return [seen for seen in ListSink.results(sink.name) if seen != ("wm", MAX_WATERMARK)]


class Punctuated(WatermarkGenerator):
    """A record "mark" is a watermark at its own time."""

    def on_event(self, value: Any, timestamp: int, output: WatermarkOutput) -> None:
        if value == "mark":
            output.emit_watermark(timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None: ...


class Periodic(WatermarkGenerator):
    """One more with every period, so that the calls can be counted."""

    def __init__(self) -> None:
        self.calls = 0
        self.records = 0

    def on_event(self, value: Any, timestamp: int, output: WatermarkOutput) -> None:
        self.records += 1

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        self.calls += 1
        output.emit_watermark(100 * self.calls + self.records)


def test_a_punctuated_watermark_comes_right_behind_its_record() -> None:
    script = [Stamped("a", 1), Stamped("mark", 2), Stamped("b", 3), Stamped("mark", 1), Stamped("mark", 9)]
    assert watch(script, WatermarkStrategy.for_generator(Punctuated)) == [
        ("record", "a"),
        ("record", "mark"),
        ("wm", 2),
        ("record", "b"),
        ("record", "mark"),  # its watermark would go back
        ("record", "mark"),
        ("wm", 9),
    ]


def test_a_periodic_generator_is_asked_once_an_epoch_with_or_without_records() -> None:
    script = ["a", "b", Epoch(), Epoch(), "c", Epoch(), "d"]
    assert watch(script, WatermarkStrategy.for_generator(Periodic)) == [
        ("record", "a"),
        ("record", "b"),
        ("wm", 102),
        ("wm", 202),
        ("record", "c"),
        ("wm", 303),
        ("record", "d"),
        ("wm", 404),
    ]


def test_every_split_has_a_generator_of_its_own_and_the_least_watermark_counts() -> None:
    script = [
        Split("x"), Stamped("a", 1), Stamped("mark", 50), Split("y"), Stamped("b", 1), Epoch(),
        Split("y"), Stamped("mark", 20), Epoch(),
        Split("y"), Stamped("mark", 70), Epoch(),
        Split("x"), "end", Split("y"), "end",
    ]  # fmt: skip
    seen = watch(script, WatermarkStrategy.for_generator(Punctuated))
    assert [s for s in seen if s[0] == "wm"] == [("wm", 20), ("wm", 50)]


@pytest.mark.parametrize("at", [2, 4, 5])
def test_a_generator_is_part_of_the_checkpoint(at: int) -> None:
    script: list[Any] = []
    for epoch in range(6):
        script += [f"r{epoch}", Epoch()]
    crashes = CrashPlan([("source-block", 2 * at)])
    seen = watch(script, WatermarkStrategy.for_generator(Periodic), crashes)
    assert crashes.fired
    assert [s[1] for s in seen if s[0] == "wm"][:6] == [101, 202, 303, 404, 505, 606]


class CallsItselfIdle(WatermarkGenerator):
    def __init__(self) -> None:
        self.periods = 0

    def on_event(self, value: Any, timestamp: int, output: WatermarkOutput) -> None:
        if value == "sleep":
            output.mark_idle()

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        self.periods += 1
        if self.periods == 3:
            output.emit_watermark(7)


def test_a_generator_may_call_its_split_idle_and_come_back() -> None:
    seen = watch(["sleep", Epoch(), Epoch(), Epoch(), "end"], WatermarkStrategy.for_generator(CallsItselfIdle))
    assert [s for s in seen if s[0] != "record"] == [("idle", True), ("wm", 7), ("idle", False)]


@pytest.mark.parametrize(
    "strategy",
    [WatermarkStrategy.for_monotonous_timestamps(), WatermarkStrategy.for_generator(Punctuated)],
    ids=["built in", "custom"],
)
def test_a_split_without_records_no_longer_holds_the_others_back_after_the_timeout(strategy: WatermarkStrategy) -> None:
    script: list[Any] = [Split("quiet"), Stamped("mark", 5), Split("busy"), Stamped("mark", 10), Epoch()]
    for n in range(2, 7):
        script += [Split("busy"), Stamped("mark", n * 10), Epoch()]
    script += [Split("quiet"), Stamped("mark", 65), Split("busy"), Stamped("mark", 80)]
    offset = -1 if strategy.generator == WatermarkStrategy.for_monotonous_timestamps().generator else 0
    seen = watch(script, strategy.with_idleness(Duration.of_millis(30)))
    marks = [s[1] for s in seen if s[0] == "wm"]
    assert marks[0] == 5 + offset
    assert 50 + offset in marks, "the busy split went on alone"
    assert marks[-1] == 65 + offset, "the quiet split is back, and counts again"
    without = [s[1] for s in watch(script, strategy) if s[0] == "wm"]
    assert without == [5 + offset, 60 + offset, 65 + offset], "all but the first in the epoch that ends the silence"


def test_inside_a_stream_a_record_ends_idleness_before_it_is_passed_on() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_millis(30))
    harness = OperatorHarness(WatermarkOperator(strategy, None))
    order: list[Any] = []
    harness.push("a", 10)
    output = harness.operator.ctx.output
    output.idle = lambda idle: order.append(("idle", idle))  # type: ignore[method-assign]
    output.block = lambda block: order.append("block")  # type: ignore[method-assign]
    harness.operator.end_epoch()
    harness.advance_processing_time(100)
    harness.operator.end_epoch()
    assert order == [("idle", True)]
    harness.push("b", 20)
    assert order == [("idle", True), ("idle", False), "block"]


# -------------------------------------------------------------------- ingestion time


def windowed(script: list[Any], crashes: CrashPlan | None = None) -> list[Any]:
    sink = ListSink(uuid.uuid4().hex)
    window = WindowOperator(
        selector=_key, assigner=TumblingEventTimeWindows.of(Time.milliseconds(100)), contents=ReduceContents(_both)
    )
    source = Pipeline().source(ScriptedSource(script), strategy=WatermarkStrategy.for_ingestion_time())
    run(source.operator(window), sink, epoch_ms=40, crashes=crashes)
    return ListSink.results(sink.name)


def _key(value: Any) -> Any:
    return value[0]


def _both(first: Any, second: Any) -> Any:
    return first[0], first[1] + second[1]


SCRIPT = [
    ("k", "a"),
    Epoch(),
    ("k", "b"),
    Epoch(),
    Epoch(),
    Epoch(),
    ("k", "c"),
    ("k", "d"),
    Epoch(),
    Epoch(),
    Epoch(),
    Epoch(),
]


def test_ingestion_time_is_the_time_of_the_epoch_and_windows_end_without_another_record() -> None:
    assert windowed(SCRIPT) == [("k", "ab"), ("k", "cd")]


@pytest.mark.parametrize("at", range(2, 10))
def test_a_replay_stamps_records_with_the_time_they_first_came_in(at: int) -> None:
    crashes = CrashPlan([("barrier", at)])
    assert windowed(SCRIPT, crashes) == [("k", "ab"), ("k", "cd")]
    assert crashes.fired


def test_columns_are_stamped_without_making_rows() -> None:
    marks = SplitWatermarks(WatermarkStrategy.for_ingestion_time(), None)
    block = marks.stamp(Columns(pa.record_batch({"a": [1, 2]}), None), 77)
    assert isinstance(block, Columns)
    assert np.array_equal(block.timestamps, [77, 77])  # type: ignore[arg-type]
    advanced: list[int] = []
    marks.periodic(advanced.append, 77)
    marks.periodic(advanced.append, 77)
    assert advanced == [76]


def test_built_in_strategies_without_a_record_have_no_watermark() -> None:
    every: Iterable[Callable[[], WatermarkStrategy]] = (
        WatermarkStrategy.for_monotonous_timestamps,
        WatermarkStrategy.no_watermarks,
    )
    for make in every:
        marks = SplitWatermarks(make(), None)
        advanced: list[int] = []
        marks.periodic(advanced.append, 77)
        assert advanced == []
        assert marks.emitted == MIN_WATERMARK


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("idleness", [True, False])
def test_subtasks_without_a_split_hold_event_time_back_unless_none_can_come_or_they_may_be_idle(
    idleness: bool, bounded: bool
) -> None:
    """A bounded source has named its splits: a subtask that has none gets none. An unbounded one may still get one."""
    configuration = Configuration()
    configuration.set_string("penstock.runtime", "embedded")
    configuration.set_string("penstock.epoch.max-records", "10")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Itself())
    if idleness:
        strategy = strategy.with_idleness(Duration.of_seconds(30))
    source = DataGeneratorSource(_same, 50 if bounded else None, splits=2)
    numbers = env.from_source(source, strategy, "numbers").set_parallelism(5)
    numbers.key_by(lambda n: n % 3).map(lambda n: n).set_parallelism(2).print()
    client = env.execute_async()
    if bounded:
        client.get_job_execution_result().result()
    else:
        deadline = time.monotonic() + 60
        while len(client.epoch_reports()) < 3 and time.monotonic() < deadline:
            time.sleep(0.01)
        client.cancel().result()
    middle = client.epoch_reports()[2]
    assert middle.epoch == 3
    assert (middle.vertices[-1]["watermark"] > 0) is (idleness or bounded)


class _Itself(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


def _same(index: int) -> int:
    return index
