"""Python values become Arrow values of the declared type as they are, or not at all."""

from __future__ import annotations

import datetime
import enum
import math
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records.exact_arrays import DoesNotFit, check_fits, exact_array

UTC = datetime.UTC
NOON = datetime.datetime(2026, 1, 2, 12, 0, 0, 123456)
PARIS = ZoneInfo("Europe/Paris")


class Colour(enum.IntEnum):
    RED = 1


SAME: list[tuple[pa.DataType, Any]] = [
    (pa.int8(), -128),
    (pa.int64(), 2**63 - 1),
    (pa.int64(), np.int32(7)),
    (pa.int64(), Colour.RED),
    (pa.uint64(), 2**64 - 1),
    (pa.float64(), 3),  # exact, and what Flink does
    (pa.float64(), np.float32(0.5)),
    (pa.float64(), math.inf),
    (pa.float32(), 0.5),
    (pa.float32(), -math.inf),
    (pa.float16(), 0.5),
    (pa.bool_(), True),
    (pa.bool_(), np.bool_(True)),
    (pa.string(), "é"),
    (pa.string_view(), "a"),
    (pa.large_string(), "a"),
    (pa.binary(), b"\xff"),
    (pa.binary(), bytearray(b"a")),
    (pa.date32(), datetime.date(2026, 1, 2)),
    (pa.timestamp("us"), NOON),
    (pa.timestamp("ms"), NOON.replace(microsecond=123000)),
    (pa.timestamp("us", "UTC"), NOON.replace(tzinfo=PARIS)),  # the same moment
    (pa.timestamp("us", "Europe/Paris"), NOON.replace(tzinfo=UTC)),
    (pa.time64("us"), datetime.time(1, 2, 3, 4)),
    (pa.duration("us"), datetime.timedelta(days=-3, microseconds=1)),
    (pa.decimal128(5, 1), Decimal("2.5")),
    (pa.decimal128(5, 1), 7),
    (pa.list_(pa.int64()), [1, None, 2]),
    (pa.struct([("a", pa.int64())]), {"a": 1}),
    (pa.dictionary(pa.int8(), pa.string()), "a"),
]
CAST: list[tuple[pa.DataType, Any]] = [
    (pa.int64(), 2.5),
    (pa.int64(), 2.0),  # a float is no integer: else `v / 2` would fail for every other record
    (pa.int64(), np.float64(2.5)),
    (pa.int64(), Decimal("2.5")),
    (pa.int64(), True),
    (pa.int64(), np.bool_(True)),
    (pa.int64(), 2**63),
    (pa.int64(), "1"),
    (pa.int32(), 2**31),
    (pa.uint8(), -1),
    (pa.uint64(), 2**64),
    (pa.uint64(), np.datetime64("2026-01-02T00:00:00.000000001")),
    (pa.float64(), 2**53 + 1),
    (pa.float64(), True),
    (pa.float64(), Decimal("2.5")),
    (pa.float32(), 1e300),
    (pa.float16(), 1e5),
    (pa.bool_(), 1),
    (pa.string(), b"a"),
    (pa.string(), bytearray(b"a")),
    (pa.string(), 1),
    (pa.string(), "\ud800"),
    (pa.binary(), "a"),
    (pa.date32(), NOON),
    (pa.date32(), 1),
    (pa.timestamp("us"), NOON.replace(tzinfo=UTC)),
    (pa.timestamp("us"), 1),
    (pa.timestamp("us"), datetime.date(2026, 1, 2)),
    (pa.timestamp("us", "UTC"), NOON),
    (pa.timestamp("ms"), NOON),
    (pa.time64("us"), datetime.time(1, tzinfo=UTC)),
    (pa.time32("s"), datetime.time(1, 0, 0, 5)),
    (pa.duration("us"), 1),
    (pa.duration("s"), datetime.timedelta(microseconds=1)),
    (pa.decimal128(5, 1), Decimal("2.55")),
    (pa.decimal128(5, 1), Decimal("4.0000000000000000000001E-20")),  # which Arrow rounds to zero
    (pa.decimal128(5, 1), 2.5),
    (pa.decimal128(5, 1), Decimal(10) ** 5),
    (pa.list_(pa.int64()), [1, 2.5]),
    (pa.list_(pa.int64()), np.array([2.5])),
    (pa.list_(pa.string()), "abc"),
    (pa.map_(pa.string(), pa.int64()), [("a", 2.5)]),
    (pa.map_(pa.string(), pa.int64()), {b"a": 2}),
    (pa.struct([("a", pa.int64())]), {"a": 2.5}),
    (pa.struct([("a", pa.int64())]), {"a": 2, "b": 3}),
    (pa.list_(pa.struct([("a", pa.list_(pa.int8()))])), [{"a": [1]}, {"a": [200]}]),
    (pa.dictionary(pa.int8(), pa.string()), b"a"),
]


@pytest.mark.parametrize(("kind", "value"), SAME, ids=repr)
def test_a_value_of_the_type_comes_back_as_it_was(kind: pa.DataType, value: Any) -> None:
    assert exact_array([None, value, value], kind).to_pylist() == [None, value, value]
    check_fits([None, value], kind)


@pytest.mark.parametrize("values", ["alone", "behind others", "in a large block"])
@pytest.mark.parametrize(("kind", "value"), CAST, ids=repr)
def test_a_value_of_another_type_is_refused_whatever_is_around_it(kind: pa.DataType, value: Any, values: str) -> None:
    others = [good for same, good in SAME if same == kind][:1]
    before = {"alone": [], "behind others": [None, *others], "in a large block": [*others, None] * 500}[values]
    for check in (exact_array, check_fits):
        with pytest.raises(DoesNotFit) as caught:
            check([*before, value, None], kind)
        assert caught.value.position == len(before)
        assert "is not exactly a value of" in str(caught.value)


numbers = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.decimals(allow_nan=False, allow_infinity=False)
)


@given(
    values=st.lists(st.one_of(numbers, numbers, st.text(), st.binary(), st.datetimes(), st.dates()), max_size=4),
    kind=st.sampled_from(
        [pa.int8(), pa.int64(), pa.uint64(), pa.float64(), pa.string(), pa.binary(), pa.date32(), pa.decimal128(9, 2)]
    ),
)
def test_whatever_is_taken_comes_back_equal(values: list[Any], kind: pa.DataType) -> None:
    try:
        array = exact_array(values, kind)
    except DoesNotFit:
        with pytest.raises(DoesNotFit):
            check_fits(values, kind)
        return
    check_fits(values, kind)
    for value, back in zip(values, array.to_pylist(), strict=True):
        assert back == value or (value != value and back != back), (value, back)
        assert isinstance(value, bool) is isinstance(back, bool)
