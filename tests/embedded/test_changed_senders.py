"""Splits lag, idle and end while a job is rescaled or its inputs change places: what was in time stays in time.

    leading split   0 ── 1000 ── 2000 ── 3000 ──▶     a second of event time in an epoch
    lagging split   0 ─ 100 ─ 200 ─ 300 ──▶           a tenth of it

Every split is in order and event time is that of the slowest one, so no record is ever late, whoever reads which split.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from penstock.checkpoint.storage import Storage
from penstock.common import Configuration, Duration, Time, TimestampAssigner, WatermarkStrategy
from penstock.datastream import DataStream, OutputTag, StreamExecutionEnvironment
from penstock.datastream.functions import ProcessWindowFunction
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.driver.description import JobDescription
from penstock.driver.requests import RescaleRequest
from penstock.protocol.events import MAX_WATERMARK
from penstock.testing import BarrierMode, EmbeddedJob, Epoch, ListSink, ScriptedSource, Split, Stamped
from tests.embedded.jobs import master_of, memory_storage

WINDOW_MS = 500
EPOCHS = 12
CHANGE_AFTER = 5  # epochs
LATE = OutputTag("late")
KEYS = "abc"


def split(name: str, speed_ms: int, *, epochs: range = range(EPOCHS), from_ms: int = 0) -> tuple[str, dict[int, Any]]:
    """Ten records an epoch, evenly over `speed_ms` of event time."""
    return name, {
        epoch: [
            Stamped((KEYS[n % 3], name, epoch, n), from_ms + epoch * speed_ms + n * speed_ms // 10) for n in range(10)
        ]
        for epoch in epochs
    }


def script_of(splits: Sequence[tuple[str, dict[int, Any]]], epochs: int = EPOCHS) -> list[Any]:
    script: list[Any] = []
    for epoch in range(epochs):
        for name, records in splits:
            script += [Split(name), *records.get(epoch, ())]
        script.append(Epoch())
    return script[:-1]


LEADING = split("leading-1", 1000), split("leading-2", 900)
LAGGING = split("lagging-1", 100), split("lagging-2", 90)


class Counting(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, context.window().start, len(list(elements))


Sources = dict[str, Sequence[Any]]  # name → script


MONOTONOUS: WatermarkStrategy = WatermarkStrategy.for_monotonous_timestamps()


def environment(parallelism: int) -> StreamExecutionEnvironment:
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    config.set_string("execution.checkpointing.interval", "0 ms")
    return StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(parallelism)


def windowed(env: StreamExecutionEnvironment, stream: DataStream, sink: str) -> JobDescription:
    windows = (
        stream.key_by(lambda value: value[0])
        .window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS)))
        .side_output_late_data(LATE)
        .process(Counting())
        .uid("windows")
    )
    windows.sink_to(ListSink(sink)).uid("sink").set_parallelism(1)
    windows.get_side_output(LATE).sink_to(ListSink(f"{sink} late")).uid("late").set_parallelism(1)
    return env._describe("uneven")


def job_of(sources: Sources, sink: str, parallelism: int, *, idle_ms: int | None = None) -> JobDescription:
    """The sources in this order → union → windows → sink; late records to a sink of their own."""
    env = environment(parallelism)
    strategy = MONOTONOUS if idle_ms is None else MONOTONOUS.with_idleness(Duration.of_millis(idle_ms))
    first, *others = [
        env.from_source(ScriptedSource(script), strategy, name).uid(name) for name, script in sources.items()
    ]
    return windowed(env, first.union(*others) if others else first, sink)


def expected(sources: Sources) -> Counter[Any]:
    """(key, start of the window) → records, by counting."""
    return Counter(
        (item.value[0], item.timestamp // WINDOW_MS * WINDOW_MS)
        for script in sources.values()
        for item in script
        if isinstance(item, Stamped)
    )


class Result:
    def __init__(self, sources: Sources, sink: str) -> None:
        self.late = len(ListSink.results(f"{sink} late"))
        windows = ListSink.results(sink)
        self.windows = {(key, start): count for key, start, count in windows}
        self.fired_twice = len(windows) - len(self.windows)
        self.missing = sum(expected(sources).values()) - sum(self.windows.values())
        self.exact = self.windows == expected(sources) and not self.late and not self.fired_twice

    def __repr__(self) -> str:
        return f"late {self.late}, in no window {self.missing}, windows twice {self.fired_twice}"


Act = Callable[[EmbeddedJob], None]


def run(
    job: JobDescription,
    storage: Storage,
    at_epoch: Mapping[int, Act] | None = None,
    *,
    mode: BarrierMode = BarrierMode.EXACTLY_ONCE,
    seed: int | None = None,
) -> dict[int, int]:
    """In order, or at random; the watermark of the windows after each epoch."""
    runtime = EmbeddedJob(
        job, master_of(job, storage), schedule="ordered" if seed is None else "random", seed=seed or 0, mode=mode
    )
    watermarks: dict[int, int] = {}

    def on_report(report: Any) -> None:
        (watermarks[report.epoch],) = [v["watermark"] for v in report.vertices if v["name"].startswith("Window")]
        if at_epoch is not None and report.epoch in at_epoch:
            at_epoch[report.epoch](runtime)

    runtime.master.on_report = on_report
    runtime.run()
    return watermarks


def cancel(runtime: EmbeddedJob) -> None:
    runtime.cancel()


def rescale_to(parallelism: int, asked: list[RescaleRequest]) -> Callable[[EmbeddedJob], None]:
    def act(runtime: EmbeddedJob) -> None:
        asked.append(RescaleRequest(parallelism=parallelism))
        runtime.master.requests.rescale(asked[-1])

    return act


@pytest.fixture
def sink(request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    ListSink.clear(name)
    ListSink.clear(f"{name} late")
    return name


LAYOUTS = {
    "lagging first": [*LAGGING, *LEADING],
    "lagging last": [*LEADING, *LAGGING],
    "in turn": [LEADING[0], LAGGING[0], LEADING[1], LAGGING[1]],
}


def slowest(splits: Sequence[tuple[str, dict[int, Any]]], epoch: int) -> int:
    """Where event time is after so many epochs: one behind the last record of the slowest split."""
    last: list[int] = [records[epoch - 1][-1].timestamp for _, records in splits]
    return min(last) - 1


def assert_exact(sources: Sources, sink: str) -> None:
    result = Result(sources, sink)
    assert result.exact, result


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("before", "after"), [(4, 2), (4, 1), (2, 7), (1, 4), (7, 3)])
def test_a_live_rescale_makes_nothing_late(before: int, after: int, layout: str, sink: str) -> None:
    splits = LAYOUTS[layout]
    sources: Sources = {"events": script_of(splits)}
    asked: list[RescaleRequest] = []
    watermarks = run(job_of(sources, sink, before), memory_storage(), {CHANGE_AFTER: rescale_to(after, asked)})
    assert [(r.answer.result().before, r.answer.result().after) for r in asked] == [(before, after)]
    assert_exact(sources, sink)
    for epoch in range(1, EPOCHS):
        # The epoch in which it is asked for still runs as before, and a reader without a split holds the others back.
        everyone_reads = (before if epoch <= CHANGE_AFTER + 1 else after) <= len(splits)
        at = slowest(splits, epoch)
        assert watermarks[epoch] == at if everyone_reads else watermarks[epoch] <= at, f"epoch {epoch}"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("before", "after"), [(4, 1), (3, 2), (1, 7)])
@pytest.mark.parametrize("mode", [BarrierMode.EXACTLY_ONCE, BarrierMode.AT_LEAST_ONCE])
def test_a_driver_that_goes_on_with_another_parallelism_makes_nothing_late(
    before: int, after: int, layout: str, mode: BarrierMode, sink: str
) -> None:
    splits = LAYOUTS[layout]
    sources: Sources = {"events": script_of(splits)}
    storage = memory_storage()
    first = run(job_of(sources, sink, before), storage, {CHANGE_AFTER: cancel}, mode=mode)
    second = run(job_of(sources, sink, after), storage, mode=mode)
    assert (max(first), min(second), max(second)) == (CHANGE_AFTER, CHANGE_AFTER + 1, EPOCHS)
    assert_exact(sources, sink)


AHEAD, BEHIND = script_of([*LEADING]), script_of([*LAGGING])


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("mode", [BarrierMode.EXACTLY_ONCE, BarrierMode.UNALIGNED])
@pytest.mark.parametrize("order", ["ahead, behind", "behind, ahead"])
def test_inputs_of_a_union_may_change_places(order: str, mode: BarrierMode, seed: int | None, sink: str) -> None:
    sources: Sources = {"a": AHEAD, "b": BEHIND} if order == "ahead, behind" else {"a": BEHIND, "b": AHEAD}
    storage = memory_storage()
    run(job_of(sources, sink, 2), storage, {CHANGE_AFTER: cancel}, mode=mode, seed=seed)
    turned = {name: sources[name] for name in reversed(sources)}
    watermarks = run(job_of(turned, sink, 2), storage, mode=mode, seed=seed)
    assert_exact(sources, sink)
    if seed is None and mode is BarrierMode.EXACTLY_ONCE:
        assert all(watermarks[e] == slowest(LAGGING, e) for e in range(CHANGE_AFTER + 1, EPOCHS))


@pytest.mark.parametrize("after", [1, 2, 5])
def test_an_input_that_has_ended_is_the_one_that_ended(after: int, sink: str) -> None:
    """Its watermark is the largest there is: nobody else may get it, and the input that goes on must still end."""
    short = script_of([split("short", 1000, epochs=range(3))], epochs=3)
    sources: Sources = {"a": short, "b": BEHIND}
    storage = memory_storage()
    run(job_of(sources, sink, 2), storage, {CHANGE_AFTER: cancel})
    run(job_of({"b": BEHIND, "a": short}, sink, after), storage)
    assert_exact(sources, sink)


@pytest.mark.parametrize("after", [1, 2, 3, 7])
@pytest.mark.parametrize("turned", [False, True])
def test_an_input_that_is_idle_is_the_one_that_was_idle(turned: bool, after: int, sink: str) -> None:
    """Epochs are 200 ms apart: a source that is silent for three of them is idle. It comes back ahead of all others, so that
    it is not late by its own doing."""
    silent = split("silent", 1000, epochs=range(2))[1] | split("silent", 1000, epochs=range(9, EPOCHS))[1]
    sources: Sources = {"a": script_of([("silent", silent)]), "b": BEHIND}
    storage = memory_storage()
    before = run(job_of(sources, sink, 2, idle_ms=500), storage, {CHANGE_AFTER + 2: cancel})
    order: Sources = {name: sources[name] for name in reversed(sources)} if turned else sources
    after_that = run(job_of(order, sink, after, idle_ms=500), storage)
    at = slowest(LAGGING, CHANGE_AFTER + 2)
    assert before[CHANGE_AFTER + 2] == at, "the silent source does not hold event time back"
    assert at < after_that[EPOCHS - 1] < 2**62, "it goes on afterwards"
    assert_exact(sources, sink)


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 3), (4, 1), (1, 4)])
def test_a_split_that_idles_and_one_that_ended_move_to_other_readers(before: int, after: int, sink: str) -> None:
    silent = split("silent", 1000, epochs=range(2))[1] | split("silent", 1000, epochs=range(9, EPOCHS))[1]
    splits = [("silent", silent), split("short", 700, epochs=range(4)), *LAGGING]
    sources: Sources = {"events": script_of(splits)}
    asked: list[RescaleRequest] = []
    job = job_of(sources, sink, before, idle_ms=500)
    watermarks = run(job, memory_storage(), {CHANGE_AFTER + 2: rescale_to(after, asked)})
    assert asked[0].answer.result().after == after
    assert_exact(sources, sink)
    # A reader that has nothing but the silent split says so again, to windows that knew of other readers.
    assert all(watermarks[e] == slowest(LAGGING, e) for e in range(CHANGE_AFTER + 3, EPOCHS))


class ByTime(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return record_timestamp


def test_what_stands_between_a_rescaled_source_and_the_windows_starts_at_the_slowest_too(sink: str) -> None:
    """Four readers feed a middle task each; then two feed two each, and the lagging split comes to tasks that were far ahead.
    Their own number has not changed, nor has what the windows knew of each."""
    splits = [LEADING[0], LAGGING[0], LEADING[1], split("leading-3", 800)]
    sources: Sources = {"events": script_of(splits)}

    def job(parallelism: int) -> JobDescription:
        env = environment(parallelism)
        events = env.from_source(ScriptedSource(sources["events"]), MONOTONOUS, "events").uid("events")
        return windowed(env, events.rescale().map(lambda v: v).uid("middle").set_parallelism(4), sink)

    asked: list[RescaleRequest] = []
    watermarks = run(job(4), memory_storage(), {CHANGE_AFTER: rescale_to(2, asked)})
    assert asked[0].answer.result().after == 2
    assert_exact(sources, sink)
    assert all(watermarks[epoch] == slowest(splits, epoch) for epoch in range(1, EPOCHS))


def test_generators_inside_a_stream_start_at_the_slowest_of_them(sink: str) -> None:
    """As above, with watermarks made in the middle. The split that shares a reader with the lagging one has ended before: no
    generator sees one that leads and one that lags."""
    splits = [LEADING[0], LAGGING[0], LEADING[1], split("short", 800, epochs=range(3))]
    sources: Sources = {"events": script_of(splits)}

    def job(parallelism: int) -> JobDescription:
        env = environment(parallelism)
        none = WatermarkStrategy.no_watermarks()
        events = env.from_source(ScriptedSource(sources["events"]), none, "events").uid("events")
        again = MONOTONOUS.with_timestamp_assigner(ByTime())
        middle = events.rescale().map(lambda v: v).uid("middle").set_parallelism(4)
        return windowed(env, middle.assign_timestamps_and_watermarks(again).uid("times").set_parallelism(4), sink)

    asked: list[RescaleRequest] = []
    run(job(4), memory_storage(), {CHANGE_AFTER: rescale_to(2, asked)})
    assert asked[0].answer.result().after == 2
    assert_exact(sources, sink)


def test_without_the_input_that_held_event_time_back_windows_fire_at_once(sink: str) -> None:
    sources: Sources = {"a": AHEAD, "b": BEHIND}
    storage = memory_storage()
    before = run(job_of(sources, sink, 2), storage, {CHANGE_AFTER: cancel})
    description = job_of({"a": AHEAD}, sink, 2)
    description = replace(description, settings=replace(description.settings, ignore_unclaimed_state=True))
    after = run(description, storage)
    assert before[CHANGE_AFTER] == slowest(LAGGING, CHANGE_AFTER)
    assert after[CHANGE_AFTER + 1] == slowest(LEADING, CHANGE_AFTER + 1)
    assert not ListSink.results(f"{sink} late")
    read = script_of([*LAGGING], epochs=CHANGE_AFTER)
    assert {(k, s): n for k, s, n in ListSink.results(sink)} == expected({"a": AHEAD, "b": read})


def test_a_source_that_joins_those_that_have_ended_is_not_late(sink: str) -> None:
    """The windows had got all there was when the third source came; another pipeline kept the job alive."""
    ended = script_of([split("short", 1000, epochs=range(3))], epochs=3)
    late_comer = script_of([*LAGGING], epochs=4)

    def job(sources: Sources) -> JobDescription:
        env = environment(2)
        streams = {
            name: env.from_source(ScriptedSource(script), MONOTONOUS, name).uid(name)
            for name, script in sources.items()
        }
        first, *others = [stream.map(lambda v: v).uid(f"map {name}") for name, stream in streams.items()]
        alive = env.from_source(ScriptedSource(AHEAD), MONOTONOUS, "alive").uid("alive")
        alive.sink_to(ListSink(f"{sink} alive")).uid("alive sink")
        return windowed(env, (first.union(*others) if others else first).rebalance().map(lambda v: v).uid("all"), sink)

    storage = memory_storage()
    before = run(job({"a": ended}), storage, {CHANGE_AFTER: cancel})
    assert before[CHANGE_AFTER] == MAX_WATERMARK
    run(job({"a": ended, "c": late_comer}), storage)
    assert not ListSink.results(f"{sink} late")
    assert sum(n for *_, n in ListSink.results(sink)) == sum(expected({"a": ended, "c": late_comer}).values())


def test_an_operator_that_is_new_behind_an_input_that_has_ended_hears_of_the_end(sink: str) -> None:
    short = script_of([split("short", 1000, epochs=range(3))], epochs=3)
    sources: Sources = {"a": short, "b": BEHIND}

    def job(extra: bool) -> JobDescription:
        env = environment(2)
        a, b = (env.from_source(ScriptedSource(script), MONOTONOUS, name).uid(name) for name, script in sources.items())
        if extra:
            a = a.rebalance().map(lambda v: v).uid("extra")
        return windowed(env, a.union(b), sink)

    storage = memory_storage()
    run(job(False), storage, {CHANGE_AFTER: cancel})
    run(job(True), storage)
    assert_exact(sources, sink)
