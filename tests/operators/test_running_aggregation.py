"""Running aggregates over columns, block by block."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.common.typeinfo import Types
from penstock.datastream.aggregates import count, max_, mean, min_, sum_
from penstock.errors import PenstockError
from penstock.operators.running_aggregation import RunningAggregationOperator
from penstock.records import Columns, Rows
from penstock.state.keys import key_group, subtask_of
from penstock.testing.harness import OperatorHarness
from tests.operators.gathered import work_off

STATISTICS = {"n": count(), "total": sum_("value"), "low": min_("value"), "high": max_("value"), "mean": mean("value")}


def block(*rows: tuple[Any, Any, int]) -> Columns:
    """(key, value, timestamp) rows."""
    keys, values, stamps = zip(*rows, strict=True)
    batch = pa.record_batch({"key": pa.array(keys), "value": pa.array(values, pa.int64()), "other": pa.array(stamps)})
    return Columns(batch, np.array(stamps, dtype=np.int64))


def running(aggregates: Any = None, **options: Any) -> OperatorHarness:
    return OperatorHarness(RunningAggregationOperator(("key",), aggregates or STATISTICS), **options)


def test_blocks_that_are_gathered_give_one_row_for_each_of_their_keys() -> None:
    harness = running({"n": count(), "total": sum_("value")})
    harness.push_block(block(("a", 1, 5), ("b", 2, 3), ("a", 4, 2))).push_block(block(("b", 8, 9)))
    assert harness.records() == []
    work_off(harness)
    assert [(tuple(row), at) for row, at in harness.records()] == [(("a", 2, 5), 5), (("b", 2, 10), 9)]
    work_off(harness.clear_output().push_block(block(("b", 16, 7))))
    assert [(tuple(row), at) for row, at in harness.records()] == [(("b", 3, 26), 7)]
    assert (harness.metrics.records_in, harness.metrics.records_out) == (5, 3)


def test_results_leave_before_the_watermark_and_the_barrier_that_come_behind_their_records() -> None:
    harness = running({"n": count()}).push_block(block(("a", 1, 5)))
    harness.advance_watermark(4)
    assert [tuple(row) for row in harness.values()] == [("a", 1)]
    harness.push_block(block(("a", 1, 5))).snapshot()
    assert [tuple(row) for row in harness.values()] == [("a", 1), ("a", 2)]
    harness.push_block(block(("a", 1, 5))).idle()
    assert len(harness.values()) == 3
    harness.push_block(block(("a", 1, 5))).end_input()
    assert len(harness.values()) == 4


def test_many_records_do_not_wait() -> None:
    harness = running({"n": count()})
    harness.push_block(Columns(pa.record_batch({"key": np.arange(1 << 16) % 8}), None))
    assert sorted(tuple(row) for row in harness.values())[0] == (0, 8192)
    assert {at for _, at in harness.records()} == {None}


def test_results_leave_in_blocks_of_the_block_size() -> None:
    harness = running({"n": count()}, block_size=100)
    work_off(harness.push_block(Columns(pa.record_batch({"key": np.arange(1_030)}), None)))
    assert [len(part) for part in harness.output.blocks] == [100] * 10 + [30]


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.int64(), pa.float64(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_the_last_row_of_a_key_is_the_aggregate_of_all_its_records_across_restores_and_rescales(
    kind: pa.DataType,
) -> None:
    rng = random.Random(f"{kind}")
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    harnesses, chains = [running(max_parallelism=16)], [list[bytes]()]
    expected: dict[Any, list[int | None]] = {}
    last: dict[Any, tuple[Any, ...]] = {}

    def take_output() -> None:
        for harness in harnesses:
            for key, *rest in map(tuple, harness.values()):
                last[key] = tuple(rest)
            harness.clear_output()

    for _ in range(150):
        size = rng.choice([1, 20, 300])
        keys = [rng.choice([None, *range(rng.choice([3, 50]))]) for _ in range(size)]
        named = [key if key is None or plain else f"k{key}" for key in keys]
        values = [rng.choice([None, rng.randrange(-(2**50), 2**50)]) for _ in range(size)]
        for key, value in zip(named, values, strict=True):
            expected.setdefault(key, []).append(value)
        column = pa.array(named, pa.string() if pa.types.is_dictionary(kind) else kind)
        column = column.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else column
        batch = pa.record_batch({"key": column, "value": pa.array(values, pa.int64())})
        targets = [subtask_of(key_group(key, 16), len(harnesses), 16) for key in named]
        for number, harness in enumerate(harnesses):
            mine = batch.filter(pa.array([target == number for target in targets]))
            harness.push_block(Columns(mine, np.zeros(mine.num_rows, np.int64))) if mine.num_rows else None
        if rng.random() < 0.2:
            for harness, chain in zip(harnesses, chains, strict=True):
                chain.append(harness.snapshot(full=not chain))
            take_output()
            if rng.random() < 0.5:
                parallelism = rng.choice([1, 2, 7])
                harnesses = [
                    running(parallelism=parallelism, subtask=number, max_parallelism=16).restore(*chains)
                    for number in range(parallelism)
                ]
                chains = [[] for _ in harnesses]
    for harness in harnesses:
        harness.end_input()
    take_output()
    for key, all_values in expected.items():
        known = [value for value in all_values if value is not None]
        assert last[key] == (
            len(all_values),
            sum(known) if known else None,
            min(known, default=None),
            max(known, default=None),
            float(sum(known)) / len(known) if known else None,
        )
    assert set(last) == set(expected)


def test_zeros_are_two_keys_and_nan_is_one() -> None:
    harness = running({"n": count()})
    nan = float("nan")
    for _ in range(2):
        work_off(harness.push_block(Columns(pa.record_batch({"key": [0.0, -0.0, nan, -nan, None]}), None)))
    assert [(str(key), n) for key, n in harness.values()][4:] == [("0.0", 2), ("-0.0", 2), ("nan", 4), ("None", 2)]


def test_rows_of_a_declared_type_become_columns_and_others_are_refused() -> None:
    typed = Types.ROW_NAMED(["key", "value"], [Types.STRING(), Types.LONG()])
    harness = OperatorHarness(RunningAggregationOperator(("key",), {"n": count()}, typed))
    work_off(harness.push_block(Rows([("a", 1), ("a", 2)], [1, 2])))
    assert [(tuple(row), at) for row, at in harness.records()] == [(("a", 2), 2)]
    with pytest.raises(PenstockError, match="works on columns but was given rows"):
        running().push_block(Rows([("a", 1)]))


def test_a_sum_that_does_not_fit_names_its_aggregate() -> None:
    harness = running({"n": count(), "total": sum_("value")})
    work_off(harness.push_block(block(("a", 2**62, 1))))
    harness.push_block(block(("a", 2**62, 1)))
    with pytest.raises(
        PenstockError, match=r"aggregate 'total': a sum is 9223372036854775808, which is too large for int64"
    ):
        work_off(harness)


def test_a_sum_that_fits_again_is_exact_though_its_parts_did_not() -> None:
    """Sums that are kept are wider where they have to be; here one never leaves as a result."""
    harness = running({"total": sum_("value")})
    for value in (2**62, 2**62):
        harness.push_block(block(("a", value, 1)))
    work_off(harness.push_block(block(("a", -(2**62), 1), ("b", 1, 1))))
    work_off(harness.push_block(block(("b", 1, 1))))
    assert [tuple(row) for row in harness.values()] == [("a", 2**62), ("b", 1), ("b", 2)]


def test_aggregates_may_be_renamed_and_left_out_and_others_are_refused() -> None:
    before = RunningAggregationOperator(("key",), STATISTICS).specification()
    fewer = RunningAggregationOperator(("key",), {"most": max_("value"), "n": count()})
    assert fewer.specification().restorable_from(before, allow_changed_windows=False) == []
    other = RunningAggregationOperator(("other",), {"n": count()}).specification()
    assert other.restorable_from(before, allow_changed_windows=False) == ["key columns: key, now other"]
    more = RunningAggregationOperator(("key",), {"n": sum_("other")}).specification()
    (missing,) = more.restorable_from(before, allow_changed_windows=False)
    assert "sum(other) would be needed" in missing
    harness = running().push_block(block(("a", 3, 1), ("a", 5, 1)))
    snapshot = harness.snapshot()
    again = OperatorHarness(fewer).restore(snapshot)
    again.operator.migrate_state(before)
    work_off(again.push_block(block(("a", 4, 1))))
    assert [tuple(row) for row in again.values()] == [("a", 5, 3)]


def test_an_epoch_that_is_run_again_gives_the_same() -> None:
    harness = running({"n": count()}).push_block(block(("a", 1, 1)))
    harness.snapshot()
    work_off(harness.push_block(block(("a", 1, 1), ("b", 1, 1))))
    failed = harness.values()
    work_off(harness.rollback().push_block(block(("a", 1, 1), ("b", 1, 1))))
    assert harness.values() == failed
