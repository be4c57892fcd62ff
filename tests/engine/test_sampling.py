"""Stacks of running subtasks: which vertex, whose code, and whether it computes or waits."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.client import JobClient
from penstock.engine.sampling import take_samples


def burn(n: int) -> int:
    end = time.perf_counter() + 0.002
    while time.perf_counter() < end:
        pass
    return n


def doze(n: int) -> int:
    time.sleep(0.002)
    return n


def start(name: str) -> JobClient:
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    config.set_string("penstock.epoch.max-records", "50")
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(2)
    numbers = env.from_source(DataGeneratorSource(lambda i: i, None), WatermarkStrategy.no_watermarks(), "numbers")
    numbers.map(burn).rebalance().map(doze).filter(lambda n: False).print()
    return env.execute_async(name)


@pytest.fixture
def jobs() -> Iterator[list[JobClient]]:
    started = [start("one"), start("other")]
    yield started
    for client in started:
        client.cancel().result()


def test_samples_tell_the_vertex_and_subtask_the_code_and_whether_it_waits(jobs: list[JobClient]) -> None:
    found = jobs[0].sample(2.0)
    working = {
        sample for sample in found if any(place.function.startswith(f"{__name__}.burn:") for place in sample.stack)
    }
    waiting = {
        sample for sample in found if any(place.function.startswith(f"{__name__}.doze:") for place in sample.stack)
    }
    assert {sample.vertex for sample in working} == {0}
    assert {sample.vertex for sample in waiting} == {1}
    assert {sample.subtask for sample in found} == {0, 1}
    assert sum(found[s] for s in waiting if not s.on_cpu) > sum(found[s] for s in waiting if s.on_cpu)
    leaves = {sample.stack[-1] for sample in working | waiting}
    assert {place.origin for place in leaves} == {"job"}
    assert {sample.stack[0].origin for sample in found} == {"engine"}
    assert all(".Task." in sample.stack[0].function for sample in found)


def test_another_job_of_the_process_is_not_seen(jobs: list[JobClient]) -> None:
    assert take_samples("0" * 32, seconds=0.2) == {}
    one, other = (str(client.get_job_id()) for client in jobs)
    assert one != other
    assert take_samples(one, seconds=0.5)
    assert take_samples(other, seconds=0.5)
