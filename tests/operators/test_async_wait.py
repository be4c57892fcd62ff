"""Asynchronous I/O in one subtask: order, bounds, time-outs, retries and errors, on a loop whose clock jumps."""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
import time
from collections import Counter
from typing import Any, ClassVar

import pytest

from penstock.common import Time
from penstock.datastream import AsyncDataStream, AsyncFunction, AsyncRetryStrategy, StreamExecutionEnvironment
from penstock.datastream.functions import (
    AsyncFunctionDescriptor,
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)
from penstock.errors import JobDefinitionError, UserFunctionError
from penstock.functions.asynchronous import NO_RETRY_STRATEGY
from penstock.operators.async_wait import AsyncWaitOperator
from penstock.testing import OperatorHarness
from tests.operators.virtual_time import VirtualTimeLoop


class Service(AsyncFunction):
    """Answers after as many milliseconds as the record says; knows how many it served at once, and in which order."""

    log: ClassVar[list[Any]] = []  # of the class: the harness works on a copy of the function
    running = 0
    most = 0

    async def async_invoke(self, value: int) -> list[Any]:
        Service.running += 1
        Service.most = max(Service.most, Service.running)
        Service.log.append(("asked", value))
        try:
            await asyncio.sleep(value / 1000)
        finally:
            Service.running -= 1
        Service.log.append(("answered", value))
        return [value]


class Patient(Service):
    def timeout(self, value: int) -> list[Any]:
        return [("late", value)]


class Flaky(AsyncFunction):
    """Fails, or finds nothing, as often as the record says."""

    def __init__(self, *, empty: bool = False) -> None:
        self.empty = empty
        self.attempts: Counter[int] = Counter()

    async def async_invoke(self, value: int) -> list[Any]:
        self.attempts[value] += 1
        attempt = self.attempts[value]
        if attempt <= value:
            if self.empty:
                return []
            raise ConnectionError(f"attempt {attempt}")
        return [(value, attempt, asyncio.get_running_loop().time())]

    def timeout(self, value: int) -> list[Any]:
        return [(value, "late", asyncio.get_running_loop().time())]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    Service.log, Service.running, Service.most = [], 0, 0


def harness(
    function: AsyncFunction,
    *,
    ordered: bool = True,
    timeout_ms: int = 0,
    capacity: int = 100,
    retry: AsyncRetryStrategy = NO_RETRY_STRATEGY,
) -> OperatorHarness:
    return OperatorHarness(
        AsyncWaitOperator(
            AsyncFunctionDescriptor(
                function,
                Time.milliseconds(timeout_ms),
                capacity,
                retry,
                AsyncFunctionDescriptor.OutputMode.ORDERED if ordered else AsyncFunctionDescriptor.OutputMode.UNORDERED,
            ),
            new_event_loop=VirtualTimeLoop,
        ),
        uid="lookup",
    )


