"""Starting a job that outlives the command: here, or at a dispatcher."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from penstock.cli.output import hint, wait_for_state
from penstock.cli.targets import LocalTarget, RemoteTarget, Target, checked
from penstock.driver.control.home import JobHome, is_running, read_json
from penstock.errors import ConfigurationError, JobFailedError
from penstock.service.endpoint import Endpoint
from penstock.service.history import prune_unattended
from penstock.service.known_job import TERMINAL, KnownJob
from penstock.service.program import Program
from penstock.service.submission import Submission, start_driver

_START_S = 120.0
_STARTED = ("RUNNING", *TERMINAL)


def start_detached(home: JobHome, program: Program, configuration: Mapping[str, str], runtime: str | None) -> None:
    """The driver is a process of its own. If a dispatcher runs on the same home, it looks after the job from now on."""
    if not program.is_module and not Path(program.entry).is_file():
        raise ConfigurationError(f"there is no program {program.entry}")
    dispatcher = read_json(home.root / "dispatcher.json")
    submission = Submission(
        program=program,
        configuration=dict(configuration),
        runtime=runtime,
        folder=os.getcwd(),
        supervised=dispatcher is not None and is_running(dispatcher),
    )
    prune_unattended(home.create())
    started = start_driver(home, submission)
    _report(LocalTarget(KnownJob(home.job(started.job_id))), wait=False)


def submit_remotely(
    endpoint: Endpoint, program: Program, configuration: Mapping[str, str], runtime: str | None, *, wait: bool
) -> None:
    """Programs and --py-files are uploaded; a module must be on the dispatcher's machine."""
    request: dict[str, Any] = {
        "programArgsList": list(program.arguments),
        "flinkConfiguration": {k: v for k, v in configuration.items() if k != "python.files"},
        "pyflink": program.pyflink,
        "runtime": runtime,
    }
    if program.is_module:
        request |= {"entry": program.entry, "module": True, "pyFiles": list(program.py_files)}
        answer = checked(endpoint.ask("POST", "/jobs", body=request))
    else:
        request["pyFiles"] = [_upload(endpoint, file) for file in program.py_files]
        answer = checked(endpoint.ask("POST", f"/programs/{_upload(endpoint, program.entry)}/run", body=request))
    _report(RemoteTarget(endpoint, answer["jobid"]), wait=wait)


def _upload(endpoint: Endpoint, file: str) -> str:
    path = Path(file)
    if not path.is_file():
        raise ConfigurationError(f"{file} is not a file: to be uploaded, a folder has to be a zip file")
    answer = checked(endpoint.ask("POST", "/programs/upload", {"name": upload_name(path)}, raw=path.read_bytes()))
    return str(answer["filename"])


def upload_name(path: Path) -> str:
    """What a program is called at a dispatcher, which takes no other characters. A module that is imported has such a name."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", path.name)[-96:].lstrip(".-")
    return plain if path.suffix in (".py", ".zip") and plain else f"{plain or 'program'}.py"


def _report(target: Target, *, wait: bool) -> None:
    typer.echo(target.job_id)
    short = target.job_id[:8]
    if wait:
        hint(f"penstock info {short}", f"penstock stop {short}")
    facts = wait_for_state(target, "the job runs" if wait else "the job starts", TERMINAL if wait else _STARTED,
                           math.inf if wait else _START_S)  # fmt: skip
    if facts["state"] == "FAILED":
        last = facts["exceptions"][-1]["message"] if facts["exceptions"] else "no exception was recorded"
        hint(f"penstock log {short}")
        raise JobFailedError(f"job {target.job_id} failed: {last}")
    if facts["state"] in TERMINAL:
        typer.echo(f"It is {facts['state']}.", err=True)
        hint(f"penstock info {short}", f"penstock log {short}")
    else:
        hint(f"penstock info {short}", f"penstock log {short}", f"penstock stop {short}")
