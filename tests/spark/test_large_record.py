"""A record that Spark's exchange cannot carry: an error that says so, in both ways of running, and the JVM lives."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.common import Configuration, RestartStrategies, WatermarkStrategy
from penstock.connectors.program import CollectionSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.errors import BadRecordError, JobFailedError

pytestmark = pytest.mark.spark

MIB = 1 << 20


def sizes(config: Configuration, wanted: list[int]) -> list[int]:
    """Records of so many bytes go from one subtask to another, which says how large they are."""
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(1)
    env.set_restart_strategy(RestartStrategies.no_restart())
    numbers = env.from_source(CollectionSource(wanted), WatermarkStrategy.no_watermarks(), "sizes").uid("sizes")
    records = numbers.map(_record).name("large").uid("large")
    with records.key_by(_first).map(_length).uid("length").execute_and_collect() as results:
        return list(results)


def _record(size: int) -> tuple[int, bytes]:
    return size, b"x" * size


def _first(record: Any) -> int:
    return int(record[0])


def _length(record: Any) -> int:
    return len(record[1])


@pytest.mark.parametrize("mode", ["epochs", "pipelined"])
def test_a_record_of_300_megabytes_is_an_error_and_the_largest_one_passes(
    spark: SparkSession, configuration: Configuration, mode: str
) -> None:
    configuration.set_string("penstock.execution.mode", mode)
    with pytest.raises(JobFailedError, match=r"a record of 3\d{8} bytes.*penstock\.record\.max-size") as caught:
        sizes(configuration, [10, 300 * MIB])
    assert isinstance(caught.value.__cause__, BadRecordError)
    configuration.set_string("penstock.job.dir", configuration.get_string("penstock.job.dir", "") + "-2")
    assert sizes(configuration, [10, 63 * MIB, 20]) == [10, 63 * MIB, 20], "in a session that is still there"
