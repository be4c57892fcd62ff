"""The first and the last record of each key over columns, block by block."""

from __future__ import annotations

import datetime
import decimal
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.operators.keyed_choice import KeyedChoiceOperator
from penstock.records import Columns
from penstock.testing.harness import OperatorHarness
from tests.operators.gathered import work_off


def block(*rows: tuple[Any, Any, int], kind: pa.DataType | None = None) -> Columns:
    """(key, value, timestamp) rows."""
    keys, values, stamps = zip(*rows, strict=True)
    batch = pa.record_batch({"key": pa.array(keys), "value": pa.array(values, kind or pa.int64())})
    return Columns(batch, np.array(stamps, dtype=np.int64))


def choice(which: Any, by: Any = None, **options: Any) -> OperatorHarness:
    return OperatorHarness(KeyedChoiceOperator(("key",), which, by), **options)


def flushed(harness: OperatorHarness) -> list[tuple[tuple[Any, ...], int | None]]:
    work_off(harness)
    found = [(tuple(row), at) for row, at in harness.records()]
    harness.clear_output()
    return found


def test_the_first_of_a_key_is_given_once_with_its_own_time() -> None:
    harness = choice("first").push_block(block(("a", 1, 5), ("b", 2, 3))).push_block(block(("a", 0, 1), (None, 4, 7)))
    assert flushed(harness) == [(("a", 1), 5), (("b", 2), 3), ((None, 4), 7)]
    assert flushed(harness.push_block(block(("b", 9, 9), ("c", 1, 1), (None, 5, 8)))) == [(("c", 1), 1)]
    assert (harness.metrics.records_in, harness.metrics.records_out) == (7, 4)


def test_the_last_that_came_needs_no_state() -> None:
    harness = choice("last").push_block(block(("a", 1, 5), ("b", 2, 3), ("a", 0, 1)))
    assert flushed(harness) == [(("b", 2), 3), (("a", 0), 1)]
    harness.snapshot()
    assert not list(harness.state.tables["rows"].items())


def test_the_newest_by_a_column_and_of_equal_ones_the_last_that_came() -> None:
    harness = choice("last", "value").push_block(
        block(("a", 3, 1), ("a", 5, 2), ("a", 5, 3), ("a", 4, 4), ("b", None, 5))
    )
    assert flushed(harness) == [(("a", 5), 3), (("b", None), 5)]
    harness.push_block(block(("a", 4, 6), ("a", None, 6), ("b", None, 7)))
    assert flushed(harness) == [(("b", None), 7)]
    assert flushed(harness.push_block(block(("a", 5, 8), ("b", 0, 9)))) == [(("a", 5), 8), (("b", 0), 9)]


def test_the_first_by_event_time_and_of_equal_ones_the_first_that_came() -> None:
    harness = choice("first", True).push_block(block(("a", 1, 5), ("a", 2, 4), ("a", 3, 4)))
    assert flushed(harness) == [(("a", 2), 4)]
    assert flushed(harness.push_block(block(("a", 4, 4), ("a", 5, 7)))) == []
    assert flushed(harness.push_block(block(("a", 6, 3)))) == [(("a", 6), 3)]
    with pytest.raises(PenstockError, match="chooses by event time, and its records have none"):
        work_off(choice("last", True).push_block(Columns(pa.record_batch({"key": ["a"]}), None)))


@pytest.mark.parametrize(
    ("kind", "rising"),
    [
        (pa.int64(), [None, -(2**63), -1, 0, 2**63 - 1]),
        (pa.uint64(), [None, 0, 1, 2**64 - 1]),
        (pa.float64(), [None, float("-inf"), -1.5, -0.0, 0.0, 2.5, float("inf"), float("nan")]),
        (pa.float32(), [None, -1.5, -0.0, 0.0, float("nan")]),
        (pa.string(), [None, "", "a", "ab", "b"]),
        (pa.dictionary(pa.int8(), pa.string()), [None, "a", "b"]),
        (pa.bool_(), [None, False, True]),
        (pa.decimal128(20, 2), [None, decimal.Decimal("-1.50"), decimal.Decimal(0), decimal.Decimal("99.10")]),
        (pa.timestamp("s"), [None, np.datetime64("1960-01-01", "s"), np.datetime64("2026-01-01", "s")]),
        (pa.date32(), [None, datetime.date(1960, 1, 1), datetime.date(2026, 1, 1)]),
        (pa.binary(), [None, b"", b"\x00", b"\xff"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("together", [True, False])
def test_values_of_every_type_have_an_order(kind: pa.DataType, rising: list[Any], together: bool) -> None:
    """NaN is more than every float, -0.0 less than 0.0; null is never better than a value."""
    rng = random.Random(1)
    for which in ("last", "first"):
        for _ in range(12):
            picked = rng.sample(range(len(rising)), k=2)
            harness = choice(which, "value")
            for place in picked:
                column = pa.array([rising[place]], pa.string() if pa.types.is_dictionary(kind) else kind)
                column = column.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else column
                harness.push_block(Columns(pa.record_batch({"key": ["a"], "value": column, "place": [place]}), None))
                if not together:
                    work_off(harness)
            work_off(harness)
            last = harness.values()[-1]["place"]
            assert last == (
                max(picked) if which == "last" else min(place or len(rising) for place in picked) % len(rising)
            )


def test_a_column_that_changes_its_type_is_refused() -> None:
    harness = choice("last", "value").push_block(block(("a", 1, 1)))
    work_off(harness)
    harness.push_block(block(("a", "x", 1), kind=pa.string()))
    with pytest.raises(PenstockError, match="column 'value' was of int64 and is now of string: cast it to one type"):
        work_off(harness)


def test_results_leave_in_blocks_of_the_block_size_and_as_they_came() -> None:
    harness = choice("first", block_size=100)
    batch = pa.record_batch({"key": np.arange(250), "text": pa.array(["x"] * 250, pa.string_view())})
    work_off(harness.push_block(Columns(batch, None)))
    work_off(harness.push_block(Columns(pa.concat_batches([batch.slice(0, 1), batch.slice(3, 0)]), None)))
    assert [len(part) for part in harness.output.blocks] == [100, 100, 50]
    assert all(part.batch.schema == batch.schema for part in harness.output.blocks if isinstance(part, Columns))


@pytest.mark.parametrize("by", [None, "value"])
def test_a_restore_goes_on_and_another_choice_is_refused(by: Any) -> None:
    harness = choice("first", by).push_block(block(("a", 3, 1), ("b", 3, 1)))
    again = choice("first", by).restore(harness.snapshot())
    again.push_block(block(("a", 3, 1), ("a", 4, 2), ("c", 1, 3)))
    assert flushed(again) == [(("c", 1), 3)]
    before = KeyedChoiceOperator(("key",), "first", by).specification()
    other = KeyedChoiceOperator(("key",), "last", by).specification()
    assert len(other.restorable_from(before, allow_changed_windows=False)) == 1
