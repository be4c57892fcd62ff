"""Which job a command means, who it asks, and what it says when nobody answers or nobody waits any longer."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import output
from penstock.cli.run import upload_name
from penstock.cli.targets import dispatcher_at
from penstock.common.configuration import GlobalConfiguration
from penstock.common.options import ControlOptions
from penstock.driver.control.answers import Answer
from penstock.driver.control.home import JobHome
from penstock.errors import ConfigurationError, PenstockError
from penstock.service.endpoint import UnreachableError
from penstock.service.program import UserProgram
from penstock.service.submission import Submission, facts_without_a_job
from tests.cli.programs import ROOT, command
from tests.driver.jobs import eventually
from tests.service.programs import ENDLESS, program


def _told(home: Path, job_id: str, name: str, state: str = "FINISHED") -> str:
    """A job that has told this much about itself."""
    submission = Submission(job_id=job_id, program=UserProgram(entry="/job.py"), submitted_ms=1_000)
    facts = {**facts_without_a_job(submission, state, None, 2_000), "name": name}
    JobHome(home).create().job(job_id).create().write_facts(facts)
    return job_id


def test_a_name_is_meant_before_the_beginning_of_an_id(home: Path) -> None:
    _told(home, "b" + "0" * 31, "another")
    named = _told(home, "a" * 32, "b")
    assert named in command("info", "b").stdout
    assert "another" in command("info", "b0").stdout


def test_a_job_that_there_is_not_may_be_a_misspelt_one(home: Path) -> None:
    _told(home, "a" * 32, "clickstream")
    assert "did you mean 'clickstream'?" in command("info", "clikstream").stderr
    assert "did you mean" not in command("info", "something else").stderr


def _is_hinted(job: str, words: str) -> bool:
    return words in command("checkpoints", job).stderr


def test_a_hint_names_the_program_that_was_run_also_if_python_ran_it(home: Path, tmp_path: Path) -> None:
    path = program(tmp_path, "to be stopped.py", ENDLESS)
    own = GlobalConfiguration.to_environment({ControlOptions.HOME.key: str(home)})
    environment = {**os.environ, **own, "PENSTOCK_RUNTIME": "embedded", "PYTHONPATH": str(ROOT)}
    for words, hinted in (
        (
            ["-m", "penstock.cli", "run", "--pyflink", "--runtime", "embedded", str(path), "one"],
            f"--pyflink '{path}' one",
        ),
        ([str(path), "two"], f"'{path}' two"),
    ):
        running = subprocess.Popen([sys.executable, *words], env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL)
        try:
            eventually(partial(_is_hinted, words[-1], f" {hinted}\n"), f"{hinted} is hinted")
        finally:
            running.kill()
            running.wait(30)


def test_names_are_shown_as_they_are_but_not_at_any_length(home: Path) -> None:
    _told(home, "a" * 32, "sum of [red] and [/nothing]")
    _told(home, "b" * 32, "long\nname " * 200)
    listed = command("list", "--all").stdout
    assert "sum of [red] and [/nothing]" in listed
    assert "long name long name" in listed
    assert listed.count("\n") == 3  # a line for the columns, and one a job
    assert "…" in listed


def test_an_interrupted_job_is_suspended_and_can_be_cancelled_for_good(home: Path, tmp_path: Path) -> None:
    path = program(tmp_path, "endless.py", ENDLESS)
    running = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "run", "--runtime", "embedded", str(path), "interrupted"],
        stderr=subprocess.PIPE,
        text=True,
        # As from a shell: below a parent that ignores it (`nohup make test &`) the child would ignore it, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        eventually(lambda: "RUNNING" in command("list").stdout, "the job runs")
        running.send_signal(signal.SIGINT)
        _, told = running.communicate(timeout=30)
    finally:
        running.kill()
    assert running.returncode == 130
    assert "SUSPENDED" in told
    assert "penstock checkpoints" in told
    assert "Traceback" not in told
    assert "SUSPENDED" in command("list").stdout
    cancelled = command("cancel", "interrupted")
    assert (cancelled.returncode, cancelled.stdout.split()[-1]) == (0, "CANCELED")
    assert "No job runs" in command("list").stdout
    assert "on its own terminal" in command("log", "interrupted").stderr


def test_a_home_folder_that_cannot_be_used_is_named_with_what_to_do(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    path = program(tmp_path, "job.py", ENDLESS)
    for refused in (
        command("run", "-d", "--dir", str(file), str(path)),
        command("jobmanager", "--dir", str(file), "--port", "0"),
    ):
        assert refused.returncode == 1
        assert f"the home folder {file} cannot be made" in refused.stderr
        assert "--dir" in refused.stderr


def test_a_port_that_is_taken_is_said_once(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = command("jobmanager", "--port", str(port))
    assert refused.returncode == 1
    assert refused.stderr.count(str(port)) == 1
    assert "another --port" in refused.stderr


# ---------------------------------------------------------------- dispatchers


@pytest.mark.parametrize("address", ["ftp://host", "http://", "http://host:port", "http://host:0", "file:///jobs"])
def test_what_is_no_address_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"http://127\.0\.0\.1:8081"):
        dispatcher_at(address, None, None)


def test_an_address_needs_no_scheme_and_an_empty_one_names_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_TOKEN", "secret")
    found = dispatcher_at("localhost:8081", None, None)
    assert found is not None
    assert (found.address, found.token) == ("http://localhost:8081", "secret")
    assert dispatcher_at("", None, None) is None


def test_the_token_is_the_named_one_or_that_of_the_dispatcher_of_the_home_folder(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def token(file: Path | None = None) -> str | None:
        found = dispatcher_at("localhost:8081", file, None)
        assert found is not None
        assert found.token is None or found.token not in repr(found)
        return found.token

    assert token() is None
    home.mkdir()
    (home / "dispatcher.json").write_text(json.dumps({"address": "http://127.0.0.1:8081", "token": "found"}))
    assert token() == "found"
    monkeypatch.setenv("PENSTOCK_TOKEN", "given")
    assert token() == "given"
    (tmp_path / "file").write_text("filed\n")
    assert token(tmp_path / "file") == "filed"
    for text in ("", "two words", "é"):
        (tmp_path / "file").write_text(text)
        with pytest.raises(ConfigurationError, match="no token"):
            token(tmp_path / "file")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        token(tmp_path / "nowhere")


class _Somebody(BaseHTTPRequestHandler):
    """Not a dispatcher: Spark's page, or a proxy that cannot find one."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path.startswith("/fine") else 502)
        self.end_headers()
        self.wfile.write(b"<html>hello")

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def somebody() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Somebody)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("below", ["", "/fine"])
def test_an_answer_that_is_not_a_dispatchers_is_told(somebody: str, below: str, home: Path, tmp_path: Path) -> None:
    path = program(tmp_path, "job.py", ENDLESS)
    asked = ("list", "--jobmanager", somebody + below)
    ran = ("run", "--jobmanager", somebody + below, str(path))
    for arguments in (asked, ran):
        refused = command(*arguments)
        assert refused.returncode == 1
        assert "no dispatcher of Penstock's" in refused.stderr


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("job.py", "job.py"),
        ("mein jöb.py", "mein_j_b.py"),
        ("--x.py", "x.py"),
        ("script", "script.py"),
        ("n" * 200 + ".zip", "n" * 92 + ".zip"),
        (".py", "py.py"),
    ],
)
def test_a_program_may_be_called_anything_on_its_own_machine(name: str, called: str) -> None:
    assert upload_name(Path("folder") / name) == called


