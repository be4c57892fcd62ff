"""Which functions are known to read nothing but fields of their record: only those that cannot tell a Row from a tuple."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from penstock.common import Row
from penstock.common.values import is_immutable
from penstock.datastream.functions import MapFunction
from penstock.operators.positions import fields_read, gives_plain

NAMES = ("key", "amount")
LIMIT = 3
held: list[Any] = []
shown = inspect.stack


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


def of_a_function_inside(row: Any) -> Any:
    amount = row.amount
    return max(range(3), key=lambda number: (number == amount, -number)), [amount + n for n in range(2)]


def counts(row: Any) -> Any:
    total = 0
    for number in (row.key, row[1]):
        total += twice(number)
    return total


def twice(number: int) -> int:
    return number * 2


def captures(row: Any) -> Any:
    return [number for number in range(3) if number < row[0]] and (lambda: row)()


def sets_a_name(row: Any) -> Any:
    row.key = 5
    return row.key


def adds_to_a_name(row: Any) -> Any:
    row.key += 1
    return row.key


class Lean(NamedTuple):
    key: Any
    amount: Any


async def later(row: Any) -> Any:
    return row[0]


def of_closure(limit: Any = 3) -> Callable[[Any], Any]:
    return lambda row: (row[0], limit)


def of_a_closure_without_a_value() -> Callable[[Any], Any]:
    def function(row: Any) -> Any:
        return row[0] * limit

    if held:
        limit = 3
    return function


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
    "names": lambda row: (row.key, row.amount * 2),
    "a name and a position": lambda row: row.key + row[1],
    "a method of a field with a name": lambda row: row.key.bit_length(),
    "a closure": of_closure(),
    "a global": lambda row: row[0] * LIMIT,
    "a method of a global": lambda row: held.append(row[0]),
    "a function of the user's": counts,
    "a function inside": of_a_function_inside,
    "a module": lambda row: math.floor(row.amount / 3),
}
NO: dict[str, Callable[[Any], Any]] = {
    "the record": lambda row: row,
    "the record in a tuple": lambda row: (row, row[0]),
    "a name": lambda row: row["key"],
    "a name that it does not have": lambda row: row.price,
    "a name that all rows have": lambda row: row._values,
    "a method of it": lambda row: row.as_dict(),
    "a method of it that is not called": lambda row: row.as_dict,
    "its class": lambda row: row.__class__,
    "setting a name": sets_a_name,
    "adding to a name": adds_to_a_name,
    "a function inside that has it": captures,
    "a global that sees more": lambda row: (row[0], shown(1)),
    "a module that sees more": lambda row: (row[0], sys._getframe().f_locals),
    "a closure that sees more": of_closure(locals),
    "a closure that sees frames": of_closure(sys._getframe),
    "a closure without a value": of_a_closure_without_a_value(),
    "a global that is not there": lambda row: row[0] * nobody,  # type: ignore[name-defined]  # noqa: F821
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
    "a method that hands it on": Hands().map,
    "a method that keeps it": Keeps().map,
    "no function of Python's": operator.itemgetter(0),
    "a partial function": functools.partial(takes_one),
    "an object that can be called": functools.lru_cache(takes_one),
}


RECORDS = [(1, 2), (6, 3), (0, 9), (3, 0)]


@pytest.mark.parametrize("what", YES)
def test_a_function_that_reads_fields_alone_gives_the_same_for_a_row_and_a_tuple(what: str) -> None:
    found = fields_read(YES[what], NAMES)
    assert found is not None
    for record in RECORDS:
        read = [field if at in found.positions else None for at, field in enumerate(record)]
        lean = Lean(*read) if found.by_name else tuple(read)
        assert _value(YES[what], lean) == _value(YES[what], Row(key=record[0], amount=record[1]))


def _value(function: Callable[[Any], Any], record: Any) -> Any:
    holder = getattr(function, "__self__", None)
    if holder is not None:
        holder.seen = 0
    result = function(record)
    return list(result) if isinstance(result, Iterator) else result


@pytest.mark.parametrize("what", NO)
def test_what_is_not_surely_reading_fields_does_not_count_as_it(what: str) -> None:
    assert fields_read(NO[what], NAMES) is None


def test_what_is_read_is_known_by_position() -> None:
    functions: list[Callable[[Any], Any]] = [lambda row: row[-1], lambda row: row.key, lambda row: 1, branches]
    found = [fields_read(function, NAMES) for function in functions]
    assert [one and (sorted(one.positions), one.by_name) for one in found] == [
        ([1], False),
        ([0], True),
        ([], False),
        ([0, 1], False),
    ]


def test_positions_are_compared_with_the_width_of_the_rows() -> None:
    for function in (lambda row: row[2], lambda row: row[-3]):
        assert [fields_read(function, "abc"[:width]) is not None for width in (0, 2, 3)] == [False, False, True]


def test_of_fields_of_one_name_the_first_is_read() -> None:
    found = fields_read(lambda row: row.a, ["b", "a", "a"])
    assert found is not None
    assert found.positions == {1}


def test_a_global_is_looked_at_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fields_read(counts, NAMES) is not None
    monkeypatch.setitem(globals(), "twice", locals)
    assert fields_read(counts, NAMES) is None


def test_an_instruction_that_is_not_known_is_none_that_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.operators import positions

    monkeypatch.setattr(positions, "_OF_OTHERS", positions._OF_OTHERS - {"BINARY_OP"})
    assert fields_read(lambda row: row[0], NAMES)
    assert not fields_read(lambda row: row[0] + 1, NAMES)


PLAIN: dict[str, Callable[[Any], Any]] = {
    "a tuple of fields": lambda row: (row[0], row[1] * 2),
    "names": lambda row: (row.key, -row.amount),
    "a comparison": lambda row: row[1] % 4 == 0,
    "the record": lambda row: row,
    "a choice": lambda row: row[0] if row[1] else None,
    "a text": lambda row: f"{row[0]:>5}-{row[1]!r}",
    "functions of Python's": lambda row: (max(row[0], abs(row[1])), str(row[0]), round(row[0] / 3, 1), int),
    "tuples in it": lambda row: (1, (row[0], (2, row[1]))),
    "membership": lambda row: row[0] in {1, 2},
}
CHANGEABLE: dict[str, Callable[[Any], Any]] = {
    "a list": lambda row: [row[0]],
    "a list in a tuple": lambda row: (1, [row[0]]),
    "a dict": lambda row: {"a": row[0]},
    "a set": lambda row: {row[0]},
    "what a method gives": lambda row: str(row[0]).split(),
    "another function of Python's": lambda row: sorted((row[0], 2)),
    "a global": lambda row: (row[0], held),
    "a closure": of_closure([]),
    "a function of the user's": counts,
    "a name that is Python's no more": shadowed(),
    "a default": takes_a_factor,
    "a generator": yields,
    "a method": Adds().map,
    "a function inside": lambda row: lambda: 1,
    "a coroutine": later,
    "no function of Python's": operator.itemgetter(0),
}


@pytest.mark.parametrize("what", PLAIN)
def test_what_cannot_be_changed_is_known_not_to_be(what: str) -> None:
    assert gives_plain(PLAIN[what])
    for record in RECORDS:
        assert is_immutable(PLAIN[what](Lean(*record)))


@pytest.mark.parametrize("what", CHANGEABLE)
def test_what_may_be_changed_is_not_known_to_be_otherwise(what: str) -> None:
    assert not gives_plain(CHANGEABLE[what])
