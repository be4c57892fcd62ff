"""Bad input on Spark: a clear error, nothing lost, nothing hanging, no process left behind."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.sql import SparkSession

from penstock.common import Configuration, RestartStrategies, WatermarkStrategy
from penstock.connectors.program import CollectionSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import MapFunction
from penstock.errors import (
    CorruptSnapshotError,
    FencedError,
    JobFailedError,
    StorageError,
    failed_task,
)
from tests.chaos.cluster import below
from tests.driver.jobs import eventually

pytestmark = pytest.mark.spark


def collect(env: StreamExecutionEnvironment, function: Any, values: list[Any]) -> list[Any]:
    stream = env.from_source(
        CollectionSource(values, epochs=[len(values) // 2]), WatermarkStrategy.no_watermarks(), "in"
    )
    with stream.map(function).name("risky").uid("risky-map").execute_and_collect() as results:
        return list(results)


def environment(config: Configuration) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment(config)


def slot_processes() -> list[int]:
    """Those of this test's own executors: other runs on the machine have theirs."""
    ours = {str(child.pid) for child in below(psutil.Process(), "java")}
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if "penstock.runtime.epochs.slot" in command and command[command.index("--executor") + 1] in ours:
            found.append(process.pid)
    return found


def test_a_throwing_function_names_operator_uid_and_record_and_leaves_no_process(
    spark: SparkSession, configuration: Configuration
) -> None:
    env = environment(configuration)
    env.set_restart_strategy(RestartStrategies.no_restart())
    with pytest.raises(JobFailedError) as caught:
        collect(env, lambda n: 10 // (n - 7), list(range(10)))
    message = str(caught.value)
    assert "'risky'" in message
    assert "'risky-map'" in message
    assert "ZeroDivisionError" in message
    assert "record 7" in message
    task = failed_task(caught.value)
    assert task is not None
    assert re.fullmatch(r".*risky.* \(1/\d\)", str(task))
    assert re.fullmatch(r".+:\d+", task.process)
    eventually(lambda: not slot_processes(), "the end of all slots")


class HangsOnce(MapFunction):
    """Never returns from a record until the file it leaves behind exists."""

    def __init__(self, at: int, proof: str) -> None:
        self.at, self.proof = at, proof

    def map(self, value: int) -> int:
        if value == self.at and not Path(self.proof).exists():
            Path(self.proof).write_text("fired")
            threading.Event().wait()
        return value


def _await(path: str) -> str:
    while not Path(path).exists():
        time.sleep(0.05)
    return "done"


def test_an_epoch_that_hangs_is_given_up_and_replayed_and_no_other_job_of_the_session_notices(
    spark: SparkSession, configuration: Configuration, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    proof, go, others = tmp_path / "hung", tmp_path / "go", ThreadPoolExecutor(1)
    other = others.submit(lambda: spark.sparkContext.parallelize([str(go)], 1).map(_await).collect())
    configuration.set_string("penstock.epoch.timeout", "12 s")
    env = environment(configuration)
    # More than one attempt: on a busy machine the first epoch, which starts the slots, may be given up as well.
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(20, 0))
    assert sorted(collect(env, HangsOnce(7, str(proof)), list(range(10)))) == list(range(10))
    assert proof.exists()
    assert "did not end within 12 s" in caplog.text
    assert not other.done()
    go.write_text("")
    assert other.result(60) == ["done"]
    others.shutdown()


class FailsOnceAt(MapFunction):
    """Throws at each of some records until the file it leaves behind for it exists."""

    def __init__(self, records: Collection[int], proofs: Path) -> None:
        self.records, self.proofs = records, proofs

    def map(self, value: int) -> int:
        proof = self.proofs / f"fired-{value}"
        if value in self.records and not proof.exists():
            proof.touch()
            raise RuntimeError("once")
        return value


def test_a_function_that_throws_once_is_retried_from_the_checkpoint_with_an_exact_result(
    spark: SparkSession, configuration: Configuration, tmp_path: Path
) -> None:
    env = environment(configuration)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 50))
    assert sorted(collect(env, FailsOnceAt([60], tmp_path), list(range(100)))) == list(range(100))
    assert (tmp_path / "fired-60").exists()


