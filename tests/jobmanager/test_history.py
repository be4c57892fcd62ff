"""Ended jobs are forgotten when there are many; what a job can be resumed from is not deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.jobmanager.dispatcher import Dispatcher
from penstock.jobmanager.history import prune
from penstock.jobmanager.home import JobFolder, JobHome
from penstock.jobmanager.known_job import known_jobs
from tests.jobmanager.jobs import endless, eventually


@pytest.fixture
def home(tmp_path: Path) -> JobHome:
    return JobHome(tmp_path / "home").create()


def _ended(home: JobHome, number: int, state: str = "FINISHED") -> JobFolder:
    """A job as its driver leaves it; the higher the number, the later it ended."""
    folder = home.job(f"{number:032x}").create()
    folder.write_facts({"state": state, "job_id": folder.job_id, "start_ms": 1000 + number, "end_ms": 2000 + number})
    folder.log.write_text("log")
    (folder.path / "job/checkpoints/chk-1").mkdir(parents=True)
    (folder.path / "job/checkpoints/chk-1/manifest.json").write_text("{}")
    return folder


def test_the_oldest_beyond_the_number_are_forgotten(home: JobHome) -> None:
    folders = [_ended(home, number) for number in (3, 1, 4, 2)]
    assert prune(home, 2) == [folders[1].job_id, folders[3].job_id]
    assert [job.job_id for job in known_jobs(home)] == [folders[2].job_id, folders[0].job_id]
    assert sorted(path.name for path in home.jobs.iterdir()) == sorted([folders[0].job_id, folders[2].job_id])
    assert prune(home, 2) == []


@pytest.mark.parametrize("state", ["FAILED", "CANCELED"])
def test_checkpoints_of_a_job_that_could_be_resumed_stay(home: JobHome, state: str) -> None:
    folder = _ended(home, 1, state)
    assert prune(home, 0) == [folder.job_id]
    assert known_jobs(home) == []
    assert (folder.path / "job/checkpoints/chk-1/manifest.json").exists()


def test_savepoints_stay(home: JobHome) -> None:
    folder = _ended(home, 1)
    (folder.path / "job/savepoints/savepoint-1").mkdir(parents=True)
    prune(home, 0)
    assert (folder.path / "job/savepoints/savepoint-1").exists()
    assert not folder.log.exists()


def test_a_dispatcher_forgets_ended_jobs_and_leaves_running_ones(home: JobHome) -> None:
    configuration = {"penstock.runtime": "embedded", "penstock.job.home": str(home.root)}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(configuration))
    env.from_collection([1]).filter(lambda n: False).print()
    env.execute("ended")
    running = endless(home.root)
    eventually(lambda: len(known_jobs(home)) == 2, "both are listed")
    dispatcher = Dispatcher(home, max_ended=0)
    try:
        eventually(lambda: len(known_jobs(home)) == 1, "the ended one is forgotten")
        assert [job.job_id for job in dispatcher.jobs()] == [str(running.get_job_id())]
    finally:
        dispatcher.close()
        running.cancel().result()
