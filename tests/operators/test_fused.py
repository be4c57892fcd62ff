"""Functions that follow one another in a chain run in one loop, and nothing but the time it takes is other than one by one."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import Row, Types
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.functions import FlatMapFunction, MapFunction
from penstock.engine.task import Task, TaskSettings
from penstock.errors import UserFunctionError
from penstock.graph.execution_graph import ExecutionGraph
from penstock.graph.job_graph import build_job_graph
from penstock.operators.fused import Kind, fused_loop
from penstock.operators.simple import ElementwiseOperator
from penstock.protocol.events import Data
from penstock.protocol.ids import TaskId, VertexId
from penstock.records import Block, Columns, Rows
from penstock.records.convert import to_rows

Build = Callable[[DataStream], DataStream]


@pytest.fixture(autouse=True)
def however_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks in here are small."""
    monkeypatch.setattr("penstock.operators.lean_rows._FEW", 1)


class Chain:
    """The task of the functions between two exchanges, and the blocks that leave it."""

    def __init__(self, build: Build, *, block_size: int = 10_000) -> None:
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(1)
        build(env.from_collection([1]).rebalance()).rebalance().print().name("end")
        graph = ExecutionGraph(build_job_graph(env._stream_graph(None, pickled=True)))
        self.blocks: list[Any] = []
        settings = TaskSettings(job_id="chain", block_size=block_size)
        self.task = Task(graph, TaskId(VertexId(1), 0), settings, self._sent)
        self.task.open()
        self.task.begin_epoch(1, "first", 0)

    def _sent(self, vertex: VertexId, target: int, channel: int, event: Any) -> None:
        if isinstance(event, Data):
            self.blocks.append(event.block)

    def give(self, values: list[Any], stamps: list[int | None] | None = None) -> list[Any]:
        return self.take(Rows(values, stamps))

    def take(self, block: Block) -> list[Any]:
        self.task.head.process(0, block)
        self.task.flush()
        return [value for block in self.blocks for value in block.values]

    @property
    def stamps(self) -> list[Any]:
        return [stamp for block in self.blocks for stamp in block.timestamps]

    @property
    def counts(self) -> list[tuple[int, int]]:
        return [(found.records_in, found.records_out) for found in self.task.metrics.values()]

    @property
    def loops(self) -> list[int]:
        """How many functions each operator runs in its loop."""
        return [len(operator.fused) for operator in self.task.chain if isinstance(operator, ElementwiseOperator)]


def twice(value: int) -> Iterator[int]:
    yield value
    yield -value


def test_functions_of_a_chain_run_in_one_loop_and_each_counts_its_own_records() -> None:
    chain = Chain(lambda s: s.map(lambda v: v + 1).filter(lambda v: v % 3 > 0).flat_map(twice).filter(lambda v: v > -5))
    assert chain.loops == [4, 3, 2, 1]
    assert chain.give(list(range(10))) == [1, -1, 2, -2, 4, -4, 5, 7, 8, 10]
    assert chain.counts == [(10, 10), (10, 7), (7, 14), (14, 10)]


def test_timestamps_stay_with_what_is_made_of_a_record() -> None:
    chain = Chain(lambda s: s.map(lambda v: v + 1).filter(lambda v: v != 2).flat_map(twice))
    assert chain.give([0, 1, 2, 3], [10, None, 12, 13]) == [1, -1, 3, -3, 4, -4]
    assert chain.stamps == [10, 10, 12, 12, 13, 13]


def test_a_chain_of_maps_keeps_the_timestamps_as_they_are() -> None:
    chain = Chain(lambda s: s.map(lambda v: v + 1).map(lambda v: v * 2))
    assert chain.give([0, 1, 2], [10, None, 12]) == [2, 4, 6]
    assert chain.stamps == [10, None, 12]


