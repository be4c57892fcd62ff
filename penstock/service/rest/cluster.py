"""Routes about the dispatcher itself, the processes behind it, and savepoints that belong to no job any more."""

from __future__ import annotations

import time
import uuid
from collections import OrderedDict
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field

from penstock import __version__
from penstock.checkpoint import savepoint
from penstock.errors import StorageError
from penstock.service.dispatcher import Dispatcher, tail
from penstock.service.documents import vertices
from penstock.service.known_jobs import TERMINAL
from penstock.service.prometheus import CONTENT_TYPE, exposition
from penstock.service.rest.context import ERRORS, Json, LogSize, TheDispatcher, not_found
from penstock.service.rest.jobmanager import log_entry

router = APIRouter(tags=["cluster"], responses=ERRORS)
_KEPT = 100


class DisposalRequest(BaseModel):
    """Which savepoint is to be deleted."""

    model_config = ConfigDict(populate_by_name=True)

    savepoint_path: Annotated[str, Field(alias="savepoint-path", min_length=1, max_length=4096)]


def _facts(dispatcher: Dispatcher, *, running: bool) -> list[Json]:
    found = (job.facts() for job in dispatcher.jobs())
    return [facts for facts in found if facts is not None and not (running and facts["state"] in TERMINAL)]


@router.get("/overview")
def overview(dispatcher: TheDispatcher) -> Json:
    """Counts of slots and of jobs by state."""
    states = [facts["state"] for job in dispatcher.jobs() if (facts := job.facts(live=False)) is not None]
    slots = dispatcher.resources.count()
    return {
        "taskmanagers": len(vertices.task_managers(_facts(dispatcher, running=True))),
        "slots-total": slots.taken if slots.offered is None else slots.offered,
        "slots-available": 0 if slots.free is None else slots.free,
        "slots-limited": slots.offered is not None,
        "jobs-running": sum(state not in TERMINAL for state in states),
        "jobs-finished": states.count("FINISHED"),
        "jobs-cancelled": states.count("CANCELED"),
        "jobs-failed": states.count("FAILED"),
        "flink-version": "2.3",
        "flink-commit": "penstock",
        "penstock-version": __version__,
    }


@router.get("/config")
def config() -> Json:
    """The settings that the page needs to know of the server."""
    zone = time.localtime()
    return {
        "refresh-interval": 2000,
        "timezone-name": zone.tm_zone,
        "timezone-offset": zone.tm_gmtoff * 1000,
        "flink-version": "2.3",
        "flink-revision": "penstock",
        "penstock-version": __version__,
        "features": {"web-submit": True, "web-cancel": True, "web-rescale": True, "web-history": True},
        "token-required": True,
    }


@router.delete("/cluster")
def shut_down(request: Request) -> Json:
    """End the dispatcher. Jobs go on without it, and the next one on its home folder finds them."""
    if request.app.state.shutdown is None:
        not_found("server that could be ended: this application is served by somebody else")
    request.app.state.shutdown()
    return {}


@router.get("/taskmanagers")
def task_managers(dispatcher: TheDispatcher, job: Annotated[str | None, Query(max_length=32)] = None) -> Json:
    """The slot processes of all running jobs, or of one."""
    found = vertices.task_managers(_facts(dispatcher, running=True))
    return {"taskmanagers": [entry for entry in found if job in (None, entry["job"])]}


@router.get("/taskmanagers/{taskmanagerid}")
def task_manager(dispatcher: TheDispatcher, taskmanagerid: str) -> Json:
    """One slot process."""
    for entry in vertices.task_managers(_facts(dispatcher, running=True)):
        if entry["id"] == taskmanagerid:
            return entry
    not_found(f"task manager {taskmanagerid!r}")


@router.get("/taskmanagers/{taskmanagerid}/logs")
def task_manager_logs(dispatcher: TheDispatcher, taskmanagerid: str) -> Json:
    """Slots print where their executor does: in local mode that is the driver's log, on a cluster it is Spark's."""
    entry = log_entry(dispatcher.home, task_manager(dispatcher, taskmanagerid)["job"])
    return {"logs": [] if entry is None else [entry]}


@router.get("/taskmanagers/{taskmanagerid}/log", response_class=PlainTextResponse)
def task_manager_log(dispatcher: TheDispatcher, taskmanagerid: str, size: LogSize = 1 << 20) -> PlainTextResponse:
    """The end of the log of the job whose slot process this is."""
    job_id = task_manager(dispatcher, taskmanagerid)["job"]
    return PlainTextResponse(tail(dispatcher.home.job(job_id).log, size))


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(dispatcher: TheDispatcher) -> PlainTextResponse:
    """All jobs that have not ended, in Prometheus' text format."""
    text = exposition(_facts(dispatcher, running=True), dispatcher.resources.count())
    return PlainTextResponse(text, media_type=CONTENT_TYPE)


@router.post("/savepoint-disposal", status_code=202)
def dispose(request: Request, disposal: DisposalRequest) -> Json:
    """Delete a savepoint; it is done when this answers, and its outcome can be asked for."""
    done: OrderedDict[str, Any] = request.app.state.disposals
    trigger_id, failure = uuid.uuid4().hex, None
    try:
        path = disposal.savepoint_path
        if "\x00" in path or not (path.startswith("/") or "://" in path):
            raise StorageError(f"{path!r} is neither an absolute path nor a URL")
        savepoint.dispose(path)
    except (StorageError, OSError, ValueError) as error:
        failure = {"class": type(error).__name__, "stack-trace": str(error)}
    done[trigger_id] = {} if failure is None else {"failure-cause": failure}
    while len(done) > _KEPT:
        done.popitem(last=False)
    return {"request-id": trigger_id}


@router.get("/savepoint-disposal/{triggerid}")
def disposal_status(request: Request, triggerid: str) -> JSONResponse:
    """The outcome of the deletion of a savepoint."""
    operation = request.app.state.disposals.get(triggerid)
    if operation is None:
        not_found(f"disposal {triggerid!r}")
    return JSONResponse({"status": {"id": "COMPLETED"}, "operation": operation})
