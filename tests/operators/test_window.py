"""Flink's rules for windows that do not merge: when they fire, what is late, what is left behind."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from penstock.common.typeinfo import Types
from penstock.datastream.functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    PurgingTrigger,
    SlidingEventTimeWindows,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.errors import JobDefinitionError, PenstockError, UserFunctionError
from penstock.functions.process import OutputTag
from penstock.operators.window import WindowOperator
from penstock.operators.window_contents import AggregateContents, ListContents, ReduceContents
from penstock.testing.harness import OperatorHarness
from tests.operators.windows_by_hand import MAX, Listing, Statistics, Tagging

TUMBLING_10: Any = TumblingEventTimeWindows(10, 0)


def first(value: Any) -> Any:
    return value[0]


def add(a: Any, b: Any) -> Any:
    return a[0], a[1] + b[1]


def windows(assigner: Any = TUMBLING_10, **options: Any) -> OperatorHarness:
    options.setdefault("selector", first)
    options.setdefault("contents", ListContents())
    if isinstance(options["contents"], ListContents):
        options.setdefault("function", Listing())
    return OperatorHarness(WindowOperator(assigner=assigner, **options))


@pytest.fixture(params=[True, False], ids=["fast path", "general path"])
def fast_path(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


# -------------------------------------------------------------------- event time


def test_a_window_fires_when_the_watermark_reaches_its_last_millisecond_and_not_before(fast_path: bool) -> None:
    harness = windows(fast_path=fast_path).push(("a", 1), 0).push(("a", 2), 9).push(("a", 3), 10)
    assert harness.advance_watermark(8).values() == []
    assert harness.advance_watermark(9).records() == [(("a", 0, 10, (1, 2)), 9)]
    assert harness.end_input().records()[1:] == [(("a", 10, 20, (3,)), 19)]


def test_results_leave_before_the_watermark_that_caused_them() -> None:
    harness = windows().push(("a", 1), 0).advance_watermark(30)
    assert harness.records()[0][1] == 9
    assert harness.watermarks == [30]


def test_windows_before_the_epoch_are_floored_not_truncated(fast_path: bool) -> None:
    harness = windows(fast_path=fast_path).push(("a", 1), -1).push(("a", 2), -10).push(("a", 3), -11).end_input()
    assert harness.values() == [("a", -20, -10, (3,)), ("a", -10, 0, (1, 2))]


def test_an_element_is_late_exactly_when_the_watermark_has_reached_the_end_of_its_window(fast_path: bool) -> None:
    harness = windows(fast_path=fast_path).advance_watermark(8).push(("a", 1), 0)
    assert harness.metrics.late_dropped == 0
    harness.advance_watermark(9).push(("a", 2), 9).push(("a", 3), 0)
    assert harness.metrics.late_dropped == 2
    assert harness.end_input().values() == [("a", 0, 10, (1,))]


def test_an_element_behind_the_watermark_is_not_late_while_its_window_is_open(fast_path: bool) -> None:
    harness = windows(fast_path=fast_path).advance_watermark(7).push(("a", 1), 2).end_input()
    assert harness.values() == [("a", 0, 10, (1,))]


def test_late_elements_go_to_the_side_output_with_their_timestamp_and_are_not_counted(fast_path: bool) -> None:
    harness = windows(late_tag="late", fast_path=fast_path).advance_watermark(20).push(("a", 1), 4)
    assert harness.side_records("late") == [(("a", 1), 4)]
    assert harness.metrics.late_dropped == 0


def test_within_the_allowed_lateness_every_element_fires_again_with_everything(fast_path: bool) -> None:
    harness = windows(allowed_lateness=5, fast_path=fast_path).push(("a", 1), 3).push(("b", 9), 3)
    harness.advance_watermark(13).clear_output()
    harness.push_all([(("a", 2), 4), (("a", 3), 5)])
    assert harness.values() == [("a", 0, 10, (1, 2)), ("a", 0, 10, (1, 2, 3))]
    harness.clear_output().advance_watermark(14).push(("a", 4), 6)  # 9 + 5: the window is dropped
    assert harness.values() == []
    assert harness.metrics.late_dropped == 1


def test_a_window_whose_first_element_is_late_but_allowed_fires_at_once(fast_path: bool) -> None:
    harness = windows(allowed_lateness=5, fast_path=fast_path).advance_watermark(10).push(("a", 1), 3)
    assert harness.records() == [(("a", 0, 10, (1,)), 9)]
    assert len(harness.end_input().values()) == 1


def test_nothing_is_left_of_windows_that_were_dropped(fast_path: bool) -> None:
    harness = windows(allowed_lateness=5, fast_path=fast_path, contents=ReduceContents(add))
    harness.push_all([((key, 1), time) for key in "abc" for time in (1, 11)]).advance_watermark(30)
    assert {name: len(table) for name, table in harness.state.tables.items() if len(table)} == {}


def test_the_allowed_lateness_cannot_overflow_the_end_of_time() -> None:
    harness = windows(allowed_lateness=MAX).push(("a", 1), 3).advance_watermark(MAX - 1).push(("a", 2), 3)
    assert harness.values() == [("a", 0, 10, (1,)), ("a", 0, 10, (1, 2))]
    assert harness.metrics.late_dropped == 0


def test_sliding_windows_take_an_element_as_long_as_one_of_its_windows_is_open(fast_path: bool) -> None:
    harness = windows(SlidingEventTimeWindows(10, 5, 0), fast_path=fast_path).advance_watermark(9)
    harness.push(("a", 1), 7)  # [0, 10) is late, [5, 15) is not
    assert harness.metrics.late_dropped == 0
    harness.advance_watermark(14).push(("a", 2), 7)
    assert harness.metrics.late_dropped == 1
    assert harness.values() == [("a", 5, 15, (1,))]


def test_an_element_between_two_windows_is_in_none_and_late_only_by_its_own_time(fast_path: bool) -> None:
    harness = windows(SlidingEventTimeWindows(3, 10, 0), fast_path=fast_path).push(("a", 1), 5).push(("a", 2), 12)
    assert harness.metrics.late_dropped == 0
    harness.advance_watermark(5).push(("a", 3), 5)
    assert harness.metrics.late_dropped == 1
    assert harness.end_input().values() == [("a", 10, 13, (2,))]


def test_a_record_without_a_timestamp_is_refused_with_advice(fast_path: bool) -> None:
    with pytest.raises(PenstockError, match="assign_timestamps_and_watermarks"):
        windows(fast_path=fast_path).push(("a", 1))
    with pytest.raises(PenstockError, match="assign_timestamps_and_watermarks"):
        windows(fast_path=fast_path).push(("a", 1), -(2**63))


def test_an_error_of_the_users_function_names_the_record(fast_path: bool) -> None:
    harness = windows(contents=ReduceContents(lambda a, b: a / 0), fast_path=fast_path).push(("a", 1), 1)
    with pytest.raises(UserFunctionError, match=r"on record \('a', 2\)"):
        harness.push(("a", 2), 2)


# -------------------------------------------------------------------- contents and functions


def test_reduce_without_a_function_emits_the_value_itself() -> None:
    harness = windows(contents=ReduceContents(add)).push_all([(("a", 1), 0), (("a", 2), 1), (("b", 5), 2)]).end_input()
    assert harness.records() == [(("a", 3), 9), (("b", 5), 9)]


def test_an_aggregate_reaches_the_window_function_as_one_result() -> None:
    harness = windows(contents=AggregateContents(Statistics()), function=Tagging())
    assert harness.push(("a", 1), 0).push(("a", 3), 1).end_input().values() == [("a", 0, 10, 2, 4, 1, 3, 2.0)]


class Size(WindowFunction[Any, Any, Any, Any]):
    def apply(self, key: Any, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return [(key, window.end, len(list(inputs)))]


class SizeOfAll(AllWindowFunction[Any, Any, Any]):
    def apply(self, window: Any, inputs: Iterable[Any]) -> Iterable[Any]:
        return [(window.end, len(list(inputs)))]


class SeenBefore(ProcessAllWindowFunction[Any, Any, Any]):
    def process(self, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        seen = context.global_state().get_state(ValueStateDescriptor("seen", Types.LONG()))
        seen.update((seen.value() or 0) + len(list(elements)))
        yield seen.value()


def test_every_kind_of_window_function_is_called() -> None:
    elements = [(("a", 1), 0), (("b", 2), 1), (("b", 2), 11)]
    assert windows(function=Size()).push_all(elements).end_input().values() == [
        ("a", 10, 1),
        ("b", 10, 1),
        ("b", 20, 1),
    ]
    assert windows(selector=None, function=SizeOfAll()).push_all(elements).end_input().values() == [(10, 2), (20, 1)]
    assert windows(selector=None, function=SeenBefore()).push_all(elements).end_input().values() == [2, 3]


TAG = OutputTag("odd", Types.PICKLED_BYTE_ARRAY())


class Sides(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        for _, value in elements:
            yield (TAG, value) if value % 2 else value


def test_a_process_window_function_may_yield_to_side_outputs() -> None:
    harness = windows(function=Sides()).push(("a", 1), 0).push(("a", 2), 0).end_input()
    assert harness.values() == [2]
    assert harness.side_records(TAG) == [(1, 9)]


FIRINGS = ValueStateDescriptor("firings", Types.LONG())


class Firings(ProcessWindowFunction[Any, Any, Any, Any]):
    """(firings of this window, firings of this key)."""

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        states = [store.get_state(FIRINGS) for store in (context.window_state(), context.global_state())]
        for state in states:
            state.update((state.value() or 0) + 1)
        yield tuple(state.value() for state in states)

    def clear(self, context: Any) -> None:
        context.window_state().get_state(FIRINGS).clear()


def test_window_state_is_per_window_and_cleared_with_it_and_global_state_outlives_it(fast_path: bool) -> None:
    harness = windows(function=Firings(), allowed_lateness=20, fast_path=fast_path).push(("a", 1), 0).push(("a", 1), 10)
    harness.advance_watermark(20).push(("a", 2), 0)
    assert harness.values() == [(1, 1), (1, 2), (2, 3)]
    harness.end_input()
    left = {name: dict(table.items()) for name, table in harness.state.tables.items() if len(table)}
    assert left == {"firings": {"a": 3}}


def test_window_state_is_refused_where_windows_merge() -> None:
    harness = windows(EventTimeSessionWindows(10), function=Firings()).push(("a", 1), 0)
    with pytest.raises(JobDefinitionError, match=r"global_state\(\)"):
        harness.end_input()


class Vandal(Listing):
    def process(self, key: Any, context: Any, elements: Any) -> Iterable[Any]:
        yield from super().process(key, context, elements)
        elements.clear()


def test_what_a_function_does_to_its_list_does_not_reach_the_window(fast_path: bool) -> None:
    harness = windows(function=Vandal(), allowed_lateness=9, fast_path=fast_path).push(("a", 1), 0)
    harness.advance_watermark(10).push(("a", 2), 1)
    assert harness.values()[1] == ("a", 0, 10, (1, 2))


# -------------------------------------------------------------------- triggers


def test_a_count_trigger_fires_on_every_nth_element_of_a_pane_and_keeps_its_contents() -> None:
    harness = windows(trigger=CountTrigger(2))
    harness.push_all([(("a", n), n) for n in range(5)] + [(("b", 9), 9)]).end_input()
    assert harness.values() == [("a", 0, 10, (0, 1)), ("a", 0, 10, (0, 1, 2, 3))]


def test_a_purging_trigger_empties_the_window_each_time_it_fires() -> None:
    harness = windows(trigger=PurgingTrigger(CountTrigger(2))).push_all([(("a", n), n) for n in range(5)]).end_input()
    assert harness.values() == [("a", 0, 10, (0, 1)), ("a", 0, 10, (2, 3))]


def test_a_purged_event_time_window_that_gets_a_late_element_fires_with_that_element_alone() -> None:
    harness = windows(trigger=PurgingTrigger(EventTimeTrigger()), allowed_lateness=5).push(("a", 1), 0)
    harness.advance_watermark(10).push(("a", 2), 1)
    assert harness.values() == [("a", 0, 10, (1,)), ("a", 0, 10, (2,))]


def test_a_continuous_trigger_fires_in_between_and_at_the_end() -> None:
    harness = windows(trigger=ContinuousEventTimeTrigger(4)).push(("a", 1), 1)
    harness.advance_watermark(4).push(("a", 2), 6).advance_watermark(8).advance_watermark(9)
    assert [value[3] for value in harness.values()] == [(1,), (1, 2), (1, 2)]
    assert all(len(table) == 0 for table in harness.state.tables.values())


def test_count_windows_hold_so_many_elements_of_a_key_and_forget_them() -> None:
    harness = windows(CountTumblingWindowAssigner(2), contents=ReduceContents(add))
    harness.push_all([(("a", 1), None), (("b", 10), None), (("a", 2), None), (("a", 3), None), (("a", 4), None)])
    assert harness.values() == [("a", 3), ("a", 7)]
    left = {name: dict(table.items()) for name, table in harness.state.tables.items() if len(table)}
    assert left == {
        "tumble-count-assigner": {"a": 4, "b": 1},
        "window-contents": {("b", (0,)): ("b", 10)},
        "trigger:count": {("b", (0,)): 1},
    }


def test_sliding_count_windows_overlap() -> None:
    harness = windows(CountSlidingWindowAssigner(3, 2), contents=ReduceContents(add))
    assert harness.push_all([(("a", n), None) for n in (1, 2, 3, 4, 5)]).values() == [("a", 6), ("a", 12)]


def test_a_global_window_fires_by_its_trigger_only_and_results_have_the_time_of_what_fired_it() -> None:
    assert windows(GlobalWindows(), contents=ReduceContents(add)).push(("a", 1), 5).end_input().values() == []
    harness = windows(GlobalWindows(), contents=ReduceContents(add), trigger=CountTrigger(2))
    assert harness.push(("a", 1), 5).push(("a", 2), 6).records() == [(("a", 3), 6)]


def test_processing_time_windows_fire_by_the_clock_of_the_epoch_and_know_no_late_elements() -> None:
    harness = windows(TumblingProcessingTimeWindows(10, 0)).advance_processing_time(103)
    harness.push(("a", 1), 5).advance_watermark(1000).push(("a", 2), 5)
    assert harness.advance_processing_time(108).values() == []
    assert harness.advance_processing_time(109).records() == [(("a", 100, 110, (1, 2)), 109)]
    assert harness.metrics.late_dropped == 0
    assert all(len(table) == 0 for table in harness.state.tables.values())


class InThePast(NeverTrigger[Any]):
    """Asks for a timer that is due already."""

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        ctx.register_event_time_timer(ctx.get_current_watermark() - 3)
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE


def test_a_timer_registered_in_the_past_fires_with_the_next_watermark() -> None:
    harness = windows(GlobalWindows(), trigger=InThePast(), contents=ReduceContents(add)).advance_watermark(50)
    assert harness.push(("a", 1), 60).values() == []
    assert harness.advance_watermark(51).values() == [("a", 1)]


# -------------------------------------------------------------------- definition


def test_windows_that_make_no_sense_are_refused_when_they_are_defined() -> None:
    with pytest.raises(JobDefinitionError, match="NeverTrigger cannot be used"):
        windows(EventTimeSessionWindows(10), trigger=NeverTrigger())
    with pytest.raises(JobDefinitionError, match="-1 ms"):
        windows(allowed_lateness=-1)
    with pytest.raises(JobDefinitionError, match="needs a window function"):
        windows(function=None)
    with pytest.raises(JobDefinitionError, match="keyed stream takes WindowFunction"):
        windows(function=SizeOfAll())
    with pytest.raises(JobDefinitionError, match="whole stream takes AllWindowFunction"):
        windows(selector=None, function=Size())
    with pytest.raises(JobDefinitionError, match="AggregateFunction"):
        AggregateContents(add)  # type: ignore[arg-type]
