"""The dispatcher starts drivers, looks after them, and may itself die at any time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import FencedError
from penstock.jobmanager.dispatcher import Dispatcher, GiveUp, Leave, StartAgain, next_step
from penstock.jobmanager.endpoint import Endpoint
from penstock.jobmanager.home import JobHome
from penstock.jobmanager.known_job import KnownJob
from penstock.jobmanager.program import Program
from penstock.jobmanager.submission import Submission
from penstock.testing.kill import Target, kill
from tests.jobmanager.jobs import eventually
from tests.jobmanager.programs import ENDLESS, FAILING, jobmanager, program, start_jobmanager


@pytest.fixture
def dispatcher(tmp_path: Path) -> Iterator[Dispatcher]:
    made = Dispatcher(JobHome(tmp_path / "home"))
    yield made
    for job in made.jobs():
        facts = job.facts(live=False)
        if facts is not None and facts["end_ms"] is None:
            made.ask(job.job_id, "PATCH", f"/jobs/{job.job_id}", {"mode": "cancel"}, {})
            eventually(lambda j=job: (j.folder.facts() or {}).get("end_ms"), "the job ends")  # type: ignore[misc]
    made.close()


def _run(dispatcher: Dispatcher, path: Path, *arguments: str) -> str:
    return dispatcher.submit(
        Program(entry=str(path), arguments=arguments), {"parallelism.default": "2"}, runtime="embedded"
    )


def _facts(dispatcher: Dispatcher, job_id: str) -> dict[str, Any]:
    known = dispatcher.job(job_id)
    assert known is not None
    facts = known.facts()
    assert facts is not None
    return facts


def _driver(dispatcher: Dispatcher, job_id: str) -> Target:
    submission = Submission.load(dispatcher.home.job(job_id))
    assert submission is not None
    assert submission.process is not None
    return Target.of(submission.process["pid"], command_contains=job_id)


def test_decisions_about_a_driver() -> None:
    assert next_step(state="RUNNING", wanted="running", alive=True, deaths=0) == Leave()
    assert next_step(state="FINISHED", wanted="running", alive=False, deaths=1) == Leave()
    assert next_step(state="RUNNING", wanted="canceled", alive=False, deaths=1) == Leave()
    pauses = [next_step(state="RUNNING", wanted="running", alive=False, deaths=n) for n in range(1, 5)]
    assert pauses == [StartAgain(0.5), StartAgain(1.0), StartAgain(2.0), StartAgain(4.0)]
    assert isinstance(next_step(state="RUNNING", wanted="running", alive=False, deaths=5), GiveUp)


def test_a_driver_that_is_killed_is_started_again_and_resumes(dispatcher: Dispatcher, tmp_path: Path) -> None:
    job_id = _run(dispatcher, program(tmp_path, "endless.py", ENDLESS), "survivor")
    folder = dispatcher.home.job(job_id)  # what it wrote, not what it knows: that is all the next driver finds
    eventually(lambda: (f := folder.facts()) and f["totals"]["epochs"] > 0, "an epoch")
    dispatcher.ask(job_id, "PATCH", f"/jobs/{job_id}/rescaling", {"parallelism": "3"}, {})
    wide = eventually(lambda: (f := folder.facts()) and f["slots"] == 3 and f, "the job is rescaled")
    before = eventually(
        lambda: (f := folder.facts()) and f["totals"]["epochs"] > wide["totals"]["epochs"] + 3 and f, "epochs at 3"
    )
    kill(_driver(dispatcher, job_id))
    after = eventually(
        lambda: (
            (f := _facts(dispatcher, job_id))["drivers"] == 2
            and f["checkpoints"]["counts"]["restored"]
            and f["totals"]["epochs"] > before["totals"]["epochs"]
            and f
        ),
        "the new driver goes on from the checkpoint",
    )
    assert after["name"] == "survivor"
    assert after["slots"] == 3, "as it was rescaled, though its program says 2"
    assert after["start_ms"] == before["start_ms"]
    restarted = eventually(lambda: (f := _facts(dispatcher, job_id))["state"] == "RUNNING" and f, "it runs")
    assert [step["state"] for step in restarted["transitions"]].count("RUNNING") == 2
    assert dispatcher.home.job(job_id).log.read_text().count("the program's words") == 2


def test_a_cancelled_job_is_not_started_again(dispatcher: Dispatcher, tmp_path: Path) -> None:
    job_id = _run(dispatcher, program(tmp_path, "endless.py", ENDLESS))
    assert dispatcher.ask(job_id, "PATCH", f"/jobs/{job_id}", {"mode": "cancel"}, {}).status == 202
    ended = eventually(lambda: (f := _facts(dispatcher, job_id))["end_ms"] and f, "the job ends")
    assert (ended["state"], ended["drivers"]) == ("CANCELED", 1)
    assert dispatcher.ask(job_id, "PATCH", f"/jobs/{job_id}", {"mode": "cancel"}, {}).status == 409


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (FAILING, "'divide'"),
        ("import no_such_module_anywhere", "no_such_module_anywhere"),
        ("print('nothing to do')", "without starting a job"),
        ("def broken(:", "invalid syntax"),
        ("import sys; sys.exit(3)", "status 3"),
    ],
    ids=["a job that fails", "an import", "no job", "syntax", "exit"],
)
def test_a_program_that_fails_says_why_in_the_jobs_exceptions(
    dispatcher: Dispatcher, tmp_path: Path, text: str, words: str
) -> None:
    job_id = _run(dispatcher, program(tmp_path, "bad.py", text))
    failed = eventually(lambda: (f := _facts(dispatcher, job_id))["end_ms"] and f, "the job ends")
    assert failed["state"] == "FAILED"
    assert words in failed["exceptions"][-1]["message"]
    eventually(lambda: words in dispatcher.home.job(job_id).log.read_text(), "the log says so too")
    assert failed["drivers"] == 1


def test_a_second_dispatcher_on_one_folder_is_refused(dispatcher: Dispatcher) -> None:
    with pytest.raises(FencedError, match="another dispatcher"):
        Dispatcher(dispatcher.home)


def test_when_the_dispatcher_is_killed_both_jobs_go_on_and_its_successor_lists_them_with_their_history(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    path = program(tmp_path, "endless.py", ENDLESS)
    first, endpoint = start_jobmanager(home, "--slots", "4")
    body = {"entry": str(path), "flinkConfiguration": {"parallelism.default": "2"}}
    jobs = [
        endpoint.ask("POST", "/jobs", body={**body, "programArgsList": [name]}).body["jobid"] for name in ("one", "two")
    ]
    epochs = {job: eventually(lambda j=job: _epochs(endpoint, j), "epochs") for job in jobs}  # type: ignore[misc]
    kill(Target.of(first.pid, command_contains=str(home)))
    first.wait(60)
    folders = [JobHome(home).job(job) for job in jobs]
    for job, folder in zip(jobs, folders, strict=True):
        eventually(
            lambda f=folder, j=job: (f.facts() or {})["totals"]["epochs"] > epochs[j] + 5,  # type: ignore[misc]
            "the job goes on without a dispatcher",
        )
    with jobmanager(home, "--slots", "4") as again:
        listed = {job["jid"]: job for job in again.ask("GET", "/jobs/overview").body["jobs"]}
        assert {job: listed[job]["name"] for job in jobs} == dict(zip(jobs, ("one", "two"), strict=True))
        assert [listed[job]["state"] for job in jobs] == ["RUNNING", "RUNNING"]
        for job in jobs:
            facts = eventually(
                lambda j=job: (  # type: ignore[misc]
                    len((f := again.ask("GET", f"/jobs/{j}/facts").body)["checkpoints"]["history"]) > 5 and f
                ),
                "checkpoints",  # fewer than epochs where the disk is slow
            )
            assert facts["drivers"] == 1  # the same process all the time
            assert facts["totals"]["epochs"] > epochs[job]
        assert again.ask("GET", "/overview").body["slots-available"] == 0
        # The successor looks after drivers it did not start.
        submission = Submission.load(folders[0])
        assert submission is not None
        assert submission.process is not None
        kill(Target.of(submission.process["pid"], command_contains=jobs[0]))
        eventually(lambda: again.ask("GET", f"/jobs/{jobs[0]}/facts").body["drivers"] == 2, "a new driver")
        # A third job finds no slot, and is told so.
        third = again.ask("POST", "/jobs", body=body).body["jobid"]
        refused = eventually(lambda: (f := again.ask("GET", f"/jobs/{third}/facts").body)["end_ms"] and f, "its end")
        assert "needs 2 slots" in refused["exceptions"][-1]["message"]
        for job in jobs:
            assert again.ask("PATCH", f"/jobs/{job}").status == 202
            eventually(lambda j=job: again.ask("GET", f"/jobs/{j}").body["state"] == "CANCELED", "the end")  # type: ignore[misc]


@pytest.mark.parametrize("how", ["DELETE /cluster", "SIGTERM"])
def test_a_dispatcher_is_ended_in_order_and_its_jobs_go_on(tmp_path: Path, how: str) -> None:
    home = tmp_path / "home"
    process, endpoint = start_jobmanager(home)
    try:
        entry = str(program(tmp_path, "endless.py", ENDLESS))
        job = endpoint.ask("POST", "/jobs", body={"entry": entry, "runtime": "embedded"}).body["jobid"]
        eventually(lambda: _epochs(endpoint, job) > 0, "the job runs")
        if how == "SIGTERM":
            process.terminate()
        else:
            assert endpoint.ask("DELETE", "/cluster").status == 200
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait(20)
    assert not (home / "dispatcher.json").exists()
    known = KnownJob(JobHome(home).job(job))
    assert known.ask("PATCH", f"/jobs/{job}", {"mode": "cancel"}, {}).status == 202
    eventually(lambda: (known.facts() or {})["state"] == "CANCELED", "the end of the job")


def _epochs(endpoint: Endpoint, job: str) -> int:
    facts = endpoint.ask("GET", f"/jobs/{job}/facts").body
    found = int(facts["totals"]["epochs"])
    return found if found > 3 else 0
