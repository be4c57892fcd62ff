"""The folder in which jobs are found: one folder a job, JSON files that are whole or absent, readable by their owner only.

jobs/<job id>/control.json      how to reach the driver: address, token, process; there while the job runs
jobs/<job id>/facts.json        the job as its driver last saw it (penstock.driver.control.facts)
jobs/<job id>/submission.json   what to start again, when somebody else than the program itself starts it
jobs/<job id>/driver.log        what the driver printed
jobs/<job id>/job/              the job folder, if the program names none
programs/<upload>/<name>        uploaded programs (penstock.service.uploads)
dispatcher.json, token          where the dispatcher is and its token, while it runs
history.json                    how many ended jobs it keeps
slots.json                      who has which slots (penstock.driver.control.resource_manager)
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.checkpoint.ownership import OwnerInfo, process_is_alive
from penstock.errors import ConfigurationError

VARIABLE = "PENSTOCK_HOME"
TOKEN = "token"
_JOB_ID = re.compile(r"[0-9a-f]{32}")


def is_job_id(text: str) -> bool:
    """True if the text has the form of a job's id: 32 hexadecimal digits."""
    return _JOB_ID.fullmatch(text) is not None


def read_json(path: Path) -> dict[str, Any] | None:
    """None when there is none. Writers replace files as a whole, so what is there is complete."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replaces a file by this document, readable by its owner only."""
    write_private(path, json.dumps(content))


def write_private(path: Path, text: str) -> None:
    """Atomic, and for the owner's eyes only: tokens and configurations are in these files."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # mkstemp makes it 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@dataclass(frozen=True, slots=True)
class JobFolder:
    """One job's files."""

    path: Path

    @property
    def job_id(self) -> str:
        """The id of the job, which is the folder's name."""
        return self.path.name

    @property
    def log(self) -> Path:
        """The file that the driver's output goes to."""
        return self.path / "driver.log"

    def create(self) -> JobFolder:
        """Makes the folder, for its owner only; one that is there stays as it is."""
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return self

    def facts(self) -> dict[str, Any] | None:
        """The facts that the driver last wrote; None if there are none."""
        return read_json(self.path / "facts.json")

    def write_facts(self, facts: dict[str, Any]) -> None:
        """Replaces the facts."""
        write_json(self.path / "facts.json", facts)

    def submission(self) -> dict[str, Any] | None:
        """How the job was submitted; None if it was not."""
        return read_json(self.path / "submission.json")

    def write_submission(self, submission: dict[str, Any]) -> None:
        """Writes how the job was submitted."""
        write_json(self.path / "submission.json", submission)

    def control(self) -> dict[str, Any] | None:
        """How to reach the driver; None unless that very process lives."""
        found = read_json(self.path / "control.json")
        return found if found is not None and is_running(found) else None

    def write_control(self, control: dict[str, Any]) -> None:
        """Writes where the driver listens, and its token."""
        write_json(self.path / "control.json", control)

    def remove_control(self) -> None:
        """The driver no longer listens."""
        (self.path / "control.json").unlink(missing_ok=True)


# What is typed after `penstock run` for the program of this process; empty: Python itself runs it.
this_program: list[str] = []


def how_to_run() -> list[str]:
    """What is typed after `penstock run` to run this process's program again; empty where there is no such program, as in an
    interactive session. Arguments that are secrets have no place on a command line."""
    if this_program:
        return list(this_program)
    main = sys.modules.get("__main__")
    file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if spec is not None:  # python -m
        return ["-m", spec.name.removesuffix(".__main__"), *sys.argv[1:]]
    return [] if file is None or not file.endswith(".py") else [os.path.abspath(file), *sys.argv[1:]]


def this_process() -> dict[str, Any]:
    """pid and start time: together they name a process of this host for good."""
    owner = OwnerInfo.current()
    return {"host": owner.host, "pid": owner.pid, "process_start_time": owner.process_start_time}


def is_running(process: dict[str, Any]) -> bool:
    """Whether the process that `this_process` described still lives on this host."""
    try:
        owner = OwnerInfo(
            host=str(process["host"]),
            pid=int(process["pid"]),
            process_start_time=float(process["process_start_time"]),
            acquired_ms=0,
        )
    except (KeyError, TypeError, ValueError):
        return False
    return process_is_alive(owner)


class JobHome:
    """The folder in which jobs of one user and machine find each other: a folder for each job, and the programs that
    were uploaded.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.jobs = root / "jobs"
        self.programs = root / "programs"

    @staticmethod
    def default() -> JobHome:
        """The home in `PENSTOCK_HOME`, or `~/.penstock`."""
        return JobHome(Path(os.environ.get(VARIABLE) or Path.home() / ".penstock").absolute())

    def create(self) -> JobHome:
        """Make its folders; ConfigurationError where they cannot be made or written to."""
        try:
            for folder in (self.root, self.jobs, self.programs):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigurationError(
                f"the home folder {self.root} cannot be made ({error.strerror}): name another with --dir or {VARIABLE}"
            ) from error
        if not os.access(self.jobs, os.W_OK | os.X_OK):
            raise ConfigurationError(
                f"the home folder {self.root} cannot be written to: name another with --dir or {VARIABLE}"
            )
        return self

    def job(self, job_id: str) -> JobFolder:
        """The folder of a job, which need not exist; ValueError for what is no job id."""
        if not is_job_id(job_id):
            raise ValueError(f"{job_id!r} is not a job id: 32 hexadecimal digits")
        return JobFolder(self.jobs / job_id)

    def all(self) -> list[JobFolder]:
        """Every job that has told anything about itself, in no particular order."""
        if not self.jobs.is_dir():
            return []
        return [JobFolder(entry) for entry in self.jobs.iterdir() if is_job_id(entry.name) and entry.is_dir()]
