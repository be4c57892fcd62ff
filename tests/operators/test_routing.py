"""Rows go to the subtask of their key group, in their order, whether their keys are looked at in bulk or one by one."""

from __future__ import annotations

import random
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.operators.number_targets import NumberTargets
from penstock.operators.routing import HashRouter
from penstock.operators.selectors import ColumnKeySelector, key_selector
from penstock.protocol.events import Data, Event, Watermark
from penstock.records import Block, Columns, Rows
from penstock.records.convert import to_rows
from penstock.state.keys import key_group, normal_key, subtask_of

KEYS: Final[dict[str, Callable[[random.Random], Any]]] = {
    "numbers": lambda rng: rng.randint(-50, 5000),
    "texts": lambda rng: f"user {rng.randint(0, 500)}",
    "numbers and nothing": lambda rng: rng.choice([None, rng.randint(0, 100)]),
    "floats": lambda rng: rng.choice([0.0, -0.0, float("nan"), 1.5, 2.0]),
    "tuples": lambda rng: (rng.randint(0, 9), "a"),
    "large numbers": lambda rng: rng.choice([2**80, 1]),
}


@pytest.mark.parametrize("stamped", [False, True])
@pytest.mark.parametrize("kind", KEYS)
def test_rows_go_where_their_key_group_is_in_their_order(kind: str, stamped: bool) -> None:
    rng = random.Random(7)
    sent: dict[int, list[tuple[Any, Any]]] = {target: [] for target in range(3)}

    def send(target: int, event: Any) -> None:
        assert isinstance(event, Data)
        assert isinstance(event.block, Rows)
        stamps = event.block.timestamps or [None] * len(event.block)
        sent[target] += zip(event.block.values, stamps, strict=True)

    router = HashRouter(key_selector(lambda value: value[0]), 3, 128, None, send, 50)
    expected: dict[int, list[tuple[Any, Any]]] = {target: [] for target in range(3)}
    number = 0
    for size in (1, 63, 64, 500, 3):
        values: list[Any] = []
        for _ in range(size):
            values.append((KEYS[kind](rng), number := number + 1))
        stamps: list[int | None] | None = [value[1] * 10 for value in values] if stamped else None
        router.route(Rows(values, stamps))
        for value in values:
            target = subtask_of(key_group(normal_key(value[0]), 128), 3, 128)
            expected[target].append((value, value[1] * 10 if stamped else None))
    router.flush()
    assert [[(v[1], s) for v, s in part] for part in sent.values()] == [
        [(v[1], s) for v, s in part] for part in expected.values()
    ]


SELECTORS: Final[dict[str, Callable[[Any], Any]]] = {
    "a number": lambda row: row.number % 10,
    "a text": lambda row: row["text"],
    "floats": lambda row: row[2],
    "several": lambda row: (row.text, row.number % 3),
    "a list": lambda row: [row.number % 5],
    "nothing": lambda row: None,
}


@pytest.mark.parametrize("stamped", [False, True])
@pytest.mark.parametrize("key", SELECTORS)
def test_columns_stay_columns_where_a_function_makes_the_key(key: str, stamped: bool) -> None:
    """They come to the same subtask, in the same order, with the same timestamps, as the rows that they are."""
    rng = random.Random(8)
    sent: list[list[list[tuple[Any, Any]]]] = []
    kinds: list[set[type]] = []
    blocks = []
    for size in (1, 63, 200, 15, 16):
        numbers = [rng.randint(-50, 5000) for _ in range(size)]
        batch = pa.record_batch(
            {
                "number": numbers,
                "text": pa.array([rng.choice(["", "ä", "user 7", None]) for _ in numbers], pa.string()),
                "share": [rng.choice([0.0, -0.0, float("nan"), 1.0]) for _ in numbers],
                "many": [[number, None] for number in numbers],
            }
        )
        blocks.append(Columns(batch, np.array(numbers) * 10 if stamped else None))
    for given_as in (lambda block: block, to_rows):
        targets: list[list[tuple[Any, Any]]] = [[] for _ in range(3)]
        kinds.append(set())

        def send(
            target: int, event: Any, targets: list[list[tuple[Any, Any]]] = targets, kind: set[type] = kinds[-1]
        ) -> None:
            kind.add(type(event.block))
            rows = to_rows(event.block)
            targets[target] += zip(map(repr, rows.values), rows.timestamps or [None] * len(rows), strict=True)

        router = HashRouter(key_selector(SELECTORS[key]), 3, 128, None, send, 50)
        for block in blocks:
            router.route(given_as(block))
        router.flush()
        sent.append(targets)
    assert sent[0] == sent[1]
    assert sum(map(len, sent[0])) == 295
    assert kinds == [{Columns, Rows}, {Rows}], "few records go as Rows, which is cheaper"


