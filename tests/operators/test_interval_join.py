"""The interval join against a nested loop: who meets whom, what is late, and what is left behind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Time, Types
from penstock.common.configuration import Configuration
from penstock.common.time import Duration
from penstock.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from penstock.datastream import (
    DataStream,
    KeyedStream,
    OutputTag,
    ProcessJoinFunction,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.errors import JobDefinitionError, PenstockError, UserFunctionError
from penstock.operators.interval_join import IntervalJoinOperator
from penstock.testing.harness import OperatorHarness

LATE_LEFT, LATE_RIGHT = OutputTag("late-left", Types.STRING()), OutputTag("late-right", Types.STRING())
FAR = OutputTag("far", Types.INT())


def first(value: Any) -> Any:
    return value[0]


class Pairs(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterable[Any]:
        assert ctx.get_timestamp() == max(ctx.get_left_timestamp(), ctx.get_right_timestamp())
        yield left[1], ctx.get_left_timestamp(), right[1], ctx.get_right_timestamp()


class Distances(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterable[Any]:
        distance = ctx.get_right_timestamp() - ctx.get_left_timestamp()
        yield (FAR, distance) if abs(distance) > 1 else distance


class Broken(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: ProcessJoinFunction.Context) -> Iterable[Any]:
        raise ValueError("no")


def join(lower: int, upper: int, function: Any = None, **options: Any) -> OperatorHarness:
    operator = IntervalJoinOperator(function or Pairs(), (first, first), lower=lower, upper=upper, **options)
    return OperatorHarness(operator)


def left(harness: OperatorHarness, time: int | None, number: int = 0) -> OperatorHarness:
    return harness.push(("a", number), time, input=0)


def right(harness: OperatorHarness, time: int | None, number: int = 0) -> OperatorHarness:
    return harness.push(("a", number), time, input=1)


def test_both_bounds_are_included_and_results_carry_the_later_timestamp() -> None:
    harness = left(join(-2, 3), 10)
    for time in range(5, 16):
        right(harness, time)
    assert harness.records() == [((0, 10, 0, time), max(10, time)) for time in range(8, 14)]


def test_records_of_different_keys_never_meet() -> None:
    harness = join(-5, 5).push(("a", 1), 10, input=0).push(("b", 2), 10, input=1)
    assert harness.values() == []


def test_a_record_behind_the_watermark_is_dropped_and_counted_and_one_at_the_watermark_is_not() -> None:
    harness = left(join(-5, 5), 12).advance_watermark(10)
    right(left(right(harness, 9), 9), 10)
    assert harness.values() == [(0, 12, 0, 10)]
    assert harness.metrics.late_dropped == 2


def test_late_records_go_to_the_side_output_of_their_side() -> None:
    harness = join(-5, 5, late_tags=(LATE_LEFT.tag_id, LATE_RIGHT.tag_id)).advance_watermark(10)
    right(left(harness, 8, number=1), 9, number=2)
    assert harness.side_records(LATE_LEFT) == [(("a", 1), 8)]
    assert harness.side_records(LATE_RIGHT) == [(("a", 2), 9)]
    assert harness.metrics.late_dropped == 0


def test_the_function_may_yield_side_outputs() -> None:
    harness = right(right(left(join(-5, 5, Distances()), 10), 11), 14)
    assert harness.records() == [(1, 11)]
    assert harness.side_records(FAR) == [(4, 14)]


@pytest.mark.parametrize(("lower", "upper"), [(-3, 4), (2, 5), (-5, -2), (0, 0)])
def test_a_record_is_kept_until_its_last_partner_may_have_come_and_no_longer(lower: int, upper: int) -> None:
    harness = right(left(join(lower, upper), 100), 100)
    until = sorted({100 + max(upper, 0), 100 + max(-lower, 0)})
    harness.advance_watermark(until[0] - 1).snapshot()
    assert harness.state.size() == 6  # for each side the record, its time and its timer
    harness.advance_watermark(until[-1]).snapshot()
    assert harness.state.size() == 0


def test_a_record_without_timestamp_is_refused_with_what_to_do() -> None:
    with pytest.raises(PenstockError, match="left record that has no timestamp"):
        left(join(0, 1), None)


def test_an_error_of_the_function_names_the_side() -> None:
    with pytest.raises(UserFunctionError, match="for a right record"):
        right(left(join(0, 1, Broken()), 5), 5)


Step = tuple[str, str, int]  # ("left" | "right", key, time), or ("watermark" | "restore" | "retry", …, time)
steps = st.lists(
    st.tuples(
        st.sampled_from(["left", "right", "left", "right", "watermark", "restore", "retry"]),
        st.sampled_from("ab"),
        st.integers(0, 25),
    ),
    max_size=40,
)


def _by_hand(script: list[Step], lower: int, upper: int) -> tuple[list[Any], int]:
    watermark, pairs, late = -1, [], 0
    kept: dict[str, list[tuple[str, int, int]]] = {"left": [], "right": []}
    for number, (what, key, time) in enumerate(script):
        if what == "watermark" and time > watermark:  # one that does not advance does not come through a gate
            watermark = time
            # As in Flink: a record is gone once the watermark is as far as the last partner it could have.
            kept["left"] = [r for r in kept["left"] if r[2] + max(upper, 0) > watermark]
            kept["right"] = [r for r in kept["right"] if r[2] + max(-lower, 0) > watermark]
        elif what in kept and time < watermark:
            late += 1
        elif what in kept:
            kept[what].append((key, number, time))
            for other_key, other, other_time in kept["right" if what == "left" else "left"]:
                a, b = (
                    ((number, time), (other, other_time)) if what == "left" else ((other, other_time), (number, time))
                )
                if other_key == key and a[1] + lower <= b[1] <= a[1] + upper:
                    pairs.append((*a, *b))
    return pairs, late


@settings(max_examples=150)
@given(steps, st.integers(-6, 6), st.integers(0, 8), st.booleans())
def test_any_two_streams_are_joined_as_by_a_nested_loop(script: list[Step], lower: int, width: int, full: bool) -> None:
    upper = lower + width
    harness = join(lower, upper)
    chain: list[bytes] = []
    results: list[Any] = []
    late = now = 0
    for number, (what, key, time) in enumerate(script):
        if what == "watermark":
            harness.advance_watermark(time)
            now = max(now, time)
        elif what in ("restore", "retry"):
            whole = full or not chain
            snapshot = harness.snapshot(full=whole)
            chain = [snapshot] if whole else [*chain, snapshot]
            # An epoch that comes to nothing: nobody may see later what it added and removed.
            nothing = [((key, -1), time) for time in range(now, 26)]
            harness.push_all(nothing, input=0).push_all(nothing, input=1).advance_watermark(40).rollback()
            if what == "restore":
                results += harness.records()
                late += harness.metrics.late_dropped
                harness = join(lower, upper).restore(chain)
        else:
            harness.push((key, number), time, input=("left", "right").index(what))
    results += harness.records()
    expected, expected_late = _by_hand(script, lower, upper)
    assert sorted(results) == sorted((pair, max(pair[1], pair[3])) for pair in expected)
    assert late + harness.metrics.late_dropped == expected_late
    harness.end_input().snapshot()
    assert harness.state.size() == 0


# -------------------------------------------------------------------- the API


class Second(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


def streams() -> tuple[KeyedStream, KeyedStream]:
    configuration = Configuration()
    configuration.set_string("penstock.runtime", "embedded")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    a = env.from_collection([("a", 10), ("b", 20), ("a", 30)]).assign_timestamps_and_watermarks(strategy)
    b = env.from_collection([("a", 8), ("a", 12), ("b", 23)]).assign_timestamps_and_watermarks(strategy)
    return a.key_by(first), b.key_by(first)


def collected(stream: DataStream) -> list[Any]:
    with stream.execute_and_collect() as results:
        return sorted((a, b) for _, a, _, b in results)


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
def test_bounds_can_be_excluded_one_by_one(mode: RuntimeExecutionMode) -> None:
    expected = {
        (False, False): [(10, 8), (10, 12), (20, 23)],
        (True, False): [(10, 12), (20, 23)],
        (False, True): [(10, 8), (10, 12)],
        (True, True): [(10, 12)],
    }
    for (lower, upper), pairs in expected.items():
        a, b = streams()
        a.get_execution_environment().set_runtime_mode(mode)
        joined = a.interval_join(b).between(Time.milliseconds(-2), Duration.of_millis(3))
        if lower:
            joined.lower_bound_exclusive()
        if upper:
            joined.upper_bound_exclusive()
        assert collected(joined.process(Pairs())) == pairs


def test_what_cannot_be_joined_is_refused_while_the_program_is_built() -> None:
    a, b = streams()
    with pytest.raises(JobDefinitionError, match=r"call key_by\(\)"):
        a.interval_join(b.map(lambda value: value))  # type: ignore[arg-type]
    with pytest.raises(JobDefinitionError, match="two environments"):
        a.interval_join(streams()[1])
    with pytest.raises(JobDefinitionError, match="must not be above"):
        a.interval_join(b).between(Time.milliseconds(1), Time.milliseconds(0))
    with pytest.raises(JobDefinitionError, match="ProcessJoinFunction"):
        a.interval_join(b).between(Time.milliseconds(0), Time.milliseconds(1)).process(Pairs)  # type: ignore[arg-type]
