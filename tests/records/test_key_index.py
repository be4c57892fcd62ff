"""The numbers of keys, compared with a dict of keys as the engine compares them one by one."""

from __future__ import annotations

import datetime
import decimal
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.errors import PenstockError
from penstock.records import key_index
from penstock.records.key_index import KeyIndex
from penstock.state.keys import normal_key

NAN = float("nan")
KINDS: dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]] = {
    "int": (pa.int64(), lambda rng: rng.choice([rng.randrange(-5, 50), rng.randrange(-(2**63), 2**63)])),
    "small": (pa.int16(), lambda rng: rng.randrange(-9, 9)),
    "unsigned": (pa.uint64(), lambda rng: rng.choice([1, 2**64 - 1, rng.randrange(2**64)])),
    "float": (pa.float64(), lambda rng: rng.choice([0.0, -0.0, NAN, -NAN, float("inf"), 1.5, rng.random()])),
    "single": (pa.float32(), lambda rng: rng.choice([0.0, -0.0, NAN, 1.5, 0.1])),
    "text": (
        pa.string(),
        lambda rng: rng.choice(["", "a", "b", "a" * 8, "a" * 9, "b" * 8, "a" * 300, "a" * 301, str(rng.random())]),
    ),
    "bytes": (pa.binary(), lambda rng: bytes(rng.randrange(3) for _ in range(rng.randrange(4)))),
    "fixed": (pa.binary(2), lambda rng: bytes([rng.randrange(4), 1])),
    "decimal": (pa.decimal128(30, 2), lambda rng: decimal.Decimal(rng.randrange(-(10**20), 10**20)) / 100),
    "wide": (pa.decimal256(60, 1), lambda rng: decimal.Decimal(rng.randrange(-99, 99) * 10**40)),
    "bool": (pa.bool_(), lambda rng: rng.random() < 0.5),
    "date": (pa.date32(), lambda rng: datetime.date(2026, 1, rng.randrange(1, 31))),
    "moment": (pa.timestamp("us"), lambda rng: datetime.datetime(2026, 1, rng.randrange(1, 31), 7)),
    "dictionary": (pa.dictionary(pa.int8(), pa.string()), lambda rng: rng.choice("xyz")),
    "view": (pa.string_view(), lambda rng: str(rng.randrange(30)) * 9),
}


def column(kind: str, rows: int, rng: random.Random, nulls: float) -> pa.Array:
    arrow, value = KINDS[kind]
    return pa.array([None if rng.random() < nulls else value(rng) for _ in range(rows + 3)], arrow).slice(3)


@pytest.mark.parametrize(
    "kinds",
    [*((kind,) for kind in KINDS), ("int", "text"), ("text", "text", "float"), ("decimal", "date", "int")],
    ids=str,
)
@pytest.mark.parametrize("colliding", [False, True])
def test_equal_keys_have_one_number_in_every_block(
    kinds: tuple[str, ...], colliding: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if colliding:  # other keys have the same hash, and those of other hashes the same places
        mixed = key_index._mixed
        monkeypatch.setattr(key_index, "_mixed", lambda before, words: mixed(before, words) & np.uint64(7))
        if len(kinds) == 1 and kinds[0] not in ("text", "bytes", "fixed", "decimal", "wide", "dictionary", "view"):
            pytest.skip("the hash of a single word without nulls cannot collide, and is relied on")
    rng = random.Random(f"{kinds}")
    index, numbers = KeyIndex(), dict[Any, int]()
    for _ in range(8 if colliding else 25):
        nulls = rng.choice([0.0, 0.2])
        columns = [column(kind, rng.choice([1, 100]) if colliding else 700, rng, nulls) for kind in kinds]
        shortest = min(map(len, columns))
        columns = [each.slice(0, shortest) for each in columns]
        found = index.number(columns).tolist()
        for key, number in zip(zip(*(each.to_pylist() for each in columns), strict=True), found, strict=True):
            assert numbers.setdefault(normal_key(key), number) == number
    assert sorted(numbers.values()) == list(range(len(index)))


def test_new_keys_are_numbered_in_the_order_in_which_they_come() -> None:
    index = KeyIndex()
    assert index.number([pa.array(["b", "a", "b", None])]).tolist() == [0, 1, 0, 2]
    assert index.number([pa.array(["c", "a", None, "d"])]).tolist() == [3, 1, 2, 4]


def test_zeros_are_two_keys_and_nan_is_one_as_everywhere() -> None:
    index = KeyIndex()
    keys = pa.array([0.0, -0.0, NAN, None, -NAN, math.inf - math.inf, 0.0])
    assert index.number([keys]).tolist() == [0, 1, 2, 3, 2, 2, 0]


def test_whole_numbers_of_every_width_are_compared_by_value() -> None:
    index = KeyIndex()
    assert index.number([pa.array([7, -1], pa.int8())]).tolist() == [0, 1]
    assert index.number([pa.array([-1, 7], pa.int64())]).tolist() == [1, 0]


def test_keys_that_become_of_another_kind_are_refused() -> None:
    index = KeyIndex()
    index.number([pa.array([7])])
    with pytest.raises(PenstockError, match=r"key columns have changed on the way, to double: cast them to one type"):
        index.number([pa.array([7.0])])


def test_a_list_is_no_key() -> None:
    with pytest.raises(PenstockError, match="cannot be a key of columns"):
        KeyIndex().number([pa.array([[1]])])
