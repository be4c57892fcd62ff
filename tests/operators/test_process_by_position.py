"""A process function that reads its record only by position is given tuples in the place of Rows, and nobody can tell."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import Row, Types
from penstock.datastream import OutputTag
from penstock.datastream.functions import KeyedProcessFunction, ProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.errors import UserFunctionError
from penstock.operators.keyed import ProcessOperator
from penstock.operators.selectors import key_selector
from penstock.records import Columns, Rows
from penstock.records.convert import to_columns, to_rows
from penstock.testing import OperatorHarness

CLICKS = Columns(pa.record_batch({"key": [1, 2, 1, 0], "amount": [5, 6, 7, 8]}), np.array([10, 20, 30, 40]))
LATE = OutputTag("late", Types.LONG())


@pytest.fixture(autouse=True)
def however_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks in here are small."""
    monkeypatch.setattr("penstock.operators.lean_rows._FEW", 1)


class Total(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        total = (self.total.value() or 0) + value[1]
        self.total.update(total)
        yield ctx.get_current_key(), value[0], total, ctx.timestamp()


class Hands(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value
        yield LATE, value


class Names(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value.key, value[1]


class Divides(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield 1 / value[0]


class Keyless(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        return [value[0], value[1]]


def _outcome(function: Any, selector: Any, block: Any) -> list[Any]:
    with OperatorHarness.for_function(function, key_selector=selector) as harness:
        harness.push_block(block)
        return [(type(value), value, stamp) for value, stamp in harness.records() + harness.side_records(LATE)]


@pytest.mark.parametrize(
    "selector", ["key", ["key", "amount"], lambda value: value.key], ids=["one", "two", "function"]
)
@pytest.mark.parametrize("function", [Total(), Hands(), Names()], ids=lambda one: type(one).__name__)
def test_columns_give_what_rows_give(function: Any, selector: Any) -> None:
    assert _outcome(function, selector, CLICKS) == _outcome(function, selector, to_rows(CLICKS))


def test_columns_give_what_rows_give_without_a_key() -> None:
    assert _outcome(Keyless(), None, CLICKS) == _outcome(Keyless(), None, to_rows(CLICKS))


class Keys(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield repr(ctx.get_current_key()), value[0]


NAN = float("nan")


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([3, None, 3], pa.int64()),
        pa.array([2**63, 1], pa.uint64()),
        pa.array(["a", None, "ä"]),
        pa.array([0.0, -0.0, NAN, NAN]),
        pa.array([True, False, None]),
        pa.array([b"a", None]),
        pa.array([18_000, 3], pa.date32()),
        pa.array([1, 2], pa.timestamp("ms", "Europe/Berlin")),
    ],
    ids=lambda keys: str(keys.type),
)
def test_the_key_is_the_one_that_a_row_has(keys: Any) -> None:
    columns = Columns(pa.record_batch({"key": keys, "amount": pa.array(range(len(keys)))}))
    for function in (Keys(), Total()):
        assert repr(_outcome(function, "key", columns)) == repr(_outcome(function, "key", to_rows(columns)))


@pytest.mark.parametrize(
    ("field", "keys"),
    [
        (Types.LONG(), [1, 2, 1]),
        (Types.STRING(), ["a", "b", "a"]),
        (Types.SQL_DATE(), [datetime.date(2026, 1, 2)] * 3),
    ],
    ids=str,
)
def test_the_key_is_the_one_that_a_declared_row_has(field: Any, keys: list[Any]) -> None:
    declared = Types.ROW_NAMED(["key", "amount"], [field, Types.LONG()])
    block = to_columns(Rows([Row(key=key, amount=number) for number, key in enumerate(keys)]), declared, "here")
    outcomes = []
    for given in (block, to_rows(block, declared)):
        with OperatorHarness(ProcessOperator(Total(), key_selector("key", declared), declared)) as harness:
            outcomes.append(harness.push_block(given).values())
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("function", "selector"), [(Total(), "key"), (Keyless(), None)], ids=["keyed", "without a key"]
)
def test_no_row_is_made_for_a_function_that_reads_by_position(
    function: Any, selector: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_rows(*_: Any) -> list[Any]:
        raise AssertionError("a Row was made")

    monkeypatch.setattr("penstock.records.convert.named_rows", no_rows)
    assert len(_outcome(function, selector, CLICKS)) in (4, 8)


def test_an_error_shows_the_row_that_a_tuple_stands_for() -> None:
    messages = []
    for block in (CLICKS, to_rows(CLICKS)):
        with OperatorHarness.for_function(Divides(), key_selector="key") as harness:
            with pytest.raises(UserFunctionError) as raised:
                harness.push_block(block)
            messages.append(str(raised.value))
            assert harness.values() == []
    assert messages[0] == messages[1]
    assert f"on record {Row(key=0, amount=8)!r}" in messages[0]
    assert "yield 1 / value[0]" in messages[0]
