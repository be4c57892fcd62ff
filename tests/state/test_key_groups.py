"""Keys belong to key groups by a hash that is the same in every process, on rows and on columns."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common.types import Row
from penstock.state.bulk_keys import key_groups_in_bulk
from penstock.state.column_keys import key_groups_of_columns
from penstock.state.keys import UnsupportedKeyError, canonical, key_group, key_group_range, subtask_of


class Colour(Enum):
    RED = 1


@given(st.one_of(st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_numbers_that_are_equal_have_one_encoding(number: float) -> None:
    as_float = float(number)
    if as_float == number:
        assert canonical(as_float) == canonical(number)


def test_true_is_one_and_decimal_one_is_one() -> None:
    assert canonical(True) == canonical(1) == canonical(Decimal("1.0"))


def test_a_row_is_keyed_like_the_tuple_of_its_values() -> None:
    assert canonical(Row("a", 1)) == canonical(("a", 1))


def test_tuples_do_not_run_together() -> None:
    assert canonical(("a", "bc")) != canonical(("ab", "c"))


@pytest.mark.parametrize("key", [None, "ü", b"\x00", 2**70, date(2026, 1, 1), Colour.RED, ("a", (1, None))])
def test_common_key_types_have_a_group(key: object) -> None:
    assert 0 <= key_group(key, 128) < 128


def test_a_key_that_has_no_stable_encoding_is_refused_with_the_types_that_do() -> None:
    with pytest.raises(UnsupportedKeyError, match="__canonical_key__"):
        canonical(object())


def test_the_hash_does_not_depend_on_the_process() -> None:
    code = "from penstock.state.keys import key_group; print([key_group(k, 128) for k in ('user-1', 7, ('a', 2))])"
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


@given(st.integers(1, 64), st.integers(1, 256))
def test_the_ranges_of_all_subtasks_partition_the_key_groups(parallelism: int, extra: int) -> None:
    groups = parallelism + extra
    ranges = [key_group_range(i, parallelism, groups) for i in range(parallelism)]
    assert [g for r in ranges for g in r] == list(range(groups))
    assert all(subtask_of(g, parallelism, groups) == i for i, r in enumerate(ranges) for g in r)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50))
def test_integer_columns_hash_like_their_values(values: list[int]) -> None:
    groups = key_groups_of_columns([pa.array(values, pa.int64())], 128)
    assert groups.tolist() == [key_group(v, 128) for v in values]


@given(st.lists(st.one_of(st.none(), st.text()), max_size=50))
def test_string_columns_hash_like_their_values(values: list[str | None]) -> None:
    groups = key_groups_of_columns([pa.array(values, pa.string())], 128)
    assert groups.tolist() == [key_group(v, 128) for v in values]


_COLUMNS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), st.text(max_size=6)),
    (pa.large_string(), st.one_of(st.text(max_size=6), st.just("x" * 300))),  # too long to go byte by byte
    (pa.binary(), st.binary(max_size=6)),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.bool_(), st.booleans()),
    (pa.float64(), st.sampled_from([0.5, 1.0, -2.0])),
    (pa.date32(), st.just(date(2026, 1, 1))),
    (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "bc", ""])),
]


@given(st.data(), st.lists(st.sampled_from(_COLUMNS), min_size=1, max_size=3), st.integers(0, 12), st.integers(0, 3))
def test_columns_of_any_type_hash_like_the_value_or_the_tuple(
    data: st.DataObject, kinds: list[tuple[pa.DataType, st.SearchStrategy[Any]]], size: int, offset: int
) -> None:
    columns = [
        pa.array(data.draw(st.lists(st.one_of(st.none(), values), min_size=size, max_size=size)), kind).slice(offset)
        for kind, values in kinds
    ]
    listed = [column.to_pylist() for column in columns]
    keys = listed[0] if len(listed) == 1 else list(zip(*listed, strict=True))
    assert key_groups_of_columns(columns, 128).tolist() == [key_group(key, 128) for key in keys]


@pytest.mark.parametrize(
    "keys",
    [
        [(n * 7919) % 100_003 - 50_000 for n in range(1000)],
        [2**63 - 1, -(2**63), 0, -1] * 50,
        [f"user-{n}" * (n % 40) for n in range(500)],
        ["", "ä", "日本", "\U0001f600", "\0"] * 30,
    ],
)
def test_key_groups_in_bulk_are_those_of_each_key(keys: list[Any]) -> None:
    for limit in (1, 7, 128, 32_768):
        found = key_groups_in_bulk(keys, limit)
        assert found is not None
        assert found.tolist() == [key_group(key, limit) for key in keys]


@pytest.mark.parametrize(
    "keys",
    [
        [True, False] * 50,
        [1, True] * 50,
        [*range(100), None],
        [*range(100), 2**63],
        [*range(100), 1.5],
        ["a", "\ud800"] * 50,
        [*map(str, range(100)), 7],
        [(1, 2)] * 100,
        [1, 2, 3],
    ],
)
def test_key_groups_in_bulk_are_those_of_each_key_or_none(keys: list[Any]) -> None:
    assert key_groups_in_bulk(keys, 128) is None
