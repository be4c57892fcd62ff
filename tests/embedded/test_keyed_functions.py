"""Functions behind key_by that are not process functions have keyed state too, as in PyFlink."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.common import Configuration, Types
from penstock.datastream import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ReduceFunction,
    RuntimeContext,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ValueStateDescriptor
from penstock.state.keys import canonical, normal_key, user_key

PAIRS = [("a", 1), ("b", 10), ("a", 2), ("b", 20), ("a", 3)]


def environment(**settings: str) -> StreamExecutionEnvironment:
    configuration = Configuration.from_dict({"penstock.runtime": "embedded", "parallelism.default": "2", **settings})
    return StreamExecutionEnvironment.get_execution_environment(configuration)


class Counting:
    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))

    def count(self) -> int:
        seen: int = (self.state.value() or 0) + 1
        self.state.update(seen)
        return seen


class Numbered(Counting, MapFunction):
    def map(self, value: Any) -> Any:
        return (value[0], value[1], self.count())


class Repeated(Counting, FlatMapFunction):
    def flat_map(self, value: Any) -> Iterator[Any]:
        for _ in range(self.count()):
            yield value


class EverySecond(Counting, FilterFunction):
    def filter(self, value: Any) -> bool:
        return self.count() % 2 == 0


class Sum(Counting, ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return (value1[0], value1[1] + value2[1] * 100 ** self.count())


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.BATCH])
def test_a_map_function_has_the_state_of_the_key(mode: RuntimeExecutionMode) -> None:
    env = environment()
    env.set_runtime_mode(mode)
    found = env.from_collection(PAIRS).key_by(lambda pair: pair[0]).map(Numbered()).execute_and_collect()
    assert sorted(found) == [("a", 1, 1), ("a", 2, 2), ("a", 3, 3), ("b", 10, 1), ("b", 20, 2)]


def test_a_flat_map_function_has_the_state_of_the_key_while_it_yields() -> None:
    found = environment().from_collection(PAIRS).key_by(lambda pair: pair[0]).flat_map(Repeated()).execute_and_collect()
    assert sorted(found) == sorted([*PAIRS, ("a", 2), ("a", 3), ("a", 3), ("b", 20)])


def test_a_filter_function_has_the_state_of_the_key() -> None:
    found = (
        environment().from_collection(PAIRS).key_by(lambda pair: pair[0]).filter(EverySecond()).execute_and_collect()
    )
    assert sorted(found) == [("a", 2), ("b", 20)]


def test_a_reduce_function_has_the_state_of_the_key() -> None:
    found = environment().from_collection(PAIRS).key_by(lambda pair: pair[0]).reduce(Sum()).execute_and_collect()
    assert sorted(found) == [("a", 1), ("a", 201), ("a", 30201), ("b", 10), ("b", 2010)]


class KeyOf(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield (value, ctx.get_current_key())


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize(
    "key", [[1, "a"], {"user": 1, "tags": ["x", "y"]}, {1, 2}, frozenset({3}), bytearray(b"z"), ([1], {"b": [2.5]})]
)
def test_any_encodable_key_is_a_key_and_comes_back_as_it_was(key: Any, backend: str) -> None:
    env = environment(**{"state.backend.type": backend})
    keyed = env.from_collection([1, 2, 3]).key_by(lambda value: key)
    found = sorted(keyed.process(KeyOf()).execute_and_collect(), key=lambda pair: pair[0])
    assert found == [(1, key), (2, key), (3, key)]
    assert type(found[0][1]) is type(key)
    numbered = env.from_collection([("x", 1), ("x", 2)]).key_by(lambda value: key).map(Numbered())
    assert sorted(numbered.execute_and_collect()) == [("x", 1, 1), ("x", 2, 2)]


def test_the_order_of_a_dict_or_set_does_not_make_another_key() -> None:
    assert normal_key({"a": 1, "b": [2]}) == normal_key({"b": [2], "a": 1})
    assert canonical(normal_key({"a": 1, "b": [2]})) == canonical(normal_key({"b": [2], "a": 1}))
    assert hash(normal_key({1, "x"})) == hash(normal_key({"x", 1}))


def test_a_list_a_tuple_and_a_set_of_the_same_values_are_three_keys() -> None:
    keys = [normal_key(key) for key in ([1, 2], (1, 2), {1, 2}, {1: 2})]
    assert len(set(keys)) == 4
    assert len({canonical(key) for key in keys}) == 4


def test_nan_in_a_list_equals_itself() -> None:
    one, other = normal_key([float("nan")]), normal_key([float("nan")])
    assert one == other
    assert user_key(one)[0] != user_key(one)[0]
