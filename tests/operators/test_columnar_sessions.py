"""Columnar sessions: what touches is one session, also late, in whatever order it comes; and what a subtask keeps of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.common.typeinfo import Types
from penstock.datastream.aggregates import count, max_, sum_
from penstock.datastream.window import EventTimeSessionWindows
from penstock.errors import JobDefinitionError, PenstockError
from penstock.operators import columnar_sessions, session_blocks
from penstock.operators.columnar_sessions import ColumnarSessionOperator
from penstock.records import Columns, Rows
from penstock.state.keys import key_group, subtask_of
from penstock.testing.harness import OperatorHarness

GAP_10: Any = EventTimeSessionWindows(10)


def block(*rows: tuple[Any, Any, int]) -> Columns:
    """(key, value, timestamp) rows."""
    keys, values, stamps = zip(*rows, strict=True)
    batch = pa.record_batch({"key": pa.array(keys), "value": pa.array(values, pa.int64()), "other": pa.array(stamps)})
    return Columns(batch, np.array(stamps, dtype=np.int64))


def operator(aggregates: Any = None, **options: Any) -> ColumnarSessionOperator:
    return ColumnarSessionOperator(("key",), GAP_10, aggregates or {"total": sum_("value")}, **options)


def sessions(aggregates: Any = None, **options: Any) -> OperatorHarness:
    return OperatorHarness(operator(aggregates, **options))


def rows(harness: OperatorHarness) -> list[tuple[Any, ...]]:
    return [tuple(value) for value in harness.values()]


def kept(harness: OperatorHarness) -> list[Any]:
    """All parts that are in blocks: key, from, until."""
    blocks: list[Any] = [found for _, found in harness.state.tables["panes"].items()]
    return sorted((row["k0"], row["start"], row["end"]) for found in blocks for row in found.to_pylist())


def test_a_session_fires_at_its_last_millisecond_and_those_of_a_watermark_in_order_of_time_and_key() -> None:
    harness = sessions().push_block(block(("b", 1, 0), ("a", 2, 9), ("b", 3, 5), ("a", 7, 30), ("c", 1, 5)))
    assert harness.advance_watermark(13).output.blocks == []
    harness.advance_watermark(14)
    (result,) = harness.output.blocks
    assert isinstance(result, Columns)
    assert result.batch.to_pydict() == {
        "key": ["b", "c"],
        "window_start": [0, 5],
        "window_end": [15, 15],
        "total": [4, 1],
    }
    assert result.timestamps is not None
    assert result.timestamps.tolist() == [14, 14]
    harness.clear_output().push_block(block(("b", 8, 20))).end_input()
    assert rows(harness) == [("a", 9, 19, 2), ("b", 20, 30, 8), ("a", 30, 40, 7)]
    assert harness.metrics.records_in == 6
    assert harness.metrics.records_out == 5
    assert kept(harness) == []


def test_sessions_exactly_one_gap_apart_are_one_and_a_millisecond_more_makes_two() -> None:
    for barrier in (False, True):
        harness = sessions().push_block(block(("a", 1, 0), ("b", 1, 0)))
        if barrier:
            harness.snapshot()
        harness.push_block(block(("a", 2, 10), ("b", 2, 11))).end_input()
        assert sorted(rows(harness)) == [("a", 0, 20, 3), ("b", 0, 10, 1), ("b", 11, 21, 2)]


def test_a_part_that_touches_one_that_goes_on_waits_for_it() -> None:
    """Parts of a are compared when the first of them ends, which then lasts as long as what it is touched by."""
    harness = sessions()
    for stamp in (0, 10, 20):
        harness.push_block(block(("a", 1, stamp))).snapshot()
    assert rows(harness.push_block(block(("b", 1, -1))).advance_watermark(12)) == [("b", -1, 9, 1)]
    assert [part for part in kept(harness) if part[1] == 0] == [("a", 0, 30)]
    assert rows(harness.advance_watermark(28))[1:] == []
    assert rows(harness.advance_watermark(29))[1:] == [("a", 0, 30, 3)]


def test_a_record_behind_the_watermark_bridges_two_open_sessions() -> None:
    harness = sessions().push_block(block(("a", 1, 12), ("a", 2, 32))).advance_watermark(20)
    harness.push_block(block(("a", 4, 22)))
    assert rows(harness.end_input()) == [("a", 12, 42, 7)]


# -------------------------------------------------------------------- late records


def test_a_record_that_is_over_by_itself_joins_the_session_it_touches_and_is_late_without_one() -> None:
    harness = sessions(late_tag="late").push_block(block(("a", 1, 12), ("b", 1, 13))).advance_watermark(15)
    harness.push_block(block(("a", 2, 2), ("b", 2, 2), ("c", 2, 2), ("a", 4, 1)))
    harness.snapshot()
    assert [tuple(value) for value in harness.side_values("late")] == [("b", 2, 2), ("c", 2, 2)]
    assert [stamp for _, stamp in harness.side_records("late")] == [2, 2]
    assert harness.metrics.late_dropped == 0
    assert rows(harness.end_input()) == [("a", 1, 22, 7), ("b", 13, 23, 1)]


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_late_record_that_joins_lets_earlier_ones_join_that_come_after_it(one_by_one: bool) -> None:
    late = [("a", 1, -15), ("a", 2, 4), ("a", 4, -6), ("a", 8, -16), ("a", 16, -27), ("b", 32, 4), ("b", 64, 14)]
    harness = sessions().push_block(block(("a", 100, 14))).advance_watermark(20)
    for some in [[record] for record in late] if one_by_one else [late]:
        harness.push_block(block(*some))
        if one_by_one:
            harness.snapshot()
    assert rows(harness.advance_watermark(100)) == [("a", -16, 24, 114), ("b", 14, 24, 64)]
    assert (
        harness.metrics.late_dropped == 3
    )  # the first, which came before what it would touch, the one at -27, and b at 4


def test_what_a_late_record_joined_comes_before_it_whatever_comes_later_in_the_block() -> None:
    harness = sessions().push_block(block(("b", 1, 30))).advance_watermark(20)
    harness.push_block(block(("a", 1, 5), ("a", 2, 15), ("a", 4, 5))).end_input()
    assert rows(harness) == [("a", 5, 25, 6), ("b", 30, 40, 1)]
    assert harness.metrics.late_dropped == 1


def test_late_records_leave_before_the_watermark_that_follows_them() -> None:
    harness = sessions(late_tag="late").advance_watermark(20).push_block(block(("a", 1, 5), ("a", 2, 40)))
    harness.advance_watermark(21)
    assert [tuple(value) for value in harness.side_values("late")] == [("a", 1, 5)]
    assert harness.watermarks == [20, 21]
    assert harness.metrics.late_dropped == 0


def test_a_session_that_has_fired_is_touched_by_nothing() -> None:
    harness = sessions().push_block(block(("a", 1, 0))).advance_watermark(9)
    harness.push_block(block(("a", 2, 0), ("a", 4, 1), ("a", 8, 5))).end_input()
    assert rows(harness) == [("a", 0, 10, 1), ("a", 1, 15, 12)]
    assert harness.metrics.late_dropped == 1


# -------------------------------------------------------------------- keys and columns


def test_keys_of_several_columns_nulls_nan_and_dictionaries_are_grouped() -> None:
    nan, other_nan = math.nan, float(np.uint64(0x7FF8000000000001).view(np.float64))
    batch = pa.record_batch(
        {
            "a": pa.array(["x", "y", "x", None, None, "x"]).dictionary_encode(),
            "b": pa.array([nan, 0.0, other_nan, None, None, -0.0]),
            "c": pa.array([2**62, -(2**62), 2**62, 0, 0, 5]),
        }
    )
    for barrier in (False, True):
        harness = OperatorHarness(ColumnarSessionOperator(("a", "b", "c"), GAP_10, {"n": count()}))
        for row in range(6):
            harness.push_block(Columns(batch.slice(row, 1), np.array([row], dtype=np.int64)))
            if barrier:
                harness.snapshot()
        assert sorted(map(repr, rows(harness.advance_watermark(100)))) == [
            "('x', -0.0, 5, 5, 15, 1)",
            f"('x', nan, {2**62}, 0, 12, 2)",
            f"('y', 0.0, {-(2**62)}, 1, 11, 1)",
            "(None, None, 0, 3, 14, 2)",
        ]


def test_a_column_that_becomes_wider_within_a_stream_is_the_same_key() -> None:
    harness = sessions({"n": count()})
    for kind in (pa.int32(), pa.int64(), pa.null()):
        batch = pa.record_batch({"key": pa.array([None if pa.types.is_null(kind) else 7] * 2, kind)})
        harness.push_block(Columns(batch, np.array([0, 5], dtype=np.int64)))
    assert rows(harness.end_input()) == [(7, 0, 15, 4), (None, 0, 15, 2)]


def test_records_at_both_ends_of_time_have_sessions_of_their_own() -> None:
    low, high = -(2**63) + 1, 2**63 - 1
    harness = sessions().push_block(
        block(*((key, 1, at) for key in "ab" for at in (high, low, 0, low + 10, high - 10)))
    )
    assert rows(harness.end_input()) == [
        *((key, low, low + 20, 2) for key in "ab"),
        *((key, 0, 10, 1) for key in "ab"),
        *((key, high - 10, high, 2) for key in "ab"),
    ]


def test_a_sum_that_is_too_large_is_an_error_that_names_its_session() -> None:
    large = 2**62
    harness = sessions().push_block(block(("a", 5, 0), ("b", large, 3), ("b", large, 5), ("c", 1, 0)))
    with pytest.raises(PenstockError, match="'total' of the window from 3 to 15: a sum is 9223372036854775808"):
        harness.end_input()


def test_bad_input_is_named_and_rows_are_taken_with_a_type() -> None:
    with pytest.raises(PenstockError, match="no timestamp"):
        sessions().push_block(Columns(pa.record_batch({"key": [1], "value": [1]})))
    with pytest.raises(PenstockError, match=r"column 'value' is not in the stream.*\['key'\]"):
        sessions().push_block(Columns(pa.record_batch({"key": [1]}), np.zeros(1, dtype=np.int64)))
    with pytest.raises(PenstockError, match="declare the row type"):
        sessions().push_block(Rows([("a", 1)], [3]))
    with pytest.raises(JobDefinitionError, match=r"\['window_end'\]"):
        sessions(aggregates={"window_end": count()})
    typed = Types.ROW_NAMED(["key", "value"], [Types.STRING(), Types.LONG()])
    assert rows(sessions(input_type=typed).push_block(Rows([("a", 1)], [3])).end_input()) == [("a", 3, 13, 1)]


def test_a_large_result_leaves_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar_sessions, "BLOCK_BYTES", 1000)
    harness = sessions().push_block(block(*((f"key {n:03d}", n, n % 7) for n in range(300)))).end_input()
    sizes = [(found.batch.nbytes, len(found)) for found in harness.output.blocks if isinstance(found, Columns)]
    assert len(sizes) > 5
    assert max(size for size, _ in sizes) < 1500
    assert sum(number for _, number in sizes) == 300
    assert [row[1] for row in rows(harness)] == sorted(n % 7 for n in range(300))


# -------------------------------------------------------------------- what is kept


def test_blocks_are_merged_cut_and_dropped_so_that_memory_is_that_of_open_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(columnar_sessions, "_GATHERED_ROWS", 20)
    harness, expected = sessions(), {}
    for now in range(0, 2000, 2):
        made = [("hot", 1, now), *((f"k{now}-{n}", 1, now + n) for n in range(3))]
        expected.update({(key, at, at + 10): 1 for key, _, at in made if key != "hot"})
        harness.push_block(block(*made)).advance_watermark(now - 5)
        assert len(harness.state.tables["panes"]) <= session_blocks.MAX_BLOCKS
        # Of 15 ms some 25 sessions are open, the hot one in a part for each block at most; twice that is not cut yet.
        assert len(kept(harness)) <= 2 * (40 + session_blocks.MAX_BLOCKS)
    found = {row[:3]: row[3] for row in rows(harness.end_input())}
    assert found == {**expected, ("hot", 0, 2008): 1000}
    assert kept(harness) == []


def test_a_block_is_cut_when_most_of_it_has_fired() -> None:
    harness = sessions().push_block(block(*((key, 1, key) for key in range(100))))
    harness.snapshot()
    assert len(rows(harness.advance_watermark(49))) == 41
    assert len(kept(harness)) == 100
    harness.advance_watermark(69)
    assert kept(harness) == [(key, key, key + 10) for key in range(61, 100)]
    assert rows(harness.end_input()) == [(key, key, key + 10, 1) for key in range(100)]


def test_a_delta_holds_only_what_its_epoch_brought() -> None:
    harness = sessions()
    full = harness.push_block(block(*((key, 1, 0) for key in range(5000)))).snapshot()
    delta = harness.push_block(block((1, 1, 5))).snapshot(full=False)
    assert len(delta) < len(full) / 10
    restored = sessions().restore([full, delta]).end_input()
    assert rows(restored)[:3] == [(0, 0, 10, 1), (2, 0, 10, 1), (3, 0, 10, 1)]
    assert rows(restored)[-1] == (1, 0, 15, 2)


def test_what_has_fired_does_not_fire_again_when_the_watermark_starts_anew() -> None:
    """Behind a watermark generator of the same chain, event time begins again after a restart."""
    before = sessions().push_block(block(("a", 1, 0), ("b", 1, 5), ("c", 1, 6), ("d", 1, 7))).advance_watermark(9)
    assert rows(before) == [("a", 0, 10, 1)]
    after = sessions().restore(before.snapshot())
    after.operator.current_watermark = after._input_watermark = -(2**63)
    assert rows(after.push_block(block(("a", 2, 3))).advance_watermark(9)) == []
    assert rows(after.end_input()) == [("a", 3, 13, 2), ("b", 5, 15, 1), ("c", 6, 16, 1), ("d", 7, 17, 1)]


def test_a_subtask_that_was_ahead_brings_nothing_that_it_has_fired_to_one_that_was_behind() -> None:
    """Watermarks differ at a barrier that did not wait for all inputs."""
    template, files = operator(), []
    mine = [[key for key in range(40) if subtask_of(key_group(key, 128), 2, 128) == subtask] for subtask in (0, 1)]
    fired = []
    for subtask, watermark in ((0, 25), (1, 5)):
        harness = OperatorHarness(template, parallelism=2, subtask=subtask)
        harness.push_block(block(*((key, 1, at) for key in mine[subtask] for at in (0, 9, 40)))).snapshot()
        harness.push_block(block(*((key, 1, 49) for key in mine[subtask]))).advance_watermark(watermark)
        fired += rows(harness)
        files.append(harness.snapshot())
    assert sorted(fired) == [(key, 0, 19, 2) for key in mine[0]]
    one = OperatorHarness(template).restore(*files)
    assert len(kept(one)) > 40  # read, and not yet cut
    fired += rows(one.advance_watermark(20))
    assert sorted(fired) == [(key, 0, 19, 2) for key in range(40)]
    again = [OperatorHarness(template, parallelism=7, subtask=s).restore(one.snapshot()) for s in range(7)]
    fired += [row for harness in again for row in rows(harness.end_input())]
    assert sorted(fired) == sorted([(key, start, end, 2) for key in range(40) for start, end in ((0, 19), (40, 59))])


def test_a_crash_forgets_what_was_gathered_and_what_was_put_back() -> None:
    harness = sessions({"total": sum_("value"), "high": max_("value")})
    harness.push_block(block(("a", 1, 0), ("b", 1, 0))).snapshot()
    for _ in range(2):
        harness.push_block(block(("a", 2, 8))).advance_watermark(12).push_block(block(("a", 4, 9)))
        assert rows(harness) == [("b", 0, 10, 1, 1)]
        harness.rollback()
    harness.push_block(block(("a", 2, 8))).advance_watermark(12).push_block(block(("a", 4, 9)))
    assert rows(harness.end_input()) == [("b", 0, 10, 1, 1), ("a", 0, 19, 7, 4)]
