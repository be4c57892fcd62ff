"""Too few task slots, an older Spark, a source that cannot: what the user of a pipelined job sees."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from penstock.errors import ConfigurationError, JobFailedError
from penstock.runtime.pipelined import spark_plan
from penstock.spark.sink import SparkSink
from tests.pipelined.jobs import environment
from tests.pipelined.uneven_job import ends, fail_now, running, start, verify, wait_for_checkpoints, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

AUTO: dict[str, Any] = {
    "penstock.rescale.auto.enabled": "true",
    "penstock.rescale.auto.max": "3",
    "penstock.rescale.auto.up-after": "1000",
}


class FewerSlots:
    """Spark as it is after it has lost executors: `free` slots are left."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = 1000
        real = spark_plan.free_task_slots
        monkeypatch.setattr(spark_plan, "free_task_slots", lambda session: min(self.free, real(session)))
        monkeypatch.setattr(spark_plan, "task_slots", lambda session: self.free)


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> FewerSlots:
    return FewerSlots(monkeypatch)


def test_a_pipelined_job_that_never_fits_is_told_its_numbers(tmp_path: Path) -> None:
    client = start(tmp_path, records=1_000, rate=1e6, parallelism=11)
    with pytest.raises(
        ConfigurationError, match=r"3 levels × parallelism 11 = 33 task slots, and this Spark has 32 free"
    ):
        ends(client, tmp_path)


def test_a_job_whose_sink_is_written_by_spark_needs_a_slot_for_that(slots: FewerSlots, tmp_path: Path) -> None:
    """With four slots for four tasks the write would wait for the job, and the job for the write."""
    slots.free = 4
    env = environment(tmp_path, 2)
    numbers = env.from_sequence(0, 99).rebalance().map(lambda n: (n,))
    numbers.sink_to(SparkSink.parquet(f"file://{tmp_path}/out", schema=pa.schema([("n", pa.int64())]))).uid("out")
    said = (
        r"2 levels × parallelism 2 = 4 task slots and one for what Spark commits, 5 in all, and this Spark has 4 free"
    )
    with pytest.raises(ConfigurationError, match=said):
        env.execute("to parquet")


def test_auto_runs_such_a_job_in_epochs_and_says_why(slots: FewerSlots, tmp_path: Path) -> None:
    slots.free = 5
    auto: dict[str, Any] = {"penstock.execution.mode": "auto"}
    client = start(tmp_path, records=1_000, rate=1e6, parallelism=2, **auto)
    ends(client, tmp_path)
    said = client._job.master.execution
    assert said["execution_mode"] == "epochs"
    assert "3 levels × parallelism 2 = 6 task slots, and this Spark has 5 free" in said["execution_mode_reason"]
    verify(tmp_path, 1_000)


def test_after_lost_executors_a_job_that_may_goes_on_at_the_largest_parallelism_that_fits(
    slots: FewerSlots, tmp_path: Path
) -> None:
    client = start(tmp_path, records=8_000, rate=4_000, parallelism=3, **AUTO)
    wait_for_checkpoints(client)
    slots.free = 7
    fail_now(tmp_path)
    ends(client, tmp_path)
    assert (tmp_path / "raised").exists()
    assert running(client).master.job.graph.slots == 2
    verify(tmp_path, 8_000)


ONE_RESTART: dict[str, Any] = {
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1",
    "restart-strategy.fixed-delay.delay": "10 ms",
}


def test_after_lost_executors_another_job_waits_for_them_and_that_is_no_failure(
    slots: FewerSlots, tmp_path: Path
) -> None:
    client = start(tmp_path, records=8_000, rate=4_000, parallelism=2, **ONE_RESTART)
    master = running(client).master
    wait_for_checkpoints(client)
    slots.free = 5
    fail_now(tmp_path)

    def waits() -> bool:
        return any("6 task slots, and this Spark has 5 free" in notice["text"] for notice in master.notices.to_json())

    wait_until(client, waits, "the notice that it waits for task slots")
    time.sleep(1)  # as long as many restarts would have taken
    assert waits()
    slots.free = 1000
    ends(client, tmp_path)
    assert len(client.life_cycle()["exceptions"]) == 1, "only what it raised itself"
    assert master.job_attempt == 1
    assert master.notices.to_json() == []
    verify(tmp_path, 8_000)


def test_a_job_waits_for_task_slots_no_longer_than_it_may(slots: FewerSlots, tmp_path: Path) -> None:
    timeout: dict[str, Any] = {"penstock.pipelined.slots-timeout": "1 s"}
    client = start(tmp_path, records=8_000, rate=4_000, parallelism=2, **timeout)
    wait_for_checkpoints(client)
    slots.free = 5
    fail_now(tmp_path)
    with pytest.raises(JobFailedError, match="6 task slots, and this Spark has 5 free"):
        ends(client, tmp_path)
    assert len(client.life_cycle()["exceptions"]) == 2, "what it raised, and that there was no room"


def test_a_job_that_is_rescaled_to_more_than_fits_goes_on_as_it_was_and_its_asker_hears_why(
    slots: FewerSlots, tmp_path: Path
) -> None:
    client = start(tmp_path, records=8_000, rate=4_000, parallelism=2)
    wait_for_checkpoints(client)
    slots.free = 6
    with pytest.raises(JobFailedError, match="9 task slots, and this Spark has 6 free"):
        client.rescale(3).result()
    ends(client, tmp_path)
    assert running(client).master.job.graph.slots == 2
    verify(tmp_path, 8_000)


def test_an_older_spark_and_settings_with_which_spark_refuses_are_named(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert spark_plan.missing(spark) is None
    monkeypatch.setattr(spark_plan, "_UNWANTED", {"spark.python.udf.pipelined.enabled": "of a reason"})
    assert spark_plan.missing(spark) == (
        "Spark streams between stages only without spark.python.udf.pipelined.enabled: of a reason"
    )
    monkeypatch.setattr(pyspark, "__version__", "4.1.0")
    with pytest.raises(ConfigurationError, match=r"cannot be pipelined: Spark 4\.1\.0 cannot stream between stages"):
        start(tmp_path, records=1_000, rate=1e6, parallelism=1)
