"""Rolling aggregates against aggregates made by hand over everything that came before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.common import Types
from penstock.common.types import Row
from penstock.datastream import ReduceFunction, StreamExecutionEnvironment
from penstock.errors import JobDefinitionError, UserFunctionError
from penstock.operators import rolling
from penstock.operators.keyed import KeyedReduceOperator
from penstock.testing.harness import OperatorHarness

records = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-5, 5), st.integers()), max_size=30)


def _by_hand(name: str, history: list[tuple[str, int, int]]) -> tuple[str, int, int]:
    first = history[0]
    values = [value for _, value, _ in history]
    match name:
        case "sum":
            return (first[0], sum(values), first[2])
        case "min":
            return (first[0], min(values), first[2])
        case "max":
            return (first[0], max(values), first[2])
        case "min_by":
            return history[values.index(min(values))]
    return history[values.index(max(values))]


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("sum", rolling.sum_of),
        ("min", rolling.min_of),
        ("max", rolling.max_of),
        ("min_by", rolling.min_by),
        ("max_by", rolling.max_by),
    ],
)
@given(events=records)
def test_each_result_is_the_aggregate_of_the_key_so_far(
    name: str, make: Callable[[int], ReduceFunction], events: list[tuple[str, int, int]]
) -> None:
    harness = OperatorHarness(KeyedReduceOperator(make(1), lambda event: event[0]))
    expected = []
    for index, event in enumerate(events):
        harness.push(event, index)
        if index % 7 == 3:
            harness.snapshot()
        expected.append((_by_hand(name, [e for e in events[: index + 1] if e[0] == event[0]]), index))
    assert harness.records() == expected


class Named(NamedTuple):
    key: str
    n: int


@dataclass
class Plain:
    key: str
    n: int


@pytest.mark.parametrize(
    ("field", "make"),
    [
        (1, lambda n: ("k", n)),
        (1, lambda n: ["k", n]),
        (1, lambda n: Row("k", n)),
        ("n", lambda n: Row(key="k", n=n)),
        (1, lambda n: Row(key="k", n=n)),
        ("n", lambda n: {"key": "k", "n": n}),
        ("n", lambda n: Named("k", n)),
        (1, lambda n: Named("k", n)),
        ("n", lambda n: Plain("k", n)),
        (0, lambda n: n),
    ],
)
def test_a_field_is_named_by_position_or_name_in_every_kind_of_record(
    field: int | str, make: Callable[[int], Any]
) -> None:
    first, second = make(2), make(3)
    result = rolling.sum_of(field).reduce(first, second)
    assert (result, type(result)) == (make(5), type(first))
    assert (first, second) == (make(2), make(3))
    assert rolling.max_by(field).reduce(first, second) is second
    assert rolling.min_by(field).reduce(first, second) is first


def test_a_field_that_is_not_there_names_the_record() -> None:
    harness = OperatorHarness(KeyedReduceOperator(rolling.sum_of(4), lambda event: event[0]))
    harness.push(("a", 1))
    with pytest.raises(UserFunctionError, match=r"record \('a', 2\)"):
        harness.push(("a", 2))


def _environment() -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment()
    env._configuration.set_string("penstock.runtime", "embedded")
    return env


def test_project_takes_fields_by_position_and_keeps_their_types() -> None:
    stream = _environment().from_collection(
        [("a", 1, 1.5), ("b", 2, 2.5)], type_info=Types.TUPLE([Types.STRING(), Types.INT(), Types.DOUBLE()])
    )
    projected = stream.project(2, 0, 2)
    assert projected.get_type() == Types.TUPLE([Types.DOUBLE(), Types.STRING(), Types.DOUBLE()])
    assert list(projected.execute_and_collect()) == [(1.5, "a", 1.5), (2.5, "b", 2.5)]


def test_fields_that_cannot_be_are_refused_while_the_program_is_built() -> None:
    stream = _environment().from_collection([("a", 1)], type_info=Types.TUPLE([Types.STRING(), Types.INT()]))
    with pytest.raises(JobDefinitionError, match="position 2"):
        stream.project(2)
    with pytest.raises(JobDefinitionError, match="at least one"):
        stream.project()
    with pytest.raises(JobDefinitionError, match="streams of tuples"):
        stream.map(lambda v: v, output_type=Types.STRING()).project(0)
    with pytest.raises(JobDefinitionError, match="count from 0"):
        stream.key_by(lambda v: v[0]).sum(-1)
    with pytest.raises(JobDefinitionError, match="not None"):
        stream.key_by(lambda v: v[0]).max_by(None)  # type: ignore[arg-type]


def test_count_windows_over_a_whole_stream_hold_so_many_records_and_only_full_ones_fire() -> None:
    stream = _environment().from_collection(list(range(7)))
    assert list(stream.count_window_all(3).reduce(lambda a, b: a + b).execute_and_collect()) == [3, 12]
    stream = _environment().from_collection(list(range(7)))
    assert list(stream.count_window_all(4, 2).reduce(lambda a, b: a + b).execute_and_collect()) == [6, 14]