class Routed:
    """A router by the column k, and what it has sent."""

    def __init__(self, *, targets: int = 2, block_size: int = 100) -> None:
        self.sent: list[tuple[int, Event]] = []
        self.router = HashRouter(
            ColumnKeySelector(("k",)), targets, 128, None, lambda *sent: self.sent.append(sent), block_size
        )

    def route(self, block: Block) -> Routed:
        self.router.route(block)
        return self

    def blocks(self, target: int) -> list[Any]:
        return [event.block for to, event in self.sent if to == target and isinstance(event, Data)]

    def keys(self, target: int) -> list[Any]:
        return [
            key
            for block in self.blocks(target)
            for key in (
                block.batch.column("k").to_pylist()
                if isinstance(block, Columns)
                else map(itemgetter("k"), block.values)
            )
        ]


def columns(keys: Any, *, stamped: bool = True, **others: Any) -> Columns:
    stamps = np.asarray([int(key) * 10 for key in keys], dtype=np.int64) if stamped else None
    return Columns(pa.record_batch({"k": keys, **others}), stamps)


def target_of(key: int, targets: int) -> int:
    return subtask_of(key_group(key, 128), targets, 128)


def test_columns_for_a_target_leave_as_one_block_when_enough_have_come() -> None:
    routed = Routed()
    for start in range(0, 600, 20):
        routed.route(columns(list(range(start, start + 20))))
    for target in range(2):
        sizes = [len(block) for block in routed.blocks(target)]
        assert min(sizes) > 80
        assert max(sizes) <= 100
    gathered = [routed.router.gathered]
    routed.router.flush()
    assert [*gathered, routed.router.gathered] == [True, False]
    for target in range(2):
        expected = [key for key in range(600) if target_of(key, 2) == target]
        assert routed.keys(target) == expected
        assert np.concatenate([b.timestamps for b in routed.blocks(target)]).tolist() == [key * 10 for key in expected]


def test_gathered_columns_leave_before_a_control_event() -> None:
    routed = Routed().route(columns([1, 2, 3, 4, 5])).route(columns([6, 7, 8]))
    assert not routed.sent
    routed.router.broadcast(Watermark(80))
    *data, first, second = [event for _, event in routed.sent]
    assert sum(len(event.block) for event in data if isinstance(event, Data)) == 8
    assert [first, second] == [Watermark(80), Watermark(80)]


def test_columns_that_are_worth_a_frame_wait_no_longer_however_few_they_are() -> None:
    routed = Routed(targets=1, block_size=10_000).route(columns([1], text=["x" * 300_000]))
    assert not routed.sent
    routed.route(columns([2], text=["y" * 300_000]))
    assert [len(block) for block in routed.blocks(0)] == [2]


def test_rows_and_columns_of_one_key_stay_in_their_order() -> None:
    routed = Routed(targets=1)
    routed.route(columns([1, 2])).route(Rows([{"k": 3}], [30])).route(columns([4])).route(Rows([{"k": 5}], [50]))
    routed.router.flush()
    assert routed.keys(0) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "second",
    [
        columns([3, 4], stamped=False),
        columns([3, 4], other=[1, 2]),
        columns(pa.array([3, 4], pa.int32())),
    ],
    ids=["without timestamps", "other columns", "another type"],
)
def test_columns_of_another_shape_leave_by_themselves_and_in_order(second: Columns) -> None:
    routed = Routed(targets=1).route(columns([1, 2])).route(second).route(columns([5]))
    routed.router.flush()
    assert routed.keys(0) == [1, 2, 3, 4, 5]
    assert [block.batch.schema for block in routed.blocks(0)][1] == second.batch.schema