def test_a_record_passes_all_functions_before_the_next_one_begins() -> None:
    seen: list[str] = []

    def noted(name: str) -> Callable[[int], int]:
        def note(value: int) -> int:
            seen.append(f"{name}{value}")
            return value

        return note

    loop = fused_loop(("map", "filter", "map"), False)
    loop([0, 1, 2], None, [noted("a"), lambda v: v > 0, noted("b")], _never, _never, 100)
    assert seen == ["a0", "a1", "b1", "a2", "b2"]


def _never(*_: Any) -> None:
    raise AssertionError("not called here")


def fails_at(name: str, bad: int) -> Callable[[int], int]:
    def function(value: int) -> int:
        if value == bad:
            raise ZeroDivisionError(f"{name} does not like {value}")
        return value

    return function


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_an_error_names_the_function_the_record_and_the_users_own_line(place: int) -> None:
    bad = [7 if place == number else 99 for number in range(4)]

    def build(stream: DataStream) -> DataStream:
        stream = stream.map(fails_at("zero", bad[0])).name("zero").uid("zero")
        stream = stream.filter(lambda v: fails_at("one", bad[1])(v) > 0).name("one").uid("one")
        stream = stream.flat_map(lambda v: (fails_at("two", bad[2])(v),)).name("two").uid("two")
        return stream.map(fails_at("three", bad[3])).name("three").uid("three")

    name = ("zero", "one", "two", "three")[place]
    method = ("map", "filter", "flat_map", "map")[place]
    with pytest.raises(UserFunctionError) as raised:
        Chain(build).give([5, 6, 7, 8])
    text = str(raised.value)
    assert text.startswith(f"ZeroDivisionError: {name} does not like 7\n")
    assert f"raised in {method} of operator '{name}' (uid '{name}', subtask 1/1) on record 7" in text
    assert "raise ZeroDivisionError" in text
    assert "chain of functions" not in text, "frames of ours are left out"


def test_an_error_of_a_generator_is_the_flat_maps_own() -> None:
    def breaks(value: int) -> Iterator[int]:
        yield value
        raise KeyError("in the middle")

    chain = Chain(lambda s: s.flat_map(breaks).name("breaks").map(lambda v: v))
    with pytest.raises(UserFunctionError, match=r"(?s)KeyError.*raised in flat_map of operator 'breaks'.*on record 3"):
        chain.give([3])


class SameList(MapFunction):
    """Returns one list, changed again for every record."""

    def __init__(self) -> None:
        self.held: list[int] = []

    def map(self, value: int) -> list[int]:
        self.held.append(value)
        return self.held


def test_what_a_map_gives_counts_as_it_is_at_that_moment() -> None:
    assert Chain(lambda s: s.map(SameList())).give([1, 2]) == [[1], [1, 2]]
    chain = Chain(lambda s: s.map(SameList()).filter(lambda v: len(v) != 2))
    assert chain.give([1, 2, 3]) == [[1], [1, 2, 3]]


def test_what_a_function_does_to_a_record_the_one_before_it_does_not_see() -> None:
    def spoil(value: list[int]) -> bool:
        value.append(0)
        return True

    chain = Chain(lambda s: s.map(SameList()).filter(spoil).filter(spoil))
    assert chain.give([1, 2]) == [[1, 0, 0], [1, 2, 0, 0]]


def test_what_a_filter_keeps_counts_as_it_is_at_that_moment() -> None:
    class Earlier:
        def __init__(self) -> None:
            self.kept: list[Any] = []

        def __call__(self, value: Any) -> bool:
            for record in self.kept:
                record[0].append("late")
            self.kept.append(value)
            return True

    flat = Chain(lambda s: s.filter(Earlier()))
    assert flat.give([([1],), ([2],)]) == [([1],), ([2],)]
    behind = Chain(lambda s: s.map(lambda v: ([v],)).filter(Earlier()).filter(Earlier()))
    assert behind.give([1, 2]) == [([1],), ([2],)]


class Yields(FlatMapFunction):
    def flat_map(self, value: int) -> Iterator[int]:
        yield from range(value)


