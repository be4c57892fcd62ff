"""Loops in whole jobs against recursion: cuts, parallelism, interleaving, crashes and rescaling do not matter."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.checkpoint.storage import Storage
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.connectors.base import Json, Source, SourcePlan, SplitEnumerator, SplitRange, SplitReader
from penstock.datastream import (
    CoFlatMapFunction,
    DataStream,
    IterativeStream,
    KeyedProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.driver.requests import SavepointRequest
from penstock.engine.messages import EpochReport
from penstock.operators.iteration import IterationTail
from penstock.protocol.events import Watermark
from penstock.records import Block, Columns, Rows
from penstock.records.codec import decode_block
from penstock.runtime.embedded.crash import CrashPoint
from penstock.testing import (
    BarrierMode,
    EmbeddedJob,
    Epoch,
    ListSink,
    ManualClock,
    OperatorHarness,
    ScriptedSource,
    Stamped,
)
from tests.embedded import jobs
from tests.embedded.runs import Run, runs_with

Token = tuple[str, int, int]  # (name, key, fuel)

_names = itertools.count()


def children(token: Token) -> list[Token]:
    """One step of a token: it burns fuel, moves to another key, and splits now and then."""
    name, key, fuel = token
    moved = [(name, (key * 3 + 1) % 5, fuel - 1)]
    return [*moved, (name + "'", (key + 2) % 5, fuel - 2)] if fuel % 3 == 0 else moved


def steps_of(tokens: Iterable[Token]) -> list[Token]:
    """Every step that is ever made, by recursion."""
    return [step for token in tokens for step in (token, *steps_of(c for c in children(token) if c[2] > 0))]


class Step(KeyedProcessFunction):
    """Gives (visit of its key, token, its children). Visits of a key are 1, 2, 3, …: none lost, none twice."""

    def open(self, runtime_context: Any) -> None:
        self.visits = runtime_context.get_state(ValueStateDescriptor("visits"))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        visit = (self.visits.value() or 0) + 1
        self.visits.update(visit)
        yield visit, value, children(value)


def going_on(step: Any) -> list[Token]:
    return [child for child in step[2] if child[2] > 0]


def key_of_token(token: Any) -> Any:
    return token[1]


def build_tokens(stream: DataStream, parallelism: int, feedback: str = "forward", max_wait_ms: int = 0) -> DataStream:
    iteration = stream.map(lambda token: token).set_parallelism(parallelism).iterate(max_wait_ms)
    steps = iteration.key_by(key_of_token).process(Step()).set_parallelism(parallelism)
    back = steps.flat_map(going_on).set_parallelism(parallelism)
    match feedback:
        case "rebalance":
            back = back.rebalance()
        case "keyed":
            back = back.key_by(key_of_token)
        case "union":
            light, heavy = (
                back.filter(lambda t: t[2] % 2 == 0).set_parallelism(parallelism),
                back.filter(lambda t: t[2] % 2 == 1).set_parallelism(parallelism),
            )
            back = light.union(heavy)
    iteration.close_with(back)
    return steps


def check(results: list[Any], tokens: list[Token]) -> None:
    expected = steps_of(tokens)
    assert sorted(token for _, token, _ in results) == sorted(expected)
    visits = Counter(token[1] for token in expected)
    assert sorted((token[1], visit) for visit, token, _ in results) == [
        (key, visit) for key in sorted(visits) for visit in range(1, visits[key] + 1)
    ]


runs = runs_with(
    ["process", "barrier", "source-block", "before-snapshot", "after-snapshot", "after-manifest", "before-run"],
    latest=40,
    most=3,
    in_flight=st.integers(1, 3),
    checkpoint_every_ms=st.sampled_from([0, 0, 500, 1300]),  # an epoch moves the clock by 200
    schedule=st.sampled_from(["random", "random", "ordered"]),
)
fuels = st.tuples(st.integers(0, 4), st.integers(1, 6))


@st.composite
def scripts(draw: st.DrawFn) -> list[Any]:
    names = (f"t{number}" for number in itertools.count())
    sections = draw(st.lists(st.lists(fuels, max_size=4), min_size=1, max_size=3))
    script: list[Any] = []
    for index, section in enumerate(sections):
        script += [Epoch()] if index else []
        script += [(next(names), key, fuel) for key, fuel in section]
    return script


def tokens_of(script: list[Any]) -> list[Token]:
    return [item for item in script if isinstance(item, tuple)]


def run_job(
    script: list[Any],
    run: Run,
    build: Callable[[DataStream], DataStream],
    *,
    name: str | None = None,
    storage: Storage | None = None,
    stop_after: int | None = None,
    resume_from: str | None = None,
    save_at: int | None = None,
    request: SavepointRequest | None = None,
) -> tuple[list[Any], EmbeddedJob]:
    """What the job has committed, in order. `stop_after`: cancelled after that many epochs. `request` is made after epoch
    `save_at`."""
    sink = name or f"iterations-{next(_names)}"
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(run.sources).set_max_parallelism(8)
    source = ScriptedSource(script)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "source")
    build(stream).sink_to(ListSink(sink)).set_parallelism(run.parallelism)
    chosen = replace(jobs.settings(checkpoint_interval_ms=run.checkpoint_every_ms), recovery_path=resume_from)
    job = replace(env._describe("loop"), job_id="job", settings=chosen)
    master = jobs.master_of(job, storage or jobs.memory_storage())
    runtime = run.of(job, master)
    if stop_after is not None:
        master.on_report = lambda report: runtime.cancel() if report.epoch >= stop_after else None
    if request is not None:

        def ask(report: EpochReport) -> None:
            if report.epoch == save_at:
                master.requests.savepoint(request)

        master.on_report = ask
    runtime.run()
    results = ListSink.results(sink)
    if name is None:
        ListSink.clear(sink)
    return results, runtime


PLAIN = Run(in_flight=1, schedule="ordered")


@settings(max_examples=100)
@given(scripts(), runs, st.sampled_from(["forward", "rebalance", "keyed", "union"]), st.sampled_from([0, 700]))
def test_every_step_of_a_loop_is_made_once(script: list[Any], run: Run, feedback: str, max_wait_ms: int) -> None:
    results, _ = run_job(script, run, lambda s: build_tokens(s, run.parallelism, feedback, max_wait_ms))
    check(results, tokens_of(script))


@settings(max_examples=50)
@given(scripts(), runs, st.integers(1, 3), st.integers(1, 8))
def test_a_loop_that_is_stopped_in_the_middle_goes_on_at_another_parallelism(
    script: list[Any], run: Run, parallelism: int, stop_after: int
) -> None:
    run = replace(run, mode=BarrierMode.EXACTLY_ONCE)  # an unaligned checkpoint cannot be rescaled
    name, storage = f"rescaled-{next(_names)}", jobs.memory_storage()
    first = partial(build_tokens, parallelism=run.parallelism)
    run_job(script, run, first, name=name, storage=storage, stop_after=stop_after)
    resumed = replace(run, parallelism=parallelism, crashes=[])
    results, _ = run_job(script, resumed, lambda s: build_tokens(s, parallelism), name=name, storage=storage)
    ListSink.clear(name)
    check(results, tokens_of(script))


def test_what_is_on_the_way_back_is_in_the_checkpoint() -> None:
    """Cancelled with two tokens in the loop: the next start finds them there and nowhere else."""
    name, storage = "on-the-way", jobs.memory_storage()
    script = [("a", 0, 5), ("b", 1, 5)]
    build = partial(build_tokens, parallelism=1)
    first, job = run_job(script, PLAIN, build, name=name, storage=storage, stop_after=2)
    assert [report.feedback for report in job.master.reports] == [2, 2]
    assert len(first) == 4
    resumed, job = run_job(script, PLAIN, build, name=name, storage=storage)
    ListSink.clear(name)
    assert job.master.reports[0].restored_tasks > 0
    check(resumed, tokens_of(script))


@pytest.mark.parametrize("drain", [False, True])
def test_what_is_on_the_way_back_is_in_a_savepoint(drain: bool, tmp_path: Path) -> None:
    """Draining does not wait for a loop either: nothing is lost, the job goes on from the savepoint."""
    script = [("a", 0, 5), ("b", 1, 5)]
    name = f"saved-{drain}"
    request = SavepointRequest(directory=str(tmp_path), stop=True, drain=drain)
    build = partial(build_tokens, parallelism=1)
    first, job = run_job(script, PLAIN, build, name=name, request=request, save_at=2)
    assert job.master.epoch == 3
    assert len(first) == 6
    run = replace(PLAIN, parallelism=2)
    results, _ = run_job(script, run, lambda s: build_tokens(s, 2), name=name, resume_from=request.answer.result(0))
    ListSink.clear(name)
    check(results, tokens_of(script))


def test_the_crashes_of_these_tests_do_happen_while_records_go_round() -> None:
    crashes: list[tuple[CrashPoint, int]] = [("process", 12), ("barrier", 20), ("after-snapshot", 20)]
    run = Run(sources=2, parallelism=2, seed=7, capacity=1, crashes=crashes)
    results, job = run_job([("a", 0, 9)], run, lambda s: build_tokens(s, 2, "rebalance"))
    check(results, [("a", 0, 9)])
    assert job.crashes == 3


@settings(max_examples=30)
@given(scripts(), runs)
def test_a_loop_inside_a_loop(script: list[Any], run: Run) -> None:
    """Outer: fuel goes down by one each round. Inner: each time, the name grows until its length is even."""

    def build(stream: DataStream) -> DataStream:
        at = run.parallelism
        outer = stream.map(lambda t: t).set_parallelism(at).iterate()
        inner = outer.map(lambda t: (t[0] + "'", t[1], t[2] - 1)).set_parallelism(at).iterate()
        inner.close_with(
            inner.filter(lambda t: len(t[0]) % 2 == 1).map(lambda t: (t[0] + "-", t[1], t[2])).set_parallelism(at)
        )
        done = inner.filter(lambda t: len(t[0]) % 2 == 0).set_parallelism(at)
        outer.close_with(done.filter(lambda t: t[2] > 0).set_parallelism(at))
        return done

    def expected(token: Token) -> Iterator[Token]:
        name, key, fuel = token
        while fuel > 0:
            name, fuel = name + "'", fuel - 1
            name += "-" if len(name) % 2 else ""
            yield name, key, fuel

    results, _ = run_job(script, run, build)
    assert sorted(results) == sorted(step for token in tokens_of(script) for step in expected(token))


@settings(max_examples=30)
@given(scripts(), runs)
def test_a_loop_behind_a_loop(script: list[Any], run: Run) -> None:
    def countdown(stream: DataStream) -> DataStream:
        iteration = stream.map(lambda t: t).set_parallelism(run.parallelism).iterate()
        lower = iteration.map(lambda t: (t[0], t[1], t[2] - 1)).set_parallelism(run.parallelism)
        iteration.close_with(lower.filter(lambda t: t[2] > 0).set_parallelism(run.parallelism))
        return lower

    results, _ = run_job(script, run, lambda s: countdown(countdown(s).map(lambda t: (t[0], t[1], t[2] + 2))))
    first = [(name, key, left) for name, key, fuel in tokens_of(script) for left in range(fuel)]
    assert sorted(results) == sorted((name, key, left) for name, key, fuel in first for left in range(fuel + 2))


class Answer(CoFlatMapFunction):
    """Numbers in, texts back: a number becomes a text of as many dots, a text loses one."""

    def flat_map1(self, value: Any) -> Iterator[Any]:
        yield "." * value[2]

    def flat_map2(self, value: Any) -> Iterator[Any]:
        if len(value) > 1:
            yield value[1:]


@settings(max_examples=20)
@given(scripts(), runs)
def test_feedback_of_another_type_is_the_second_stream(script: list[Any], run: Run) -> None:
    def build(stream: DataStream) -> DataStream:
        first = stream.map(lambda t: t).set_parallelism(run.parallelism)
        iteration = first.iterate().with_feedback_type(Types.STRING())
        texts = iteration.flat_map(Answer(), Types.STRING()).set_parallelism(run.parallelism)
        iteration.close_with(texts)
        return texts

    results, _ = run_job(script, run, build)
    lengths = [length for _, _, fuel in tokens_of(script) for length in range(1, fuel + 1)]
    assert sorted(map(len, results)) == sorted(lengths)


TOKENS = Types.TUPLE([Types.STRING(), Types.INT(), Types.INT()])


@settings(max_examples=20)
@given(scripts(), runs, st.booleans())
def test_typed_records_come_back_as_columns(script: list[Any], run: Run, declared: bool) -> None:
    """A typed loop hands on Arrow batches, also when the feedback itself was not declared."""

    def build(stream: DataStream) -> DataStream:
        at = run.parallelism
        iteration = stream.map(lambda t: t, TOKENS).set_parallelism(at).iterate()
        back = iteration.key_by(key_of_token).process(Lower(), TOKENS if declared else None).set_parallelism(at)
        iteration.close_with(back)
        return iteration

    results, _ = run_job(script, run, build)
    assert sorted(_plain(value) for value in results) == sorted(
        (name, key, left) for name, key, fuel in tokens_of(script) for left in range(1, fuel + 1)
    )


class Lower(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        if value[2] > 1:
            yield value[0], value[1], value[2] - 1


def _plain(value: Any) -> Any:
    return tuple(value.values()) if isinstance(value, dict) else tuple(value)


def test_feedback_that_does_not_fit_the_type_of_the_iteration_is_refused() -> None:
    def build(stream: DataStream) -> DataStream:
        iteration = stream.map(lambda t: t, TOKENS).iterate()
        iteration.close_with(iteration.map(lambda t: "not a tuple"))
        return iteration

    with pytest.raises(Exception, match="the feedback of 'Iteration Feedback' declares the type"):
        run_job([("a", 0, 2)], PLAIN, build)


def countdown(stream: DataStream, max_wait_ms: int = 0) -> tuple[IterativeStream, DataStream]:
    iteration = stream.iterate(max_wait_ms)
    lower = iteration.map(lambda t: (t[0], t[1], t[2] - 1))
    iteration.close_with(lower.filter(lambda t: t[2] > 0))
    return iteration, lower


def test_a_bounded_loop_ends_by_itself_an_epoch_after_the_last_record_came_out() -> None:
    results, job = run_job([("a", 0, 3)], PLAIN, lambda s: countdown(s)[1])
    assert results == [("a", 0, 2), ("a", 0, 1), ("a", 0, 0)]
    assert [report.feedback for report in job.master.reports] == [1, 1, 0, 0]
    assert [report.records_out for report in job.master.reports] == [1, 1, 1, 0]


class OneRecord(Source):
    """Unbounded: one record in the first epoch, then silence."""

    def create_enumerator(self) -> SplitEnumerator:
        return _OneEnumerator()

    def create_reader(self) -> SplitReader:
        return _OneReader()

    @property
    def bounded(self) -> bool:
        return False


class _OneEnumerator(SplitEnumerator):
    def __init__(self) -> None:
        self._given = 0

    def restore(self, state: Json) -> None:
        self._given = state

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        start, self._given = self._given, 1
        ranges = (SplitRange(split="0", ordinal=0, start=start, end=1),)
        return SourcePlan(ranges=ranges, state=1, finished=False)


class _OneReader(SplitReader):
    def read(self, split: SplitRange, block_size: int) -> Iterator[Block]:
        yield Rows([("a", 0, 5)])


def test_while_records_go_round_epochs_do_not_wait_for_data() -> None:
    """An epoch an hour if only the source counted; the loop needs five."""
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    config.set_string("penstock.epoch.interval", "1 h")
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(1)
    stream = env.from_source(OneRecord(), WatermarkStrategy.no_watermarks(), "one")
    countdown(stream)[1].sink_to(ListSink("unbounded"))
    client = env.execute_async("unbounded")
    deadline = time.monotonic() + 60
    while len(ListSink.results("unbounded")) < 5 and time.monotonic() < deadline:
        time.sleep(0.005)
    client.cancel().result()
    results = ListSink.results("unbounded")
    ListSink.clear("unbounded")
    assert results == [("a", 0, left) for left in (4, 3, 2, 1, 0)]


def test_the_max_wait_time_is_waited_for_before_the_loop_ends() -> None:
    _, job = run_job([("a", 0, 3)], PLAIN, lambda s: countdown(s, 5000)[1])
    assert isinstance(job.master.clock, ManualClock)
    # An epoch is 200 ms: the last record came back at 200, so the loop may end from 5200 on.
    assert 5200 < job.master.clock() - 1_000_000 <= 5200 + 2 * 200
    assert [report.feedback for report in job.master.reports][:3] == [1, 1, 0]


def test_the_job_is_not_finished_while_the_end_of_event_time_still_sends_records_round() -> None:
    """A window inside the loop fires with the last watermark; what it sends back goes round all the same."""

    class Sum(ProcessWindowFunction[Any, Any, Any, Any]):
        def process(self, key: Any, context: Any, elements: Any) -> Iterator[Any]:
            yield key, 0, sum(value[2] for value in elements)

        def clear(self, context: Any) -> None:
            pass

    def build(stream: DataStream) -> DataStream:
        iteration = stream.iterate()
        fresh = iteration.filter(lambda t: t[1] == 1)
        sums = fresh.key_by(lambda t: t[0]).window(TumblingEventTimeWindows(1000, 0)).process(Sum())
        iteration.close_with(sums)
        return iteration.filter(lambda t: t[1] == 0)

    script = [Stamped(("a", 1, 4), 10), Stamped(("a", 1, 5), 20)]
    results, _ = run_job(script, PLAIN, build)
    assert results == [("a", 0, 9)]


#  split   4 (10 ms) ── W 15 ──┆── 5 (20 ms) ── W 25 ──┆
#  loop                        ┆ 4 again, at 10 ms: the watermark is 15, not held back by what goes round
def test_event_time_in_a_loop_is_that_of_its_input() -> None:
    class Late(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield value[0], ctx.timer_service().current_watermark() > 0, value[2], ctx.timestamp()

    def build(stream: DataStream) -> DataStream:
        iteration, _ = countdown(stream)
        return iteration.key_by(lambda t: t[0]).process(Late())

    script = [Stamped(("a", 0, 2), 10), Watermark(15), Epoch(), Stamped(("b", 0, 1), 20), Watermark(25)]
    results, _ = run_job(script, PLAIN, build)
    assert sorted(results) == [("a", False, 2, 10), ("a", True, 1, 10), ("b", True, 1, 20)]


def test_large_feedback_is_in_files_of_the_checkpoint_and_comes_back() -> None:
    blob = "x" * 50_000
    script = [(blob + str(number), 0, 3) for number in range(4)]
    run = replace(PLAIN, crashes=[("after-snapshot", 2)])
    results, job = run_job(script, run, lambda s: countdown(s)[1])
    assert job.crashes == 1
    assert job.master.reports[0].checkpoint_bytes > 200_000
    assert Counter(left for _, _, left in results) == {2: 4, 1: 4, 0: 4}


def test_arrow_blocks_that_go_round_stay_arrow() -> None:
    batch = pa.RecordBatch.from_pylist([{"f0": "a", "f1": 1, "f2": 2}])
    with OperatorHarness(IterationTail(TOKENS, TOKENS)) as harness:
        harness.push_block(Columns(batch))
        tail = harness.operator
        assert isinstance(tail, IterationTail)
        [(_, count, kind, payload)] = tail.kept
    assert count == 1
    assert isinstance(decode_block(kind, payload), Columns)


def test_barriers_of_a_loop_do_not_wait_for_each_other_round_it() -> None:
    """Unaligned, a tail would wait with a barrier that has overtaken for that of its head, which waits for room in front of it."""
    run = Run(sources=2, parallelism=2, seed=4350, mode=BarrierMode.UNALIGNED, capacity=1, in_flight=1)
    script = [("t0", 0, 1)]
    results, _ = run_job(script, run, lambda s: build_tokens(s, 2, "rebalance", 0))
    check(results, tokens_of(script))
