"""Joins over rows and joins over columns are one contract: the same pairs with the same times, the same late records, whatever
the blocks, the parallelism, and wherever the job failed or was rescaled. Both are compared with a join in plain words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.operators import columnar_interval_join, columnar_join, panes
from penstock.operators.panes import PaneGrid
from tests.contract.join_paths import (
    ByHand,
    Fleet,
    IntervalByHand,
    WindowsByHand,
    column_block,
    columnar_interval,
    columnar_over_all_time,
    columnar_windows,
    row_block,
    row_interval,
    row_windows,
    tagged_block,
)
from tests.contract.test_window_paths import assigners
from tests.operators.windows_by_hand import MAX

# Few keys and times, so that records meet: in one pane before and after a restore, on the edge of a watermark.
keys = st.sampled_from(["a", "a", "a", "b", "ab", None])


def scripts(first: int, last: int) -> st.SearchStrategy[list[tuple[str, Any]]]:
    """Records of so many milliseconds, and watermarks a little around them."""
    record = st.tuples(keys, st.sampled_from([1, 2, None]), st.integers(0, 3), st.integers(first, last))
    records = st.lists(record, min_size=1, max_size=8)
    step = st.one_of(
        st.tuples(st.just("left"), records),
        st.tuples(st.just("right"), records),
        st.tuples(st.just("left"), records),
        st.tuples(st.just("right"), records),
        st.tuples(st.just("watermark"), st.integers(first - 1, last + 5)),
        st.tuples(st.just("rescale"), st.sampled_from([1, 1, 2, 7])),
        st.tuples(st.just("crash"), st.none()),
    )
    return st.lists(step, min_size=5, max_size=20)


@pytest.fixture(autouse=True)
def small_panes_and_few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar_interval_join, "NARROWEST", 2)
    monkeypatch.setattr(panes, "MAX_BLOCKS", 3)
    monkeypatch.setattr(columnar_join, "LARGE", 500)


def compare(fleets: Sequence[Fleet], by_hand: ByHand, script: list[tuple[str, Any]]) -> None:
    sides = {"left": 0, "right": 1}
    epoch: list[tuple[str, Any]] = []
    given: list[Any] = [Counter(), Counter()]  # in this epoch
    for kind, what in [*script, ("watermark", MAX)]:
        if kind in sides:
            by_hand.push(sides[kind], what)
        elif kind == "watermark":
            by_hand.advance(what)
        for fleet in fleets:
            match kind:
                case "left" | "right":
                    fleet.push(sides[kind], what)
                case "watermark":
                    fleet.advance(what)
                case "rescale":
                    fleet.rescale(what)
                case _:
                    fleet.rollback()
                    for again, step in epoch:
                        fleet.push(sides[again], step) if again in sides else fleet.advance(step)
        expected = by_hand.take()
        given = [Counter(), Counter()] if kind == "rescale" else [a + b for a, b in zip(given, expected, strict=True)]
        for number, fleet in enumerate(fleets):
            assert fleet.take() == (tuple(given) if kind == "crash" else expected), (number, kind, what)
        epoch = [] if kind == "rescale" else [*epoch, (kind, what)] if kind != "crash" else epoch


@settings(max_examples=150)
@given(
    bounds=st.tuples(st.integers(-6, 6), st.integers(0, 9)),
    by=st.sampled_from([1, 2]),
    block_size=st.sampled_from([1, 2, 3]),
    script=st.one_of(scripts(-9, 15), scripts(0, 4)),
)
def test_interval_joins_of_rows_and_columns_give_the_same_pairs_and_late_records(
    bounds: tuple[int, int], by: int, block_size: int, script: list[tuple[str, Any]]
) -> None:
    lower, upper = bounds[0], bounds[0] + bounds[1]
    fleets = [
        Fleet(row_interval(by, lower, upper), by, row_block, 100),
        Fleet(columnar_interval(by, lower, upper), by, column_block, 100),
        Fleet(columnar_interval(by, lower, upper), by, column_block, block_size),
    ]
    compare(fleets, IntervalByHand(by, lower, upper), script)


WAITS: list[tuple[int, int, list[tuple[str, Any]], list[set[tuple[int, int, int]]]]] = [
    (  # left records wait for those that are later, right ones do not
        -2,
        0,
        [
            ("watermark", 5),
            ("left", [("a", 1, 1, 5)]),  # waits for those of 3 to 5, of which only those of 5 can still come
            ("right", [("a", 1, 2, 5)]),
            ("rescale", 2),
            ("right", [("a", 1, 3, 5)]),
            ("left", [("a", 1, 4, 7)]),  # the right ones of 5 are still waiting, for left ones until 7
            ("watermark", 7),
            ("right", [("a", 1, 5, 7)]),  # the left one of 7 is gone
            ("left", [("a", 1, 6, 7)]),  # the right ones of 5 are gone, that of 7 is not
        ],
        [{(1, 2, 5)}, {(1, 3, 5)}, {(4, 2, 7), (4, 3, 7)}, {(6, 5, 7)}],
    ),
    (  # two of one pane, of which one waits longer
        0,
        2,
        [
            ("left", [("a", 1, 1, 4), ("a", 1, 2, 5)]),
            ("watermark", 6),  # the wait of the one of 4 is over
            ("right", [("a", 1, 3, 6)]),
            ("rescale", 2),
            ("right", [("a", 1, 4, 6)]),
        ],
        [{(2, 3, 6)}, {(2, 4, 6)}],
    ),
]


@pytest.mark.parametrize(("lower", "upper", "script", "expected"), WAITS)
def test_a_record_is_met_until_a_watermark_ends_its_wait(
    lower: int, upper: int, script: list[tuple[str, Any]], expected: list[set[tuple[int, int, int]]]
) -> None:
    """Spelled out, as it is seldom that records come at the very time of the watermark."""
    for fleet in (
        Fleet(row_interval(1, lower, upper), 1, row_block, 100),
        Fleet(columnar_interval(1, lower, upper), 1, column_block, 100),
    ):
        found = []
        for kind, what in script:
            match kind:
                case "watermark":
                    fleet.advance(what)
                case "rescale":
                    fleet.rescale(what)
                case _:
                    fleet.push(int(kind == "right"), what)
            results, late = fleet.take()
            assert not late
            found.append({(left, right, stamp) for (_, left, right, _), stamp in results})
        assert [pairs for pairs in found if pairs] == expected


@settings(max_examples=150)
@given(
    assigner=assigners(),
    lateness=st.sampled_from([0, 1, 4, MAX]),
    by=st.sampled_from([1, 2]),
    block_size=st.sampled_from([1, 2, 3]),
    script=scripts(-9, 15),
)
def test_window_joins_of_rows_and_columns_give_the_same_pairs_and_late_records(
    assigner: Any, lateness: int, by: int, block_size: int, script: list[tuple[str, Any]]
) -> None:
    fleets = [
        Fleet(row_windows(by, assigner, lateness), by, tagged_block, 100),
        Fleet(columnar_windows(by, assigner, lateness), by, column_block, 100),
        Fleet(columnar_windows(by, assigner, lateness), by, column_block, block_size),
    ]
    compare(fleets, WindowsByHand(by, PaneGrid.of(assigner, lateness)), script)


@settings(max_examples=100)
@given(by=st.sampled_from([1, 2]), block_size=st.sampled_from([1, 2, 3]), script=scripts(-9, 15))
def test_a_join_over_all_time_gives_every_pair_once(by: int, block_size: int, script: list[tuple[str, Any]]) -> None:
    fleets = [Fleet(columnar_over_all_time(by), by, column_block, size) for size in (100, block_size)]
    compare(fleets, ByHand(by), script)
