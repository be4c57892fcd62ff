"""A job as its folder shows it: asked through its driver while that lives, else read from what it wrote.

Jobs that have ended stay listed, but not for ever: the oldest beyond a number are forgotten.

Forgotten is what was told about the job, and the checkpoint of one that finished. Savepoints, and checkpoints from which a
failed or cancelled job could be resumed, are the user's: they stay where they are.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from penstock.checkpoint import layout
from penstock.common.time import now_ms
from penstock.driver.control import state_browser
from penstock.driver.control.answers import Answer, refuse
from penstock.driver.control.control import operation_document
from penstock.driver.control.home import JobFolder, JobHome, is_running, read_json, write_json
from penstock.service.endpoint import Endpoint, UnknownServerError, UnreachableError
from penstock.service.submission import Submission, ended, facts_without_a_job

TERMINAL = ("FINISHED", "FAILED", "CANCELED")
_ASK_TIMEOUT_S = 5.0


class KnownJob:
    """A job as its folder shows it, whether its driver lives or not."""

    def __init__(self, folder: JobFolder, job_id: str | None = None) -> None:
        """`job_id`: of a job folder that is not below a home, and so is not named by it."""
        self.folder = folder
        self._job_id = job_id

    @property
    def job_id(self) -> str:
        """The id of the job."""
        return self._job_id or self.folder.job_id

    def endpoint(self) -> Endpoint | None:
        """None when no driver of the job lives on this host."""
        control = self.folder.control()
        return None if control is None else Endpoint(control["address"], control["token"])

    def facts(self, *, live: bool = True) -> dict[str, Any] | None:
        """Fresh from the driver if it lives (and `live`), else what it wrote last. A job that should run but has no driver
        is RESTARTING if a dispatcher looks after it, else SUSPENDED: whoever starts its program again resumes it."""
        endpoint = self.endpoint() if live else None
        if endpoint is not None:
            try:
                answer = endpoint.ask("GET", f"/jobs/{self.job_id}/facts", timeout_s=_ASK_TIMEOUT_S)
                if answer.status == 200:
                    return answer.body
            except (UnreachableError, UnknownServerError):
                pass  # it ends just now, or is too busy: what it wrote a second ago will do
        written = _written(self.folder)
        if written is not None and written["state"] in TERMINAL:
            return written
        submission = Submission.load(self.folder)
        if written is None:
            return None if submission is None else facts_without_a_job(submission, "INITIALIZING", None, now_ms())
        if is_running(written["process"]):
            return written
        if submission is None or not submission.supervised:
            return {**written, "state": "SUSPENDED"}
        alive = submission.process is not None and is_running(dict(submission.process))
        return {**written, "state": "INITIALIZING" if alive else "RESTARTING"}

    def ask(self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> Answer:
        """An action, or a question about one: the driver's answer, or why there is none."""
        endpoint = self.endpoint()
        if endpoint is not None:
            try:
                return endpoint.ask(method, path, query, body)
            except (UnreachableError, UnknownServerError) as error:
                if method != "GET":
                    return refuse(409, f"the driver of job {self.job_id} does not answer just now: {error}")
        facts = self.facts()
        if facts is None:
            return refuse(404, f"there is no job {self.job_id}")
        parts = path.strip("/").split("/")
        if method == "GET" and len(parts) == 4:  # the outcome of an action outlives the driver
            document = operation_document(facts, parts[2], parts[3])
            if document is not None:
                return Answer(200, document)
            return refuse(404, f"no {parts[2]} with trigger id {parts[3]}")
        if method == "GET" and parts[2:] in (["state"], ["states"]):  # so do its checkpoints
            return state_browser.answer(state_browser.written(facts), parts[2], query)
        if facts["state"] in TERMINAL:
            return refuse(409, f"job {self.job_id} has ended: it is {facts['state']}")
        if method == "PATCH" and len(parts) == 2 and facts["state"] == "SUSPENDED":  # there is nothing left to stop
            told = self.folder.facts()
            if told is not None:
                self.folder.write_facts(ended(told, "CANCELED", None, now_ms()))
                return Answer(202, {})
        return refuse(409, f"job {self.job_id} is {facts['state']}: it has no driver that could do this")


# Facts of jobs that have ended, by file and time of change: lists of jobs are asked for again and again, and most of the jobs
# in them have ended. Nobody changes these documents.
_ended: dict[tuple[str, int], dict[str, Any]] = {}
_MOST_ENDED = 500


def _written(folder: JobFolder) -> dict[str, Any] | None:
    try:
        changed = (folder.path / "facts.json").stat().st_mtime_ns
    except OSError:
        return None
    key = (str(folder.path), changed)
    known = _ended.get(key)
    if known is not None:
        return known
    facts = folder.facts()
    if facts is not None and facts["state"] in TERMINAL:
        while len(_ended) >= _MOST_ENDED:
            _ended.pop(next(iter(_ended)), None)
        _ended[key] = facts
    return facts


def known_jobs(home: JobHome) -> list[KnownJob]:
    """All jobs of a home, the newest first."""
    jobs = [KnownJob(folder) for folder in home.all()]
    starts = {job.job_id: (job.facts(live=False) or {}).get("start_ms", 0) for job in jobs}
    return sorted((job for job in jobs if starts[job.job_id]), key=lambda job: -starts[job.job_id])


MAX_JOBS: Final = 100
# Facts last: until then it can be repeated.
_TOLD: Final = ("submission.json", "driver.log", "control.json", "facts.json")


def remember_limit(home: JobHome, most: int) -> None:
    """A dispatcher says how many are kept; whoever forgets jobs while none runs keeps to it."""
    write_json(home.root / "history.json", {"most": most})


def prune_unattended(home: JobHome) -> list[str]:
    """`prune` where no dispatcher does: a home in which jobs are only ever run by hand stays bounded, too."""
    dispatcher = read_json(home.root / "dispatcher.json")
    if dispatcher is not None and is_running(dispatcher):
        return []
    most = int((read_json(home.root / "history.json") or {}).get("most", MAX_JOBS))
    if len(home.all()) <= most:  # not one too many: nothing has to be read
        return []
    with contextlib.suppress(OSError):  # somebody else does the same just now
        return prune(home, most)
    return []


def prune(home: JobHome, most: int) -> list[str]:
    """Forget all but the `most` jobs of a home that ended last; the ids of those that are gone."""
    ended: list[tuple[int, JobFolder, str]] = []
    for folder in home.all():
        facts = KnownJob(folder).facts(live=False)
        if facts is not None and facts["state"] in TERMINAL and folder.control() is None:
            ended.append((int(facts["end_ms"] or 0), folder, str(facts["state"])))
    ended.sort(key=lambda job: (job[0], job[1].job_id))
    forgotten = []
    for _, folder, state in ended[: max(0, len(ended) - most)]:
        if state == "FINISHED" and not _has_savepoints(folder.path / "job"):
            shutil.rmtree(folder.path / "job", ignore_errors=True)
        for name in _TOLD:
            (folder.path / name).unlink(missing_ok=True)
        if not any(folder.path.iterdir()):
            folder.path.rmdir()
        forgotten.append(folder.job_id)
    return forgotten


def _has_savepoints(job: Path) -> bool:
    savepoints = job / layout.SAVEPOINTS
    return savepoints.is_dir() and any(savepoints.iterdir())
