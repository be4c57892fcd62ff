"""Which functions are known to read their record by constant positions alone: only those that cannot tell a Row from a tuple."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.common import Row
from penstock.datastream.functions import MapFunction
from penstock.operators.positions import reads_by_position

LIMIT = 3
held: list[Any] = []


class Adds(MapFunction):
    def __init__(self) -> None:
        self.seen = 0

    def map(self, value: Any) -> Any:
        self.seen += value[1]
        return value[0], self.seen


class Hands(MapFunction):
    def map(self, value: Any) -> Any:
        return self.add(value)

    def add(self, value: Any) -> Any:
        return value[0]


class Keeps(MapFunction):
    def map(self, value: Any) -> Any:
        self.last = value
        return value[0]


def branches(row: Any) -> Any:
    if row[0] > 1 and row[1] is not None:
        return row[0]
    for number in range(row[1]):
        if number in (5, 6):
            return -row[1]
    return f"{row[0]:>5}", [row[1]], {"a": row[1]}, {row[1]}, row[-2]


def yields(row: Any) -> Iterator[Any]:
    for number in range(row[0]):
        yield row[1], number


def takes_one(row: Any) -> Any:
    return row[0]


def takes_a_factor(row: Any, factor: int = 2) -> Any:
    return row[0] * factor


def takes_more(row: Any, *more: Any) -> Any:
    return row[0]


def assigns(row: Any) -> Any:
    row = (row[0], 7)
    return row[1]


def renames(row: Any) -> Any:
    other = row
    return other[0]


def unpacks(row: Any) -> Any:
    key, value = row
    return key + value


def sets(row: Any) -> Any:
    row[0] = 5
    return row[0]


def adds_in_place(row: Any) -> Any:
    row[0] += 1
    return row[0]


def deletes(row: Any) -> Any:
    del row[0]
    return row[0]


def looks_at_locals(row: Any) -> Any:
    return row[0], locals()


def catches(row: Any) -> Any:
    try:
        return row[0] / row[1]
    except ZeroDivisionError:
        return row


def matches(row: Any) -> Any:
    match row:
        case (a, b):
            return a, b
    return row[0]


async def later(row: Any) -> Any:
    return row[0]


def of_closure() -> Callable[[Any], Any]:
    limit = 3
    return lambda row: row[0] * limit


def shadowed() -> Callable[[Any], Any]:
    names: dict[str, Any] = {"len": locals}
    exec("f = lambda row: (row[0], len())", names)
    function: Callable[[Any], Any] = names["f"]
    return function


YES: dict[str, Callable[[Any], Any]] = {
    "a tuple of fields": lambda row: (row[0], row[1] * 2),
    "a comparison": lambda row: row[1] % 4 == 0,
    "from the end": lambda row: row[-1] + row[-2],
    "nothing": lambda row: 1,
    "a choice": lambda row: row[0] if row[1] else None,
    "and, or, not": lambda row: (row[0] and row[1]) or not row[0],
    "a method of a field": lambda row: str(row[0]).zfill(3),
    "functions of Python's": lambda row: max(row[0], abs(row[1]), round(row[0] / 3, 1)),
    "a text": lambda row: f"{row[0]}-{row[1]!r}",
    "a part of a field": lambda row: str(row[0])[1:],
    "a method": Adds().map,
    "statements": branches,
    "a generator": yields,
}
NO: dict[str, Callable[[Any], Any]] = {
    "the record": lambda row: row,
    "the record in a tuple": lambda row: (row, row[0]),
    "a name": lambda row: row["key"],
    "an attribute": lambda row: row.key,
    "beyond the last": lambda row: row[2],
    "before the first": lambda row: row[-3],
    "a truth value": lambda row: row[True],
    "a slice": lambda row: row[0:2],
    "a position that is computed": lambda row: row[row[0]],
    "either of two": lambda row: max((row if row[0] else (1, 2))[0], row[1], 3, 4, 5) + min(row[0], row[1]),
    "its length": lambda row: len(row),
    "its type": lambda row: isinstance(row, Row),
    "its elements": lambda row: sum(row),
    "its identity": lambda row: row is None,
    "a comparison of it": lambda row: row == (1, 2),
    "membership": lambda row: row[0] in row,
    "its text": lambda row: f"{row}",
    "a loop over it": lambda row: [field for field in row],  # noqa: C416
    "a loop with it": lambda row: [row[0] for _ in range(3)],
    "a function in it": lambda row: lambda: row[0],
    "a star": lambda row: (*row,),
    "a default": takes_a_factor,
    "more arguments": takes_more,
    "any names": lambda row, **names: row[0],
    "another name for it": renames,
    "a new value for it": assigns,
    "unpacking": unpacks,
    "setting": sets,
    "adding in place": adds_in_place,
    "deleting": deletes,
    "all variables": looks_at_locals,
    "a name that is Python's no more": shadowed(),
    "catching": catches,
    "matching": matches,
    "a coroutine": later,
    "a closure": of_closure(),
    "a global": lambda row: row[0] * LIMIT,
    "a method of a global": lambda row: held.append(row[0]),
    "a method that hands it on": Hands().map,
    "a method that keeps it": Keeps().map,
    "no function of Python's": operator.itemgetter(0),
    "a partial function": functools.partial(takes_one),
    "an object that can be called": functools.lru_cache(takes_one),
}


@pytest.mark.parametrize("what", YES)
def test_a_function_that_reads_by_position_alone_gives_the_same_for_a_row_and_a_tuple(what: str) -> None:
    assert reads_by_position(YES[what], 2)
    for record in [(1, 2), (6, 3), (0, 9), (3, 0)]:
        assert _value(YES[what], record) == _value(YES[what], Row(*record))


def _value(function: Callable[[Any], Any], record: Any) -> Any:
    holder = getattr(function, "__self__", None)
    if holder is not None:
        holder.seen = 0
    result = function(record)
    return list(result) if isinstance(result, Iterator) else result


@pytest.mark.parametrize("what", NO)
def test_what_is_not_surely_reading_by_position_does_not_count_as_it(what: str) -> None:
    assert not reads_by_position(NO[what], 2)


def test_positions_are_compared_with_the_width_of_the_rows() -> None:
    assert [reads_by_position(lambda row: row[2], width) for width in (0, 2, 3)] == [False, False, True]
    assert [reads_by_position(lambda row: row[-3], width) for width in (0, 2, 3)] == [False, False, True]


def test_an_instruction_that_is_not_known_is_none_that_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.operators import positions

    monkeypatch.setattr(positions, "_OF_OTHERS", positions._OF_OTHERS - {"BINARY_OP"})
    assert reads_by_position(lambda row: row[0], 1)
    assert not reads_by_position(lambda row: row[0] + 1, 1)
