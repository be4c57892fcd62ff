"""One Spark session for all tests of this folder, as Penstock makes it for pipelined jobs; no test leaves a job in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from penstock.runtime.epochs.session import spark_session
from penstock.runtime.launch import running_jobs
from penstock.runtime.pipelined import spark_plan
from tests.pipelined.jobs import wait_until


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session({"penstock.spark.log-level": "OFF"}, task_slots=32)
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _nothing_is_left_running(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that failed leaves its job behind. It is ended, and its task slots are waited for: the following tests count on them.
    Set up before, and so torn down after, all else that a test asks for."""
    spark = request.getfixturevalue("spark") if "spark" in request.fixturenames else None
    before = set(running_jobs())
    yield
    left = [client for client in running_jobs() if client not in before]
    for client in left:
        client.cancel()
    wait_until(lambda: not any(client in running_jobs() for client in left), f"the end of {left}")
    if spark is not None:
        wait_until(
            lambda: spark_plan.free_task_slots(spark) == spark_plan.task_slots(spark), "the end of all of Spark's tasks"
        )
