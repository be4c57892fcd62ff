"""Grouping by numbers that lie close together gives what Arrow's own kernels give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records.dense_groups import grouped_densely
from penstock.records.exact_sums import grouped

_WANTED: list[tuple[str | None, str]] = [
    (None, "count_all"),
    ("v", "sum"),
    ("v", "min"),
    ("v", "max"),
    ("v", "count"),
    ("text", "count"),
]
_KINDS = {
    pa.int64(): (-(2**63), 2**63 - 1),
    pa.int8(): (-128, 127),
    pa.uint32(): (0, 2**32 - 1),
}


def _by_arrow(table: pa.Table, by: list[str]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    asked = [([] if name is None else name, function) for name, function in _WANTED]
    result = table.group_by(by, use_threads=False).aggregate(asked)
    found = result.select(
        result.column_names[len(by) :] if result.column_names[0] == by[0] else result.column_names[: -len(by)]
    )
    keys = zip(*(result.column(name).to_pylist() for name in by), strict=True)
    return dict(zip(keys, zip(*(column.to_pylist() for column in found.columns), strict=True), strict=True))


@given(st.data(), st.sampled_from(list(_KINDS)), st.sampled_from(list(_KINDS)), st.booleans(), st.integers(1, 40))
def test_the_groups_are_those_of_arrows_kernels(
    data: st.DataObject, key_kind: pa.DataType, value_kind: pa.DataType, two: bool, size: int
) -> None:
    low, high = _KINDS[key_kind]
    start = data.draw(st.sampled_from([low, 0, high - 3]))
    number = st.integers(start, start + 3)
    least, most = (-(2**40), 2**40) if value_kind == pa.int64() else _KINDS[value_kind]
    columns = {
        "k": pa.array(data.draw(st.lists(number, min_size=size, max_size=size)), key_kind),
        "p": pa.array(data.draw(st.lists(st.integers(-1, 1), min_size=size, max_size=size)), pa.int64()),
        "v": pa.array(data.draw(st.lists(st.integers(least, most), min_size=size, max_size=size)), value_kind),
        "text": pa.array(data.draw(st.lists(st.sampled_from(["a", None]), min_size=size, max_size=size)), pa.string()),
    }
    table = pa.table(columns)
    by = ["p", "k"] if two else ["k"]
    found = grouped_densely(
        [table.column(name) for name in by],
        [(None if name is None else columns[name], function) for name, function in _WANTED],
    )
    if found is None:
        assert size < 3, "so many rows of so few keys are dense"
        return
    keys, results = found
    assert [column.type for column in keys] == [columns[name].type for name in by]
    rows = list(zip(*(column.to_pylist() for column in keys), strict=True))
    assert rows == sorted(set(rows)), "in the order of the keys, each once"
    expected = _by_arrow(table, by)
    assert dict(zip(rows, zip(*(column.to_pylist() for column in results), strict=True), strict=True)) == expected


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([1, None, 1, 2]),
        pa.array([0, 2**62, 0, 0]),
        pa.array([-(2**63), 2**63 - 1, 0, 0]),
        pa.array([1, 1, 1, 1], pa.uint64()),
        pa.array(["a", "b", "a", "a"]),
    ],
)
def test_other_keys_are_grouped_by_arrow(keys: pa.Array) -> None:
    assert grouped_densely([pa.chunked_array([keys])], [(None, "count_all")]) is None
    found, (counts,) = grouped(pa.table({"k": keys}), ["k"], [(None, "count_all")])
    assert dict(zip(found[0].to_pylist(), counts.to_pylist(), strict=True)) == {
        key: keys.to_pylist().count(key) for key in keys.to_pylist()
    }


@pytest.mark.parametrize(("column", "function"), [([1.5, 2.0], "sum"), ([1, None], "sum"), (["a", "b"], "min")])
def test_other_columns_are_grouped_by_arrow(column: list[Any], function: str) -> None:
    assert grouped_densely([pa.chunked_array([pa.array([1, 1])])], [(pa.array(column), function)]) is None


def test_a_sum_that_does_not_fit_is_wide_also_over_dense_keys() -> None:
    table = pa.table({"k": [1, 2, 1], "v": [2**62, 1, 2**62]})
    _, (sums,) = grouped(table, ["k"], [("v", "sum")])
    assert [int(value) for value in sums.to_pylist()] == [2**63, 1]


def test_many_rows_of_several_chunks() -> None:
    rng = np.random.default_rng(5)
    keys, amounts = rng.integers(-500, 500, 10_000), rng.integers(-9, 9, 10_000)
    chunks = pa.chunked_array([pa.array(keys[:1]), pa.array(keys[1:7000]), pa.array(keys[7000:])])
    found = grouped_densely([chunks], [(pa.array(amounts), "sum"), (None, "count_all")])
    assert found is not None
    (made,), (sums, counts) = found
    assert made.to_pylist() == np.unique(keys).tolist()
    assert sums.to_pylist() == [int(amounts[keys == key].sum()) for key in np.unique(keys)]
    assert counts.to_pylist() == [int((keys == key).sum()) for key in np.unique(keys)]
