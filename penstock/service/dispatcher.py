"""The Dispatcher: accepts jobs, starts a driver process for each, starts dead ones again, forgets nothing when it dies.

All it knows is in files of the home folder, so a new Dispatcher on the same folder goes on where the old one was killed.
Drivers do not need it: they run in sessions of their own and are found again by pid and start time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from penstock.common.secrets import hide_in_text
from penstock.common.time import now_ms
from penstock.driver.control.answers import Answer, refuse
from penstock.driver.control.home import JobHome, is_job_id, is_running, read_json
from penstock.driver.control.resource_manager import ResourceManager
from penstock.driver.life_cycle import Failure
from penstock.errors import FencedError
from penstock.service.known_jobs import MAX_JOBS, TERMINAL, KnownJob, known_jobs, prune, remember_limit
from penstock.service.program import UserProgram
from penstock.service.submission import Submission, end_facts, start_driver

_LOOK_EVERY_S = 0.5
_PRUNE_EVERY_S = 60.0
_MOST_DEATHS = 5  # in a row, without an epoch in between
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 30.0


@dataclass(frozen=True, slots=True)
class Leave:
    """It runs, or has ended."""


@dataclass(frozen=True, slots=True)
class StartAgain:
    """A driver that died is started again, after a pause."""

    pause_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """A driver that died is not started again."""

    why: str


NextStep: TypeAlias = Leave | StartAgain | GiveUp


def next_step(*, state: str, wanted: str, alive: bool, deaths: int) -> NextStep:
    """What to do about a driver. `deaths`: how often in a row it died without completing an epoch."""
    if alive or state in TERMINAL or wanted != "running":
        return Leave()
    if deaths >= _MOST_DEATHS:
        return GiveUp(f"its driver died {deaths} times in a row without completing an epoch; its log says more")
    return StartAgain(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** max(0, deaths - 1)))


@dataclass(slots=True)
class _Watched:
    """What the supervisor remembers of a driver between two looks."""

    epochs: int = 0
    deaths: int = 0
    noticed: float | None = None  # when its death was seen


class Dispatcher:
    """Starts drivers, looks after them and passes requests on. Thread-safe. One for each home folder: a second is
    refused.
    """

    def __init__(
        self,
        home: JobHome,
        *,
        slots: int | None = None,
        max_ended: int = MAX_JOBS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_ended`: so many jobs that have ended are kept in the home, the newest."""
        self.home = home.create()
        self._max_ended = max_ended
        self._clock = clock
        self._lock_file = self._lock(home.root / "dispatcher.lock")
        self.resources = ResourceManager(home)
        self.resources.offer(slots)
        remember_limit(home, max_ended)
        self.started_ms = now_ms()
        self._guard = threading.Lock()
        self._watched: dict[str, _Watched] = {}
        self._settled: set[str] = set()  # ended, or not ours to look after: need not be looked at again
        self._closed = threading.Event()
        self._supervisor = threading.Thread(target=self._supervise, name="penstock-supervisor", daemon=True)
        self._supervisor.start()

    @staticmethod
    def _lock(path: Path) -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the kernel lets go of it when this process dies
        except OSError:
            os.close(descriptor)
            found = read_json(path.parent / "dispatcher.json") or {}
            which = f" ({found['address']}, process {found['pid']})" if {"address", "pid"} <= found.keys() else ""
            raise FencedError(
                f"another dispatcher{which} runs on {path.parent}: use it, stop it, or give this one another --dir"
            ) from None
        return descriptor

    def close(self) -> None:
        """Stop looking after jobs. They go on."""
        self._closed.set()
        self._supervisor.join(10.0)
        os.close(self._lock_file)

    # ---------------------------------------------------------------- jobs

    def submit(
        self, program: UserProgram, configuration: Mapping[str, str], *, runtime: str | None = None, folder: str = "."
    ) -> str:
        """Start a job; its id. The program is run by its driver: what is wrong with it shows in the job's exceptions."""
        submission = Submission(
            program=program,
            configuration=dict(configuration),
            runtime=runtime,
            folder=os.path.abspath(folder),
            supervised=True,
        )
        with self._guard:
            start_driver(self.home, submission)
        return submission.job_id

    def job(self, job_id: str) -> KnownJob | None:
        """The job with this id; None if there is none."""
        if not is_job_id(job_id):
            return None
        known = KnownJob(self.home.job(job_id))
        return known if known.folder.path.is_dir() else None

    def jobs(self) -> list[KnownJob]:
        """All jobs of the home."""
        return known_jobs(self.home)

    def running_from(self, file: str) -> str | None:
        """A job that has not ended and needs this file, if there is one."""
        for known in self.jobs():
            submission = Submission.load(known.folder)
            if submission is not None and file in (submission.program.entry, *submission.program.py_files):
                facts = known.facts(live=False)
                if facts is not None and facts["state"] not in TERMINAL:
                    return known.job_id
        return None

    def ask(self, job_id: str, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> Answer:
        """Passes a request to the job's driver, or answers it from the job's files if that is gone."""
        known = self.job(job_id)
        if known is None:
            return refuse(404, f"there is no job {job_id}")
        if method == "PATCH" and path == f"/jobs/{job_id}":
            return self._cancel(known, query)
        return known.ask(method, path, query, body)

    def _cancel(self, known: KnownJob, query: Mapping[str, str]) -> Answer:
        """Cancelled means: not started again, even if the driver dies before it has heard of it."""
        if query.get("mode", "cancel") != "cancel":
            return refuse(400, f"mode={query['mode']}: only cancel is known")
        facts = known.facts(live=False)
        if facts is None or facts["state"] in TERMINAL:
            return refuse(409, f"job {known.job_id} has ended: it is {facts['state'] if facts else 'unknown'}")
        with self._guard:
            submission = Submission.load(known.folder)
            if submission is not None:
                submission = replace(submission, wanted="canceled")
                submission.save(self.home)
            driver = None if submission is None or submission.process is None else dict(submission.process)
            if known.endpoint() is None and submission is not None and (driver is None or not is_running(driver)):
                end_facts(known.folder, submission, "CANCELED", None, now_ms())
                return Answer(202, {})
        deadline = self._clock() + 20.0
        while known.endpoint() is None and self._clock() < deadline and (driver is None or is_running(driver)):
            time.sleep(0.05)  # it is starting: its endpoint comes with its job
        return known.ask("PATCH", f"/jobs/{known.job_id}", {"mode": "cancel"}, {})

    # ---------------------------------------------------------------- supervision

    def _supervise(self) -> None:
        prune_at = self._clock()
        while not self._closed.wait(_LOOK_EVERY_S):
            if self._clock() >= prune_at:
                prune_at = self._clock() + _PRUNE_EVERY_S
                with contextlib.suppress(OSError), self._guard:
                    prune(self.home, self._max_ended)
            for folder in self.home.all():
                try:
                    if folder.job_id not in self._settled:
                        self._look_at(KnownJob(folder))
                except OSError:
                    continue  # a file that is being replaced, a process that cannot be started: look again

    def _look_at(self, known: KnownJob) -> None:
        submission = Submission.load(known.folder)
        if submission is None:
            return
        if not submission.supervised:
            self._settled.add(known.job_id)
            return
        watched = self._watched.setdefault(known.job_id, _Watched())
        facts = known.folder.facts()
        state = "INITIALIZING" if facts is None else str(facts["state"])
        alive = submission.process is not None and is_running(dict(submission.process))
        if state in TERMINAL:
            self._settled.add(known.job_id)
            self._watched.pop(known.job_id, None)
            return
        if alive:
            watched.noticed = None
            return
        if watched.noticed is None:
            watched.noticed = self._clock()
            epochs = 0 if facts is None else int(facts["totals"]["epochs"])
            watched.deaths = 1 if epochs > watched.epochs else watched.deaths + 1
            watched.epochs = epochs
        match next_step(state=state, wanted=submission.wanted, alive=alive, deaths=watched.deaths):
            case StartAgain(pause_s=pause) if self._clock() - watched.noticed >= pause:
                with self._guard:
                    start_driver(self.home, submission)
                watched.noticed = None
            case GiveUp(why=why):
                failure = Failure(
                    at_ms=now_ms(), name="DriverDied", message=why, stacktrace=tail(known.folder.log, 4000)
                )
                end_facts(known.folder, submission, "FAILED", failure, now_ms())
            case Leave() if submission.wanted == "canceled":
                end_facts(known.folder, submission, "CANCELED", None, now_ms())
            case _:
                pass


def tail(path: Path, size: int) -> str:
    """The last `size` bytes of a text file, for eyes; empty if there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return hide_in_text(file.read().decode(errors="replace"))
    except OSError:
        return ""
