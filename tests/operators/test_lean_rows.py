"""Functions that read nothing but fields of their record are given tuples in the place of Rows, and nobody can tell."""

from __future__ import annotations

import collections
import functools
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import Row, Time, Types
from penstock.datastream import (
    CoFlatMapFunction,
    CoMapFunction,
    KeyedCoProcessFunction,
    OutputTag,
    ProcessFunction,
)
from penstock.datastream.functions import (
    AggregateFunction,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessWindowFunction,
)
from penstock.datastream.state import ListStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.errors import PenstockError, UserFunctionError
from penstock.operators.base import Operator
from penstock.operators.keyed import KeyedReduceOperator, ProcessOperator
from penstock.operators.keyed_elementwise import KeyedFilterOperator, KeyedFlatMapOperator, KeyedMapOperator
from penstock.operators.lean_rows import Reader, lean_rows, shown
from penstock.operators.routing import HashRouter
from penstock.operators.selectors import key_selector
from penstock.operators.two_inputs import CoFlatMapOperator, CoMapOperator, CoProcessOperator
from penstock.operators.window import WindowOperator
from penstock.operators.window_contents import AggregateContents, ListContents
from penstock.records import Columns, Rows
from penstock.records.convert import to_columns, to_rows
from penstock.testing import OperatorHarness

LATE = OutputTag("late", Types.LONG())
FACTOR = 3


def bids(seed: int, size: int) -> Columns:
    rng = random.Random(seed)
    batch = pa.record_batch(
        {
            "key": [rng.randint(0, 5) for _ in range(size)],
            "price": [rng.choice([1.5, 2.0, -0.0]) for _ in range(size)],
            "note": pa.array([rng.choice([None, "", "ä"]) for _ in range(size)], pa.string()),
            "tags": pa.array([rng.choice([None, [], ["a", None]]) for _ in range(size)], pa.list_(pa.string())),
            "count": [rng.randint(0, 9) for _ in range(size)],
        }
    )
    return Columns(batch, np.array([rng.randint(0, 100) for _ in range(size)]))


class Totals(KeyedProcessFunction):
    """Reads by name and position, with a global, state, timers and a side output; gives nothing for some."""

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.DOUBLE()))

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any] | None:
        total = (self.total.value() or 0) + value.price * FACTOR
        self.total.update(total)
        ctx.timer_service().register_event_time_timer(value[-1] * 10)
        if value.note is None:
            return None
        return self.results(ctx.get_current_key(), value.note, value.count, total, ctx.timestamp())

    def results(self, *result: Any) -> Iterator[Any]:
        yield result
        yield LATE, result
        yield [*result]

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield "timer", timestamp, ctx.get_current_key(), self.total.value()