def test_what_a_flat_map_yields_leaves_in_blocks_also_from_the_middle_of_a_chain() -> None:
    chain = Chain(lambda s: s.flat_map(Yields()).filter(lambda v: v % 2 == 0).map(lambda v: v + 1), block_size=100)
    expected = [v + 1 for v in range(1000) if v % 2 == 0]
    assert chain.give([1000, 3], [5, 6]) == [*expected, 1, 3]
    assert [len(block) for block in chain.blocks] == [100] * 5 + [2]
    assert chain.stamps == [5] * 500 + [6] * 2
    assert chain.counts == [(2, 1003), (1003, 502), (502, 502)]


def test_a_flat_map_has_its_results_taken_away_while_it_still_yields() -> None:
    sent: list[int] = []

    def many(value: int) -> Iterator[int]:
        for number in range(value):
            assert number < sum(sent) + 200, "more is held than a block and a look"
            yield number

    loop = fused_loop(("flat_map", "filter"), False)
    rest, _, left = loop([1000], None, [many, lambda v: True], _never, lambda values, _: sent.append(len(values)), 100)
    assert sent == [100] * 10
    assert (rest, left) == ([], (1000, 1000))


def test_what_has_a_declared_type_or_goes_to_two_is_not_called_in_the_same_loop() -> None:
    typed = Chain(lambda s: s.map(lambda v: v, output_type=Types.LONG()).map(lambda v: v))
    assert typed.loops == [1, 1]

    def branches(stream: DataStream) -> DataStream:
        first = stream.map(lambda v: v)
        return first.map(lambda v: v).union(first.map(lambda v: -v))

    assert Chain(branches).loops == [1, 1, 1]


def test_many_functions_of_a_chain_share_loops_that_python_can_nest() -> None:
    def build(stream: DataStream) -> DataStream:
        for _ in range(10):
            stream = stream.flat_map(lambda v: (v,)).map(lambda v: v + 1)
        return stream

    chain = Chain(build)
    assert chain.give([0, 5]) == [10, 15]
    assert chain.counts == [(2, 2)] * 20


@pytest.mark.parametrize("seed", range(40))
def test_any_chain_gives_what_its_functions_give_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    kinds: list[Kind] = [rng.choice(["map", "filter", "flat_map"]) for _ in range(rng.randint(1, 6))]
    while kinds.count("flat_map") > 4:
        kinds.remove("flat_map")
    numbers = [rng.randint(1, 5) for _ in kinds]
    values = [
        rng.choice([(n, "x"), [n, n], {"n": n}, n]) for n in (rng.randint(-9, 9) for _ in range(rng.randint(0, 60)))
    ]
    stamps: list[int | None] | None = (
        [rng.choice([None, n]) for n in range(len(values))] if rng.random() < 0.5 else None
    )
    functions = [_function(kind, number) for kind, number in zip(kinds, numbers, strict=True)]
    pairs = list(zip(values, stamps or [None] * len(values), strict=True))
    left = []
    for kind, function in zip(kinds, functions, strict=True):
        made: list[Any] = []
        for value, stamp in pairs:
            result = function(value)
            made += [(one, stamp) for one in {"map": [result], "filter": [value] * bool(result)}.get(kind, result)]
        pairs = made
        left.append(len(pairs))
    sent: list[tuple[Any, Any]] = []

    def emit(some: list[Any], times: list[int | None] | None) -> None:
        sent.extend(zip(some, [None] * len(some) if times is None else times, strict=True))

    out, out_stamps, counts = fused_loop(tuple(kinds), stamps is not None)(values, stamps, functions, _never, emit, 16)
    emit(out, out_stamps)
    assert sent == pairs
    assert list(counts) == left


def _function(kind: Kind, number: int) -> Callable[[Any], Any]:
    match kind:
        case "map":
            return lambda value: (number, value)
        case "filter":
            return lambda value: len(repr(value)) % (number + 1) > 0
        case "flat_map":
            return lambda value: [(value, n) for n in range(number % 3)]


