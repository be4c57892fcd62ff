"""Functions that only calculate give for a block at once what they give called for each record; whatever could differ is called."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.common import Row, Types
from penstock.datastream.functions import FilterFunction, MapFunction
from penstock.errors import UserFunctionError
from penstock.operators.calculations import Calculated, calculated
from penstock.operators.fused import Kind
from penstock.records import Columns
from penstock.records.convert import to_rows
from tests.operators.test_fused import Build, Chain

pytestmark = pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="reads the instructions of Python 3.11")

BIG = 2**62
LIMIT, NAME, SCALE = 3, "b", 0.5


@pytest.fixture(autouse=True)
def however_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks in here are small."""
    monkeypatch.setattr("penstock.operators.calculations._FEW", 1)


def block(**columns: Any) -> Columns:
    batch = pa.record_batch(columns)
    return Columns(batch, np.arange(batch.num_rows, dtype=np.int64) * 10)


SALES = block(
    key=pa.array([1, -2, 3, 40, -5]),
    price=pa.array([0.5, -0.0, float("nan"), 1e300, 7.25]),
    name=pa.array(["a", "b", "", "b", "ü"]),
    small=pa.array([1, 2, 3, 4, 5], pa.int8()),
    single=pa.array([0.1, 0.2, 0.3, 0.4, 0.5], pa.float32()),
    when=pa.array([1, 2, 3, 4, 5], pa.timestamp("ms")),
    tags=pa.array([["x"], [], None, ["y", "z"], ["x"]]),
    some=pa.array([1, None, 3, 4, 5]),
    huge=pa.array([BIG, -BIG, 2**53 + 1, 0, -(2**63)]),
)


def one_by_one(
    given: Columns, kinds: Sequence[Kind], functions: Sequence[Callable[[Any], Any]], type_info: Any = None
) -> tuple[list[Any], list[Any] | None, tuple[int, ...]]:
    """What calling each function for each record gives."""
    rows = to_rows(given, type_info)
    pairs = list(zip(rows.values, rows.timestamps or [None] * len(rows), strict=True))
    left = []
    for kind, function in zip(kinds, functions, strict=True):
        pairs = [(function(v), t) for v, t in pairs] if kind == "map" else [(v, t) for v, t in pairs if function(v)]
        left.append(len(pairs))
    return [v for v, _ in pairs], [t for _, t in pairs] if rows.timestamps else None, tuple(left)


def typed(value: Any) -> Any:
    if isinstance(value, Row):
        return (Row, repr(value))
    return (type(value), [typed(item) for item in value] if type(value) is tuple else repr(value))


def same(found: Calculated, expected: tuple[list[Any], list[Any] | None, tuple[int, ...]]) -> bool:
    values, stamps, left = expected
    return (list(map(typed, found.values)), found.timestamps, found.left) == (list(map(typed, values)), stamps, left)


def closed(factor: float) -> Callable[[Any], Any]:
    return lambda e: e.key * factor


def with_variables(e: Any) -> Any:
    doubled = e.key * 2
    both = doubled + e.small
    return e.name, both, doubled


