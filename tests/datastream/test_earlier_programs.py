"""Streams outlive the execution of the program they were built for, as in Flink."""

from __future__ import annotations

import pytest

from penstock.common import Configuration
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.errors import JobDefinitionError


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("penstock.runtime", "embedded")
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def results(stream: DataStream) -> list[object]:
    with stream.execute_and_collect() as collected:
        return sorted(collected)


def test_a_stream_can_be_used_again_after_its_program_was_executed(env: StreamExecutionEnvironment) -> None:
    numbers = env.from_collection([1, 2, 3]).map(lambda n: n * 10).uid("tens")
    assert results(numbers) == [10, 20, 30]
    assert results(numbers) == [10, 20, 30]
    assert results(numbers.map(lambda n: n + 1)) == [11, 21, 31]
    assert results(numbers.union(env.from_collection([5]))) == [5, 10, 20, 30]
    assert results(numbers.key_by(lambda n: n % 20).reduce(lambda a, b: a + b)) == [10, 20, 40]


def test_only_what_leads_to_the_new_operators_runs_again(env: StreamExecutionEnvironment) -> None:
    source = env.from_collection([1, 2])
    source.map(lambda n: n).name("elsewhere").print()
    env.execute()
    source.map(lambda n: n).name("here").print()
    plan = env.explain()
    assert "here" in plan
    assert "elsewhere" not in plan


def test_an_iteration_of_an_executed_program_must_be_built_again(env: StreamExecutionEnvironment) -> None:
    loop = env.from_collection([1]).iterate()
    step = loop.map(lambda n: n + 1)
    loop.close_with(step.filter(lambda n: n < 3))
    assert results(step) == [2, 3]
    with pytest.raises(JobDefinitionError, match="build the iteration again"):
        step.map(lambda n: n)


def test_streams_of_two_environments_do_not_meet(env: StreamExecutionEnvironment) -> None:
    other = StreamExecutionEnvironment.get_execution_environment()
    theirs = [other.from_collection([n]) for n in range(5)][-1]
    with pytest.raises(JobDefinitionError):
        results(env.from_collection([1]).union(theirs))
