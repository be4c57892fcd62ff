"""Rows go to the subtask of their key group, in their order, whether their keys are looked at in bulk or one by one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import pytest

from penstock.operators.routing import HashRouter
from penstock.operators.selectors import key_selector
from penstock.protocol.events import Data
from penstock.records import Rows
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