def test_a_job_that_restarts_again_and_again_leaves_no_threads_in_its_driver(
    spark: SparkSession, configuration: Configuration, tmp_path: Path
) -> None:
    env = environment(configuration)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(20, 0))
    stream = env.from_source(
        CollectionSource(list(range(80)), epochs=list(range(10, 80, 10))), WatermarkStrategy.no_watermarks(), "in"
    )
    process = psutil.Process()
    before = process.num_threads()
    with stream.map(FailsOnceAt(range(9, 80, 10), tmp_path)).execute_and_collect() as results:
        assert sorted(results) == list(range(80))
    assert len(list(tmp_path.glob("fired-*"))) == 8
    # There may be new ones of the first job in a session, and those of the last two attempts: nine attempts' are too many.
    eventually(lambda: process.num_threads() <= before + 5, "the end of the attempts' threads")


def test_an_unwritable_job_folder_is_named(spark: SparkSession, configuration: Configuration, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    configuration.set_string("penstock.job.dir", str(blocked / "job"))
    with pytest.raises(StorageError, match=str(blocked)):
        collect(environment(configuration), str, [1])


def test_a_second_driver_on_a_live_job_folder_is_refused(
    spark: SparkSession, configuration: Configuration, tmp_path: Path
) -> None:
    from penstock.checkpoint import ownership
    from penstock.checkpoint.storage import open_storage

    other = psutil.Process().parent()
    assert other is not None
    owner = ownership.OwnerInfo(
        host=ownership.OwnerInfo.current().host,
        pid=other.pid,
        process_start_time=other.create_time(),
        acquired_ms=int(time.time() * 1000),
    )
    ownership.acquire(open_storage(str(tmp_path / "job")), owner)
    with pytest.raises(FencedError, match=str(other.pid)):
        collect(environment(configuration), str, [1])


def test_a_corrupt_checkpoint_file_stops_the_resume_and_is_named(
    spark: SparkSession, configuration: Configuration, tmp_path: Path
) -> None:
    assert len(collect(environment(configuration), str, list(range(10)))) == 10
    manifests = sorted((tmp_path / "job" / "checkpoints").rglob("manifest.json"))
    data = bytearray(manifests[-1].read_bytes())
    data[len(data) // 2] ^= 0xFF
    manifests[-1].write_bytes(bytes(data))
    with pytest.raises(CorruptSnapshotError, match=r"manifest\.json"):
        collect(environment(configuration), str, list(range(10)))


def test_a_state_file_that_a_slot_finds_damaged_ends_the_job_whatever_the_restart_strategy(
    spark: SparkSession, configuration: Configuration, tmp_path: Path
) -> None:
    """The driver has not read it: what the slot says must reach it as what it is, or it tries again for ever."""
    configuration.set_string("penstock.checkpoint.inline-threshold", "0")
    env = environment(configuration)
    env.set_restart_strategy(RestartStrategies.no_restart())
    with pytest.raises(JobFailedError):
        collect(env, lambda n: 10 // (n - 7), list(range(10)))
    damaged = list((tmp_path / "job" / "checkpoints").rglob("*.state"))
    assert damaged
    for file in damaged:
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CorruptSnapshotError, match=r"chk-\d/.*\.state: \d+ bytes instead of"):
        collect(environment(configuration), str, list(range(10)))


def test_a_finished_job_folder_is_not_run_again(spark: SparkSession, configuration: Configuration) -> None:
    assert len(collect(environment(configuration), str, list(range(10)))) == 10
    # Only the last epoch may be handed over again: this driver cannot know whether an earlier one still did.
    assert set(collect(environment(configuration), str, list(range(10)))) <= {str(n) for n in range(5, 10)}
