"""Connected streams: each method sees its own input, both share state, timers and the slower input's event time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Types
from penstock.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedCoProcessFunction,
    OutputTag,
    RuntimeContext,
    StreamExecutionEnvironment,
    TimeDomain,
)
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.errors import JobDefinitionError, UserFunctionError
from penstock.operators.two_inputs import CoFlatMapOperator, CoMapOperator, CoProcessOperator
from penstock.state.backend import NoKeyError
from penstock.state.keys import key_group, subtask_of
from penstock.testing.harness import OperatorHarness

SIDE = OutputTag("side", Types.STRING())


def first(value: Any) -> Any:
    return value[0]


class Signs(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return value

    def map2(self, value: Any) -> Any:
        return None if value == 0 else -value


class Repeats(CoFlatMapFunction):
    def flat_map1(self, value: Any) -> Iterable[Any]:
        return [value] * value

    def flat_map2(self, value: Any) -> Iterable[Any] | None:
        return None


class Join(KeyedCoProcessFunction):
    """Every pair of a left and a right record of one key, once."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.left = runtime_context.get_list_state(ListStateDescriptor("left"))
        self.right = runtime_context.get_list_state(ListStateDescriptor("right"))

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        self.left.add(value[1])
        for other in self.right.get():
            yield ctx.get_current_key(), value[1], other

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        self.right.add(value[1])
        for other in self.left.get():
            yield ctx.get_current_key(), other, value[1]


class Alarm(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        ctx.timer_service().register_event_time_timer(value[1])
        yield SIDE, f"set {value[1]} at {ctx.timestamp()}"

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        ctx.timer_service().delete_event_time_timer(value[1])
        ctx.timer_service().register_processing_time_timer(value[1])

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.get_current_key(), timestamp, ctx.timestamp(), ctx.time_domain()


class Needy(CoProcessFunction):
    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(1)

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()


def test_a_co_map_gives_one_result_for_each_record_and_drops_none() -> None:
    harness = OperatorHarness(CoMapOperator(Signs()))
    harness.push(0, 1).push(0, 2, input=1).push(5, 3, input=1).push(7, 4)
    assert harness.records() == [(0, 1), (-5, 3), (7, 4)]
    assert (harness.metrics.records_in, harness.metrics.records_out) == (4, 3)


def test_a_co_flat_map_gives_any_number_of_results_for_each_record() -> None:
    harness = OperatorHarness(CoFlatMapOperator(Repeats()))
    harness.push(2, 1).push(9, 2, input=1).push(0, 3).push(1)
    assert harness.records() == [(2, 1), (2, 1), (1, None)]


@given(
    events=st.lists(st.tuples(st.integers(0, 1), st.sampled_from("ab"), st.integers(0, 3)), max_size=25),
    cut=st.integers(0, 25),
)
def test_a_join_over_shared_state_gives_every_pair_once_also_across_a_restore_with_another_parallelism(
    events: list[tuple[int, str, int]], cut: int
) -> None:
    operator = CoProcessOperator(Join(), (first, first))
    before = OperatorHarness(operator)
    for side, key, value in events[:cut]:
        before.push((key, value), input=side)
    snapshot = before.snapshot()
    after = [OperatorHarness(operator, parallelism=2, subtask=n).restore(snapshot) for n in range(2)]
    for side, key, value in events[cut:]:
        after[subtask_of(key_group(key, 128), 2, 128)].push((key, value), input=side)
    pairs = [pair for harness in (before, *after) for pair in harness.values()]
    expected = [
        (key, left, right)
        for side, key, left in events
        if side == 0
        for other, other_key, right in events
        if other == 1 and other_key == key
    ]
    assert sorted(pairs) == sorted(expected)


def test_both_inputs_set_and_delete_the_timers_of_a_key() -> None:
    harness = OperatorHarness(CoProcessOperator(Alarm(), (first, first)))
    harness.push(("a", 10), 1).push(("b", 10), 2).push(("b", 20), 3)
    harness.push(("a", 10), 4, input=1).push(("a", 20), 5, input=1)
    harness.advance_watermark(15)
    assert harness.records() == [(("b", 10, 10, TimeDomain.EVENT_TIME), 10)]
    harness.clear_output().advance_processing_time(12)
    assert harness.values() == [("a", 10, 10, TimeDomain.PROCESSING_TIME)]


def test_co_process_results_go_to_side_outputs_by_tag() -> None:
    harness = OperatorHarness(CoProcessOperator(Alarm(), (first, first))).push(("a", 10), 1)
    assert (harness.values(), harness.side_values(SIDE)) == ([], ["set 10 at 1"])


def test_without_keys_there_are_clocks_but_no_timers() -> None:
    harness = OperatorHarness(CoProcessOperator(Needy())).advance_watermark(7)
    harness.push("x", 9, input=1)
    assert harness.values() == [("x", 9, 7)]
    with pytest.raises(NoKeyError, match="key_by"):
        harness.push("y", 9)


def test_an_error_names_the_method_and_the_record() -> None:
    with pytest.raises(UserFunctionError, match=r"map2 of .* record 'zero'"):
        OperatorHarness(CoMapOperator(Signs())).push("zero", input=1)


class Tally(CoMapFunction):
    """Keyed state in a co-map on keyed streams."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def _add(self, key: str) -> tuple[str, int]:
        self.count.update((self.count.value() or 0) + 1)
        return key, self.count.value() or 0

    def map1(self, value: Any) -> Any:
        return self._add(value)

    def map2(self, value: Any) -> Any:
        return self._add(value[0])


def test_connected_keyed_streams_share_keyed_state_in_every_kind_of_function() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env._configuration.set_string("penstock.runtime", "embedded")
    env.set_parallelism(2)
    words = env.from_collection(["a", "b", "a"]).key_by(lambda word: word)
    pairs = env.from_collection([("a", 1), ("b", 2)]).key_by(lambda pair: pair[0])
    assert sorted(words.connect(pairs).map(Tally()).execute_and_collect()) == [
        ("a", 1),
        ("a", 2),
        ("a", 3),
        ("b", 1),
        ("b", 2),
    ]


def test_a_stream_may_be_connected_with_itself() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env._configuration.set_string("penstock.runtime", "embedded")
    numbers = env.from_collection([1, 2])
    assert sorted(numbers.connect(numbers).map(Signs()).execute_and_collect()) == [-2, -1, 1, 2]


def test_what_cannot_be_connected_is_refused_while_the_program_is_built() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers, other = env.from_collection([1]), env.from_collection([2])
    with pytest.raises(JobDefinitionError, match="needs keys on both"):
        numbers.key_by(lambda n: n).connect(other).process(Join())
    with pytest.raises(JobDefinitionError, match="takes a CoMapFunction"):
        numbers.connect(other).map(lambda n: n)  # type: ignore[arg-type]
    with pytest.raises(JobDefinitionError, match="two environments"):
        numbers.connect(StreamExecutionEnvironment.get_execution_environment().from_collection([3]))
    with pytest.raises(JobDefinitionError, match="connect takes"):
        numbers.connect([1, 2])  # type: ignore[call-overload]