@pytest.fixture(params=[True, False], ids=["ordered", "unordered"])
def ordered(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_requests_overlap_and_results_leave_in_the_order_of_the_input(ordered: bool) -> None:
    with harness(Service(), ordered=ordered) as h:
        h.push_all([(50, 1), (10, 2), (30, 3)]).snapshot()
        assert h.records() == [(50, 1), (10, 2), (30, 3)]
    assert Service.log == [("asked", 50), ("asked", 10), ("asked", 30)] + [("answered", v) for v in (10, 30, 50)]


def test_a_watermark_does_not_overtake_a_result_and_the_barrier_waits_for_all(ordered: bool) -> None:
    with harness(Service(), ordered=ordered) as h:
        gate = threading.Event()
        h.push(0, 1)
        assert h.operator._requests is not None  # type: ignore[attr-defined]
        loop = h.operator._requests._loop  # type: ignore[attr-defined]
        loop.call_soon_threadsafe(gate.wait, 10)  # from here on nothing is answered
        h.operator._requests.wait_started = lambda batch: None  # type: ignore[attr-defined]
        h.push(20, 5).advance_watermark(6).push(10, 7).advance_watermark(9)
        assert (h.values(), h.watermarks) in (([], []), ([0], []))
        gate.set()
        h.snapshot()
        assert (h.values(), h.watermarks) == ([0, 20, 10], [6, 9])


def test_no_more_than_capacity_requests_are_under_way(ordered: bool) -> None:
    with harness(Service(), ordered=ordered, capacity=3) as h:
        h.push_all([(value, None) for value in (7, 3, 9, 1, 4, 4, 2, 8)]).push(5).snapshot()
        assert h.values() == [7, 3, 9, 1, 4, 4, 2, 8, 5]
    assert Service.most == 3


def test_only_unordered_goes_on_past_a_slow_request() -> None:
    def asked_before_the_slow_answer(ordered: bool) -> int:
        Service.log = []
        with harness(Service(), ordered=ordered, capacity=2) as h:
            h.push_all([(1000, None)] + [(1, None)] * 10).snapshot()
        until = Service.log.index(("answered", 1000))
        return sum(1 for kind, _ in Service.log[:until] if kind == "asked")

    assert asked_before_the_slow_answer(ordered=True) == 2
    assert asked_before_the_slow_answer(ordered=False) == 11


def test_a_request_that_takes_too_long_gets_the_result_of_timeout_and_its_own_is_ignored(ordered: bool) -> None:
    with harness(Patient(), ordered=ordered, timeout_ms=100, capacity=2) as h:
        h.push_all([(99, 1), (5000, 2), (101, 3), (1, 4)]).snapshot()
        assert h.records() == [(99, 1), (("late", 5000), 2), (("late", 101), 3), (1, 4)]
    assert ("answered", 5000) not in Service.log


def test_without_a_timeout_method_the_error_names_operator_and_record(ordered: bool) -> None:
    with (
        harness(Service(), ordered=ordered, timeout_ms=100) as h,
        pytest.raises(UserFunctionError, match=r"(?s)TimeoutError.*timeout of operator .*uid 'lookup'.*on record 5000"),
    ):
        h.push(5000).snapshot()


def test_an_exception_names_operator_uid_and_record_and_later_input_is_refused_too() -> None:
    with harness(Flaky()) as h:
        with pytest.raises(
            UserFunctionError, match=r"(?s)ConnectionError.*async_invoke of .*uid 'lookup'.*on record 3"
        ):
            h.push(3).snapshot()
        with pytest.raises(UserFunctionError, match="on record 3"):
            h.push(0).snapshot()
        h.rollback().push(0).snapshot()
        assert [value for value, *_ in h.values()] == [0]


@pytest.mark.parametrize("result", [None, "text", 5])
def test_a_result_that_is_no_list_is_an_error_that_says_so(result: Any) -> None:
    class Wrong(AsyncFunction):
        async def async_invoke(self, value: Any) -> list[Any]:
            return value  # type: ignore[no-any-return]

    with harness(Wrong()) as h, pytest.raises(UserFunctionError, match="must return a list of results"):
        h.push(result).snapshot()


def test_errors_are_retried_after_a_fixed_delay_until_the_attempts_are_used_up() -> None:
    retry = AsyncRetryStrategy.fixed_delay(2, 50, None, has_exception_predicate)
    with harness(Flaky(), timeout_ms=1000, retry=retry) as h:
        h.push_all([(2, None), (0, None), (1, None)]).snapshot()
        assert [(value, attempt) for value, attempt, _ in h.values()] == [(2, 3), (0, 1), (1, 2)]
        assert [round(at * 1000) for *_, at in h.values()] == [100, 0, 50]
        with pytest.raises(UserFunctionError, match=r"(?s)attempt 3.*on record 3"):
            h.push(3).snapshot()


def test_empty_results_are_retried_and_in_the_end_taken_as_they_are() -> None:
    retry = AsyncRetryStrategy.fixed_delay(1, 50, empty_result_predicate, None)
    with harness(Flaky(empty=True), timeout_ms=1000, retry=retry) as h:
        h.push_all([(1, None), (2, None), (0, None)]).snapshot()
        assert [(value, attempt) for value, attempt, _ in h.values()] == [(1, 2), (0, 1)]


def test_an_error_of_another_kind_is_not_retried() -> None:
    predicate = functools.partial(exception_type_predicate, expected_error_type=ValueError)
    retry = AsyncRetryStrategy.fixed_delay(5, 50, None, predicate)
    with harness(Flaky(), timeout_ms=1000, retry=retry) as h, pytest.raises(UserFunctionError, match="attempt 1"):
        h.push(1).snapshot()


def test_the_time_out_is_for_all_attempts_together() -> None:
    retry = AsyncRetryStrategy.fixed_delay(100, 60, None, has_exception_predicate)
    with harness(Flaky(), timeout_ms=100, retry=retry) as h:
        h.push(50).snapshot()
        assert [(value, kind, round(at * 1000)) for value, kind, at in h.values()] == [(50, "late", 100)]


def test_exponential_backoff_follows_from_the_number_of_attempts_alone() -> None:
    strategy = AsyncRetryStrategy.exponential_backoff(4, 10, 60, 2.0, None, None)
    delays = [strategy.get_backoff_time_millis(attempt) for attempt in (1, 2, 3, 4, 100)]
    assert delays == [10, 20, 40, 60, 60]
    assert [strategy.get_backoff_time_millis(attempt) for attempt in (3, 1, 3)] == [40, 10, 40]
    assert [strategy.can_retry(attempt) for attempt in (4, 5)] == [True, False]


def test_the_thread_ends_when_the_operator_is_closed_and_when_it_is_forgotten() -> None:
    def threads() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name.startswith("penstock-async-lookup")]

    closed = harness(Service())
    closed.push(10**9)
    assert len(threads()) == 1
    closed.close()
    assert threads() == []
    forgotten = harness(Service())
    forgotten.push(0).snapshot()
    (thread,) = threads()
    del forgotten, closed
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