def test_dictionaries_leave_as_they_come() -> None:
    routed = Routed(targets=1)
    for text in ("a", "b"):
        routed.route(columns([1], text=pa.array([text]).dictionary_encode()))
    routed.router.flush()
    assert [block.batch.column("text").to_pylist() for block in routed.blocks(0)] == [["a"], ["b"]]


def test_where_all_is_columns_blocks_may_be_larger() -> None:
    routed = Routed(targets=1)
    routed.router.column_rows = 250
    for start in range(0, 300, 50):
        routed.route(columns(list(range(start, start + 50))))
    routed.route(Rows([{"k": 300 + number} for number in range(150)], list(range(150))))
    routed.router.flush()
    assert [len(block) for block in routed.blocks(0)] == [250, 50, 100, 50]


@given(st.data())
def test_keys_that_are_looked_up_go_where_their_key_group_is(data: st.DataObject) -> None:
    """Ranges that begin anywhere, grow to either side, or jump; whatever has come before."""
    targets = data.draw(st.sampled_from([1, 3, 100, 128]))
    start = data.draw(st.sampled_from([-(2**63), -5000, 0, 10**12, 2**63 - 70_000]))
    asked: list[int] = []

    def find(column: pa.Array) -> Any:
        asked.append(len(column))
        return np.array([target_of(key, targets) for key in column.to_pylist()], dtype=np.int64)

    numbers = NumberTargets(find, targets)
    for _ in range(data.draw(st.integers(1, 6))):
        near = data.draw(st.integers(0, 60_000)) + start
        width = data.draw(st.sampled_from([1, 30, 600, 9_000]))
        keys = [near + (number * 7919) % width for number in range(data.draw(st.sampled_from([1, 50, 3_000])))]
        found = numbers.of(pa.array(keys, pa.int64()))
        assert found.tolist() == [target_of(key, targets) for key in keys]


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([1, None, 3] * 2000),
        pa.array(["a", "b"] * 2000),
        pa.array([2**64 - 1, 0] * 2000, pa.uint64()),
        pa.array([-128, 127, 0, 5] * 2000, pa.int8()),
        pa.array([True, False] * 2000),
        pa.array([0, 2**62] * 2000),
    ],
    ids=str,
)
def test_keys_of_every_kind_go_where_their_key_group_is(keys: pa.Array) -> None:
    router = Routed(targets=3).router
    expected = [subtask_of(key_group(key, 128), 3, 128) for key in keys.to_pylist()]
    for _ in range(3):
        assert router._numbers.of(keys).tolist() == expected


@pytest.mark.parametrize("low", [-(2**63), 2**63 - 1000, 2**63 - 1600])
def test_the_ends_of_the_range_of_numbers_are_looked_up_or_hashed(low: int) -> None:
    router = Routed(targets=3).router
    keys = list(range(low, min(low + 1000, 2**63)))
    for _ in range(5):
        assert router._numbers.of(pa.array(keys)).tolist() == [target_of(key, 3) for key in keys]


def test_keys_close_together_are_hashed_once_and_those_far_apart_each_time() -> None:
    hashed: list[int] = []

    def find(column: pa.Array) -> Any:
        hashed.append(len(column))
        return np.zeros(len(column), np.int64)

    close, far = NumberTargets(find, 2), NumberTargets(find, 2)
    for _ in range(20):
        close.of(pa.array(np.arange(100_000, 101_000)))
    assert sum(hashed) < 10_000
    hashed.clear()
    for _ in range(20):
        far.of(pa.array(np.arange(1_000) * 10_000))
    assert hashed == [1_000] * 20
