"""Spark before 4.3 runs jobs in epochs, and says so."""

from __future__ import annotations

import logging

import pyspark
import pytest
from pyspark.sql import SparkSession

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment

pytestmark = pytest.mark.spark
_OLDER = pyspark.__version__.startswith(("4.1.", "4.2."))


def _run(configuration: Configuration, mode: str) -> list[int]:
    configuration.set_string("penstock.execution.mode", mode)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)  # a pipelined job runs all its tasks at once, and the tests have two task slots
    squares = env.from_sequence(0, 9).key_by(lambda n: n % 2).map(lambda n: n * n)
    with squares.execute_and_collect() as results:
        return sorted(results)


def test_an_older_spark_is_named_as_the_reason_for_epochs(
    spark: SparkSession, configuration: Configuration, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """`auto`. Where the tests run on a newer Spark, only its name is an older one's."""
    if not _OLDER:
        monkeypatch.setattr(pyspark, "__version__", "4.1.4")
    with caplog.at_level(logging.INFO, logger="penstock"):
        assert _run(configuration, "auto") == [n * n for n in range(10)]
    assert f"runs epochs: Spark {pyspark.__version__} cannot stream between stages; 4.3 or later can" in caplog.text


def test_a_spark_that_can_stream_between_stages_runs_a_pipelined_job(
    spark: SparkSession, configuration: Configuration, caplog: pytest.LogCaptureFixture
) -> None:
    if _OLDER:
        pytest.skip("jobs run in epochs")
    with caplog.at_level(logging.INFO, logger="penstock"):
        assert _run(configuration, "pipelined") == [n * n for n in range(10)]
    assert "epochs" not in caplog.text