# ---------------------------------------------------------------- waiting


class _Target:
    """Gives its answers one after the other; an exception is raised."""

    job_id = "c" * 32

    def __init__(self, *answers: dict[str, Any] | BaseException) -> None:
        self._answers = list(answers)

    def _next(self) -> dict[str, Any]:
        answer = self._answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def facts(self) -> dict[str, Any]:
        return self._next()

    def ask(self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> Answer:
        return Answer(200, self._next())

    def log(self, size: int) -> str:
        return ""

    def program(self) -> str:
        return "job.py"


def test_who_waits_no_longer_is_told_that_it_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        output.wait_for_state(_Target({"state": "RUNNING"}, KeyboardInterrupt()), "the job runs", ("FINISHED",), 60.0)
    told = capsys.readouterr().err
    assert "it goes on" in told
    assert "penstock cancel cccccccc" in told
    with pytest.raises(KeyboardInterrupt):
        output.wait_for_operation(_Target(KeyboardInterrupt()), "savepoint", "savepoints", "a1", 60.0)
    assert "trigger id a1" in capsys.readouterr().err


def test_a_dispatcher_that_is_started_again_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = UnreachableError("nobody")
    finished = {"state": "FINISHED"}
    assert output.wait_for_state(_Target(gone, gone, finished), "it runs", ("FINISHED",), 60.0) == finished
    monkeypatch.setattr(output, "_UNREACHABLE_S", 0.0)
    with pytest.raises(UnreachableError):
        output.wait_for_state(_Target(gone, gone, gone), "it runs", ("FINISHED",), 60.0)


def test_what_is_not_done_in_time_is_said_with_where_it_is() -> None:
    going = {"status": {"id": "IN_PROGRESS"}, "operation": None}
    with pytest.raises(PenstockError, match="goes on, with trigger id a1"):
        output.wait_for_operation(_Target(going), "savepoint", "savepoints", "a1", 0.0)
    with pytest.raises(PenstockError, match="the job is RESTARTING"):
        output.wait_for_state(_Target(*[{"state": "RESTARTING"}] * 2), "it runs", ("RUNNING",), 0.0)
