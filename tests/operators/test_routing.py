"""Rows go to the subtask of their key group, in their order, whether their keys are looked at in bulk or one by one."""

from __future__ import annotations

import random
from collections.abc import Callable
from operator import itemgetter
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from penstock.operators.routing import HashRouter
from penstock.operators.selectors import ColumnKeySelector, key_selector
from penstock.protocol.events import Data, Event, Watermark
from penstock.records import Block, Columns, Rows
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
