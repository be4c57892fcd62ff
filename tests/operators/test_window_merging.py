"""Session windows: when they merge, what merges with them, and what of the merged ones must be gone."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.datastream.window import (
    CountTrigger,
    EventTimeSessionWindows,
    MergingWindowAssigner,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    TimeWindow,
)
from penstock.errors import PenstockError
from penstock.operators.merging_windows import MergingWindowSet
from penstock.operators.window import WindowOperator
from penstock.operators.window_contents import AggregateContents, ListContents, ReduceContents
from penstock.testing.harness import OperatorHarness
from tests.operators.windows_by_hand import Listing, Statistics, Tagging

GAP_10: Any = EventTimeSessionWindows(10)


def sessions(assigner: Any = GAP_10, **options: Any) -> OperatorHarness:
    options.setdefault("contents", ListContents())
    if isinstance(options["contents"], ListContents):
        options.setdefault("function", Listing())
    return OperatorHarness(WindowOperator(selector=lambda value: value[0], assigner=assigner, **options))


def left(harness: OperatorHarness) -> dict[str, Any]:
    return {name: dict(table.items()) for name, table in harness.state.tables.items() if len(table)}


def test_an_element_that_bridges_two_sessions_makes_them_one() -> None:
    harness = sessions().push(("a", 1), 0).push(("a", 2), 15).push(("b", 9), 15)
    assert len(harness.state.event_timers) == 3
    harness.push(("a", 3), 7)
    assert len(harness.state.event_timers) == 2  # those of the merged sessions are gone
    lenient = sessions(allowed_lateness=5).push(("a", 1), 0).push(("a", 2), 15).push(("a", 3), 7)
    assert len(lenient.state.event_timers) == 2  # one to fire, one to clean up
    assert harness.advance_watermark(24).records() == [(("a", 0, 25, (1, 2, 3)), 24), (("b", 15, 25, (9,)), 24)]
    assert left(harness) == {}


def test_sessions_exactly_one_gap_apart_are_one_session_and_a_millisecond_more_makes_two() -> None:
    assert sessions().push(("a", 1), 0).push(("a", 2), 10).end_input().values() == [("a", 0, 20, (1, 2))]
    assert len(sessions().push(("a", 1), 0).push(("a", 2), 11).end_input().values()) == 2


def test_reductions_and_accumulators_of_merged_sessions_are_merged() -> None:
    elements = [(("a", 1), 0), (("a", 2), 15), (("a", 3), 7)]
    reduced = sessions(contents=ReduceContents(lambda a, b: (a[0], a[1] + b[1]))).push_all(elements).end_input()
    assert reduced.records() == [(("a", 6), 24)]
    aggregated = sessions(contents=AggregateContents(Statistics()), function=Tagging()).push_all(elements).end_input()
    assert aggregated.values() == [("a", 0, 25, 3, 6, 1, 3, 2.0)]


def test_a_session_that_is_late_by_itself_is_saved_by_merging_with_one_in_flight() -> None:
    harness = sessions().push(("a", 1), 10).advance_watermark(15)
    harness.push(("a", 2), 2)  # [2, 12) alone would be late; with [10, 20) it is [2, 20)
    assert harness.metrics.late_dropped == 0
    harness.push(("b", 3), 2)
    assert harness.metrics.late_dropped == 1
    assert harness.end_input().values() == [("a", 2, 20, (1, 2))]
    assert left(harness) == {}


def test_a_late_element_within_the_allowed_lateness_grows_and_refires_a_session() -> None:
    harness = sessions(allowed_lateness=100).push(("a", 1), 0).advance_watermark(50).push(("a", 2), 5)
    assert harness.values() == [("a", 0, 10, (1,)), ("a", 0, 15, (1, 2))]
    assert harness.advance_watermark(114).values()[2:] == []
    assert left(harness) == {}


def test_count_triggers_add_their_counts_up_when_sessions_merge() -> None:
    harness = sessions(trigger=CountTrigger(3)).push(("a", 1), 0).push(("a", 2), 15)
    assert harness.values() == []
    assert harness.push(("a", 3), 7).values() == [("a", 0, 25, (1, 2, 3))]


def test_a_purged_session_stays_in_flight_and_can_still_merge() -> None:
    harness = sessions(trigger=PurgingTrigger(CountTrigger(1))).push(("a", 1), 0).push(("a", 2), 5)
    assert harness.values() == [("a", 0, 10, (1,)), ("a", 0, 15, (2,))]
    assert left(harness.advance_watermark(14)) == {}


def test_processing_time_sessions_end_by_the_clock() -> None:
    harness = sessions(ProcessingTimeSessionWindows(10)).advance_processing_time(100).push(("a", 1))
    harness.advance_processing_time(105).push(("a", 2)).advance_processing_time(113)
    assert harness.values() == []
    assert harness.advance_processing_time(114).records() == [(("a", 100, 115, (1, 2)), 114)]
    assert left(harness) == {}


class GapInElement(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        return int(element[1])


def test_an_element_whose_window_equals_a_merged_one_in_flight_loses_nothing() -> None:
    harness = sessions(EventTimeSessionWindows.with_dynamic_gap(GapInElement()))
    harness.push(("a", 5), 0).push(("a", 6), 4).push(("a", 10), 0).end_input()
    assert harness.values() == [("a", 0, 10, (5, 6, 10))]


def test_the_contents_of_merged_sessions_survive_a_restore() -> None:
    before = sessions().push(("a", 1), 0).push(("a", 2), 15).push(("a", 3), 7)
    after = sessions().restore(before.snapshot()).push(("a", 4), 20)
    assert after.end_input().values() == [("a", 0, 30, (1, 2, 3, 4))]
    assert left(after) == {}


class Shrinking(EventTimeSessionWindows[Any]):
    """Merges everything into a window that has ended long ago."""

    def merge_windows(self, windows: Any, callback: Any) -> None:
        several = list(windows)
        if len(several) > 1:
            callback.merge(several, TimeWindow(-20, -10))


def test_an_assigner_that_merges_into_the_past_is_refused() -> None:
    harness = sessions(Shrinking(10)).advance_watermark(0).push(("a", 1), 5)
    with pytest.raises(PenstockError, match="has ended already"):
        harness.push(("a", 2), 30)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)), max_size=15))
def test_windows_in_flight_never_touch_and_each_has_a_state_window_of_its_own(spans: list[tuple[int, int]]) -> None:
    assigner: MergingWindowAssigner[Any, Any] = EventTimeSessionWindows(1)
    held = MergingWindowSet(assigner, {})
    stored: dict[Any, set[int]] = {}
    for index, (start, length) in enumerate(spans):

        def merge(result: Any, merged: list[Any], target: Any, moving: list[Any]) -> None:
            for source in moving:
                stored[target] |= stored.pop(source)

        window = held.add(TimeWindow(start, start + length), merge)
        stored.setdefault(held.state_window(window), set()).add(index)
    flying = sorted(held.mapping)
    assert all(not a.intersects(b) for a, b in pairwise(flying))
    assert set(held.mapping.values()) == set(stored)
    assert len(set(held.mapping.values())) == len(held.mapping)
    for window, state in held.mapping.items():
        assert stored[state] == {
            index
            for index, (start, length) in enumerate(spans)
            if window.start <= start and start + length <= window.end
        }


def test_of_thousands_of_open_sessions_a_new_record_looks_at_its_neighbours_only() -> None:
    held = MergingWindowSet(EventTimeSessionWindows(10), {TimeWindow(n * 100, n * 100 + 10): n for n in range(4000)})
    near = [len(held._near(TimeWindow(start, start + 10))) for start in (105, 50, 111, 90, 399_910, 399_911, 500_000)]
    assert near == [1, 0, 0, 1, 1, 0, 0]
    (wide,) = held._groups(TimeWindow(95, 205))
    assert wide == (TimeWindow(95, 210), [TimeWindow(100, 110), TimeWindow(200, 210), TimeWindow(95, 205)])
    held._assigner.merge_windows = lambda *_: pytest.fail("all windows are looked at")  # type: ignore[method-assign]
    assert held.add(TimeWindow(95, 205), lambda *_: None) == TimeWindow(95, 210)
    assert sorted(held.mapping) == held._order


def test_a_session_that_opens_grows_or_ends_is_one_changed_entry_however_many_are_open() -> None:
    harness = sessions(contents=AggregateContents(Statistics()))
    harness.push_all([(("a", 1), n * 100) for n in range(500)])
    harness.snapshot()

    def changed() -> int:
        count = len(harness.state.tables["windows-in-flight"].delta())
        harness.snapshot(full=False)
        return count

    harness.push(("a", 1), 205)
    assert changed() == 1
    harness.push(("a", 1), 50_000)
    assert changed() == 1
    harness.push(("a", 1), 10)  # with [0, 10) a longer one; no other is near
    assert changed() == 1
    harness.advance_watermark(19)
    assert changed() == 1
    assert len(harness.values()) == 1


def test_sessions_of_a_checkpoint_that_has_them_as_one_value_go_on() -> None:
    before = sessions().push(("a", 1), 0).push(("a", 2), 15).push(("a", 3), 7).push(("a", 4), 100).push(("b", 5), 0)
    in_flight = before.state.tables["windows-in-flight"]
    old = before.state.table("merging-windows", "value")
    for key in "ab":
        old.put(key, tuple(sorted((window, stored) for stored, window in in_flight.entries_of(key))))  # type: ignore[attr-defined]
        in_flight.clear(key)  # type: ignore[attr-defined]
    after = sessions().restore(before.snapshot()).push(("a", 6), 20)
    after.rollback()  # it never was, so the same again
    assert after.push(("a", 6), 20).end_input().values() == [
        ("b", 0, 10, (5,)),
        ("a", 0, 30, (1, 2, 3, 6)),
        ("a", 100, 110, (4,)),
    ]
    assert left(after) == {}


def test_many_sessions_of_a_key_are_as_they_were_after_a_rollback() -> None:
    harness = sessions(contents=AggregateContents(Statistics()), function=Tagging())
    harness.push_all([(("a", 1), n * 100) for n in range(50)])
    harness.snapshot()
    harness.push_all([(("a", 7), n * 100 + 5) for n in range(50)]).push(("a", 7), 15).rollback()
    assert [value[:4] for value in harness.end_input().values()] == [("a", n * 100, n * 100 + 10, 1) for n in range(50)]
