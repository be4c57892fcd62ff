"""One SparkSession for all Spark tests: starting a JVM takes seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.common import Configuration
from penstock.runtime.epochs.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = spark_session({"spark.master": "local[2,4]", "penstock.spark.log-level": "OFF"})
    yield session
    session.stop()


@pytest.fixture
def configuration(spark: SparkSession, tmp_path: Path) -> Configuration:
    """Checkpoints every epoch, in a job folder of the test's own."""
    config = Configuration()
    config.set_string("penstock.execution.mode", "epochs")
    config.set_string("penstock.job.dir", str(tmp_path / "job"))
    config.set_string("execution.checkpointing.interval", "0 ms")
    config.set_string("penstock.epoch.interval", "20 ms")
    return config
