"""One Spark session for all tests of this folder, as Penstock makes it for pipelined jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from penstock.runtime.epochs.session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session({"penstock.spark.log-level": "OFF"}, task_slots=32)
    yield session
    session.stop()