class NotAsync(AsyncFunction):
    def async_invoke(self, value: Any) -> Any:
        return [value]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((NotAsync(), Time.seconds(1)), "declared with `async def`"),
        ((Service, Time.seconds(1)), "takes an AsyncFunction"),
        ((Service(), 5), "as a Time"),
        ((Service(), Time.seconds(1), 0), "capacity must be at least 1"),
    ],
)
def test_misuse_is_refused_when_the_job_is_built(arguments: tuple[Any, ...], message: str) -> None:
    stream = StreamExecutionEnvironment.get_execution_environment().from_collection([1])
    for apply in (AsyncDataStream.ordered_wait, AsyncDataStream.unordered_wait):
        with pytest.raises(JobDefinitionError, match=message):
            apply(stream, *arguments)


def test_a_retry_strategy_needs_a_time_out_and_positive_numbers() -> None:
    stream = StreamExecutionEnvironment.get_execution_environment().from_collection([1])
    retry = AsyncRetryStrategy.fixed_delay(1, 1, None, None)
    with pytest.raises(JobDefinitionError, match="needs a time-out"):
        AsyncDataStream.ordered_wait_with_retry(stream, Service(), Time.seconds(0), retry)
    with pytest.raises(JobDefinitionError, match="takes an AsyncRetryStrategy"):
        AsyncDataStream.unordered_wait_with_retry(stream, Service(), Time.seconds(1), None)  # type: ignore[arg-type]
    with pytest.raises(JobDefinitionError, match="max_attempts greater than zero, not 0"):
        AsyncRetryStrategy.fixed_delay(0, 1, None, None)


# ---------------------------------------------------------------- by the clock


class Held(AsyncFunction):
    """Answers when the test lets it."""

    answered: ClassVar[set[int]] = set()

    async def async_invoke(self, value: int) -> list[Any]:
        while value not in Held.answered:
            await asyncio.sleep(0.001)
        return [value]


def by_clock(*, ordered: bool) -> OperatorHarness:
    mode = AsyncFunctionDescriptor.OutputMode
    descriptor = AsyncFunctionDescriptor(
        Held(), Time.seconds(0), 100, NO_RETRY_STRATEGY, mode.ORDERED if ordered else mode.UNORDERED
    )
    harness = OperatorHarness(AsyncWaitOperator(descriptor), uid="lookup")
    harness.operator.ctx.by_clock = True
    Held.answered = set()
    return harness


def answer(h: OperatorHarness, *values: int, until: int) -> None:
    """These are answered; so many results are to leave."""
    Held.answered |= set(values)
    deadline = time.monotonic() + 10
    while len(h.values()) < until and time.monotonic() < deadline:
        h.operator.poll()
        time.sleep(0.001)
    time.sleep(0.02)
    h.operator.poll()


def test_unordered_results_leave_as_they_come_but_none_overtakes_a_watermark() -> None:
    with by_clock(ordered=False) as h:
        h.push_all([(1, 1), (2, 2)]).push_all([(3, 3)]).advance_watermark(5).push_all([(4, 6)])
        answer(h, 3, 4, until=1)
        assert h.records() == [(3, 3)], "4 came behind the watermark"
        answer(h, 2, until=2)
        assert h.watermarks == []
        answer(h, 1, until=4)
        assert h.records() == [(3, 3), (2, 2), (1, 1), (4, 6)]
        assert h.watermarks == [5]


def test_ordered_results_wait_for_those_before_them() -> None:
    with by_clock(ordered=True) as h:
        h.push_all([(1, None)]).push_all([(2, None)])
        answer(h, 2, until=0)
        assert h.values() == []
        answer(h, 1, until=2)
        assert h.values() == [1, 2]


def test_a_barrier_does_not_wait_and_what_has_not_left_is_asked_for_again_after_a_recovery(ordered: bool) -> None:
    with by_clock(ordered=ordered) as h:
        h.push_all([(1, 10), (2, 20)]).push_all([(3, 30)]).advance_watermark(40)
        answer(h, 2, until=0 if ordered else 1)
        snapshot = h.snapshot()
        left = h.values()
        assert left == ([] if ordered else [2])
    with by_clock(ordered=ordered) as h:
        h.restore(snapshot)
        h.push_all([(4, 50)])
        answer(h, 1, 2, 3, 4, until=4 - len(left))
        assert sorted([*left, *h.values()]) == [1, 2, 3, 4]
        h.operator.snapshot_state()
        assert h.state.operator_list("unanswered") == []
