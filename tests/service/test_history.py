"""Ended jobs are forgotten when there are many; what a job can be resumed from is not deleted."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.control.home import JobFolder, JobHome, this_process, write_json
from penstock.service.dispatcher import Dispatcher
from penstock.service.driver_process import shorten
from penstock.service.known_jobs import MAX_JOBS, known_jobs, prune, prune_unattended
from tests.driver.jobs import endless, eventually


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


def test_without_a_dispatcher_whoever_runs_a_job_forgets_old_ones(home: JobHome) -> None:
    for number in range(MAX_JOBS + 2):
        _ended(home, number)
    assert prune_unattended(home) == [f"{0:032x}", f"{1:032x}"]
    assert prune_unattended(home) == []
    with closing(Dispatcher(home, max_ended=5)):
        write_json(home.root / "dispatcher.json", this_process())
        assert prune_unattended(home) == [], "the dispatcher does it"
    (home.root / "dispatcher.json").unlink()
    prune_unattended(home)
    assert len(known_jobs(home)) == 5, "as many as the last dispatcher was told to keep"


def test_of_a_long_log_the_end_is_kept_from_the_beginning_of_a_line_on(tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    with log.open("ab") as writer:  # as drivers have it
        writer.write(b"".join(b"line %04d\n" % n for n in range(1000)))
        writer.flush()
        assert not shorten(log, 10_000)
        assert shorten(log, 4_020)  # the end begins within a line
        writer.write(b"printed after\n")
    lines = log.read_text().splitlines()
    assert lines[0] == "--- 9000 bytes that were printed before are gone: the log was too long"
    assert lines[1:] == [*(f"line 0{n}" for n in range(900, 1000)), "printed after"]
