"""Routes about the dispatcher's process, and what drivers have printed."""

from __future__ import annotations

import platform
import sys
import threading
import traceback

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse

from penstock.common.options import ControlOptions
from penstock.driver.control.home import JobHome, is_job_id
from penstock.service.dispatcher import tail
from penstock.service.documents.vertices import selected
from penstock.service.known_jobs import TERMINAL
from penstock.service.rest.context import ERRORS, Json, LogSize, Names, TheDispatcher, not_found

router = APIRouter(prefix="/jobmanager", tags=["cluster"], responses=ERRORS)


@router.get("/config")
def config(dispatcher: TheDispatcher) -> list[Json]:
    """The settings of the job manager."""
    slots = dispatcher.resources.count().offered
    values = {ControlOptions.HOME.key: str(dispatcher.home.root), **({} if slots is None else {"slots": str(slots)})}
    return [{"key": key, "value": value} for key, value in values.items()]


@router.get("/environment")
def environment() -> Json:
    """Flink's shape; what runs here is Python."""
    described = {"version": f"Python {platform.python_version()}", "arch": platform.machine(), "options": []}
    return {"jvm": described, "classpath": list(sys.path)}


@router.get("/metrics")
def metrics(dispatcher: TheDispatcher, get: Names = None) -> list[Json]:
    """The metrics of the job manager; `get` chooses some."""
    known = [facts["state"] for job in dispatcher.jobs() if (facts := job.facts(live=False)) is not None]
    slots = dispatcher.resources.count()
    found: dict[str, float] = {"numRunningJobs": sum(state not in TERMINAL for state in known)}
    if slots.offered is not None:
        found |= {"taskSlotsTotal": slots.offered, "taskSlotsAvailable": slots.offered - slots.taken}
    return selected(found, get)


@router.get("/thread-dump")
def thread_dump() -> Json:
    """Where each thread of the dispatcher is."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    found = [
        {"threadName": names.get(ident, str(ident)), "stringifiedThreadInfo": "".join(traceback.format_stack(frame))}
        for ident, frame in sys._current_frames().items()
    ]
    return {"threadInfos": found}


@router.get("/logs")
def logs(dispatcher: TheDispatcher) -> Json:
    """The logs of the drivers: one for each job, named by its id."""
    return {"logs": [entry for job in dispatcher.jobs() if (entry := log_entry(dispatcher.home, job.job_id))]}


@router.get("/logs/{name}", response_class=PlainTextResponse)
def log(dispatcher: TheDispatcher, name: str, size: LogSize = 1 << 20) -> PlainTextResponse:
    """The end of one."""
    job_id = name.removesuffix(".log")
    if not is_job_id(job_id) or log_entry(dispatcher.home, job_id) is None:
        not_found(f"log {name!r}")
    return PlainTextResponse(tail(dispatcher.home.job(job_id).log, size))


def log_entry(home: JobHome, job_id: str) -> Json | None:
    """None for a job that was not started by `penstock`: what it prints is on its own terminal."""
    path = home.job(job_id).log
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return {"name": f"{job_id}.log", "size": found.st_size, "mtime": int(found.st_mtime * 1000)}