class Generates(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        for number in range(value.count):
            yield number, value.tags


class Keeps(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value
        yield value.key, repr(value)


class Keyless(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value.tags
        yield value.key


SELECTORS: dict[str, Any] = {
    "a number": "key",
    "a float": "price",
    "a text": "note",
    "two": ["key", "note"],
    "a list": "tags",
    "a function": lambda value: value.key % 3,
    "a function of the whole": lambda value: len(value) + value.key,
    "a position": lambda value: (value[0], value[4]),
}


@pytest.fixture(autouse=True)
def however_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks in here are small."""
    monkeypatch.setattr("penstock.operators.lean_rows._FEW", 1)


def outcome(operator: Operator, blocks: Iterable[tuple[int, Any]]) -> list[Any]:
    with OperatorHarness(operator, block_size=7) as harness:
        for number, (input, block) in enumerate(blocks):
            harness.push_block(block, input=input)
            harness.advance_watermark(number * 30)
        harness.end_input()
        counts = (harness.metrics.records_in, harness.metrics.records_out)
        return [counts, *map(repr, harness.records()), *map(repr, harness.side_records(LATE))]


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("function", [Totals(), Generates(), Keeps()], ids=lambda one: type(one).__name__)
def test_a_process_function_gives_for_columns_what_it_gives_for_rows(function: Any, selector: str) -> None:
    blocks = [bids(seed, size) for seed, size in enumerate((1, 40, 3))]
    found = [
        outcome(ProcessOperator(function, key_selector(SELECTORS[selector])), ((0, made(block)) for block in blocks))
        for made in (lambda block: block, to_rows)
    ]
    assert found[0] == found[1]
    assert len(found[0]) > 30


def test_a_process_function_without_a_key_gives_for_columns_what_it_gives_for_rows() -> None:
    block = bids(1, 30)
    assert outcome(ProcessOperator(Keyless(), None), [(0, block)]) == outcome(
        ProcessOperator(Keyless(), None), [(0, to_rows(block))]
    )


class Pairs(KeyedCoProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting"))

    def process_element1(self, value: Any, ctx: Any) -> None:
        self.waiting.add((value.price, value.tags))
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10)

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        for price, tags in self.waiting.get():
            yield ctx.get_current_key(), value[4], price, tags, ctx.timestamp()
        yield LATE, value.note

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield "timer", timestamp, ctx.get_current_key()
        self.waiting.clear()


class Wholes(Pairs):
    """One of the inputs is kept whole."""

    def process_element1(self, value: Any, ctx: Any) -> None:
        self.waiting.add((value, value.tags))


class Maps(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return None if value.note is None else (value.note, value.tags)

    def map2(self, value: Any) -> Any:
        return value


class Flat(CoFlatMapFunction):
    def flat_map1(self, value: Any) -> Iterator[Any]:
        for _ in range(value[0]):
            yield value.tags

    def flat_map2(self, value: Any) -> Any:
        return None


TWO_INPUTS: dict[str, Callable[[Any], Operator]] = {
    "co-process": lambda keys: CoProcessOperator(Pairs(), keys),
    "co-process of whole records": lambda keys: CoProcessOperator(Wholes(), keys),
    "co-map": lambda keys: CoMapOperator(Maps(), keys),
    "co-flat-map": lambda keys: CoFlatMapOperator(Flat(), keys),
}


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("function", TWO_INPUTS)
def test_two_inputs_give_for_columns_what_they_give_for_rows(function: str, selector: str) -> None:
    keys = (key_selector(SELECTORS[selector]), key_selector(SELECTORS[selector]))
    blocks = [(seed % 2, bids(seed, size)) for seed, size in enumerate((20, 40, 1, 13, 5))]
    found = [
        outcome(TWO_INPUTS[function](keys), ((input, made(block)) for input, block in blocks))
        for made in (lambda block: block, to_rows)
    ]
    assert found[0] == found[1]
    assert len(found[0]) > 20


class Counts(MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def map(self, value: Any) -> Any:
        seen = (self.seen.value() or 0) + value.count
        self.seen.update(seen)
        return value.note, value[3], seen


class CountsMany(FlatMapFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))

    def flat_map(self, value: Any) -> Iterator[Any]:
        self.seen.add(value.tags)
        yield value, len(list(self.seen.get()))
        yield value.key


class Distinct(FilterFunction):
    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.BOOLEAN()))

    def filter(self, value: Any) -> bool:
        seen = self.seen.value()
        self.seen.update(True)
        return not seen or value.count > 6


def larger(first: Any, second: Any) -> Any:
    return first if first.count > second.count else second


def windows(assigner: Any, contents: Any = None, **options: Any) -> Callable[[Any], Operator]:
    held = ListContents() if contents is None else contents
    return lambda key: WindowOperator(selector=key, assigner=assigner, contents=held, function=Lists(), **options)


class Gathers(AggregateFunction):
    """Keeps lists of the records, and changes them."""

    @classmethod
    def contents(cls) -> AggregateContents:
        return AggregateContents(cls())

    def create_accumulator(self) -> list[Any]:
        return []

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        tags = value.tags
        if tags is not None:
            tags.append(value.count)
        accumulator.append(tags)
        return accumulator

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        return accumulator

    def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        return acc_a + acc_b


class Sums(Gathers):
    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        return [*accumulator, value.count + value[1]]


class Lists(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
        yield repr(key), str(context.window()), list(elements)


TWENTY = Time.milliseconds(20)
KEYED: dict[str, Callable[[Any], Operator]] = {
    "map": lambda key: KeyedMapOperator(Counts(), key),
    "flat_map": lambda key: KeyedFlatMapOperator(CountsMany(), key),
    "filter": lambda key: KeyedFilterOperator(Distinct(), key),
    "reduce": lambda key: KeyedReduceOperator(larger, key),
    "tumbling": windows(TumblingEventTimeWindows.of(TWENTY), allowed_lateness=15),
    "sliding": windows(SlidingEventTimeWindows.of(TWENTY, Time.milliseconds(5)), late_tag=LATE.tag_id),
    "tumbling aggregate": windows(
        TumblingEventTimeWindows.of(TWENTY), contents=Gathers.contents(), allowed_lateness=15
    ),
    "sliding aggregate": windows(SlidingEventTimeWindows.of(TWENTY, Time.milliseconds(5)), contents=Gathers.contents()),
    "late records of an aggregate": windows(
        TumblingEventTimeWindows.of(TWENTY), contents=Gathers.contents(), late_tag=LATE.tag_id
    ),
    "sliding sum": windows(SlidingEventTimeWindows.of(TWENTY, Time.milliseconds(5)), contents=Sums.contents()),
    "general": windows(TumblingEventTimeWindows.of(TWENTY), fast_path=False),
    "sessions": windows(EventTimeSessionWindows.with_gap(Time.milliseconds(5)), late_tag=LATE.tag_id),
}


@pytest.mark.parametrize("selector", SELECTORS)
@pytest.mark.parametrize("kind", KEYED)
def test_keyed_operators_give_for_columns_what_they_give_for_rows(kind: str, selector: str) -> None:
    blocks = [bids(seed, size) for seed, size in enumerate((1, 40, 3, 12))]
    found = [
        outcome(KEYED[kind](key_selector(SELECTORS[selector])), ((0, made(block)) for block in blocks))
        for made in (lambda block: block, to_rows)
    ]
    assert found[0] == found[1]
    assert len(found[0]) > 3


@pytest.mark.parametrize("kind", KEYED)
def test_without_timestamps_keyed_operators_say_the_same_of_columns_and_rows(kind: str) -> None:
    found = []
    for made in (lambda block: block, to_rows):
        with OperatorHarness(KEYED[kind](key_selector("key"))) as harness:
            try:
                harness.push_block(made(Columns(bids(1, 20).batch)))
                found.append(repr(harness.records()))
            except PenstockError as error:
                found.append(str(error))
    assert found[0] == found[1]


class FailsToMap(Counts):
    def map(self, value: Any) -> Any:
        return 1 / value.count


class FailsToAdd(Gathers):
    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        return [1 / value.count]


def test_an_error_of_an_aggregate_of_a_window_shows_the_whole_row() -> None:
    messages = []
    for made in (lambda block: block, to_rows):
        operator = windows(TumblingEventTimeWindows.of(TWENTY), contents=FailsToAdd.contents())(key_selector("key"))
        with OperatorHarness(operator) as harness:
            with pytest.raises(UserFunctionError) as raised:
                harness.push_block(made(bids(3, 40)))
            messages.append(str(raised.value))
    assert messages[0] == messages[1]
    assert "on record Row(key=4, price=2.0, note=None, tags=['a', None], count=0)" in messages[0]


@pytest.mark.parametrize("selector", ["key", lambda value: value.key, lambda value: 1 / value.count])
def test_an_error_of_a_keyed_map_or_of_its_selector_shows_the_whole_row(selector: Any) -> None:
    messages = []
    for made in (lambda block: block, to_rows):
        with OperatorHarness(KeyedMapOperator(FailsToMap(), key_selector(selector))) as harness:
            with pytest.raises(UserFunctionError) as raised:
                harness.push_block(made(bids(3, 40)))
            messages.append(str(raised.value))
    assert messages[0] == messages[1]
    assert "on record Row(key=4, price=2.0, note=None, tags=['a', None], count=0)" in messages[0]


def test_a_decorator_around_a_key_function_may_see_the_record() -> None:
    seen: list[Any] = []

    def noting(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(function)
        def note(value: Any) -> Any:
            seen.append(value)
            return function(value)

        return note

    select = noting(lambda value: value.key)
    for selector in (select, key_selector(select)):
        router = HashRouter(selector, 2, 128, None, lambda target, event: None, 100)
        router.route(bids(1, 20))
    assert seen == to_rows(bids(1, 20)).values * 2


class FailsLate(KeyedProcessFunction):
    """State that raises, in the middle of a block and of what is yielded."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value.key
        seen = self.seen.value() or 0
        if seen == 2:
            self.seen.update(1 / (seen - 2))  # the line of the user's
        self.seen.update(seen + 1)


class FailsInSecond(Pairs):
    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value.key / 0


@pytest.mark.parametrize("input", [0, 1])
def test_an_error_shows_the_whole_row_and_the_users_line(input: int) -> None:
    messages = []
    for made in (lambda block: block, to_rows):
        operator: Operator = ProcessOperator(FailsLate(), key_selector("key"))
        if input:
            operator = CoProcessOperator(FailsInSecond(), (key_selector("key"), key_selector("key")))
        with OperatorHarness(operator) as harness:
            with pytest.raises(UserFunctionError) as raised:
                harness.push_block(made(bids(3, 40)), input=input)
            messages.append(str(raised.value))
            assert harness.values() == []
    assert messages[0] == messages[1]
    assert "on record Row(key=" in messages[0]
    assert "tags=" in messages[0]
    assert ("1 / (seen - 2))" if input == 0 else "value.key / 0") in messages[0]


def test_an_error_of_a_key_selector_shows_the_whole_row() -> None:
    messages = []
    for made in (lambda block: block, to_rows):
        with OperatorHarness(ProcessOperator(Generates(), key_selector(lambda value: 1 / value.count))) as harness:
            with pytest.raises(UserFunctionError) as raised:
                harness.push_block(made(bids(3, 40)))
            messages.append(str(raised.value))
    assert messages[0] == messages[1]
    assert "raised in key selector" in messages[0]
    assert "on record Row(key=" in messages[0]


def test_only_fields_that_are_read_have_values_and_names_only_where_they_are_asked_for() -> None:
    block = bids(1, 3)
    lean = lean_rows(block, None, [Reader(lambda value: value[0])])
    assert lean is not None
    assert [(type(value), value[1:]) for value in lean.rows.values] == [(tuple, (None,) * 4)] * 3
    assert lean.plain
    named = lean_rows(
        block, None, [Reader(lambda value: value.count), Reader(lambda value, ctx: value[3], 2)], also={2}
    )
    assert named is not None
    assert [value[2:] for value in named.rows.values] == [value[2:] for value in map(tuple, to_rows(block).values)]
    assert [value.count for value in named.rows.values] == block.batch.column("count").to_pylist()
    assert not named.plain, "a list can be changed"
    whole = lean_rows(block, None, [], whole=True)
    assert whole is not None
    assert whole.rows.values == list(map(tuple, to_rows(block).values))
    assert lean_rows(block, None, [Reader(lambda value: value[0]), Reader(lambda value: value)]) is None
    assert lean_rows(to_rows(block), None, [Reader(lambda value: value[0])]) is None


def test_nothing_at_all_may_be_read() -> None:
    lean = lean_rows(bids(1, 3), None, [Reader(lambda value: 1)])
    assert lean is not None
    assert lean.rows.values == [(None,) * 5] * 3


def test_names_that_are_none_in_python_can_be_beside_those_that_are_read() -> None:
    block = Columns(pa.record_batch({"class": [1, 2], "a b": [3, 4], "_x": [5, 6], "count": [7, 8], "index": [9, 10]}))
    lean = lean_rows(block, None, [Reader(lambda value: (value.count, value.index))])
    assert lean is not None
    assert [(value.count, value.index) for value in lean.rows.values] == [(7, 9), (8, 10)]


def test_declared_fields_have_the_values_of_their_type() -> None:
    declared = Types.ROW_NAMED(["at", "number"], [Types.SQL_TIMESTAMP(), Types.LONG()])
    import datetime

    rows = Rows([Row(at=datetime.datetime(2026, 1, day), number=day) for day in (1, 2)])
    block = to_columns(rows, declared, "here")
    assert isinstance(block, Columns)
    lean = lean_rows(block, declared, [Reader(lambda value: value.at)])
    assert lean is not None
    assert [value.at for value in lean.rows.values] == [row.at for row in rows.values]
    assert not lean.plain


def test_the_row_that_is_shown_is_the_one_in_whose_place_the_tuple_was() -> None:
    block = bids(1, 5)
    lean = lean_rows(block, None, [Reader(lambda value: value.key)], whole=True)
    assert lean is not None
    for at, row in enumerate(to_rows(block).values):
        assert shown(lean, block, None, lean.rows.values[at]) == row
        copied = collections.namedtuple("copied", row._fields)(*lean.rows.values[at])
        assert shown(lean, block, None, copied) == row
    assert shown(lean, block, None, None) is None
    assert shown(None, block, None, "a record") == "a record"
