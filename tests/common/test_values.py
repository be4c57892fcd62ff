"""`own`: a value that nobody else holds, and no copy where nothing can change."""

from __future__ import annotations

import datetime
import hashlib
import threading
from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.common.types import Row
from penstock.common.values import is_immutable, own, own_all, take


class Colour(Enum):
    RED = 1


@dataclass(frozen=True)
class Frozen:
    name: str
    at: tuple[int, ...]


@dataclass
class Event:
    name: str
    tags: Any = None


class Plain:
    def __init__(self, value: Any) -> None:
        self.value = value


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


Pair = namedtuple("Pair", ["left", "right"])

UNCHANGEABLE = [
    1, 1.5, True, None, "a", b"a", 1j, Decimal("1"), datetime.date(2026, 1, 1), datetime.timedelta(1), Colour.RED,
    (1, "a", (2.0, None)), Frozen("a", (1, 2)), Pair(1, (2,)), frozenset({1}), np.float64(1.0), np.int8(1), pa.array([1]),
    pa.scalar(1), int, len,
]  # fmt: skip


@pytest.mark.parametrize("value", UNCHANGEABLE, ids=repr)
def test_what_cannot_change_is_not_copied(value: Any) -> None:
    assert own(value) is value
    assert is_immutable(value)
    values = [value, value]
    assert own_all(values) == values


def _nested() -> dict[str, Any]:
    return {"a": [1, {"b": {2}}], "c": (1, [2])}


CHANGEABLE = [
    [1, 2], {"a": 1}, {1}, bytearray(b"a"), Row(1, "a"), Row(a=1, b=2), _nested(), [[1], [2]], (1, [2]), Pair([1], [2]),
    Event("a"), Event("a", ["b"]), OrderedDict(a=[1]), defaultdict(list, a=[1]), {"row": Row(a=[1])},
    ([1], [2]),
]  # fmt: skip


@pytest.mark.parametrize("value", CHANGEABLE, ids=repr)
def test_what_can_change_is_copied_with_all_in_it(value: Any) -> None:
    mine = own(value)
    assert mine == value
    assert type(mine) is type(value)
    assert not is_immutable(value)
    assert not _ids(mine) & _ids(value)


def _ids(value: Any) -> set[int]:
    """The identities of everything in it that can change."""
    match value:
        case dict():
            children = list(value.values())
        case list() | tuple() | set() | Row():
            children = list(value)
        case Event():
            children = [value.name, value.tags]
        case _:
            children = []
    own_id = set() if isinstance(value, (int, str, tuple, type(None))) else {id(value)}
    return own_id.union(*map(_ids, children))


@pytest.mark.parametrize("kind", [Plain, Slotted])
def test_objects_of_any_class_are_copied(kind: type) -> None:
    for inside in (1, [1]):
        value = kind(inside)
        mine = own(value)
        assert mine is not value
        assert mine.value == inside
        assert mine.value is not value.value or inside == 1


def test_a_class_that_says_how_it_is_copied_is_asked() -> None:
    class Told:
        def __init__(self, value: list[int]) -> None:
            self.value = value

        def __deepcopy__(self, memo: Any) -> Told:
            return Told([*self.value, "copied"])  # type: ignore[list-item]

    assert own(Told([1])).value == [1, "copied"]


def test_a_frozen_object_with_something_changeable_in_it_is_copied() -> None:
    @dataclass(frozen=True)
    class Holder:
        items: list[int] = field(default_factory=list)

    value = Holder([1])
    assert own(value) == value
    assert own(value).items is not value.items


def test_one_object_twice_in_a_record_stays_one_object() -> None:
    shared = [1]
    mine = own({"a": shared, "b": shared})
    assert mine["a"] is mine["b"]
    first, second = own((shared, shared))
    assert first is second


def test_records_that_hold_themselves_are_copied() -> None:
    loop: list[Any] = []
    loop.append(loop)
    mine = own(loop)
    assert mine is not loop
    assert mine[0] is mine


def test_what_cannot_be_copied_is_passed_on() -> None:
    lock = threading.Lock()
    assert own({"lock": lock})["lock"] is lock


def test_an_object_of_a_c_class_without_a_dict_is_no_error() -> None:
    digest = hashlib.sha256(b"record")
    assert own(digest).hexdigest() == digest.hexdigest()
    assert own({"digest": digest})["digest"].hexdigest() == digest.hexdigest()


def test_arrays_are_copied() -> None:
    numbers = np.arange(3)
    mine = own(numbers)
    numbers[0] = 9
    assert mine.tolist() == [0, 1, 2]
    objects = np.array([[1], None], dtype=object)
    assert own(objects)[0] is not objects[0]


def test_results_of_a_generator_count_as_they_are_when_they_are_given() -> None:
    def results() -> Any:
        record = {"n": 0}
        for n in range(3):
            record["n"] = n
            yield record

    out: list[Any] = []
    take(out, results())
    assert out == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_a_block_of_numbers_is_the_block_itself() -> None:
    block = list(range(1000))
    assert own_all(block) is block


class Counted(namedtuple("Counted", ["count", "names"])):
    """Its constructor takes something else than its fields."""

    __slots__ = ()

    def __new__(cls, names: list[str]) -> Any:
        return super().__new__(cls, len(names), names)


def test_a_named_tuple_is_copied_without_its_constructor() -> None:
    value = Counted(["a", "b"])
    kept = own(value)
    value.names.append("c")
    assert type(kept) is Counted
    assert kept == (2, ["a", "b"])


def test_a_frozen_object_may_have_a_field_without_a_value() -> None:
    @dataclass(frozen=True)
    class Later:
        name: str
        found: int = field(init=False)

    value = Later("a")
    assert own(value) is value
