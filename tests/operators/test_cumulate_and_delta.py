"""Cumulating windows and the delta trigger."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Time
from penstock.datastream.window import (
    CumulativeEventTimeWindows,
    DeltaTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    PurgingTrigger,
)
from penstock.errors import JobDefinitionError
from penstock.operators.window import WindowOperator
from penstock.operators.window_contents import ListContents, ReduceContents
from penstock.testing.harness import OperatorHarness
from tests.operators.windows_by_hand import Listing, listed


def first(value: Any) -> Any:
    return value[0]


def difference(old: Any, new: Any) -> float:
    return float(new[1] - old[1])


def cumulating(max_size: int, step: int, offset: int = 0) -> OperatorHarness:
    assigner: Any = CumulativeEventTimeWindows.of(
        Time.milliseconds(max_size), Time.milliseconds(step), Time.milliseconds(offset)
    )
    return OperatorHarness(
        WindowOperator(selector=first, assigner=assigner, contents=ListContents(), function=Listing())
    )


def test_each_window_holds_all_since_the_common_start_and_the_next_start_begins_afresh() -> None:
    harness = cumulating(30, 10)
    for time in (1, 12, 29, 30):
        harness.push(("a", time), time)
    assert listed(harness.end_input()) == [
        ("a", 0, 10, (1,)),
        ("a", 0, 20, (1, 12)),
        ("a", 0, 30, (1, 12, 29)),
        ("a", 30, 40, (30,)),
        ("a", 30, 50, (30,)),
        ("a", 30, 60, (30,)),
    ]


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(-30, 60)), max_size=20),
    st.integers(1, 6),
    st.integers(1, 5),
    st.integers(-4, 4),
)
def test_cumulating_windows_agree_with_trying_every_window(
    records: list[tuple[str, int]], step: int, steps: int, offset: int
) -> None:
    max_size = step * steps
    offset = offset % max_size
    harness = cumulating(max_size, step, offset)
    for key, time in records:
        harness.push((key, time), time)
    expected: list[Any] = []
    for start in (offset + n * max_size for n in range(-60, 61)):
        for end in range(start + step, start + max_size + 1, step):
            for key in "ab":
                held = tuple(sorted(time for k, time in records if k == key and start <= time < end))
                if held:
                    expected.append((key, start, end, held))
    assert sorted(listed(harness.end_input())) == sorted(expected)


@pytest.mark.parametrize(("max_size", "step", "offset"), [(10, 0, 0), (10, 20, 0), (10, 3, 0), (10, 5, 10)])
def test_sizes_that_do_not_fit_are_refused(max_size: int, step: int, offset: int) -> None:
    with pytest.raises(JobDefinitionError, match="multiple of step"):
        CumulativeEventTimeWindows(max_size, step, offset)


def delta(trigger: Any) -> OperatorHarness:
    assigner: Any = GlobalWindows.create()
    contents = ReduceContents(lambda a, b: (a[0], a[1], *b[1:]) if len(a) == 2 else (*a, *b[1:]))
    return OperatorHarness(WindowOperator(selector=first, assigner=assigner, contents=contents, trigger=trigger))


def test_a_delta_trigger_fires_when_values_moved_by_more_than_the_threshold_since_it_fired_last() -> None:
    harness = delta(PurgingTrigger.of(DeltaTrigger.of(5, difference)))
    for number in (1, 6, 7, 12, 13, 100):
        harness.push(("a", number))
    assert harness.values() == [("a", 1, 6, 7), ("a", 12, 13), ("a", 100)]


def test_each_key_has_a_last_element_of_its_own_that_survives_a_restore() -> None:
    before = delta(DeltaTrigger.of(5, difference)).push(("a", 0)).push(("b", 100))
    harness = delta(DeltaTrigger.of(5, difference)).restore(before.snapshot())
    assert harness.push(("b", 105)).push(("a", 6)).values() == [("a", 0, 6)]


def test_a_delta_trigger_cannot_be_used_with_windows_that_merge() -> None:
    with pytest.raises(JobDefinitionError, match="DeltaTrigger"):
        WindowOperator(
            selector=first,
            assigner=EventTimeSessionWindows(5),
            contents=ListContents(),
            function=Listing(),
            trigger=DeltaTrigger.of(1, difference),
        )
    with pytest.raises(JobDefinitionError, match="function of two values"):
        DeltaTrigger.of(1, 2)  # type: ignore[arg-type]