# -------------------------------------------------------------------- tuples in the place of Rows

CLICKS = Columns(
    pa.record_batch({"key": [1, 2, 3, 4], "pages": [["a"], [], ["b", "c"], None]}),
    np.array([10, 20, 30, 40]),
)


def row(key: int, pages: list[str] | None) -> Row:
    return Row(key=key, pages=pages)


BY_POSITION: dict[str, Build] = {
    "map": lambda s: s.map(lambda v: (v[0], v[1])),
    "filter": lambda s: s.filter(lambda v: v[0] % 2),
    "filters": lambda s: s.filter(lambda v: v[0] % 2).filter(lambda v: v[1] is not None),
    "filter and map": lambda s: s.filter(lambda v: v[0] % 2).map(lambda v: v[1]),
    "filter and flat_map": lambda s: s.filter(lambda v: v[0] > 1).flat_map(lambda v: (v[1], v[0])),
    "map and filter": lambda s: s.map(lambda v: (v[0], v[1])).filter(lambda v: len(v) == 2),
    "a filter that keeps the record": lambda s: s.filter(lambda v: v[0] % 2).map(lambda v: (v, v.key)),
    "a filter that asks for a name": lambda s: s.filter(lambda v: v.key % 2).filter(lambda v: v[0] > 1),
}


@pytest.mark.parametrize("what", BY_POSITION)
def test_columns_give_what_rows_give(what: str) -> None:
    columns, rows = Chain(BY_POSITION[what]), Chain(BY_POSITION[what])
    assert _typed(columns.take(CLICKS)) == _typed(rows.take(to_rows(CLICKS)))
    assert (columns.stamps, columns.counts) == (rows.stamps, rows.counts)


def _typed(values: list[Any]) -> list[tuple[type, Any]]:
    return [(type(value), value) for value in values]


def test_a_function_that_reads_by_position_is_given_tuples(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_rows(*_: Any) -> list[Any]:
        raise AssertionError("a Row was made")

    monkeypatch.setattr("penstock.records.convert.named_rows", no_rows)
    assert Chain(BY_POSITION["filter and map"]).take(CLICKS) == [["a"], ["b", "c"]]


def test_what_a_filter_by_position_keeps_is_a_row_of_its_own() -> None:
    chain = Chain(BY_POSITION["filters"])
    assert chain.take(CLICKS) == [row(1, ["a"]), row(3, ["b", "c"])]
    assert all(type(value) is Row for block in chain.blocks for value in block.values)
    first, second = chain.blocks[0].values
    first[0] = 9
    assert second == row(3, ["b", "c"])


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_error_shows_the_row_that_a_tuple_stands_for(place: int) -> None:
    build: Build = [
        lambda s: s.filter(lambda v: v[0] / 0),
        lambda s: s.filter(lambda v: v[0] == 3).map(lambda v: v[0] / 0),
        lambda s: s.filter(lambda v: v[0] == 3).filter(lambda v: True).flat_map(lambda v: (v[0] / 0,)),
    ][place]
    messages = []
    for block in (CLICKS, to_rows(CLICKS)):
        with pytest.raises(UserFunctionError, match=r"ZeroDivisionError.*(?s:.*)on record Row\(key=") as raised:
            Chain(build).take(block)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]
    assert "test_fused.py" in messages[0]


def test_an_error_behind_the_first_map_shows_what_that_made() -> None:
    with pytest.raises(UserFunctionError, match=r"raised in filter of operator .* on record \(1, 'x'\)"):
        Chain(lambda s: s.map(lambda v: (v[0], "x")).filter(lambda v: v[0] / 0)).take(CLICKS)


def test_a_position_that_rows_do_not_have_is_the_error_of_a_row() -> None:
    with pytest.raises(UserFunctionError, match="IndexError: list index out of range"):
        Chain(lambda s: s.map(lambda v: v[2])).take(CLICKS)
