"""The best records of each key over columns, block by block."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators import top
from penstock.operators.top import TopOperator
from penstock.records import Columns
from penstock.state.keys import key_group, subtask_of
from penstock.testing.harness import OperatorHarness
from tests.operators.gathered import work_off


def block(*rows: tuple[Any, Any, int]) -> Columns:
    """(key, value, timestamp) rows; each has a number."""
    keys, values, stamps = zip(*rows, strict=True)
    columns = {"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.float64()), "id": pa.array(stamps)}
    return Columns(pa.record_batch(columns), np.array(stamps, dtype=np.int64))


def best(number: int, descending: bool = True, **options: Any) -> OperatorHarness:
    return OperatorHarness(TopOperator(("key",), number, "value", descending, "rank"), **options)


def flushed(harness: OperatorHarness) -> list[tuple[Any, ...]]:
    work_off(harness)
    found = [(*row, at) for row, at in harness.records()]
    harness.clear_output()
    return found


def test_every_rank_that_changes_is_given_with_the_time_of_what_changed_it() -> None:
    harness = best(3).push_block(block(("a", 9, 1), ("a", 4, 2), ("b", 1, 3), ("a", 7, 4)))
    assert flushed(harness) == [
        ("a", 9, 1, 1, 4),
        ("a", 7, 4, 2, 4),
        ("a", 4, 2, 3, 4),
        ("b", 1, 3, 1, 3),
    ]
    assert flushed(harness.push_block(block(("a", 8, 5), ("a", 1, 6)))) == [("a", 8, 5, 2, 5), ("a", 7, 4, 3, 5)]
    assert flushed(harness.push_block(block(("a", 7, 7), ("a", None, 8)))) == []
    assert flushed(harness.push_block(block(("b", 1, 9)))) == [("b", 1, 9, 2, 9)]


def test_the_least_are_the_best_if_asked_and_null_is_the_worst() -> None:
    harness = best(2, descending=False).push_block(block(("a", None, 1), ("a", 4, 2)))
    assert flushed(harness) == [("a", 4, 2, 1, 2), ("a", None, 1, 2, 2)]
    assert flushed(harness.push_block(block(("a", 5, 3), ("a", None, 4)))) == [("a", 5, 3, 2, 3)]


@pytest.mark.parametrize("number", [1, 3, 10])
@pytest.mark.parametrize("cells", [1 << 21, 40])
def test_the_best_of_all_records_are_right_across_steps_restores_and_rescales(
    number: int, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top, "_MOST_CELLS", cells)
    rng = random.Random(number)
    harnesses, chains = [best(number, max_parallelism=16)], [list[bytes]()]
    records: dict[Any, list[tuple[Any, int]]] = {}
    ranks: dict[Any, tuple[Any, int]] = {}

    def take_output() -> None:
        for harness in harnesses:
            for key, value, identity, rank in map(tuple, harness.values()):
                ranks[key, rank] = (value, identity)
            harness.clear_output()

    for step in range(100):
        rows = []
        for place in range(rng.choice([1, 10, 80])):
            key = rng.choice([None, "a", *map(str, range(rng.choice([2, 30])))])
            value = rng.choice([None, float(rng.randrange(12))])
            rows.append((key, value, 1000 * step + place))
            records.setdefault(key, []).append((value, 1000 * step + place))
        for at, harness in enumerate(harnesses):
            mine = [row for row in rows if subtask_of(key_group(row[0], 16), len(harnesses), 16) == at]
            harness.push_block(block(*mine)) if mine else None
            work_off(harness) if rng.random() < 0.4 else None
        if rng.random() < 0.2:
            for harness, chain in zip(harnesses, chains, strict=True):
                chain.append(harness.snapshot(full=not chain))
            take_output()
            if rng.random() < 0.5:
                parallelism = rng.choice([1, 2, 7])
                harnesses = [
                    best(number, parallelism=parallelism, subtask=at, max_parallelism=16).restore(*chains)
                    for at in range(parallelism)
                ]
                chains = [[] for _ in harnesses]
    for harness in harnesses:
        harness.end_input()
    take_output()
    expected = {}
    for key, of_key in records.items():
        for rank, record in enumerate(sorted(of_key, key=lambda r: (r[0] is None, -(r[0] or 0), r[1]))[:number], 1):
            expected[key, rank] = record
    assert ranks == expected


def test_results_leave_in_blocks_of_the_block_size() -> None:
    harness = best(5, block_size=100)
    work_off(harness.push_block(block(*((f"k{at % 60}", at, at) for at in range(300)))))
    assert [len(part) for part in harness.output.blocks] == [100, 100, 100]


def test_another_number_or_order_is_refused() -> None:
    before = TopOperator(("key",), 3, "value", True, "rank").specification()
    for other in (
        TopOperator(("key",), 4, "value", True, "rank"),
        TopOperator(("key",), 3, "value", False, "rank"),
        TopOperator(("key",), 3, "id", True, "rank"),
    ):
        (difference,) = other.specification().restorable_from(before, allow_changed_windows=False)
        assert difference.startswith("function: 3 by column 'value', descending, now ")
    renamed = TopOperator(("key",), 3, "value", True, "place").specification()
    assert renamed.restorable_from(before, allow_changed_windows=False) == []
