"""Watching and steering a job from the command line: through its folder, and through a dispatcher."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.driver.control.home import JobHome
from penstock.service.known_jobs import KnownJob
from tests.cli.programs import command, penstock
from tests.driver.jobs import eventually
from tests.service.programs import ENDLESS, jobmanager, program

pytestmark = pytest.mark.long


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return program(tmp_path, "endless.py", ENDLESS)


@pytest.fixture
def detached(home: Path, path: Path) -> Iterator[str]:
    """A job that outlives the command that started it."""
    started = command("run", "--detached", "--runtime", "embedded", "-p", "2", str(path), "from-the-shell")
    assert started.returncode == 0, started.stderr
    job_id = started.stdout.strip()
    assert f"penstock info {job_id[:8]}" in started.stderr
    folder = JobHome(home).job(job_id)
    eventually(lambda: (folder.facts() or {"totals": {"epochs": 0}})["totals"]["epochs"] > 3, "epochs")
    yield job_id
    known = KnownJob(folder)
    if known.endpoint() is not None:
        known.ask("PATCH", f"/jobs/{job_id}", {"mode": "cancel"}, {})
        eventually(lambda: known.endpoint() is None, "the job ends")


def test_a_detached_job_is_listed_shown_saved_rescaled_stopped_and_resumed(
    detached: str, home: Path, path: Path
) -> None:
    listed = json.loads(command("list", "--json").stdout)
    assert [(job["jid"], job["name"], job["state"]) for job in listed] == [(detached, "from-the-shell", "RUNNING")]
    shown = command("info", detached[:6])
    assert "from-the-shell" in shown.stdout
    assert f"penstock savepoint {detached[:8]}" in shown.stderr
    by_folder = command("info", str(home / "jobs" / detached / "job"), "--json")
    assert json.loads(by_folder.stdout)["jid"] == detached

    newest = command("state", detached, "newest", "reduce", "3")
    assert newest.returncode == 0, newest.stderr
    assert int(newest.stdout) % 10 == 3

    states = command("state", detached)
    assert ("newest", "reduce", "reducing") in [tuple(line.split()) for line in states.stdout.splitlines()]
    assert f"penstock state {detached[:8]} newest reduce" in states.stderr
    assert "splits" not in states.stdout, "what the engine keeps for itself"
    assert "splits" in command("state", "--all", detached).stdout
    only = command("state", detached, "numbers")
    assert "penstock state --all" in only.stderr
    entries = json.loads(command("state", "from", "newest", "reduce", "--json").stdout)
    assert sorted(int(entry["key"]) for entry in entries["entries"]) == list(range(10))
    absent = command("state", detached, "newest", "absent")
    assert absent.returncode == 1
    assert "'absent' of operator 'newest'; it has newest: reduce" in absent.stderr

    saved = command("savepoint", "from-the-shell", os.path.relpath(home / "saved"))
    assert saved.returncode == 0, saved.stderr
    location = saved.stdout.strip()
    assert f"penstock run --from-savepoint {location} {path} from-the-shell" in saved.stderr
    assert any(path.name == "manifest.json" for path in (home / "saved").rglob("*"))

    rescaled = command("rescale", detached, "3")
    assert rescaled.returncode == 0, rescaled.stderr
    vertices = json.loads(command("info", detached, "--json").stdout)["vertices"]
    assert [vertex["parallelism"] for vertex in vertices] == [3, 3]

    stopped = command("stop", detached, "--json")
    assert stopped.returncode == 0, stopped.stderr
    last = json.loads(stopped.stdout)["location"]
    statistics = json.loads(command("checkpoints", detached, "--json").stdout)
    assert [entry["external_path"] for entry in statistics["history"] if entry["is_savepoint"]] == [last, location]
    assert "No job runs" in command("list").stdout
    assert int(command("state", detached, "newest", "reduce", "3").stdout) % 10 == 3, "checkpoints outlive the driver"
    assert len(json.loads(command("state", detached, "newest", "reduce", "--json").stdout)["entries"]) == 10
    before = JobHome(home).job(detached).facts()
    assert before is not None
    assert before["state"] == "FINISHED"

    resumed = command("run", "-d", "--runtime", "embedded", "-p", "1", "--from-savepoint", last, str(path), "resumed")
    assert resumed.returncode == 0, resumed.stderr
    job_id = resumed.stdout.strip()
    folder = JobHome(home).job(job_id)
    facts = eventually(lambda: (f := folder.facts()) and f["totals"]["epochs"] and f, "it runs")
    assert facts["epochs"][0]["restored_tasks"] > 0
    ended = command("cancel", job_id)
    assert ended.returncode == 0, ended.stderr
    assert "CANCELED" in ended.stdout
    assert command("log", job_id).stdout.count("the program's words") == 1


def test_a_job_that_is_rescaled_beyond_its_splits_is_warned_about(home: Path, tmp_path: Path) -> None:
    timed = ENDLESS.replace("no_watermarks()", "for_monotonous_timestamps()").replace(
        "rate_per_second=1000", "splits=2, rate_per_second=1000, timestamp_of=lambda n: n"
    )
    path = program(tmp_path, "timed.py", timed)
    started = command("run", "--detached", "--runtime", "embedded", "-p", "2", str(path), "timed")
    assert started.returncode == 0, started.stderr
    job_id = started.stdout.strip()
    folder = JobHome(home).job(job_id)
    eventually(lambda: (folder.facts() or {"totals": {"epochs": 0}})["totals"]["epochs"] > 3, "epochs")
    assert "warning" not in command("info", job_id).stdout
    rescaled = command("rescale", job_id, "3")
    warning = "warning: event time stands still behind 'numbers': it has 2 splits for 3 subtasks"
    assert warning in rescaled.stderr
    shown = command("info", job_id).stdout
    assert warning in shown
    assert "event time has not begun" not in shown, "it is said once"
    assert warning.partition(": ")[2] in command("log", job_id).stdout
    assert command("rescale", job_id, "1").stderr.count("warning") == 0
    assert command("cancel", job_id).returncode == 0


def test_what_cannot_be_done_says_why(home: Path, tmp_path: Path) -> None:
    for arguments, words in (
        (("info", "nobody"), "penstock list"),
        (("info", str(tmp_path / "absent")), "no folder"),
        (("info", f"{tmp_path}/"), "penstock run"),
        (("ui",), "No dispatcher runs"),
    ):
        refused = command(*arguments)
        assert refused.returncode == 1
        assert words in refused.stderr
        assert "Traceback" not in refused.stderr
    failing = command(
        "run", "-d", "--runtime", "embedded", str(program(tmp_path, "failing.py", "raise ValueError('mine')"))
    )
    assert failing.returncode == 1
    assert "mine" in failing.stderr
    job_id = failing.stdout.strip()
    for verb in ("savepoint", "stop", "cancel"):
        refused = command(verb, job_id)
        assert refused.returncode == 1
        assert "FAILED" in refused.stderr
    assert json.loads(command("list", "--all", "--json").stdout)[0]["state"] == "FAILED"


def test_a_job_is_found_by_the_beginning_of_its_name_and_tables_fit_a_terminal(home: Path, tmp_path: Path) -> None:
    words = "from penstock.datastream import StreamExecutionEnvironment as E\n" + (
        "import sys\nenv = E.get_execution_environment()\nenv.enable_checkpointing(10)\n"
        "env.from_collection([1, 2]).key_by(lambda n: n).reduce(max).uid('most').print()\nenv.execute(sys.argv[1])\n"
    )
    path = program(tmp_path, "words.py", words)
    for name in ("an example of words", "another"):
        done = command("run", "--runtime", "embedded", "-d", str(path), name)
        assert done.returncode == 0, done.stderr
        if "It is FINISHED" in done.stderr:  # a short job may be over before it is seen to run
            assert "penstock stop" not in done.stderr
    eventually(lambda: "Ended: 2" in command("list").stdout, "both end")
    assert "an example of words" in command("info", "An E").stdout
    assert "fits 2 jobs" in command("info", "an").stderr
    assert command("info", "").returncode == 1
    narrow = {"COLUMNS": "80"}
    listed = command("list", "--all", environment=narrow).stdout.splitlines()
    assert len(listed) == 3
    assert max(map(len, listed)) <= 80
    assert (
        len(
            [
                line
                for line in command("checkpoints", "another", environment=narrow).stdout.splitlines()
                if "chk-" in line
            ]
        )
        == 1
    )
    assert "end of input" in command("info", "another").stdout
    words = penstock(
        "info",
        environment={"_PENSTOCK_COMPLETE": "complete_bash", "COMP_WORDS": "penstock info ano", "COMP_CWORD": "2"},
    ).stdout
    assert words.split() == ["another"]


def test_a_dispatcher_runs_what_the_command_uploads(home: Path, path: Path) -> None:
    with jobmanager(home, token="s3cret") as endpoint:
        reach = {"PENSTOCK_JOBMANAGER": endpoint.address, "PENSTOCK_HOME": "/nonexistent"}
        refused = command("list", environment=reach)
        assert refused.returncode == 1
        assert "token" in refused.stderr
        reach["PENSTOCK_TOKEN"] = "s3cret"
        started = command("run", "--detached", str(path), "uploaded", environment=reach)
        assert started.returncode == 0, started.stderr
        assert "uploaded" in command("list", environment=reach).stdout
        assert "the program's words" in command("log", "uploaded", environment=reach).stdout
        stopped = command("stop", "uploaded", "--drain", environment=reach)
        assert stopped.returncode == 0, stopped.stderr
        assert f"{path.name} uploaded\n" in stopped.stderr, "the hint names what was uploaded"
        assert Path(stopped.stdout.strip().removeprefix("file://")).is_dir()
        assert command("ui", "--no-open").stdout.strip() == f"{endpoint.address}/#token=s3cret"


def test_uploaded_modules_and_archives_are_imported_by_their_own_names(home: Path, tmp_path: Path) -> None:
    (tmp_path / "beside").mkdir()
    module = program(tmp_path / "beside", "helpers_of_mine.py", "WORD = 'helped'")
    archive = tmp_path / "lib.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("packed_of_mine.py", "WORD = 'unpacked'")
    text = (
        "import helpers_of_mine, packed_of_mine\nfrom penstock.datastream import StreamExecutionEnvironment as E\n"
        "env = E.get_execution_environment()\n"
        "env.from_collection([1]).map(lambda n: (helpers_of_mine.WORD, packed_of_mine.WORD)).print()\nenv.execute()\n"
    )
    path = program(tmp_path, "my jöb.py", text)
    with jobmanager(home) as endpoint:
        files = f"{module},{archive}"
        for _ in range(2):  # the second time nothing new is kept
            done = command("run", "--jobmanager", endpoint.address, "--py-files", files, str(path))
            assert done.returncode == 0, done.stderr
            job_id = done.stdout.strip()
            assert "('helped', 'unpacked')" in command("log", job_id).stdout
        kept = [file["name"] for file in endpoint.ask("GET", "/programs").body["files"]]
        assert sorted(kept) == ["helpers_of_mine.py", "lib.zip", "my_j_b.py"]


def test_completion_knows_the_commands() -> None:
    words = penstock(
        "--show-completion", "bash", environment={"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    ).stdout
    assert "complete -o default -F _penstock_completion penstock" in words
