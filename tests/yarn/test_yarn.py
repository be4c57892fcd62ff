"""Jobs on a real YARN: in containers of NodeManagers, beside a ResourceManager that knows them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from examples.cluster.demo import verify
from tests.servers.yarn import YarnCluster
from tests.yarn.application import kill_executor_of, penstock_run, spark_submit

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.timeout(600)]


def test_a_job_in_client_mode_goes_on_when_the_executor_in_a_container_is_killed(
    yarn: YarnCluster, tmp_path: Path
) -> None:
    with penstock_run(yarn, tmp_path, "run", [str(tmp_path / "output"), "40000", "2500"]) as job:
        job.wait_for(lambda: job.readings() >= 10_000, "a quarter of the readings")
        slots = [psutil.Process(pid) for pid in job.slots()]
        assert len(slots) == 2
        assert all(yarn.owns(Path(slot.cwd())) for slot in slots)
        lost = slots[0].pid
        kill_executor_of(slots[0])
        job.wait_for(lambda: len(job.slots()) == 2 and lost not in job.slots(), "a slot in place of the lost one")
        job.wait()
    verify(tmp_path / "output", 40_000)
    facts = job.facts()
    assert facts is not None
    assert any(epoch["restored_tasks"] for epoch in facts["epochs"] if epoch["epoch"] > 1)
    assert yarn.outcome() == "SUCCEEDED"
    assert psutil.wait_procs(slots, timeout=20)[1] == []
    assert (
        yarn.output_of_containers().count("slot with Unix sockets true") >= 3
    )  # two slots, and one in place of the lost one


def test_a_job_stopped_with_a_savepoint_goes_on_from_it(yarn: YarnCluster, tmp_path: Path) -> None:
    output = str(tmp_path / "output")
    with penstock_run(yarn, tmp_path, "first", [output, "40000", "2000"]) as job:
        job.wait_for(lambda: job.readings() >= 8_000, "a fifth of the readings")
        done = subprocess.run(
            [sys.executable, "-m", "penstock.cli", "stop", "--dir", str(tmp_path / "first-home"),
             "meters", str(tmp_path / "savepoints")],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr + job.log
        job.wait()
    (savepoint,) = (tmp_path / "savepoints").iterdir()
    with penstock_run(yarn, tmp_path, "second", [output, "40000", "20000"], "-s", str(savepoint)) as job:
        job.wait()
    verify(tmp_path / "output", 40_000)


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_spark_submit_runs_a_program_that_makes_no_session_with_penstock_shipped(
    yarn: YarnCluster, tmp_path: Path, mode: str
) -> None:
    program = [str(tmp_path / "output"), "5000", "10000", str(tmp_path / "job")]
    with spark_submit(yarn, tmp_path, "submit", mode, program) as job:
        job.wait()
    verify(tmp_path / "output", 5_000)
    assert yarn.outcome() == "SUCCEEDED"
    printed = yarn.output_of_containers()
    assert "slot with Unix sockets true" in printed
    assert "penstock.zip/penstock" in printed
