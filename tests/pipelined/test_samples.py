"""Flame graphs of a pipelined job: its hosts say where their tasks spend their time."""

from __future__ import annotations

import time

import pytest
from pyspark.sql import SparkSession

from penstock.common import Configuration
from penstock.connectors.program import DiscardingSink
from penstock.datastream import StreamExecutionEnvironment

pytestmark = pytest.mark.spark


def slowly(number: int) -> int:
    time.sleep(0.005)
    return number


def test_the_function_that_takes_the_time_is_in_the_samples(spark: SparkSession) -> None:
    config = Configuration.from_dict({"penstock.execution.mode": "pipelined"})
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(1)
    env.from_sequence(1, 100_000).key_by(lambda n: n % 3).map(slowly).sink_to(DiscardingSink())
    client = env.execute_async("samples")
    try:
        deadline, seen = time.monotonic() + 60, set[str]()
        while not any("slowly" in place for place in seen) and time.monotonic() < deadline:
            seen = {place.function for sample in client._job.sample(0.3) for place in sample.stack}
        assert any("slowly" in place for place in seen), seen
    finally:
        client.cancel().result()