CALCULATED: dict[str, Callable[[Any], Any]] = {
    "fields": lambda e: (e[0], e.name, e.tags, e.when, e.some, e[-1]),
    "a field": lambda e: e.key,
    "whole numbers": lambda e: (e.key + 1, e.key - e.small, 3 * e.key, -e.key, e.key // 3, e.key % 3, e.key % -3),
    "by a column": lambda e: (e.key // e.small, e.key % e.small, e.small - e.key),
    "floats": lambda e: (
        e.price + 1,
        e.price * e.key,
        -e.price,
        1.5 - e.single,
        e.single / 4,
        e.key / 2,
        e.key / e.small,
    ),
    "bits": lambda e: (e.key & 3, e.key | 8, e.key ^ e.small, e.key >> 1),
    "comparisons": lambda e: (e.key > 2, e.price <= 0, e.key != e.small, e.small == 3.0, e.price == e.price, 2 < e.key),  # noqa: SIM300
    "texts": lambda e: (e.name == "b", "b" != e.name, e.name == NAME),  # noqa: SIM300
    "and, or, not": lambda e: (e.key > 2 and e.price < 1, e.key > 2 or e.price < 1 or e.small == 1, not e.key),
    "or before and": lambda e: e.key < 0 or (e.key > 2 and e.price > 1),
    "from outside": lambda e: (e.key * LIMIT, e.key > LIMIT, e.key * SCALE),
    "a closure": closed(0.25),
    "variables": with_variables,
    "tuples": lambda e: ((e.key, (e.price, 1)), "a", None, (1, 2)),
    "large whole numbers, only passed on": lambda e: (e.huge, e.huge == e.key, e.huge > 5),
}


@pytest.mark.parametrize("what", CALCULATED)
def test_what_is_calculated_is_what_python_gives(what: str) -> None:
    function = CALCULATED[what]
    found = calculated(SALES, None, ["map"], [function])
    assert found is not None
    assert same(found, one_by_one(SALES, ["map"], [function]))


class Doubles(MapFunction):
    def __init__(self) -> None:
        self.factor = 2

    def map(self, value: Any) -> Any:
        return value.key * self.factor


def loops(e: Any) -> Any:
    total = 0
    for number in (1, 2):
        total += number * e.key
    return total


CALLED: dict[str, Callable[[Any], Any]] = {
    "the record": lambda e: e,
    "the record inside": lambda e: (e, 1),
    "a constant": lambda e: 1,
    "a call": lambda e: abs(e.key),
    "a method": lambda e: e.name.upper(),
    "a name of Row's own": lambda e: e.as_dict,
    "a field that is not there": lambda e: e.missing,
    "a position that is not there": lambda e: e[9],
    "a slice": lambda e: e[0:2],
    "a field that may be missing": lambda e: e.some + 1,
    "more than 64 bits": lambda e: e.huge * 4,
    "more than 64 bits on the way": lambda e: (e.huge + e.huge) // 4,
    "a large constant": lambda e: e.key + 2**63,
    "negative of the least": lambda e: -e.huge,
    "division by zero": lambda e: 1 // (e.key - 3),
    "division of floats by zero": lambda e: 1.0 / (e.price + 0.0),
    "quotient of large whole numbers": lambda e: e.huge / 3,
    "large whole numbers compared with floats": lambda e: e.huge > e.price,
    "remainder of floats": lambda e: e.price % 2,
    "a power": lambda e: e.key**2,
    "a shift to the left": lambda e: e.key << 2,
    "a shift of a negative number": lambda e: e.key >> -1,
    "a text added": lambda e: e.name + "x",
    "order of texts": lambda e: e.name < "b",
    "a comparison as a number": lambda e: (e.key > 1) + 1,
    "and of numbers": lambda e: e.key and e.small,
    "and before or": lambda e: (e.key > 30 and e.small > 1) or e.name == "a",
    "a condition": lambda e: 1 if e.key > 2 else 0,
    "a loop": loops,
    "self": Doubles().map,
    "a moment": lambda e: e.when == 1,
    "a list": lambda e: [e.key],
    "membership": lambda e: e.key in (1, 3),
    "identity": lambda e: e.some is None,
    "a module": lambda e: (e.key, random),
}


@pytest.mark.parametrize("what", CALLED)
def test_whatever_could_differ_is_called(what: str) -> None:
    assert calculated(SALES, None, ["map"], [CALLED[what]]) is None


def test_a_variable_from_outside_counts_as_it_is_when_the_block_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    function = CALCULATED["from outside"]
    for limit in (3, 5):
        monkeypatch.setattr(sys.modules[__name__], "LIMIT", limit)
        found = calculated(SALES, None, ["map"], [function])
        assert found is not None
        assert found.values[0][0] == limit
    monkeypatch.setattr(sys.modules[__name__], "LIMIT", [1])
    assert calculated(SALES, None, ["map"], [function]) is None


def test_filters_alone_keep_rows() -> None:
    functions = [lambda e: e.key > -3, lambda e: e.small % 2]
    found = calculated(SALES, None, ["filter", "filter"], functions)
    assert found is not None
    assert same(found, one_by_one(SALES, ["filter", "filter"], functions))
    assert [type(value) for value in found.values] == [Row, Row]


def test_a_function_behind_a_filter_sees_only_what_it_keeps() -> None:
    functions = [lambda e: e.key != 3, lambda e: (e.name, 60 // (e.key - 3)), lambda r: r[1] < 0, lambda r: r[0]]
    kinds: list[Kind] = ["filter", "map", "filter", "map"]
    found = calculated(SALES, None, kinds, functions)
    assert found is not None
    assert same(found, one_by_one(SALES, kinds, functions))
    assert found.left == (4, 4, 3, 3)


def test_records_of_declared_tuples_and_of_single_values_are_calculated_with_too() -> None:
    pairs = Columns(SALES.batch.select(["key", "name"]), None)
    functions = [lambda e: e[0] > 0, lambda e: (e[1], e[0] * 2)]
    kind = Types.TUPLE([Types.LONG(), Types.STRING()])
    found = calculated(pairs, kind, ["filter", "map"], functions)
    assert found is not None
    assert same(found, one_by_one(pairs, ["filter", "map"], functions, kind))
    numbers = Columns(SALES.batch.select(["key"]), None)
    found = calculated(numbers, Types.LONG(), ["map", "filter"], [lambda n: n + 1, lambda n: n % 2 == 0])
    assert found is not None
    assert found.values == [2, 4, -4]


def test_nothing_left_is_nothing() -> None:
    functions = [lambda e: e.key > 100, lambda e: (e.key // e.small, e.name)]
    found = calculated(SALES, None, ["filter", "map"], functions)
    assert found == Calculated([], [], (0, 0))


def test_a_tracer_sees_each_call() -> None:
    seen: list[str] = []
    before = sys.gettrace()
    sys.settrace(lambda frame, event, arg: seen.append(event))
    try:
        found = calculated(SALES, None, ["map"], [CALCULATED["a field"]])
    finally:
        sys.settrace(before)
    assert found is None
    assert seen


CHAINS: dict[str, Build] = {
    "all": lambda s: s.map(lambda e: (e.key, e.price * 2)).filter(lambda r: r[0] > 0),
    "the beginning": lambda s: s.map(lambda e: (e.key, e.name)).filter(lambda r: r[0] > 0).map(lambda r: r[1].upper()),
    "before a flat_map": lambda s: (
        s.map(lambda e: (e.key, e.name)).flat_map(lambda r: [r[0]] * 2).filter(lambda n: n > 1)
    ),
    "a filter before a call": lambda s: s.filter(lambda e: e.key > 0).map(lambda e: repr(e)),
    "filters": lambda s: s.filter(lambda e: e.key > -3).filter(lambda e: e.name == "b"),
    "a function of a class": lambda s: s.filter(Positive()).map(lambda e: e.key),
}


class Positive(FilterFunction):
    def filter(self, value: Any) -> Any:
        return value.key > 0


@pytest.mark.parametrize("what", CHAINS)
def test_a_chain_gives_for_columns_what_it_gives_for_rows(what: str) -> None:
    columns, rows = Chain(CHAINS[what]), Chain(CHAINS[what])
    assert list(map(typed, columns.take(SALES))) == list(map(typed, rows.take(to_rows(SALES))))
    assert (columns.stamps, columns.counts) == (rows.stamps, rows.counts)


def test_an_error_behind_what_was_calculated_names_its_function_and_record() -> None:
    chain = Chain(
        lambda s: s.map(lambda e: (e.key, e.name)).filter(lambda r: r[0] > 1).map(lambda r: int(r[1])).name("parse")
    )
    with pytest.raises(UserFunctionError, match=r"(?s)ValueError.*in map of operator 'parse'.*on record \(3, ''\)"):
        chain.take(SALES)


# ------------------------------------------------------------------------------------------------------------ random functions

_FIELDS = ("e.key", "e[1]", "e.small", "e.single", "e.huge", "e[0]", "LIMIT", "SCALE", "7", "-3", "0.25", "0")
_SIGNS = ("+", "-", "*", "//", "%", "/", "&", "|", "^", ">>", "<", "<=", "==", "!=", ">", ">=", "and", "or")


def expression(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice(_FIELDS)
    if rng.random() < 0.1:
        return f"(-{expression(rng, depth - 1)})"
    return f"({expression(rng, depth - 1)} {rng.choice(_SIGNS)} {expression(rng, depth - 1)})"


@pytest.mark.parametrize("seed", range(60))
def test_any_calculation_gives_what_python_gives(seed: int) -> None:
    rng = random.Random(seed)
    compared = 0
    for _ in range(100):
        given = block(
            key=pa.array([rng.choice([rng.randint(-9, 9), rng.randint(-BIG, BIG)]) for _ in range(8)]),
            price=pa.array([rng.choice([0.0, -0.0, 1.5, -2.25, 1e308, float("inf"), float("nan")]) for _ in range(8)]),
            small=pa.array([rng.randint(1, 9) for _ in range(8)], pa.int16()),
            single=pa.array([rng.uniform(-2, 2) for _ in range(8)], pa.float32()),
            huge=pa.array([rng.randint(-(2**54), 2**54) for _ in range(8)]),
        )
        texts = [f"lambda e: ({expression(rng, 2)}, e.key, {expression(rng, 1)})", f"lambda e: {expression(rng, 2)}"]
        functions = [eval(text, globals()) for text in texts]
        for kinds in (["map"], ["filter", "map"]):
            chosen = functions[:1] if len(kinds) == 1 else functions[::-1]
            found = calculated(given, None, kinds, chosen)  # type: ignore[arg-type]
            if found is not None:
                compared += 1
                assert same(found, one_by_one(given, kinds, chosen)), (texts, given.batch.to_pydict())  # type: ignore[arg-type]
    assert compared > 5, "hardly anything is calculated: nothing was compared"
