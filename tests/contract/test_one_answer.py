"""Windows over columns and over rows give one answer, cut into whatever blocks: at the edges of every type."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.common import Row
from penstock.datastream.aggregates import Aggregate, count, max_, mean, min_, sum_
from penstock.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from penstock.errors import PenstockError
from penstock.operators import rolling
from penstock.operators.aggregation import AggregatedRow, RowAggregation
from penstock.operators.column_operators import FilterColumnsOperator, WithColumnOperator
from penstock.operators.columnar_sessions import ColumnarSessionOperator
from penstock.operators.columnar_window import ColumnarWindowOperator
from penstock.operators.keyed import KeyedReduceOperator
from penstock.operators.routing import HashRouter
from penstock.operators.selectors import ColumnKeySelector
from penstock.operators.window import WindowOperator
from penstock.operators.window_contents import AggregateContents
from penstock.protocol.events import Data
from penstock.records import Columns, Rows
from penstock.records.convert import to_rows
from penstock.testing.harness import OperatorHarness

WINDOW: Any = TumblingEventTimeWindows(10, 0)
SESSION: Any = EventTimeSessionWindows(10)
DAY = datetime.timedelta(days=1)
NAN = math.nan
TWICE = datetime.datetime(2026, 10, 25, tzinfo=datetime.UTC)  # two o'clock in Paris, and an hour later it is again


def windows(
    keys: pa.Array, values: pa.Array, aggregates: dict[str, Aggregate], *, path: str, block: int, lateness: int = 0
) -> list[Any]:
    """All firings of one window, or of sessions with its bounds; with `lateness` also those of every
    record, as all but the first block are late."""
    if path == "columns":
        operator: Any = ColumnarWindowOperator(("key",), WINDOW, aggregates, allowed_lateness=lateness)
    elif path == "sessions":
        operator = ColumnarSessionOperator(("key",), SESSION, aggregates)
    else:
        operator = WindowOperator(
            selector=ColumnKeySelector(("key",)),
            assigner=WINDOW,
            contents=AggregateContents(RowAggregation(aggregates)),
            function=AggregatedRow(("key",), aggregates),
            allowed_lateness=lateness,
        )
    harness = OperatorHarness(operator)
    batch = pa.record_batch({"key": keys, "value": values})
    for start in range(0, len(keys), block):
        part = batch.slice(start, block)
        columns = Columns(part, np.zeros(len(part), dtype=np.int64))
        harness.push_block(columns if path != "rows" else to_rows(columns))
        if path == "sessions":
            harness.snapshot()  # each block is grouped by itself
        if lateness:
            harness.advance_watermark(9)
    return [tuple(row) for row in harness.end_input().values()]


def same(one: Any, other: Any) -> bool:
    """Equal, and of zeros also the signs, and NaN is NaN."""
    if isinstance(one, float) and isinstance(other, float):
        return (one != one and other != other) or (one == other and math.copysign(1, one) == math.copysign(1, other))
    if isinstance(one, datetime.datetime) and one.tzinfo is not None:
        return bool(one.astimezone(datetime.UTC) == other.astimezone(datetime.UTC))
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def in_utc(row: Any) -> str:
    zoned = isinstance(row[0], datetime.datetime) and row[0].tzinfo is not None
    return repr((row[0].astimezone(datetime.UTC) if zoned else row[0], *row[1:]))


CASES: list[tuple[str, pa.DataType, list[Any], Aggregate, Any]] = [
    ("a mean of large integers", pa.int64(), [2**63 - 1, 2**63 - 1, 5], mean("value"), (2**64 + 3) / 3),
    (
        "a sum that fits though parts of it do not",
        pa.int64(),
        [2**63 - 1, 2**62, -(2**62), -7],
        sum_("value"),
        2**63 - 8,
    ),
    ("a sum of the smallest", pa.int64(), [-(2**63), 1, -1], sum_("value"), -(2**63)),
    ("a sum of bytes", pa.int8(), [127, 127, 127], sum_("value"), 381),
    ("a sum of unsigned integers", pa.uint64(), [2**63, 2**63 - 1], sum_("value"), 2**64 - 1),
    ("a mean of unsigned integers", pa.uint64(), [2**64 - 1, 2**64 - 1], mean("value"), float(2**64 - 1)),
    ("the largest unsigned integer", pa.uint64(), [2**63, 2**64 - 1, 3], max_("value"), 2**64 - 1),
    ("a sum of booleans", pa.bool_(), [True, False, True, None], sum_("value"), 2),
    ("a mean of booleans", pa.bool_(), [True, False, None], mean("value"), 0.5),
    (
        "a sum of decimals of 30 digits",
        pa.decimal128(31, 1),
        [Decimal("123456789012345678901234567890.1"), Decimal("0.1")],
        sum_("value"),
        Decimal("123456789012345678901234567890.2"),
    ),
    (
        "a sum of the largest decimals that fits though parts of it do not",
        pa.decimal128(38, 0),
        [Decimal(10**38 - 1), Decimal(1), Decimal(-2)],
        sum_("value"),
        Decimal(10**38 - 2),
    ),
    ("a mean of decimals", pa.decimal128(38, 2), [Decimal("0.10"), Decimal("0.20")], mean("value"), 0.3 / 2),
    ("a sum of narrow decimals", pa.decimal32(4, 2), [Decimal("0.10"), None], sum_("value"), Decimal("0.10")),
    ("the smallest narrow decimal", pa.decimal64(4, 2), [Decimal("0.10"), Decimal(-1)], min_("value"), Decimal(-1)),
    ("a sum of durations", pa.duration("us"), [DAY, None, DAY], sum_("value"), 2 * DAY),
    ("the longest duration", pa.duration("ms"), [DAY, -DAY, None], max_("value"), DAY),
    ("the smaller zero", pa.float64(), [0.0, -0.0, None], min_("value"), -0.0),
    ("the larger zero", pa.float64(), [-0.0, 0.0, -0.0, -1.0], max_("value"), 0.0),
    ("the smallest beside NaN", pa.float64(), [NAN, 0.0, -0.0, NAN], min_("value"), -0.0),
    ("the largest of NaN only", pa.float64(), [NAN, None, NAN], max_("value"), NAN),
    ("the largest of 32 bits", pa.float32(), [-0.0, 0.0, -math.inf], max_("value"), 0.0),
    ("a sum of infinities", pa.float64(), [math.inf, 1.0, math.inf], sum_("value"), math.inf),
    ("a sum of opposite infinities", pa.float64(), [math.inf, -math.inf], sum_("value"), NAN),
    ("a sum of negative zeros", pa.float64(), [-0.0, -0.0, None], sum_("value"), 0.0),
    ("a mean of a negative zero", pa.float64(), [-0.0], mean("value"), 0.0),
    ("the smallest half", pa.float16(), [0.5, -0.5], min_("value"), -0.5),
    ("the largest string view", pa.string_view(), ["a", "é", None], max_("value"), "é"),
    ("the largest in a dictionary", pa.dictionary(pa.int8(), pa.string()), ["a", "b", None], max_("value"), "b"),
    ("the smallest bytes in a view", pa.binary_view(), [b"b", b"a"], min_("value"), b"a"),
    (
        "the later moment though its clock shows less",
        pa.timestamp("us", "Europe/Paris"),
        [TWICE + datetime.timedelta(minutes=59), TWICE + datetime.timedelta(minutes=61)],
        max_("value"),
        (TWICE + datetime.timedelta(minutes=61)).astimezone(ZoneInfo("Europe/Paris")),
    ),
    ("how many, with nulls", pa.null(), [None, None], count(), 2),
    ("a sum of nulls", pa.null(), [None, None], sum_("value"), None),
]


@pytest.mark.parametrize("block", [1, 2, 100])
@pytest.mark.parametrize("path", ["columns", "rows", "sessions"])
@pytest.mark.parametrize(("name", "kind", "values", "aggregate", "expected"), CASES, ids=[c[0] for c in CASES])
def test_an_aggregate_has_one_answer(
    name: str, kind: pa.DataType, values: list[Any], aggregate: Aggregate, expected: Any, path: str, block: int
) -> None:
    for order in (values, values[::-1]):
        keys = pa.array(["k"] * len(order))
        found = windows(keys, pa.array(order, kind), {"result": aggregate}, path=path, block=block)
        assert same(found, [("k", 0, 10, expected)]), found
        # Once more with a firing for every record: the last one has them all. Each must fit.
        if "though parts" in name or path == "sessions":
            continue
        late = windows(keys, pa.array(order, kind), {"result": aggregate}, path=path, block=block, lateness=100)
        assert same(late[-1], ("k", 0, 10, expected)), late


@pytest.mark.parametrize("path", ["columns", "sessions"])
@pytest.mark.parametrize("block", [1, 2, 100])
@pytest.mark.parametrize(
    ("kind", "values", "total"),
    [
        (pa.int64(), [2**63 - 1, 1], 2**63),
        (pa.uint64(), [2**64 - 1, 1], 2**64),
        (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(1)], 10**38),
        (pa.duration("ns"), [datetime.timedelta(days=100_000), datetime.timedelta(days=100_000)], None),
    ],
    ids=repr,
)
def test_a_sum_that_does_not_fit_its_type_is_an_error_over_columns_and_exact_over_objects(
    kind: pa.DataType, values: list[Any], total: int | None, block: int, path: str
) -> None:
    keys = pa.array(["k"] * len(values))
    with pytest.raises(
        PenstockError, match=r"aggregate 'result' of the window from 0 to 10: a sum is .* too large for"
    ):
        windows(keys, pa.array(values, kind), {"result": sum_("value")}, path=path, block=block)
    if total is not None:  # Python's numbers have no width
        found = windows(keys, pa.array(values, kind), {"result": sum_("value")}, path="rows", block=block)
        assert found == [("k", 0, 10, total)]


KEYS: list[tuple[pa.DataType, list[Any], int]] = [  # (type, keys, how many different ones)
    (pa.float64(), [0.0, -0.0, 1.0, None, -0.0], 4),
    (pa.float64(), [NAN, -NAN, float(np.uint64(0x7FF8000000000001).view(np.float64)), 1.0], 2),
    (pa.float32(), [NAN, -NAN, 0.0, -0.0], 3),
    (pa.float16(), [0.5, 0.25, 0.5], 2),
    (pa.string_view(), ["a", "a string of more than twelve bytes", "a", None], 3),
    (pa.large_string(), ["a", "b", "a", None], 3),
    (pa.dictionary(pa.int8(), pa.string()), ["a", "b", "a", None], 3),
    (pa.binary_view(), [b"a", b"b", b"a"], 2),
    (pa.binary(2), [b"aa", b"bb", b"aa"], 2),
    (pa.decimal32(4, 2), [Decimal("1.50"), Decimal("1.5"), Decimal(0)], 2),
    (pa.decimal128(38, 2), [Decimal("1.50"), Decimal("1.5"), Decimal(0)], 2),
    (pa.uint64(), [2**64 - 1, 2**63, 2**64 - 1], 2),
    (pa.bool_(), [True, False, True, None], 3),
    (pa.date32(), [datetime.date(2026, 1, 1), datetime.date(1, 1, 1)], 2),
    (pa.time64("us"), [datetime.time(1), datetime.time(2), datetime.time(1)], 2),
    (pa.timestamp("us", "Europe/Paris"), [datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), None], 2),
    (pa.timestamp("us", "Europe/Paris"), [TWICE, TWICE + datetime.timedelta(hours=1)], 2),
    (pa.duration("us"), [DAY, -DAY, DAY], 2),
    (pa.null(), [None, None], 1),
]


@pytest.mark.parametrize("path", ["columns", "sessions"])
@pytest.mark.parametrize("block", [1, 2, 100])
@pytest.mark.parametrize(("kind", "keys", "different"), KEYS, ids=[f"{k[0]}-{k[1]!r}" for k in KEYS])
def test_a_key_is_the_same_over_columns_and_over_rows(
    kind: pa.DataType, keys: list[Any], different: int, block: int, path: str
) -> None:
    values = pa.array([1] * len(keys))
    by_rows = windows(pa.array(keys, kind), values, {"n": count()}, path="rows", block=block)
    by_columns = windows(pa.array(keys, kind), values, {"n": count()}, path=path, block=block)
    assert len(by_columns) == different
    assert sum(row[3] for row in by_columns) == len(keys)
    assert sorted(map(in_utc, by_columns)) == sorted(map(in_utc, by_rows))


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize(("kind", "keys"), [k[:2] for k in KEYS], ids=[f"{k[0]}-{k[1]!r}" for k in KEYS])
def test_a_key_goes_to_the_same_subtask_over_columns_and_over_rows(
    kind: pa.DataType, keys: list[Any], several: bool
) -> None:
    batch = pa.record_batch({"key": pa.array(keys, kind), "part": pa.array([1] * len(keys)), "n": range(len(keys))})
    selector = ColumnKeySelector(("key", "part") if several else ("key",))
    sent: list[dict[int, int]] = []
    for block in (Columns(batch), to_rows(Columns(batch))):
        targets: dict[int, int] = {}

        def send(target: int, event: Any, targets: dict[int, int] = targets) -> None:
            assert isinstance(event, Data)
            rows = to_rows(event.block)
            targets.update({row.n: target for row in rows.values})

        router = HashRouter(selector, 7, 128, None, send, 100)
        router.route(block)
        router.flush()
        sent.append(targets)
    assert sent[0] == sent[1]
    assert len(sent[0]) == len(keys)


# -------------------------------------------------------------------- expressions over records without a declared type

MIXED: list[list[Any]] = [
    [1, 2.5, 3],
    [2.5, 1, None, True],
    [Decimal("1.5"), Decimal("1.25"), 1],
    [2**62, 0.5, 7],
    [datetime.timedelta(days=1), 4],
]


@pytest.mark.parametrize("values", MIXED, ids=repr)
@pytest.mark.parametrize("shape", ["dict", "row"])
def test_an_expression_gives_the_same_for_a_record_whatever_is_beside_it(values: list[Any], shape: str) -> None:
    def computed(block: list[Any]) -> list[Any]:
        records = [{"x": value} if shape == "dict" else Row(x=value) for value in block]
        harness = OperatorHarness(WithColumnOperator("y", pc.field("x") / 2))
        try:
            return [row.y for row in harness.push_block(Rows(records)).values()]
        except PenstockError:
            return ["refused"] * len(block)

    alone = [computed([value])[0] for value in values]
    good = [value for value, result in zip(values, alone, strict=True) if result != "refused"]
    assert good
    expected = [result for result in alone if result != "refused"]
    for block in (good, good[::-1]):
        found = computed(block)
        assert list(map(repr, found if block is good else found[::-1])) == list(map(repr, expected))


def test_integers_are_divided_as_integers_and_floats_as_floats() -> None:
    harness = OperatorHarness(WithColumnOperator("y", pc.field("x") / 2))
    harness.push_block(Rows([{"x": 1}, {"x": 2.5}, {"x": 3}]))
    assert [row.y for row in harness.values()] == [0, 1.25, 1]


def test_a_filter_keeps_the_same_records_in_blocks_of_any_size() -> None:
    records = [{"x": 1}, {"x": 2.5}, {"x": None}, {"x": 3}, {"x": 2**53 + 1}]
    kept = []
    for size in (1, 2, 5):
        harness = OperatorHarness(FilterColumnsOperator(pc.field("x") / 2 >= 1))
        for start in range(0, len(records), size):
            harness.push_block(Rows(records[start : start + size]))
        kept.append(harness.values())
    assert kept == [[{"x": 2.5}, {"x": 3}, {"x": 2**53 + 1}]] * 3


# -------------------------------------------------------------------- rolling aggregates


@pytest.mark.parametrize(
    ("make", "values", "expected"),
    [
        (
            rolling.sum_of,
            [Decimal("123456789012345678901234567890.1"), Decimal("0.1")],
            "123456789012345678901234567890.2",
        ),
        (rolling.min_of, [NAN, 1.0, NAN], "1.0"),
        (rolling.min_of, [1.0, NAN], "1.0"),
        (rolling.max_of, [NAN, 1.0], "nan"),
        (rolling.max_of, [1.0, NAN, 2.0], "nan"),
        (rolling.min_of, [0.0, -0.0, 0.0], "-0.0"),
        (rolling.max_of, [-0.0, 0.0, -0.0], "0.0"),
        (rolling.min_by, [NAN, 0.0, -0.0], "-0.0"),
        (rolling.max_by, [-0.0, NAN, 5.0], "nan"),
    ],
)
def test_rolling_aggregates_order_floats_as_flink_does_and_round_no_decimals(
    make: Any, values: list[Any], expected: str
) -> None:
    harness = OperatorHarness(KeyedReduceOperator(make(0), lambda value: "k"))
    harness.push_block(Rows([(value,) for value in values]))
    assert str(harness.values()[-1][0]) == expected
