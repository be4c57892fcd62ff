"""Latency markers: behind the records before them, through every operator and no function, and in no snapshot."""

from __future__ import annotations

import asyncio
import time
from typing import Any, ClassVar

import pytest

from penstock.common import Configuration, Time, Types, WatermarkStrategy
from penstock.datastream import AsyncDataStream, StreamExecutionEnvironment
from penstock.datastream.functions import AsyncFunction
from penstock.driver.description import JobDescription
from penstock.driver.job_master import JobMaster
from penstock.engine.exchange_rows import decode_event, encode_event
from penstock.engine.messages import SourceRanges
from penstock.engine.settings import JobSettings
from penstock.functions.connectors import SplitRange
from penstock.operators.latency import HISTORY, Latency
from penstock.operators.routing import HashRouter
from penstock.protocol.events import Barrier, Data, Event, LatencyMarker
from penstock.protocol.gate import BarrierMode, InputGate, Record
from penstock.records import Rows
from penstock.runtime.embedded.clock import ManualClock
from penstock.runtime.embedded.job import EmbeddedJob
from penstock.testing import Epoch, ListSink, ScriptedSource
from tests.engine.test_stream_run import Level, a_loop, end_of, rows, two_levels

MARKER = LatencyMarker("numbers 0", 900.0)


def markers(events: list[Event]) -> list[Event]:
    return [event for event in events if isinstance(event, LatencyMarker)]


def test_a_source_sends_a_marker_behind_what_it_has_read() -> None:
    level = Level(two_levels(), 0)
    part = SourceRanges(ranges=(SplitRange(split="0", ordinal=0, start=0, end=2, last=False),), finished=False)
    level.run.grant(dict.fromkeys(level._sources, part))
    level.run_on()
    level.run.send_markers()
    (source,) = level._sources
    assert isinstance(level.outside.sent[0], Data)
    assert level.outside.sent[1:] == [LatencyMarker(source, 1000)], (
        "gathered records leave before it, it bears the time"
    )


def test_no_marker_follows_the_end_of_a_source_or_its_last_barrier() -> None:
    level = Level(two_levels(), 0)
    part = SourceRanges(ranges=(), finished=True)
    level.run.grant(dict.fromkeys(level._sources, part))
    level.run_on()
    level.run.send_markers()
    assert markers(level.outside.sent) == []
    resting = Level(two_levels(), 0)
    resting.trigger(1, last=True)
    resting.run_on()
    resting.run.send_markers()
    assert markers(resting.outside.sent) == []


def test_a_task_measures_the_marker_and_sends_it_on_behind_its_records() -> None:
    level = Level(two_levels(), 1)
    level.trigger(1)
    level.offer(rows(1), MARKER, rows(2), Barrier(1))
    level.run_on()
    level.held.task.flush()
    kinds = [type(event) for event in level.outside.sent]
    assert kinds == [Data, LatencyMarker, Data, Barrier]
    assert level.outside.values() == [1, 2], "no function saw it"
    (ack,) = level.outside.acks
    (told,) = [metrics["latency"] for metrics in ack.metrics.values()]
    assert told == {"numbers 0": {"count": 1, "p50": 100.0, "p95": 100.0, "p99": 100.0, "max": 100.0}}


def test_a_marker_waits_behind_a_barrier_as_records_do() -> None:
    level = Level(two_levels(inputs=2), 1)
    level.trigger(1)
    level.offer(Barrier(1), MARKER, channel=0)
    level.run_on()
    assert markers(level.outside.sent) == []
    level.offer(Barrier(1), channel=1)
    level.run_on()
    assert [type(event) for event in level.outside.sent] == [Barrier, LatencyMarker]


def test_a_marker_that_a_barrier_overtakes_is_not_in_the_snapshot() -> None:
    gate = InputGate.create([0, 1], BarrierMode.UNALIGNED)
    overtaken = gate.overtake(0, Barrier(1), [Data("a"), MARKER])  # type: ignore[attr-defined]
    later = [*gate.receive(1, MARKER), *gate.receive(1, Data("b"))]
    recorded = [i.event for i in [*overtaken, *later] if isinstance(i, Record)]
    assert recorded == [Data("a"), Data("b")]


def test_a_marker_ends_at_the_tail_of_a_loop() -> None:
    job = a_loop()
    level = end_of(job, job.graph.loops[0].tail_vertex)
    level.offer(MARKER)
    level.run_on()
    assert level.outside.back == []
    assert level.held.task.metrics[job.graph.loops[0].tail].latency["numbers 0"].count == 1


