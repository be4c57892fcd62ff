"""Accumulators: what was added in parts and merged is what would have been added to one."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common.accumulators import (
    Accumulator,
    AverageAccumulator,
    DoubleCounter,
    DoubleMaximum,
    DoubleMinimum,
    Histogram,
    IntCounter,
    IntMaximum,
    IntMinimum,
    ListAccumulator,
    LongCounter,
    LongMaximum,
    LongMinimum,
    merge_into,
)
from penstock.errors import JobDefinitionError

# With multiples of a quarter sums of floats are exact in every order.
KINDS: dict[type[Accumulator[Any, Any]], Callable[[list[int]], Any]] = {
    IntCounter: sum,
    LongCounter: sum,
    DoubleCounter: lambda values: sum(values) / 4,
    IntMinimum: lambda values: min(values, default=2**31 - 1),
    IntMaximum: lambda values: max(values, default=-(2**31)),
    LongMinimum: lambda values: min(values, default=2**63 - 1),
    LongMaximum: lambda values: max(values, default=-(2**63)),
    DoubleMinimum: lambda values: min(values, default=float("inf")) / 4,
    DoubleMaximum: lambda values: max(values, default=float("-inf")) / 4,
    AverageAccumulator: lambda values: sum(values) / 4 / len(values) if values else 0.0,
    Histogram: lambda values: {value: values.count(value) for value in sorted(set(values))},
    ListAccumulator: list,
}
QUARTERS = (DoubleCounter, DoubleMinimum, DoubleMaximum, AverageAccumulator)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(parts=st.lists(st.lists(st.integers(-50, 50)), max_size=4))
def test_merging_parts_gives_what_one_accumulator_would_have(
    kind: type[Accumulator[Any, Any]], parts: list[list[int]]
) -> None:
    merged: dict[str, Accumulator[Any, Any]] = {"x": kind()}
    for part in parts:
        accumulator = kind()
        for value in part:
            accumulator.add(value / 4 if kind in QUARTERS else value)
        before = accumulator.get_local_value()
        merge_into(merged, "x", accumulator)
        assert accumulator.get_local_value() == before
    assert merged["x"].get_local_value() == KINDS[kind]([value for part in parts for value in part])
    merged["x"].reset_local()
    assert merged["x"].get_local_value() == KINDS[kind]([])


def test_two_classes_under_one_name_are_refused() -> None:
    with pytest.raises(JobDefinitionError, match="'x' is a IntCounter in one place and a Histogram in another"):
        merge_into({"x": IntCounter()}, "x", Histogram())


def test_a_counter_may_start_with_a_value() -> None:
    assert (IntCounter(5).get_local_value(), repr(IntCounter(5))) == (5, "IntCounter(5)")


@given(
    steps=st.lists(st.integers(1, 600) | st.sampled_from(["epoch", "restore", "merge", "result"]), max_size=12),
)
@settings(deadline=None)
def test_a_list_has_everything_in_the_order_of_its_subtask_whatever_was_pickled_when(steps: list[Any]) -> None:
    mine, total, expected = ListAccumulator(), ListAccumulator(), list[Any]()
    for step in steps:
        match step:
            case "epoch":
                pickle.dumps(mine)
            case "restore":
                mine = pickle.loads(pickle.dumps(mine))
            case "merge":
                total = copy.deepcopy(mine)
                total.reset_local()
                total.merge(mine)
                assert total.get_local_value() == expected
            case "result":
                assert mine.get_local_value() == expected
            case _:
                for number in range(step):
                    mine.add({"n": number})
                    expected.append({"n": number})
    assert mine.get_local_value() == expected
    mine.reset_local()
    assert mine.get_local_value() == []


def test_a_list_of_an_older_release_is_read_and_what_was_pickled_is_not_pickled_again() -> None:
    old = ListAccumulator.__new__(ListAccumulator)
    old.__setstate__({"_values": [1, 2]})
    assert old.get_local_value() == [1, 2]
    mine = ListAccumulator()
    for _ in range(1000):
        mine.add(Counted())
    pickle.dumps(mine)
    pickled = Counted.pickled
    pickle.dumps(mine)
    copy.deepcopy(mine)
    assert Counted.pickled == pickled == 1000


class Counted:
    pickled = 0

    def __reduce__(self) -> Any:
        Counted.pickled += 1
        return Counted, ()
