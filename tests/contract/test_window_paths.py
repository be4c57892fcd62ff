"""Windows over rows and windows over columns are one contract: the same firings of every key in the same order, the same
late records, whatever the blocks, the parallelism, and wherever the job failed or was rescaled."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.datastream.window import (
    CumulativeEventTimeWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from tests.contract.window_paths import Fleet, Record, columnar_windows, columns, row_windows, rows
from tests.operators.windows_by_hand import MAX

# Few keys, panes and times, so that records meet: on one pane before and after a restore, on the edge of a watermark.
# Quarters, so that sums of floats do not depend on their order.
values = st.one_of(st.none(), st.integers(-5, 5).map(lambda number: number / 4))
keys = st.sampled_from(["a", "b", "ab", None])
records = st.lists(st.tuples(keys, st.sampled_from([1, 2, None]), values, st.integers(-9, 15)), min_size=1, max_size=8)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("records"), records),
        st.tuples(st.just("records"), records),
        st.tuples(st.just("watermark"), st.integers(-10, 20)),
        st.tuples(st.just("rescale"), st.sampled_from([1, 1, 2, 3])),
        st.tuples(st.just("crash"), st.none()),
    ),
    min_size=5,
    max_size=20,
)


@st.composite
def assigners(draw: st.DrawFn) -> Any:
    size = draw(st.integers(1, 8))
    kind = draw(st.sampled_from(["tumbling", "sliding", "cumulating"]))
    if kind == "cumulating":
        longest = size * draw(st.integers(1, 3))
        return CumulativeEventTimeWindows(longest, size, draw(st.integers(-longest + 1, longest - 1)))
    if kind == "tumbling":
        return TumblingEventTimeWindows(size, draw(st.integers(-size + 1, size - 1)))
    slide = draw(st.integers(1, 9))
    return SlidingEventTimeWindows(size, slide, draw(st.integers(-slide + 1, slide - 1)))


@settings(max_examples=100)
@given(
    assigner=assigners(),
    lateness=st.sampled_from([0, 1, 4, MAX]),
    by=st.sampled_from([("key",), ("key", "part")]),
    block_size=st.sampled_from([1, 2, 3]),
    script=steps,
)
def test_rows_and_columns_give_the_same_firings_and_the_same_late_records(
    assigner: Any, lateness: int, by: tuple[str, ...], block_size: int, script: list[tuple[str, Any]]
) -> None:
    fleets = [
        Fleet(row_windows(by, assigner, lateness), by, rows, 100),
        Fleet(columnar_windows(by, assigner, lateness), by, columns, 100),
        Fleet(columnar_windows(by, assigner, lateness), by, columns, block_size),
    ]
    epoch: list[tuple[str, Any]] = []
    for kind, what in [*script, ("watermark", MAX)]:
        for fleet in fleets:
            match kind:
                case "records":
                    fleet.push(what)
                case "watermark":
                    fleet.advance(what)
                case "rescale":
                    fleet.rescale(what)
                case _:
                    fleet.rollback()
                    for again, step in epoch:
                        fleet.push(step) if again == "records" else fleet.advance(step)
        by_rows, by_columns, by_small_blocks = (fleet.take() for fleet in fleets)
        assert by_columns == by_rows, (kind, what)
        assert by_small_blocks == by_rows, (kind, what)
        epoch = [] if kind == "rescale" else [*epoch, (kind, what)] if kind != "crash" else epoch


LATE: list[Record] = [("a", 1, 2.0, 3), ("b", 1, 4.0, 4), ("a", 1, 8.0, 4), ("a", 1, 16.0, -20), ("a", 1, 32.0, 12)]


@pytest.mark.parametrize("path", ["rows", "columns"])
def test_what_both_paths_do_with_late_records(path: str) -> None:
    """Spelled out, so that the two cannot agree on something wrong."""
    make, blocks = (row_windows, rows) if path == "rows" else (columnar_windows, columns)
    fleet = Fleet(make(("key",), TumblingEventTimeWindows(10, 0), 5), ("key",), blocks, 100)
    fleet.push([("a", 1, 1.0, 0)])
    fleet.advance(9)
    names = ("key", "window_start", "window_end", "n", "total", "low", "high", "mean")
    assert fleet.take() == ({("a",): [(names, "a", 0, 10, 1, 1.0, 1.0, 1.0, 1.0, 9)]}, [[]])
    fleet.push(LATE)
    assert fleet.take() == (
        {
            ("a",): [(names, "a", 0, 10, 2, 3.0, 1.0, 2.0, 1.5, 9), (names, "a", 0, 10, 3, 11.0, 1.0, 8.0, 11 / 3, 9)],
            ("b",): [(names, "b", 0, 10, 1, 4.0, 4.0, 4.0, 4.0, 9)],
        },
        [[("a", 1, 16.0, -20)]],
    )
    fleet.advance(14)
    fleet.push([("a", 1, 1.0, 3)])
    assert fleet.take() == ({}, [[("a", 1, 1.0, 3)]])
    fleet.advance(19)
    assert fleet.take() == ({("a",): [(names, "a", 10, 20, 1, 32.0, 32.0, 32.0, 32.0, 19)]}, [[]])
