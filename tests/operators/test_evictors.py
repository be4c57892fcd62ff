"""Evictors: what a window function sees, what stays for the next firing, and what reduce and aggregate make of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Time
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import WindowFunction
from penstock.datastream.window import (
    CountEvictor,
    CountTrigger,
    DeltaEvictor,
    EventTimeSessionWindows,
    Evictor,
    GlobalWindows,
    TimeEvictor,
    TimestampedValue,
    TumblingEventTimeWindows,
)
from penstock.errors import JobDefinitionError, PenstockError
from penstock.operators.window import WindowOperator
from penstock.operators.window_contents import AggregateContents, ListContents, ReduceContents
from penstock.testing.harness import OperatorHarness
from tests.operators.windows_by_hand import Statistics

TUMBLING_10: Any = TumblingEventTimeWindows(10, 0)
GLOBAL: Any = GlobalWindows.create()


def first(value: Any) -> Any:
    return value[0]


def distance(old: Any, new: Any) -> float:
    return abs(float(new[1] - old[1]))


class Numbers(WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        yield [value[1] for value in inputs]


def every(evictor: Any, firing: int = 1, **options: Any) -> OperatorHarness:
    """A global window that fires at each `firing`-th element."""
    options.setdefault("contents", ListContents())
    options.setdefault("function", Numbers())
    operator = WindowOperator(
        selector=first, assigner=GLOBAL, trigger=CountTrigger.of(firing), evictor=evictor, **options
    )
    return OperatorHarness(operator)


def pushed(harness: OperatorHarness, *numbers: int) -> OperatorHarness:
    for number in numbers:
        harness.push(("a", number), number)
    return harness


def test_a_count_evictor_keeps_the_last_elements() -> None:
    assert pushed(every(CountEvictor.of(2)), 1, 2, 3, 4).values() == [[1], [1, 2], [2, 3], [3, 4]]


def test_evicting_after_the_function_lets_it_see_what_goes() -> None:
    assert pushed(every(CountEvictor.of(2, True)), 1, 2, 3, 4).values() == [[1], [1, 2], [1, 2, 3], [2, 3, 4]]


def test_a_time_evictor_keeps_what_is_less_than_its_size_older_than_the_newest() -> None:
    assert pushed(every(TimeEvictor.of(Time.milliseconds(5)), 2), 1, 3, 4, 8, 20, 2).values() == [[1, 3], [4, 8], [20]]


def test_a_time_evictor_leaves_elements_without_timestamps_alone() -> None:
    harness = every(TimeEvictor.of(Time.milliseconds(1))).push(("a", 1)).push(("a", 2))
    assert harness.values() == [[1], [1, 2]]


def test_a_delta_evictor_keeps_what_is_close_to_the_last_element() -> None:
    harness = pushed(every(DeltaEvictor.of(3, distance)), 1, 2, 4, 6, 5)
    assert harness.values() == [[1], [1, 2], [2, 4], [4, 6], [4, 6, 5]]


def test_a_reduce_runs_over_what_is_left() -> None:
    contents = ReduceContents(lambda a, b: (a[0], a[1] + b[1]))
    harness = every(CountEvictor.of(2), contents=contents, function=None)
    assert pushed(harness, 1, 2, 3, 4).values() == [("a", 1), ("a", 3), ("a", 5), ("a", 7)]


def test_a_reduce_that_changes_its_first_argument_does_not_change_what_the_window_holds() -> None:
    def add(a: list[Any], b: list[Any]) -> list[Any]:
        a[1] += b[1]
        return a

    harness = every(CountEvictor.of(3), contents=ReduceContents(add), function=None)
    for number in (1, 2, 3):
        harness.push(["a", number])
    assert harness.values() == [["a", 1], ["a", 3], ["a", 6]]


def test_an_aggregate_runs_over_what_is_left() -> None:
    harness = every(CountEvictor.of(2), contents=AggregateContents(Statistics()), function=None)
    assert pushed(harness, 1, 2, 3).values() == [(1, 1, 1, 1, 1.0), (2, 3, 1, 2, 1.5), (2, 5, 2, 3, 2.5)]


def test_a_window_that_was_emptied_gives_the_function_nothing_and_a_reduce_gives_no_result() -> None:
    nobody = CountEvictor.of(0)
    assert pushed(every(nobody), 1, 2).values() == [[], []]
    assert pushed(every(nobody, contents=ReduceContents(max), function=None), 1, 2).values() == []
    harness = pushed(every(nobody), 1)
    harness.snapshot()
    assert [name for name, table in harness.state.tables.items() if table.base] == []


def test_each_window_of_time_is_evicted_on_its_own_and_again_for_late_elements() -> None:
    operator = WindowOperator(
        selector=first,
        assigner=TUMBLING_10,
        contents=ListContents(),
        function=Numbers(),
        evictor=CountEvictor.of(2),
        allowed_lateness=5,
    )
    harness = pushed(OperatorHarness(operator), 1, 2, 3, 11).advance_watermark(9)
    assert harness.records() == [([2, 3], 9)]
    assert pushed(harness, 4).records()[1:] == [([3, 4], 9)]
    assert harness.end_input().records()[2:] == [([11], 19)]
    harness.snapshot()
    assert harness.state.size() == 0


def test_sessions_that_merge_are_evicted_together() -> None:
    operator = WindowOperator(
        selector=first,
        assigner=EventTimeSessionWindows(5),
        contents=ListContents(),
        function=Numbers(),
        evictor=TimeEvictor.of(Time.milliseconds(6)),
    )
    assert pushed(OperatorHarness(operator), 1, 9, 5).end_input().values() == [[9, 5]]


class Spy(Evictor[Any, Any]):
    """Asserts what the context says, and evicts odd numbers before and those above 5 after."""

    def evict_before(
        self, elements: list[TimestampedValue[Any]], size: int, window: Any, evictor_context: Evictor.EvictorContext
    ) -> None:
        assert size == len(elements)
        assert evictor_context.get_current_processing_time() == 7
        assert evictor_context.get_current_watermark() == 3
        assert evictor_context.get_metric_group() is not None
        elements[:] = [element for element in elements if element.get_value()[1] % 2 == 0]

    def evict_after(
        self, elements: list[TimestampedValue[Any]], size: int, window: Any, evictor_context: Evictor.EvictorContext
    ) -> None:
        assert size == len(elements)
        elements[:] = [element for element in elements if element.get_timestamp() <= 5]


def test_an_evictor_of_the_users_own_sees_time_and_may_evict_twice() -> None:
    harness = every(Spy(), 3).advance_processing_time(7).advance_watermark(3)
    assert pushed(harness, 3, 4, 6, 5, 8, 2).values() == [[4, 6], [4, 8, 2]]


def test_asking_for_a_timestamp_that_is_not_there_says_so() -> None:
    with pytest.raises(PenstockError, match="has none"):
        TimestampedValue("x").get_timestamp()


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 20)), max_size=25),
    st.integers(1, 3),
    st.sampled_from(["count", "time", "delta"]),
    st.integers(1, 6),
    st.booleans(),
    st.sets(st.integers(0, 24)),
)
def test_evictors_agree_with_lists_wherever_the_epochs_are_cut(
    records: list[tuple[str, int]], firing: int, kind: str, limit: int, after: bool, cuts: set[int]
) -> None:
    evictors: dict[str, Any] = {
        "count": CountEvictor.of(limit, after),
        "time": TimeEvictor.of(Time.milliseconds(limit), after),
        "delta": DeltaEvictor.of(limit, distance, after),
    }
    harness = every(evictors[kind], firing)
    held: dict[str, list[int]] = {"a": [], "b": []}
    seen = {"a": 0, "b": 0}
    expected = []

    def left(numbers: list[int]) -> list[int]:
        match kind:
            case "count":
                return numbers[-limit:]
            case "time":
                return [number for number in numbers if number > max(numbers) - limit]
        return [number for number in numbers if abs(numbers[-1] - number) < limit]

    for index, (key, number) in enumerate(records):
        if index in cuts:
            harness.snapshot()
            harness.push(("a", 99), 99).rollback()  # an epoch that comes to nothing
        harness.push((key, number), number)
        held[key].append(number)
        seen[key] += 1
        if seen[key] % firing == 0:
            kept = left(held[key])
            expected.append(list(held[key] if after else kept))
            held[key] = kept
    assert harness.values() == expected


# -------------------------------------------------------------------- the API


def test_the_streams_of_windows_and_joins_take_an_evictor() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([("a", 1)])
    evictor = CountEvictor.of(1)
    reduced: list[Any] = [
        stream.key_by(first).window(TUMBLING_10).evictor(evictor).reduce(max),
        stream.window_all(TUMBLING_10).evictor(evictor).reduce(max),
        stream.join(stream).where(first).equal_to(first).window(TUMBLING_10).evictor(evictor).apply(max),
    ]
    assert [type(result._node.operator.evictor) for result in reduced] == [type(evictor)] * 3


def test_what_cannot_be_evicted_is_refused_while_the_program_is_built() -> None:
    windows = StreamExecutionEnvironment().from_collection([{"a": 1}]).key_by("a").window(TUMBLING_10)
    with pytest.raises(JobDefinitionError, match="an Evictor, not a int"):
        windows.evictor(5)  # type: ignore[arg-type]
    with pytest.raises(JobDefinitionError, match="negative"):
        CountEvictor.of(-1)
    with pytest.raises(JobDefinitionError, match="function of two values"):
        DeltaEvictor.of(1, 2)  # type: ignore[arg-type]
