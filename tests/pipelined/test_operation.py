"""Operating a pipelined job: savepoints from one way of running to the other, rescaling, killing in the middle of a loop."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples.kill import ChosenProcess, kill
from penstock.checkpoint import savepoint
from penstock.common.restart_strategy import RestartStrategies
from penstock.connectors.files import FileSink, committed_files
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.client import JobClient
from tests.chaos.job import build
from tests.chaos.verify import verify
from tests.embedded.jobs import configured
from tests.pipelined.jobs import environment, wait_until

pytestmark = pytest.mark.spark

RECORDS, SPLITS = 20_000, 3


def start(folder: Path, mode: str, job: str, parallelism: int, path: str | None, rate: float | None) -> JobClient:
    """It does not end before the file `may-end` is there."""
    more = {
        "penstock.execution.mode": mode,
        "penstock.epoch.interval": "20 ms",
        "penstock.epoch.max-records": "1000",
        "execution.checkpointing.interval": "200 ms",
        "penstock.checkpoint.inline-threshold": "1000",
    }
    env = StreamExecutionEnvironment.get_execution_environment(configured(folder / job, more, path=path))
    env.set_parallelism(parallelism)
    build(env, folder, RECORDS, rate, SPLITS, lasting=True)
    return env.execute_async(f"saved, {mode}")


def stop(client: JobClient, folder: Path) -> str:
    wait_until(lambda: sum(report.records_in for report in client.epoch_reports()) > 100, "records")
    path = client.stop_with_savepoint(False, str(folder / "savepoints")).result()
    client.get_job_execution_result().result()
    assert not savepoint.load(path).finished, "the job had come to its end before it was asked to stop"
    return path


def test_savepoints_go_from_every_way_of_running_to_every_other(spark: SparkSession, tmp_path: Path) -> None:
    path, epochs = None, []
    for number, mode in enumerate(("pipelined", "embedded", "pipelined", "epochs")):
        path = stop(start(tmp_path, mode, str(number), 1 + number % 2, path, 2000), tmp_path)
        epochs.append(int(savepoint.load(path).epoch))
    assert epochs == sorted(set(epochs)), "each went on from the one before"
    (tmp_path / "may-end").touch()
    start(tmp_path, "pipelined", "last", 2, path, None).get_job_execution_result().result()
    assert verify(tmp_path, RECORDS, SPLITS)["records"] == RECORDS


def test_a_running_job_is_rescaled_2_to_4_to_2_and_is_exact(spark: SparkSession, tmp_path: Path) -> None:
    client = start(tmp_path, "pipelined", "job", 2, None, 4000)
    results = []
    for parallelism in (4, 2):
        seen = sum(report.records_in for report in client.epoch_reports())
        wait_until(lambda: sum(r.records_in for r in client.epoch_reports()) > seen + 100, "records")  # noqa: B023
        results.append(client.rescale(parallelism).result())
    (tmp_path / "may-end").touch()
    client.get_job_execution_result().result()
    assert [(result.before, result.after) for result in results] == [(2, 4), (4, 2)]
    print("pauses:", [round(result.pause_ms) for result in results], "ms")
    assert verify(tmp_path, RECORDS, SPLITS)["records"] == RECORDS


def test_a_worker_that_dies_in_the_middle_of_a_loop_loses_no_round(spark: SparkSession, tmp_path: Path) -> None:
    rounds, starts = 150, 20
    killed = tmp_path / "killed"
    env = environment(tmp_path, 2)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
    loop = env.from_collection([(n, 0) for n in range(starts)]).map(lambda pair: pair).iterate()
    loop.uid("loop")

    def slowly(pair: tuple[int, int]) -> tuple[int, int]:
        """Far on in the loop it takes longer, so that none has come to its end before the kill."""
        time.sleep(0.0005 if killed.exists() or pair[1] < 50 else 0.01)
        return pair[0], pair[1] + 1

    steps = loop.key_by(lambda pair: pair[0]).map(slowly)
    loop.close_with(steps.filter(lambda pair: pair[1] < rounds).rebalance())
    steps.map(lambda pair: f"{pair[0]} {pair[1]}").sink_to(FileSink.text(str(tmp_path / "out")))
    client = env.execute_async("loop")

    def in_the_loop() -> str | None:
        reports = [r for r in client.epoch_reports() if r.checkpoint and r.feedback > 0]
        return reports[-1].slots[-1] if len(reports) >= 3 else None

    name = wait_until(in_the_loop, "checkpoints with records on the way back")
    kill(ChosenProcess.of(int(name.rpartition(":")[2]), command_contains="penstock.runtime.pipelined"))
    killed.touch()
    client.get_job_execution_result().result()
    found = sorted(
        tuple(map(int, line.split()))
        for path in committed_files(str(tmp_path / "out"))
        for line in Path(path).read_text().splitlines()
    )
    assert found == [(n, r) for n in range(starts) for r in range(1, rounds + 1)]
    assert max(report.job_attempt for report in client.epoch_reports()) >= 1, "nothing was killed"