def test_markers_go_to_one_subtask_after_the_other_behind_its_records_only() -> None:
    sent: list[tuple[int, Event]] = []
    router = HashRouter(lambda n: n, 3, 128, None, lambda target, event: sent.append((target, event)), 100)
    router.route(Rows(list(range(30)), None))
    for _ in range(4):
        router.mark(MARKER)
    assert [target for target, event in sent if event == MARKER] == [0, 1, 2, 0]
    assert [target for target, event in sent[:2]] == [0, 0], "the other targets' records wait on"


class Answers(AsyncFunction):
    """Answers when it is let."""

    let: ClassVar[set[int]] = set()

    async def async_invoke(self, value: int) -> list[int]:
        while value not in self.let:
            await asyncio.sleep(0.001)
        return [value]


@pytest.mark.parametrize("ordered", [True, False])
def test_a_marker_does_not_overtake_a_request_that_is_not_answered(ordered: bool) -> None:
    Answers.let.clear()
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    numbers = env.from_source(ScriptedSource([1]), WatermarkStrategy.no_watermarks(), "numbers").rebalance()
    wait = AsyncDataStream.ordered_wait if ordered else AsyncDataStream.unordered_wait
    wait(numbers, Answers(), Time.seconds(60), 10, Types.INT()).rebalance().sink_to(ListSink("async markers"))
    level = Level(env._describe("async"), 1)
    level.offer(rows(1), MARKER, rows(2))
    level.run_on()
    level.run.poll()
    assert markers(level.outside.sent) == []
    Answers.let.add(2)
    if not ordered:
        _poll_until(level, lambda: level.outside.values() == [2])
        assert markers(level.outside.sent) == []
    Answers.let.add(1)
    _poll_until(level, lambda: markers(level.outside.sent))
    level.held.task.close()


def _poll_until(level: Level, true: Any) -> None:
    until = time.monotonic() + 10
    while not true():
        level.run.poll()
        level.held.task.flush()
        assert time.monotonic() < until
        time.sleep(0.001)


def test_quantiles_are_of_the_last_markers_and_all_are_counted() -> None:
    latency = Latency()
    for ms in (10_000.0, *range(HISTORY)):
        latency.add(ms)
    assert latency.summary() == {"count": HISTORY + 1, "p50": 64, "p95": 121, "p99": 126, "max": 127}


def test_a_marker_travels_as_a_row() -> None:
    ((kind, payload),) = encode_event(MARKER)
    assert decode_event(kind, memoryview(payload)) == MARKER


def _job(interval: int) -> JobDescription:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.set_parallelism(2)
    env.get_config().set_latency_tracking_interval(interval)
    script = [step for n in range(400) for step in ((n, Epoch()) if n % 10 == 0 else (n,))]
    numbers = env.from_source(ScriptedSource(script), WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    numbers.key_by(lambda n: n % 5).map(lambda n: n).uid("same").filter(lambda n: True).uid("all").sink_to(
        ListSink("latency markers")
    )
    return env._describe("latency")


def _measured(interval: int) -> list[dict[str, Any]]:
    job = _job(interval)
    master = JobMaster(job, None, clock=ManualClock())
    EmbeddedJob(job, master, schedule="random", apart=True, seed=3, max_in_flight=2).run()
    return [vertex["subtasks"] for vertex in master.reports[-1].vertices]


def test_a_report_has_the_latency_to_every_operator_of_a_chain_and_to_its_end() -> None:
    ListSink.clear("latency markers")
    source, keyed = _measured(10)
    assert "latency" not in source, "nothing is chained to it"
    assert len(keyed["latency"]) == 2
    for end, operators in zip(keyed["latency"], keyed["operator_latency"], strict=True):
        assert set(end) == {"numbers"}
        assert {"same", "all"} < set(operators), "and the sink"
        assert operators["same"]["numbers"]["count"] == end["numbers"]["count"] > 0
    assert sorted(ListSink.results("latency markers")) == list(range(400))


def test_there_are_no_markers_unless_they_are_asked_for() -> None:
    ListSink.clear("latency markers")
    assert JobSettings.of({}).latency_interval_ms == 0
    assert JobSettings.of({"metrics.latency.interval": "2 s"}).latency_interval_ms == 2000
    assert _job(0).settings.latency_interval_ms == _job(-1).settings.latency_interval_ms == 0
    assert _job(30).settings.latency_interval_ms == 30
    assert all("latency" not in subtasks for subtasks in _measured(0))
