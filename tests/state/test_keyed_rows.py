"""Rows kept by key: the newest of each counts, dead ones go, and a checkpoint holds what has changed."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.state import keyed_rows
from penstock.state.keyed_rows import PLACE, KeyedRows
from penstock.state.keys import key_group, key_group_range
from penstock.state.panes import PANES
from penstock.state.snapshot_file import TableDelta
from tests.state.backends import BACKENDS, new_state

MOST = 16


class Subtask:
    """Rows of one subtask with the table they are in."""

    def __init__(self, subtask: int = 0, parallelism: int = 1, width: int = 1, backend: str = "hashmap") -> None:
        self.owned = key_group_range(subtask, parallelism, MOST)
        self.state = new_state(backend, "operator", MOST)
        self.rows = KeyedRows(self.state.table("rows", PANES), self.owned, ["k"], width)

    def get(self) -> dict[Any, int]:
        positions = self.rows.positions(np.arange(len(self.rows._index)))
        if not len(positions):
            return {}
        table = self.rows.take(positions[positions >= 0])
        return dict(zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True))

    def checkpoint(self, *, full: bool = False) -> list[TableDelta]:
        self.rows.settle()
        tables = self.state.snapshot(full=full)
        self.state.fold(checkpointed=True)
        return tables

    def restore(self, tables: list[TableDelta]) -> Subtask:
        for table in tables:
            self.state.restore(table, self.owned)
        self.state.restored()
        self.rows.rebuild()
        return self


def put(subtask: Subtask, entries: dict[Any, int]) -> None:
    keys = pa.array(list(entries), pa.string())
    groups = subtask.rows.groups([keys])
    subtask.rows.put(groups.numbers, pa.record_batch({"k": keys, "v": pa.array(list(entries.values()), pa.int64())}))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("most_bytes", [1 << 29, 2_000])
def test_the_newest_row_of_a_key_counts_whatever_is_compacted_checkpointed_restored_and_rescaled(
    most_bytes: int, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_rows, "_MOST_BYTES", most_bytes)
    rng = random.Random(5)
    subtasks, chains = [Subtask(backend=backend)], [list[TableDelta]()]
    expected: dict[Any, int] = {}
    for round_ in range(400):
        entries = {
            rng.choice([None, *map(str, range(rng.choice([5, 600])))]): rng.randrange(10**6)
            for _ in range(rng.choice([1, 30, 300]))
        }
        expected |= entries
        for subtask in subtasks:
            mine = {key: value for key, value in entries.items() if key_group(key, MOST) in subtask.owned}
            put(subtask, mine) if mine else None
        if rng.random() < 0.2:
            for subtask, chain in zip(subtasks, chains, strict=True):
                chain += subtask.checkpoint(full=not chain)
            if rng.random() < 0.4:
                parallelism = rng.choice([1, 2, 3, 7, len(subtasks)])
                old, subtasks = chains, [Subtask(number, parallelism, backend=backend) for number in range(parallelism)]
                for subtask in subtasks:
                    subtask.restore([table for chain in old for table in chain])
                chains = [[] for _ in subtasks]
        if round_ % 20 == 0:
            assert {key: value for subtask in subtasks for key, value in subtask.get().items()} == expected
    assert {key: value for subtask in subtasks for key, value in subtask.get().items()} == expected


def test_dead_rows_are_no_more_than_living_ones_for_long() -> None:
    rng, subtask = random.Random(1), Subtask()
    put(subtask, {str(key): 0 for key in range(5_000)})
    for value in range(300):
        put(subtask, {str(key): value for key in rng.sample(range(5_000), 400)})
        assert sum(len(block.cells) for block in subtask.rows._blocks) <= 2 * 5_000 + 17 * 400
        assert len(subtask.rows._blocks) < 30
    counted = [(block.dead, int(np.count_nonzero(~subtask.rows._living(block)))) for block in subtask.rows._blocks]
    assert all(known == found for known, found in counted), "the rows that are dead were counted right"


def test_a_checkpoint_holds_what_has_changed_and_each_key_once() -> None:
    subtask = Subtask()
    put(subtask, {str(key): 0 for key in range(2_000)})
    subtask.checkpoint(full=True)
    for value in range(10):
        put(subtask, {"7": value, "8": value})
    (delta,) = subtask.checkpoint()
    assert [pa.ipc.open_stream(data).read_all().to_pydict() for data in delta.values] == [
        {"k": ["7", "8"], "v": [9, 9]}
    ]
    assert subtask.checkpoint() == []


def test_an_epoch_that_is_given_up_leaves_nothing() -> None:
    subtask = Subtask()
    put(subtask, {"a": 1, "b": 2})
    subtask.checkpoint()
    put(subtask, {"b": 3, "c": 4})
    subtask.state.rollback()
    subtask.rows.rebuild()
    assert subtask.get() == {"a": 1, "b": 2}


def test_a_key_may_have_several_rows_each_in_its_place() -> None:
    subtask = Subtask(width=3)
    for key, place, value in [("a", 0, 1), ("b", 2, 5), ("a", 2, 2), ("a", 0, 3)]:
        groups = subtask.rows.groups([pa.array([key])])
        subtask.rows.put(
            groups.numbers, pa.record_batch({"k": [key], "v": [value], PLACE: pa.array([place], pa.int32())})
        )
    again = Subtask(width=3).restore(subtask.checkpoint(full=True))
    for rows in (subtask.rows, again.rows):
        numbers = rows.groups([pa.array(["a", "b"])]).numbers
        positions = rows.positions((numbers[:, None] * 3 + np.arange(3)).ravel())
        kept = [None if at < 0 else rows.take(np.array([at]), ["v"])["v"][0].as_py() for at in positions.tolist()]
        assert kept == [3, None, 2, None, None, 5]


def test_rows_are_grouped_by_key_in_the_order_of_their_first_rows() -> None:
    rows = Subtask().rows
    rows.groups([pa.array(["z", "b"])])
    groups = rows.groups([pa.array(["b", "a", "b", "z", "a"])])
    assert groups.firsts.tolist() == [0, 1, 3]
    assert groups.of_row.tolist() == [0, 1, 0, 2, 1]
    assert groups.numbers.tolist() == [1, 2, 0]


def test_columns_that_change_on_the_way_are_refused_in_our_words() -> None:
    subtask = Subtask()
    put(subtask, {"a": 1})
    number = subtask.rows.groups([pa.array(["a"])]).numbers
    with pytest.raises(
        PenstockError, match="column 'v' of the rows that are kept of each key is of int64, and now of string"
    ):
        subtask.rows.put(number, pa.record_batch({"k": ["a"], "v": ["x"]}))
    with pytest.raises(PenstockError, match="have the columns k, v, but those that came have k"):
        subtask.rows.put(number, pa.record_batch({"k": ["a"]}))
