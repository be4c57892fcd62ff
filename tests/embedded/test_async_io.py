"""Asynchronous I/O in whole jobs: a plain flat_map with the same answers is the reference, whatever the delays, the
parallelism, the epochs and the crashes."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from penstock.common import Time
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import AsyncFunction, AsyncRetryStrategy, DataStream, StreamExecutionEnvironment
from penstock.datastream.functions import (
    AsyncFunctionDescriptor,
    ProcessFunction,
    empty_result_predicate,
    has_exception_predicate,
)
from penstock.operators.async_wait import AsyncWaitOperator
from penstock.protocol.events import Watermark
from penstock.testing import (
    BarrierMode,
    CrashPlan,
    CrashPoint,
    EmbeddedJob,
    Epoch,
    ListSink,
    ScriptedSource,
    Split,
    Stamped,
)
from tests.embedded.jobs import master_of, memory_storage, settings
from tests.operators.virtual_time import VirtualTimeLoop

TIMEOUT_MS = 1000
RETRIES = 2
_names = itertools.count()


@dataclass(frozen=True, slots=True)
class Question:
    """A record that says how the service will treat it."""

    split: str
    number: int
    delay_ms: int  # of each attempt; never exactly what would be left of the time-out
    failures: int  # attempts that fail before one succeeds
    empty: int  # attempts after those that find nothing
    answers: int

    @property
    def expected(self) -> list[tuple[str, int, Any]]:
        """By hand: what the record becomes. Retries wait 10 ms."""
        in_vain = self.failures + self.empty if self.answers else RETRIES + 1
        attempts = 1 + min(in_vain, RETRIES)
        if attempts * self.delay_ms + (attempts - 1) * 10 > TIMEOUT_MS:
            return [(self.split, self.number, "late")]
        if in_vain > RETRIES:
            return []  # found nothing to the end
        return [(self.split, self.number, answer) for answer in range(self.answers)]


class Oracle(AsyncFunction):
    def __init__(self) -> None:
        self.attempts: Counter[tuple[str, int]] = Counter()

    async def async_invoke(self, value: Question) -> list[Any]:
        await asyncio.sleep(value.delay_ms / 1000)
        self.attempts[value.split, value.number] += 1
        attempt = self.attempts[value.split, value.number]
        if attempt <= value.failures:
            raise ConnectionError("again, please")
        if attempt <= value.failures + value.empty:
            return []
        return [(value.split, value.number, answer) for answer in range(value.answers)]

    def timeout(self, value: Question) -> list[Any]:
        return [(value.split, value.number, "late")]


class WithWatermark(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield (*value, ctx.timestamp(), ctx.timer_service().current_watermark())


questions = st.builds(
    Question,
    split=st.just("?"),
    number=st.just(0),
    delay_ms=st.sampled_from([0, 1, 7, 300, 499, 600, 5000]),
    failures=st.integers(0, RETRIES),
    empty=st.integers(0, 3),
    answers=st.integers(0, 2),
)


@st.composite
def scripts(draw: st.DrawFn) -> list[Any]:
    """Questions in two splits over up to three epochs, with watermarks among them."""
    script: list[Any] = []
    numbers = itertools.count()
    for index in range(draw(st.integers(1, 3))):
        if index:
            script.append(Epoch())
        for split in "xy":
            script.append(Split(split))
            for question, marked in draw(st.lists(st.tuples(questions, st.booleans()), max_size=6)):
                number = next(numbers)
                script.append(Stamped(replace(question, split=split, number=number), number))
                if marked:
                    script.append(Watermark(number))
    return script


@dataclass(frozen=True, slots=True)
class Run:
    parallelism: int
    ordered: bool
    capacity: int
    rebalanced: bool
    seed: int
    mode: BarrierMode
    crashes: list[tuple[CrashPoint, int]]


_POINTS: st.SearchStrategy[CrashPoint] = st.sampled_from(["source-block", "process", "barrier", "after-snapshot"])
runs = st.builds(
    Run,
    parallelism=st.integers(1, 3),
    ordered=st.booleans(),
    capacity=st.sampled_from([1, 2, 100]),
    rebalanced=st.booleans(),
    seed=st.integers(0, 2**16),
    mode=st.sampled_from([BarrierMode.EXACTLY_ONCE, BarrierMode.UNALIGNED]),
    crashes=st.lists(st.tuples(_POINTS, st.integers(1, 6)), max_size=2),
)


def asked(stream: DataStream, run: Run) -> DataStream:
    retry = AsyncRetryStrategy.fixed_delay(
        RETRIES, 10, result_predicate=empty_result_predicate, exception_predicate=has_exception_predicate
    )
    modes = AsyncFunctionDescriptor.OutputMode
    descriptor = AsyncFunctionDescriptor(
        Oracle(), Time.milliseconds(TIMEOUT_MS), run.capacity, retry, modes.ORDERED if run.ordered else modes.UNORDERED
    )
    return stream._apply("ask", AsyncWaitOperator(descriptor, new_event_loop=VirtualTimeLoop))


def by_hand(stream: DataStream, run: Run) -> DataStream:
    return stream.flat_map(lambda question: question.expected)


def results_of(
    script: list[Any], run: Run, build: Callable[[DataStream, Run], DataStream], *, random: bool
) -> tuple[list[Any], int]:
    name = f"async-{next(_names)}"
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(run.parallelism).set_max_parallelism(8)
    source = env.from_source(ScriptedSource(script), WatermarkStrategy.no_watermarks(), "source")
    answered = build(source.rebalance() if run.rebalanced else source, run)
    answered.process(WithWatermark()).sink_to(ListSink(name))
    job = replace(env._describe("async"), job_id="job", settings=settings())
    runtime = EmbeddedJob(
        job,
        master_of(job, memory_storage()),
        schedule="random" if random else "ordered",
        seed=run.seed,
        mode=run.mode if random else BarrierMode.EXACTLY_ONCE,
        max_in_flight=2,
        crashes=CrashPlan(run.crashes),
    )
    runtime.run()
    results = ListSink.results(name)
    ListSink.clear(name)
    return results, runtime.crashes


@given(script=scripts(), run=runs)
@hypothesis_settings(max_examples=120, deadline=None)
def test_answers_order_timestamps_and_watermarks_are_those_of_a_plain_function_crash_or_not(
    script: list[Any], run: Run
) -> None:
    """In the order of the slots everything is the same, byte for byte, in both modes: also what came before which
    watermark."""
    reference, _ = results_of(script, replace(run, crashes=[]), by_hand, random=False)
    assert results_of(script, run, asked, random=False)[0] == reference


@given(script=scripts(), run=runs)
@hypothesis_settings(max_examples=120, deadline=None)
def test_nothing_is_lost_doubled_or_reordered_in_any_interleaving_and_wherever_it_crashes(
    script: list[Any], run: Run
) -> None:
    expected = [answer for item in script if isinstance(item, Stamped) for answer in item.value.expected]
    results, _ = results_of(script, run, asked, random=True)
    assert Counter(result[:3] for result in results) == Counter(expected)
    if not run.rebalanced:
        for split in "xy":
            mine = [result[:3] for result in results if result[0] == split]
            assert mine == [answer for answer in expected if answer[0] == split]
    assert [result for result in results if result[-2] <= result[-1]] == [], "a watermark overtook a record"


def test_a_job_that_crashed_in_the_middle_of_requests_asks_again_and_answers_once() -> None:
    first, second, third, fourth = (Stamped(Question("x", n, 300, 0, 0, 1), n) for n in range(4))
    script = [Split("x"), first, second, Epoch(), third, fourth]
    run = Run(2, False, 100, True, 0, BarrierMode.EXACTLY_ONCE, [("process", 2), ("after-snapshot", 4)])
    results, crashes = results_of(script, run, asked, random=False)
    assert crashes == 2
    assert sorted(result[:3] for result in results) == [("x", n, 0) for n in range(4)]


def test_an_operator_chained_to_a_source_knows_the_watermark_it_was_restored_with() -> None:
    script = [Split("x"), Stamped(Question("x", 1, 0, 0, 0, 1), 1), Watermark(5), Epoch()]
    script.append(Stamped(Question("x", 7, 0, 0, 0, 1), 7))
    run = Run(1, True, 1, False, 0, BarrierMode.EXACTLY_ONCE, [("before-run", 2)])
    for build in (by_hand, asked):
        results, crashes = results_of(script, run, build, random=False)
        assert crashes == 1
        assert results[-1] == ("x", 7, 0, 7, 5)
