"""Columnar joins: what they keep, how results leave, and what they refuse. The contract is in tests/contract/test_join_paths."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.common.typeinfo import Types
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.errors import JobDefinitionError, PenstockError
from penstock.operators.columnar_interval_join import ColumnarIntervalJoinOperator
from penstock.operators.columnar_join import LEFT, RIGHT, ColumnarJoinOverAllTime
from penstock.operators.columnar_window_join import ColumnarWindowJoinOperator
from penstock.operators.key_runs import KeyRun, all_pairs, pairs_within
from penstock.records import Columns
from penstock.records.codec import batch_to_bytes
from penstock.records.sizes import BLOCK_BYTES
from penstock.state.keys import normal_key
from penstock.state.panes import block_rows
from penstock.state.specification import settle
from penstock.testing.harness import OperatorHarness

KEYS = (("key",), ("key",))
VALUES = ({"left": "value"}, {"right": "value"})
TUMBLING: Any = TumblingEventTimeWindows(1000, 0)


def block(keys: Any, values: Any, stamps: Any = None) -> Columns:
    keys = keys if isinstance(keys, pa.Array) else pa.array(keys)
    times = None if stamps is None else np.asarray(stamps, dtype=np.int64)
    return Columns(pa.record_batch({"key": keys, "value": pa.array(values)}), times)


def over_all_time(chosen: Any = VALUES) -> OperatorHarness:
    return OperatorHarness(ColumnarJoinOverAllTime(KEYS, chosen))


class Counting:
    """An output that keeps nothing but the largest."""

    def __init__(self) -> None:
        self.records = self.most = self.largest = self.allocated = 0

    def block(self, block: Any) -> None:
        self.records += len(block)
        self.most = max(self.most, len(block))
        self.largest = max(self.largest, block.batch.nbytes)
        self.allocated = max(self.allocated, pa.total_allocated_bytes())

    def side(self, tag: str, block: Any) -> None: ...
    def watermark(self, timestamp: int) -> None: ...
    def idle(self, idle: bool) -> None: ...
    def marker(self, marker: Any) -> None: ...


# -------------------------------------------------------------------- pairs


def _key(kind: str, rng: np.random.Generator) -> Any:
    choice = int(rng.integers(0, 5))
    match kind:
        case "close":
            return choice
        case "far":
            return [-(2**63), 2**63 - 1, 0, 5, 2**62][choice]
        case "some":
            return [None, -(2**63), 1, 2, 3][choice]
        case "text":
            return [None, "", "k", "kk", "K" * 300][choice]
        case "dates":
            return date(2026, 1, 1 + choice)
        case _:
            return [0.0, -0.0, float("nan"), 1.5, None][choice]


@pytest.mark.parametrize("seed", range(200))
def test_runs_meet_in_every_pair_of_equal_keys_once_a_part_at_a_time(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kinds = [str(kind) for kind in rng.choice(["close", "far", "some", "text", "floats", "dates"], rng.integers(1, 3))]
    sizes, most = rng.integers(1, 30, 2).tolist(), int(rng.integers(1, 9))
    sides = [[[_key(kind, rng) for _ in range(size)] for kind in kinds] for size in sizes]
    arrays = [[pa.array(values) for values in side] for side in sides]
    far = int(rng.choice([5, 2**61]))
    times = [rng.integers(-far, far, size) for size in sizes]
    lowest, highest = times[0] - int(rng.integers(0, far)), times[0] + int(rng.integers(-2, far))
    equal = {
        (i, j)
        for i in range(sizes[0])
        for j in range(sizes[1])
        if all(normal_key(one[i]) == normal_key(other[j]) for one, other in zip(*sides, strict=True))
    }
    parts = list(all_pairs(KeyRun(arrays[0]), KeyRun(arrays[1]), most))
    assert all(len(rows) <= most for rows, _ in parts)
    assert Counter(pair for part in parts for pair in zip(*map(list, part), strict=True)) == Counter(equal)
    near = pairs_within(KeyRun(arrays[0]), KeyRun(arrays[1], times[1]), lowest, highest, most)
    assert Counter(pair for part in near for pair in zip(*map(list, part), strict=True)) == Counter(
        (i, j) for i, j in equal if lowest[i] <= times[1][j] <= highest[i]
    )


def test_keys_of_other_layouts_are_the_same_keys() -> None:
    harness = over_all_time()
    harness.push_block(block(pa.array(["a", "b", None]).dictionary_encode(), [1, 2, 3]), input=LEFT)
    harness.push_block(block(pa.array(["b", None, "c"], pa.string_view()), [20, 30, 40]), input=RIGHT)
    assert sorted(tuple(value) for value in harness.values()) == [(2, 20), (3, 30)]


def test_keys_of_all_nulls_meet_nulls_of_every_type() -> None:
    harness = over_all_time().push_block(block(pa.array([1, None]), [1, 2]), input=LEFT)
    harness.push_block(block(pa.nulls(2), [3, 4]), input=RIGHT)
    assert sorted(tuple(value) for value in harness.values()) == [(2, 3), (2, 4)]


# -------------------------------------------------------------------- what leaves


@pytest.mark.parametrize("kind", ["window", "interval", "all time"])
def test_a_key_that_everybody_has_is_joined_a_part_at_a_time(kind: str) -> None:
    number = 2_000
    operator: Any = {
        "window": ColumnarWindowJoinOperator(KEYS, VALUES, TUMBLING),
        "interval": ColumnarIntervalJoinOperator(KEYS, VALUES, lower=-1000, upper=1000),
        "all time": ColumnarJoinOverAllTime(KEYS, VALUES),
    }[kind]
    harness = OperatorHarness(operator, block_size=1000)
    records = block(["k"] * number, np.arange(number), np.arange(number) % 1000)
    harness.push_block(records, input=LEFT)
    output = harness.operator.ctx.output = Counting()
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        harness.push_block(records, input=RIGHT).end_input()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert output.records == number * number
    assert output.most == 1000
    assert peak + output.allocated - before < 5e6  # all pairs would be 96 MB


def test_large_records_leave_in_blocks_of_bounded_bytes() -> None:
    large, small = "x" * 1_000_000, "y"
    harness = over_all_time()
    harness.push_block(block([1] * 2, [large, small]), input=LEFT)
    output = harness.operator.ctx.output = Counting()
    harness.push_block(block([1] * 200, ["z"] * 200), input=RIGHT)
    assert output.records == 400
    assert output.largest < BLOCK_BYTES + 2_000_000
    assert output.most > 10


def test_records_without_times_are_joined_over_all_time_without_times() -> None:
    harness = over_all_time().push_block(block([1, 2], [1, 2]), input=LEFT)
    harness.push_block(block([2], [3]), input=RIGHT)
    assert harness.records()[0][1] is None
    harness.push_block(block([2], [4], [17]), input=RIGHT)
    assert harness.records()[1][1] == 17


# -------------------------------------------------------------------- what is kept


def test_what_nobody_can_meet_any_more_is_let_go() -> None:
    harness = OperatorHarness(ColumnarIntervalJoinOperator(KEYS, VALUES, lower=0, upper=5000))
    for start in range(0, 60_000, 1000):
        stamps = np.arange(start, start + 1000, 10)
        for side in (LEFT, RIGHT):
            harness.push_block(block(stamps % 7, stamps, stamps), input=side)
        harness.advance_watermark(start)
    kept = [
        sum(batch.num_rows for _, batch in harness.state.table(name, "panes").items())
        for name in ("join-left", "join-right")
    ]
    assert kept[LEFT] <= 1000  # of the last five seconds, the running one, and three of panes that have begun
    assert kept[RIGHT] <= 400
    harness.end_input()
    assert not list(harness.state.table("join-left", "panes").items())


def test_what_is_kept_can_be_read_as_data_record_by_record() -> None:
    harness = over_all_time().push_block(block(["a", None], [1, 2], [5, 6]), input=LEFT)
    ((_, kept),) = harness.state.table("join-left", "panes").items()
    assert list(block_rows(batch_to_bytes(kept))) == [("a", {"v0": 1, "t": 5}), (None, {"v0": 2, "t": 6})]


def test_only_the_columns_that_matter_are_asked_for_unless_a_late_record_must_leave_whole() -> None:
    assert ColumnarJoinOverAllTime(KEYS, VALUES).reads_of(LEFT) == ("key", "value")
    assert ColumnarJoinOverAllTime(KEYS, ({"k": "key"}, {})).reads_of(RIGHT) == ("key",)
    tagged = ColumnarIntervalJoinOperator(KEYS, VALUES, lower=0, upper=1, late_tags=("late", None))
    assert tagged.reads_of(LEFT) is None
    assert tagged.reads_of(RIGHT) == ("key", "value")


def test_state_of_a_join_of_other_columns_or_a_wider_interval_is_refused() -> None:
    def interval(upper: int, chosen: Any = VALUES) -> ColumnarIntervalJoinOperator:
        return ColumnarIntervalJoinOperator(KEYS, chosen, lower=0, upper=upper)

    harness = OperatorHarness(interval(5))
    settle(harness.state, interval(5).specification())
    settle(harness.state, interval(4).specification())
    with pytest.raises(JobDefinitionError, match="bounds: 0 to 4 ms, now 0 to 6 ms"):
        settle(harness.state, interval(6).specification())
    with pytest.raises(JobDefinitionError, match="'key' of the left"):
        settle(harness.state, interval(4, ({}, {"right": "value"})).specification())
    with pytest.raises(JobDefinitionError, match="columns that wait for an interval join"):
        settle(harness.state, ColumnarJoinOverAllTime(KEYS, VALUES).specification())


# -------------------------------------------------------------------- what is refused


def test_keys_that_cannot_be_compared_are_refused_with_both_types() -> None:
    harness = over_all_time().push_block(block([1], [1]), input=LEFT)
    with pytest.raises(PenstockError, match=r"right side: the key 'key' is of string, and 'key', .*, of int64"):
        harness.push_block(block(["1"], [1]), input=RIGHT)


def test_a_column_that_changes_its_type_is_refused_also_after_a_restore() -> None:
    harness = over_all_time().push_block(block([1], [1]), input=LEFT)
    again = over_all_time().restore(harness.snapshot())
    with pytest.raises(PenstockError, match="column 'value' was of int64 and is now of string"):
        again.push_block(block([1], ["1"]), input=LEFT)


def test_a_key_with_parts_is_refused() -> None:
    with pytest.raises(PenstockError, match="cannot be a key of columns"):
        over_all_time().push_block(block([[1]], [1]), input=LEFT)


@pytest.mark.parametrize("stamps", [None, [-(2**63)]])
def test_records_without_a_time_are_refused_by_joins_of_event_time(stamps: Any) -> None:
    for operator in (
        ColumnarWindowJoinOperator(KEYS, VALUES, TUMBLING),
        ColumnarIntervalJoinOperator(KEYS, VALUES, lower=0, upper=1),
    ):
        with pytest.raises(PenstockError, match="a right record that has no timestamp"):
            OperatorHarness(operator).push_block(block([1], [1], stamps), input=RIGHT)


def test_rows_of_a_declared_type_are_joined_as_columns() -> None:
    kind = Types.ROW_NAMED(["key", "value"], [Types.STRING(), Types.LONG()])
    harness = OperatorHarness(ColumnarJoinOverAllTime(KEYS, VALUES, (kind, kind)))
    harness.push(("a", 1), 5, input=LEFT).push(("a", 2), 3, input=RIGHT)
    assert [(tuple(value), stamp) for value, stamp in harness.records()] == [((1, 2), 5)]
