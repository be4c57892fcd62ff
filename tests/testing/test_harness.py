"""The harness runs one operator as a subtask would: time, output, snapshots, failures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from penstock.common.time import MIN_LONG_VALUE
from penstock.common.typeinfo import Types
from penstock.datastream.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.functions.process import OutputTag
from penstock.operators.base import Operator
from penstock.operators.simple import MapOperator
from penstock.state.keys import key_group, subtask_of
from penstock.testing.harness import HarnessError, OperatorHarness

SEEN = OutputTag("seen", Types.STRING())


class Counting(KeyedProcessFunction):
    """Counts per key; reports (key, count) ten after the last record, in event and in processing time."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.attempt = runtime_context.get_attempt_number()

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        self.count.update((self.count.value() or 0) + 1)
        timestamp = ctx.timestamp()
        if timestamp > MIN_LONG_VALUE:  # it has one
            ctx.timer_service().register_event_time_timer(timestamp + 10)
        else:
            ctx.timer_service().register_processing_time_timer(ctx.timer_service().current_processing_time() + 10)
        yield SEEN, value

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.get_current_key(), self.count.value()


def counting(**options: Any) -> OperatorHarness:
    return OperatorHarness.for_function(Counting(), lambda value: value[0], **options)


def test_timers_fire_with_the_watermark_and_results_carry_their_time() -> None:
    harness = counting().push("apple", 5).push("axe", 7).advance_watermark(14)
    assert harness.records() == []
    harness.advance_watermark(17)
    assert harness.records() == [(("a", 2), 15), (("a", 2), 17)]
    assert harness.watermarks == [14, 17]
    assert harness.side_records(SEEN) == [("apple", 5), ("axe", 7)]
    assert harness.side_values("seen") == ["apple", "axe"]
    assert harness.metrics.records_in == 2


def test_a_watermark_that_does_not_advance_is_dropped() -> None:
    assert counting().advance_watermark(5).advance_watermark(5).advance_watermark(3).watermarks == [5]


def test_processing_time_is_what_the_test_says() -> None:
    harness = counting().advance_processing_time(1000).push("ant")
    assert harness.advance_processing_time(1009).values() == []
    assert harness.advance_processing_time(1010).values() == [("a", 1)]


def test_the_end_of_input_fires_every_event_timer() -> None:
    assert counting().push("ant", 5).end_input().values() == [("a", 1)]


def test_a_new_harness_goes_on_from_a_snapshot_with_its_clocks() -> None:
    before = counting().advance_processing_time(77).push("ant", 5).advance_watermark(9)
    after = counting().restore(before.snapshot())
    assert after.processing_time == 77
    assert after.advance_watermark(9).watermarks == []
    assert after.push("axe", 6).end_input().values() == [("a", 2), ("a", 2)]


def test_a_chain_of_deltas_restores_like_a_full_snapshot() -> None:
    harness = counting().push("ant", 5).push("bee", 5)
    chain = [harness.snapshot()]
    chain.append(harness.push("axe", 6).snapshot(full=False))
    chain.append(harness.advance_watermark(15).snapshot(full=False))
    assert counting().restore(chain).end_input().values() == [("a", 2)]
    assert counting().restore(harness.snapshot()).end_input().values() == [("a", 2)]


def test_at_another_parallelism_every_key_goes_on_in_exactly_one_subtask() -> None:
    words = [chr(ord("a") + n) for n in range(26)]
    halves = [counting(parallelism=2, subtask=s) for s in range(2)]
    for word in words:
        halves[subtask_of(key_group(word, 128), 2, 128)].push(word, 5)
    files = [harness.snapshot() for harness in halves]
    results = []
    for subtask in range(3):
        harness = counting(parallelism=3, subtask=subtask).restore(*files).end_input()
        assert all(subtask_of(key_group(key, 128), 3, 128) == subtask for key, _ in harness.values())
        results += harness.values()
    assert sorted(results) == [(word, 1) for word in words]


def test_a_rollback_forgets_the_epoch_in_state_timers_clocks_and_output() -> None:
    harness = counting().push("ant", 5)
    harness.snapshot()
    harness.push("axe", 6).advance_watermark(40)
    assert len(harness.values()) == 2
    harness.rollback()
    assert harness.values() == []
    assert harness.watermarks == []
    assert harness.side_values("seen") == ["ant"]
    assert harness.end_input().values() == [("a", 1)]
    assert harness.operator.function.attempt == 1  # type: ignore[attr-defined]


def test_clearing_the_output_does_not_touch_state() -> None:
    harness = counting().push("ant", 5).clear_output()
    assert harness.side_values("seen") == []
    assert harness.end_input().values() == [("a", 1)]


def test_restore_comes_first() -> None:
    data = counting().snapshot()
    with pytest.raises(HarnessError, match="new harness"):
        counting().push("ant", 1).restore(data)


def test_one_operator_serves_many_harnesses_without_sharing_anything() -> None:
    class Remembering(MapFunction):
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def map(self, value: Any) -> Any:
            self.seen.append(value)
            return len(self.seen)

    operator: Operator = MapOperator(Remembering())
    assert OperatorHarness(operator).push("x").push("y").values() == [1, 2]
    assert OperatorHarness(operator).push("x").values() == [1]


def test_open_comes_with_the_first_use_and_close_once() -> None:
    calls: list[str] = []

    class Recording(MapFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.calls = ["open"]

        def map(self, value: Any) -> Any:
            self.calls.append("map")
            return list(self.calls)

        def close(self) -> None:
            self.calls.append("close")

    with OperatorHarness.for_function(Recording()) as harness:
        assert harness.push(1).values() == [["open", "map"]]
        calls = harness.operator.function.calls  # type: ignore[attr-defined]
    harness.close()
    assert calls == ["open", "map", "close"]


class Doubling(MapFunction):
    def map(self, value: Any) -> Any:
        return 2 * value


class Even(FilterFunction):
    def filter(self, value: Any) -> bool:
        return bool(value % 2 == 0)


class Upto(FlatMapFunction):
    def flat_map(self, value: Any) -> Iterable[Any]:
        return range(value)


class Summing(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1 + value2


class Passing(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield value, ctx.timestamp()


def test_every_kind_of_function_finds_its_operator() -> None:
    numbers = [(2, 1), (3, 2)]
    assert OperatorHarness.for_function(Doubling()).push_all(numbers).values() == [4, 6]
    assert OperatorHarness.for_function(Even()).push_all(numbers).records() == [(2, 1)]
    assert OperatorHarness.for_function(Upto()).push_all(numbers).values() == [0, 1, 0, 1, 2]
    assert OperatorHarness.for_function(Passing()).push_all(numbers).values() == [(2, 1), (3, 2)]
    assert OperatorHarness.for_function(Summing(), lambda value: 0).push_all(numbers).values() == [2, 5]


def test_what_the_harness_cannot_run_is_refused_with_advice() -> None:
    with pytest.raises(HarnessError, match="key_selector"):
        OperatorHarness.for_function(Summing())
    with pytest.raises(HarnessError, match="OperatorHarness\\(operator\\)"):
        OperatorHarness.for_function(object())
    with pytest.raises(HarnessError, match="subtask 2 of parallelism 2"):
        counting(parallelism=2, subtask=2)
