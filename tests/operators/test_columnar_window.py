"""Columnar windows: the contract of windows over rows, kept block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.common.typeinfo import Types
from penstock.datastream.aggregates import count, max_, mean, min_, sum_
from penstock.datastream.window import (
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from penstock.errors import JobDefinitionError, PenstockError
from penstock.operators.aggregation import PartialAggregation
from penstock.operators.columnar_window import ColumnarWindowOperator
from penstock.operators.panes import MAX_BLOCKS, PaneGrid
from penstock.records import Columns, Rows, exact_sums
from penstock.state.keys import key_group, subtask_of
from penstock.testing.harness import OperatorHarness
from tests.operators.windows_by_hand import MAX

TUMBLING_10: Any = TumblingEventTimeWindows(10, 0)
STATISTICS = {"n": count(), "total": sum_("value"), "low": min_("value"), "high": max_("value"), "mean": mean("value")}


def block(*rows: tuple[Any, Any, int]) -> Columns:
    """(key, value, timestamp) rows."""
    keys, values, stamps = zip(*rows, strict=True)
    batch = pa.record_batch({"key": pa.array(keys), "value": pa.array(values, pa.int64()), "other": pa.array(stamps)})
    return Columns(batch, np.array(stamps, dtype=np.int64))


def operator(assigner: Any = TUMBLING_10, aggregates: Any = None, **options: Any) -> ColumnarWindowOperator:
    return ColumnarWindowOperator(("key",), assigner, aggregates or {"total": sum_("value")}, **options)


def windows(assigner: Any = TUMBLING_10, aggregates: Any = None, **options: Any) -> OperatorHarness:
    return OperatorHarness(operator(assigner, aggregates, **options))


def rows(harness: OperatorHarness) -> list[tuple[Any, ...]]:
    return [tuple(value) for value in harness.values()]


def test_a_window_fires_at_its_last_millisecond_sorted_by_key_with_its_bounds() -> None:
    harness = windows().push_block(block(("b", 1, 0), ("a", 2, 9), ("b", 3, 5), ("a", 7, 10)))
    assert harness.advance_watermark(8).output.blocks == []
    harness.advance_watermark(9)
    (result,) = harness.output.blocks
    assert isinstance(result, Columns)
    assert result.batch.to_pydict() == {
        "key": ["a", "b"],
        "window_start": [0, 0],
        "window_end": [10, 10],
        "total": [2, 4],
    }
    assert result.timestamps is not None
    assert result.timestamps.tolist() == [9, 9]
    assert rows(harness.end_input())[2:] == [("a", 10, 20, 7)]
    assert harness.metrics.records_in == 4
    assert harness.metrics.records_out == 3


def test_all_aggregates_agree_with_what_they_say() -> None:
    harness = (
        windows(aggregates=STATISTICS)
        .push_block(block(("a", 5, 1), ("a", None, 2)))
        .push_block(block(("a", 2, 3), ("b", None, 3)))
    )
    assert rows(harness.end_input()) == [("a", 0, 10, 3, 7, 2, 5, 3.5), ("b", 0, 10, 1, None, None, None, None)]


def test_keys_of_several_columns_strings_nulls_and_dictionaries_are_grouped() -> None:
    batch = pa.record_batch(
        {
            "a": pa.array(["x", "y", "x", None, None]).dictionary_encode(),
            "b": pa.array([1, 1, 1, 2, 2], pa.int32()),
        }
    )
    harness = OperatorHarness(ColumnarWindowOperator(("a", "b"), TUMBLING_10, {"n": count()}))
    harness.push_block(Columns(batch, np.zeros(5, dtype=np.int64))).end_input()
    assert rows(harness) == [("x", 1, 0, 10, 2), ("y", 1, 0, 10, 1), (None, 2, 0, 10, 2)]


def test_records_of_several_panes_are_grouped_in_arrays_and_fire_in_the_order_of_their_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def by_hash(*_: Any) -> Any:
        raise AssertionError("whole numbers close together need no hash table, however many panes they are in")

    monkeypatch.setattr(exact_sums, "_grouped_by_hash", by_hash)
    rng = np.random.default_rng(3)
    keys, stamps = rng.integers(-50, 50, 5_000), rng.integers(1_700_000_000_000, 1_700_000_040_000, 5_000)
    harness = windows(TumblingEventTimeWindows(10_000, 0))
    harness.push_block(Columns(pa.record_batch({"key": keys, "value": np.ones_like(keys)}), stamps))
    expected = [
        (key, start, start + 10_000, int(np.count_nonzero((keys == key) & (stamps // 10_000 * 10_000 == start))))
        for start in range(1_700_000_000_000, 1_700_000_040_000, 10_000)
        for key in range(-50, 50)
    ]
    assert rows(harness.end_input()) == expected


def test_numbers_far_apart_fire_in_the_order_of_their_keys_too() -> None:
    harness = windows().push_block(block((9 * 10**9, 1, 0), (-5, 2, 9), (10**6, 3, 5), (-5, 7, 10), (9 * 10**9, 8, 12)))
    fired = rows(harness.end_input())
    assert [(key, total) for key, _, _, total in fired] == [
        (-5, 2),
        (10**6, 3),
        (9 * 10**9, 1),
        (-5, 7),
        (9 * 10**9, 8),
    ]


def test_each_pane_gets_one_block_in_whatever_order_its_groups_are_found() -> None:
    aggregation = PartialAggregation(("key",), {"n": count()})
    table = aggregation.select(pa.record_batch({"key": ["b", "a", "b", "a"]}), "here")
    made = aggregation.group_by_pane(table, np.array([7, 0, 0, 7], dtype=np.uint64))
    assert [(pane, sorted(block.column("k0").to_pylist())) for pane, block in made] == [
        (0, ["a", "b"]),
        (7, ["a", "b"]),
    ]


@pytest.mark.parametrize("width", [1, 2, 7, 10_000])
def test_panes_are_numbered_to_both_ends_of_time(width: int) -> None:
    grid = PaneGrid(size=width, slide=width, offset=0, lateness=0)
    latest = 2**63 - 1
    for lowest in (-(2**63) + width, -1, 0, 1_700_000_000_123, latest):
        stamps = sorted({lowest, min(lowest + 1, latest), min(lowest + 3 * width, latest), latest})
        first = grid.pane(lowest)
        numbers = grid.pane_numbers(np.array(stamps, dtype=np.int64), first)
        assert [first + number * width for number in numbers.tolist()] == [grid.pane(stamp) for stamp in stamps]


def test_windows_before_the_epoch_are_floored() -> None:
    harness = windows().push_block(block(("a", 1, -1), ("a", 2, -10), ("a", 4, -11))).end_input()
    assert rows(harness) == [("a", -20, -10, 4), ("a", -10, 0, 3)]


def test_sliding_windows_share_panes_also_when_the_slide_does_not_divide_the_size() -> None:
    harness = windows(SlidingEventTimeWindows(15, 10, 0)).push_block(block(("a", 1, 12), ("a", 2, 17)))
    harness.snapshot()
    assert len(harness.state.tables["panes"]) == 2
    assert rows(harness.end_input()) == [("a", 0, 15, 1), ("a", 10, 25, 3)]
    assert len(harness.state.tables["panes"]) == 0


def test_late_records_are_counted_or_sent_to_the_side_with_all_their_columns() -> None:
    harness = windows().advance_watermark(9).push_block(block(("a", 1, 9), ("a", 2, 10)))
    assert harness.metrics.late_dropped == 1
    harness = windows(late_tag="late").advance_watermark(9).push_block(block(("a", 1, 9), ("a", 2, 10)))
    assert [(tuple(value), time) for value, time in harness.side_records("late")] == [(("a", 1, 9), 9)]
    assert harness.metrics.late_dropped == 0
    assert rows(harness.end_input()) == [("a", 10, 20, 2)]


def test_each_allowed_late_record_refires_its_window_for_its_key_with_all_up_to_itself() -> None:
    harness = windows(allowed_lateness=5).push_block(block(("a", 1, 0), ("b", 1, 0))).advance_watermark(13)
    harness.clear_output().push_block(block(("a", 2, 3), ("b", 8, 3), ("a", 4, 4), ("c", 8, 12), ("d", 5, 9)))
    assert rows(harness) == [("a", 0, 10, 3), ("b", 0, 10, 9), ("a", 0, 10, 7), ("d", 0, 10, 5)]
    assert [stamp for _, stamp in harness.records()] == [9, 9, 9, 9]
    harness.clear_output().advance_watermark(14).push_block(block(("a", 2, 3)))
    assert rows(harness) == []
    assert harness.metrics.late_dropped == 1


def test_a_late_record_refires_sliding_windows_latest_first_and_cumulating_ones_shortest_first() -> None:
    sliding = windows(SlidingEventTimeWindows(10, 5, 0), allowed_lateness=50).advance_watermark(30)
    assert [row[1:] for row in rows(sliding.push_block(block(("a", 1, 12), ("a", 2, 7))))] == [
        (10, 20, 1),
        (5, 15, 1),
        (5, 15, 3),
        (0, 10, 2),
    ]
    cumulating = windows(CumulativeEventTimeWindows(15, 5), allowed_lateness=50).advance_watermark(30)
    assert [row[1:] for row in rows(cumulating.push_block(block(("a", 1, 7), ("a", 2, 12))))] == [
        (0, 10, 1),
        (0, 15, 1),
        (0, 15, 3),
    ]


def test_a_hot_key_among_many_is_refired_with_exact_running_results() -> None:
    late = [("hot" if n % 7 else f"k{n}", n, n % 10) for n in range(500)]
    harness = (
        windows(aggregates=STATISTICS, allowed_lateness=MAX).push_block(block(("hot", 1000, 3))).advance_watermark(9)
    )
    harness.clear_output().push_block(block(*late))
    seen: dict[str, list[int]] = {"hot": [1000]}
    expected = []
    for key, value, _ in late:
        values = seen.setdefault(key, [])
        values.append(value)
        expected.append((key, 0, 10, len(values), sum(values), min(values), max(values), sum(values) / len(values)))
    assert rows(harness) == expected


def test_cumulating_windows_share_their_panes() -> None:
    harness = windows(CumulativeEventTimeWindows(15, 5)).push_block(block(("a", 1, 2), ("a", 2, 7), ("a", 4, 17)))
    harness.snapshot()
    assert len(harness.state.tables["panes"]) == 3
    expected = [(0, 5, 1), (0, 10, 3), (0, 15, 3), (15, 20, 4), (15, 25, 4), (15, 30, 4)]
    assert [row[1:] for row in rows(harness.end_input())] == expected
    assert len(harness.state.tables["panes"]) == 0


def test_many_small_blocks_of_a_pane_are_merged_and_the_sum_stays() -> None:
    harness = windows()
    for n in range(5 * MAX_BLOCKS):
        harness.push_block(block((n % 3, 1, n % 10))).snapshot()
        assert len(harness.state.tables["panes"]) < MAX_BLOCKS
    assert sorted(row[3] for row in rows(harness.end_input())) == [26, 27, 27]


def test_a_delta_holds_only_the_blocks_of_its_epoch() -> None:
    harness = windows()
    big = block(*((key, 1, 0) for key in range(5000)))
    full = harness.push_block(big).snapshot()
    delta = harness.push_block(block((1, 1, 0))).snapshot(full=False)
    assert len(delta) < len(full) / 10
    restored = windows().restore([full, delta]).end_input()
    assert rows(restored)[:3] == [(0, 0, 10, 1), (1, 0, 10, 2), (2, 0, 10, 1)]


def test_a_window_that_fired_before_a_snapshot_does_not_fire_again_after_it() -> None:
    before = windows(SlidingEventTimeWindows(10, 5, 0)).push_block(block(("a", 1, 6))).advance_watermark(9)
    assert rows(before) == [("a", 0, 10, 1)]
    assert rows(windows(SlidingEventTimeWindows(10, 5, 0)).restore(before.snapshot()).end_input()) == [("a", 5, 15, 1)]


def test_a_window_that_fired_does_not_fire_again_when_the_watermark_starts_anew() -> None:
    """Behind a watermark generator of the same chain, event time begins again after a restart."""
    before = windows(SlidingEventTimeWindows(10, 5, 0)).push_block(block(("a", 1, 6))).advance_watermark(9)
    after = windows(SlidingEventTimeWindows(10, 5, 0)).restore(before.snapshot())
    after.operator.current_watermark = after._input_watermark = -(2**63)
    assert rows(after.push_block(block(("a", 2, 7))).end_input()) == [("a", 5, 15, 3)]


def test_blocks_appended_after_a_restore_do_not_replace_those_before() -> None:
    before = windows().push_block(block(("a", 1, 6)))
    after = windows().restore(before.snapshot()).push_block(block(("a", 2, 6)))
    assert rows(after.end_input()) == [("a", 0, 10, 3)]


def test_a_window_is_refired_from_the_very_watermark_that_fired_it() -> None:
    harness = windows(allowed_lateness=1).push_block(block(("a", 1, 6))).advance_watermark(9)
    assert rows(harness.push_block(block(("a", 2, 6)))) == [("a", 0, 10, 1), ("a", 0, 10, 3)]


def test_blocks_are_cut_when_a_job_scales_out_and_come_together_when_it_scales_in_twice() -> None:
    template = operator()
    one = OperatorHarness(template).push_block(block(*((key, key, 0) for key in range(100))))
    expected = [(key, 0, 10, 2 * key) for key in range(100)]
    files = [one.snapshot()]
    for parallelism in (3, 2, 1):
        harnesses = [
            OperatorHarness(template, parallelism=parallelism, subtask=subtask).restore(*files)
            for subtask in range(parallelism)
        ]
        if parallelism == 2:  # more rows, so that names of different origin meet in the end
            for subtask, harness in enumerate(harnesses):
                mine = [key for key in range(100) if subtask_of(key_group(key, 128), parallelism, 128) == subtask]
                harness.push_block(block(*((key, key, 1) for key in mine)))
        files = [harness.snapshot() for harness in harnesses]
    (last,) = harnesses
    assert rows(last.end_input()) == expected


def test_rows_are_refused_without_a_type_and_taken_with_one() -> None:
    data = Rows([("a", 1)], [3])
    with pytest.raises(PenstockError, match="declare the row type"):
        windows().push_block(data)
    typed = Types.ROW_NAMED(["key", "value"], [Types.STRING(), Types.LONG()])
    assert rows(windows(input_type=typed).push_block(data).end_input()) == [("a", 0, 10, 1)]


def test_bad_input_and_bad_definitions_are_named() -> None:
    with pytest.raises(PenstockError, match="no timestamp"):
        windows().push_block(Columns(pa.record_batch({"key": [1], "value": [1]})))
    with pytest.raises(PenstockError, match=r"column 'value' is not in the stream.*\['key'\]"):
        windows().push_block(Columns(pa.record_batch({"key": [1]}), np.zeros(1, dtype=np.int64)))
    with pytest.raises(JobDefinitionError, match="EventTimeSessionWindows"):
        windows(EventTimeSessionWindows(10))
    with pytest.raises(JobDefinitionError, match=r"\['window_end'\]"):
        windows(aggregates={"window_end": count()})
    with pytest.raises(JobDefinitionError, match="at least one key"):
        ColumnarWindowOperator((), TUMBLING_10, {"n": count()})
    with pytest.raises(JobDefinitionError, match="must not be negative"):
        windows(allowed_lateness=-1)


def test_late_records_of_two_blocks_fire_with_what_came_before_them() -> None:
    """Nothing between the blocks: what the first one brought is only gathered when the second one fires."""
    harness = windows(allowed_lateness=100).push_block(block(("a", 1, 1))).advance_watermark(20)
    harness.push_block(block(("a", 2, 2))).push_block(block(("a", 4, 3)))
    assert rows(harness) == [("a", 0, 10, 1), ("a", 0, 10, 3), ("a", 0, 10, 7)]
