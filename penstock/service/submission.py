"""A submitted job: what to run, under which id; written to the job's folder so that anybody can start it again."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from penstock.common.options import CheckpointingOptions, ControlOptions, JobOptions
from penstock.common.secrets import hide_secrets
from penstock.common.time import now_ms
from penstock.driver.control.facts import VERSION
from penstock.driver.control.home import JobFolder, JobHome, this_process
from penstock.driver.life_cycle import Failure
from penstock.service.program import UserProgram
from penstock.service.uploads import UploadedPrograms

_FORMAT = 1
# What only that start was about, and what a submission has a field for.
_NOT_AGAIN = {
    key
    for option in (
        CheckpointingOptions.RECOVERY_PATH,
        CheckpointingOptions.CLAIM,
        CheckpointingOptions.IGNORE_UNCLAIMED,
        CheckpointingOptions.ALLOW_CHANGED_WINDOWS,
        CheckpointingOptions.JOB_DIR,
        ControlOptions.HOME,
        ControlOptions.JOB_ID,
        JobOptions.PARALLELISM,
        JobOptions.PYTHON_FILES,
    )
    for key in option.keys
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A program, its arguments and its settings, as it was handed over; kept in the job's folder so that a driver can
    be started again.
    """

    job_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    program: UserProgram
    configuration: Mapping[str, str] = field(default_factory=dict)
    runtime: str | None = None
    folder: str = "."  # the program's working directory
    submitted_ms: int = field(default_factory=now_ms)
    starts: int = 0  # driver processes so far
    wanted: str = "running"  # or "canceled": a driver that is found dead is not started again
    supervised: bool = False  # a dispatcher starts it again when it dies
    process: Mapping[str, Any] | None = None  # the newest driver

    @property
    def name(self) -> str:
        """Until the program has given its job one."""
        return self.program.entry if self.program.is_module else os.path.basename(self.program.entry)

    def save(self, home: JobHome) -> JobFolder:
        """Writes it into the job's folder, which is made."""
        folder = home.create().job(self.job_id).create()
        folder.write_submission({"version": _FORMAT, **asdict(self)})
        return folder

    @staticmethod
    def load(folder: JobFolder) -> Submission | None:
        """The submission in a job's folder; None if there is none, or one of another version."""
        content = folder.submission()
        if content is None or content.get("version") != _FORMAT:
            return None
        values = {key: value for key, value in content.items() if key != "version"}
        program: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.pop("program").items()}
        return Submission(program=UserProgram(**program), **values)


def asked_for(submission: Submission, uploads: UploadedPrograms) -> dict[str, Any]:
    """How a job was submitted, in REST's words: to ask for the same again, from a savepoint for one. Without what only that
    start was about, and without secrets, which whoever asks again has to know."""
    program = submission.program
    uploaded = None if program.is_module else uploads.id_of(program.entry)
    hidden = hide_secrets(submission.configuration)
    kept = {
        key: value for key, value in submission.configuration.items() if hidden[key] == value and key not in _NOT_AGAIN
    }
    return {
        "program": uploaded,
        "entry": program.entry,
        "module": program.is_module,
        "programArgsList": list(program.arguments),
        "parallelism": submission.configuration.get(JobOptions.PARALLELISM.key),
        "flinkConfiguration": kept,
        "pyflink": program.pyflink,
        "runtime": submission.runtime,
        "pyFiles": [(uploads.id_of(file) if uploaded else None) or file for file in program.py_files],
    }


def start_driver(home: JobHome, submission: Submission) -> Submission:
    """Start the job's driver: a process in a session of its own, which no signal to this one reaches, and which outlives
    it. What it prints goes to the job's log."""
    folder = submission.save(home)
    with folder.log.open("ab") as log:
        log.write(f"--- driver {submission.starts + 1} of job {submission.job_id}\n".encode())
        log.flush()
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock.service.driver_process", str(home.root), submission.job_id],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=submission.folder,
            env={**os.environ, "PYTHONPATH": python_path(), "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )
    started = replace(submission, starts=submission.starts + 1, process={**this_process(), **_of(process.pid)})
    started.save(home)
    threading.Thread(target=process.wait, name="penstock-reaper", daemon=True).start()  # reap it while we live
    return started


def _of(pid: int) -> dict[str, Any]:
    import psutil

    return {"pid": pid, "process_start_time": psutil.Process(pid).create_time()}


def python_path() -> str:
    """This process finds Penstock; so must the driver, whose working directory is another."""
    return os.pathsep.join(os.path.abspath(entry) if entry else os.getcwd() for entry in sys.path)


def facts_without_a_job(submission: Submission, state: str, failure: Failure | None, now_ms: int) -> dict[str, Any]:
    """The facts of a job whose program has not got as far as to start it, in the shape that its driver would write."""
    ended = state in ("FINISHED", "FAILED", "CANCELED")
    transitions = [{"state": "INITIALIZING", "at_ms": submission.submitted_ms}]
    if state == "FAILED":
        transitions.append({"state": "FAILING", "at_ms": now_ms})
    if state == "CANCELED":
        transitions.append({"state": "CANCELLING", "at_ms": now_ms})
    if state != "INITIALIZING":
        transitions.append({"state": state, "at_ms": now_ms})
    return {
        "version": VERSION,
        "job_id": submission.job_id,
        "runtime": submission.runtime
        or submission.configuration.get(JobOptions.RUNTIME.key, JobOptions.RUNTIME.default),
        "configuration": {},
        "job_folder": None,
        "process": dict(submission.process or {}),
        "name": submission.name,
        "state": state,
        "start_ms": submission.submitted_ms,
        "end_ms": now_ms if ended else None,
        "now_ms": now_ms,
        "drivers": submission.starts,
        "transitions": transitions,
        "exceptions": [] if failure is None else [asdict(failure)],
        "max_parallelism": 0,
        "slots": 0,
        "slot_processes": [],
        "totals": {"records_in": 0, "records_out": 0, "epochs": 0, "late_dropped": 0},
        "watermark": None,
        "vertices": [],
        "epochs": [],
        "checkpoints": {
            "counts": {"completed": 0, "failed": 0, "restored": 0},
            "history": [],
            "restored": None,
        },
        "operations": [],
        "notices": [],
    }


def end_facts(folder: JobFolder, submission: Submission, state: str, failure: Failure | None, now_ms: int) -> None:
    """Write down how a job ended whose driver could not: on top of what it told before."""
    facts = folder.facts()
    if facts is None:
        folder.write_facts(facts_without_a_job(submission, state, failure, now_ms))
    else:
        folder.write_facts(ended(facts, state, failure, now_ms))


def ended(facts: Mapping[str, Any], state: str, failure: Failure | None, now_ms: int) -> dict[str, Any]:
    """What a driver told of its job, and that it has ended since."""
    through = {"FAILED": "FAILING", "CANCELED": "CANCELLING"}.get(state)
    steps = [step for step in (through, state) if step is not None]
    return {
        **facts,
        "transitions": [*facts["transitions"], *({"state": step, "at_ms": now_ms} for step in steps)],
        "exceptions": [*facts["exceptions"], *([] if failure is None else [asdict(failure)])],
        "state": state,
        "end_ms": now_ms,
        "now_ms": now_ms,
    }
