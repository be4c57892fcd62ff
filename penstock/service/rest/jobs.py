"""Routes about jobs: what they are, and what can be done with them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import BaseModel, ConfigDict, Field

from penstock.driver.control.rates import bottleneck
from penstock.service.dispatcher import tail
from penstock.service.documents import checkpoints, vertices
from penstock.service.documents import jobs as documents
from penstock.service.rest.context import (
    ERRORS,
    Facts,
    JobId,
    Json,
    LogSize,
    Names,
    TheDispatcher,
    Vertex,
    not_found,
    pass_on,
)
from penstock.service.submission import Submission, asked_for
from penstock.service.uploads import UploadedPrograms

router = APIRouter(tags=["jobs"], responses=ERRORS)


TriggerId = Annotated[str | None, Field(pattern="^[0-9a-f]{32}$", description="of the client's choice")]


class SavepointBody(BaseModel):
    """The body of a request for a savepoint."""

    model_config = ConfigDict(populate_by_name=True)

    target_directory: str | None = Field(default=None, alias="target-directory", max_length=4096)
    cancel_job: bool = Field(default=False, alias="cancel-job")
    triggerId: TriggerId = None


class StopBody(BaseModel):
    """The body of a request to stop."""

    drain: bool = False
    targetDirectory: str | None = Field(default=None, max_length=4096)
    triggerId: TriggerId = None


class CheckpointBody(BaseModel):
    """The body of a request for a checkpoint."""

    checkpointType: Literal["CONFIGURED", "FULL", "INCREMENTAL"] = "CONFIGURED"
    triggerId: TriggerId = None


@router.get("/jobs")
def all_jobs(dispatcher: TheDispatcher) -> Json:
    """The ids and states of all jobs."""
    found = [facts for job in dispatcher.jobs() if (facts := job.facts(live=False)) is not None]
    return {"jobs": [{"id": facts["job_id"], "status": facts["state"]} for facts in found]}


@router.get("/jobs/overview")
def overview(dispatcher: TheDispatcher) -> Json:
    """A short document of every job."""
    return {"jobs": [documents.overview(facts) for job in dispatcher.jobs() if (facts := job.facts()) is not None]}


@router.get("/jobs/{jobid}")
def job(dispatcher: TheDispatcher, facts: Facts) -> Json:
    """Everything about one job."""
    submission = Submission.load(dispatcher.home.job(facts["job_id"]))
    asked = None if submission is None else asked_for(submission, UploadedPrograms(dispatcher.home.programs))
    return documents.details(facts, bottleneck(facts), asked)


@router.get("/jobs/{jobid}/facts")
def facts(facts: Facts) -> Json:
    """All that the job tells about itself, in one document of ours; the others are made from it."""
    return facts


@router.get("/jobs/{jobid}/plan")
def plan(facts: Facts) -> Json:
    """The graph of a job."""
    return {"plan": documents.plan(facts)}


@router.get("/jobs/{jobid}/config")
def config(facts: Facts) -> Json:
    """The settings of a job."""
    return documents.config(facts)


@router.get("/jobs/{jobid}/status")
def status(facts: Facts) -> Json:
    """The state of a job."""
    return {"status": facts["state"]}


@router.get("/jobs/{jobid}/exceptions")
def exceptions(facts: Facts, maxExceptions: Annotated[int, Query(ge=1, le=1000)] = 20) -> Json:
    """The latest failures of a job."""
    return documents.exceptions(facts, maxExceptions)


@router.get("/jobs/{jobid}/metrics")
def metrics(facts: Facts, get: Names = None) -> list[Json]:
    """The metrics of a job; `get` chooses some."""
    return vertices.selected(vertices.job_metrics(facts), get)


@router.get("/jobs/{jobid}/log", response_class=PlainTextResponse)
def log(dispatcher: TheDispatcher, facts: Facts, size: LogSize = 1 << 20) -> PlainTextResponse:
    """The end of what the driver printed. Empty for a job that was not started by `penstock`."""
    return PlainTextResponse(tail(dispatcher.home.job(facts["job_id"]).log, size))


# ---------------------------------------------------------------- checkpoints


@router.get("/jobs/{jobid}/checkpoints")
def checkpoint_statistics(facts: Facts) -> Json:
    """The checkpoints of a job: counts, summary, the latest and the history."""
    return checkpoints.statistics(facts)


@router.get("/jobs/{jobid}/checkpoints/config")
def checkpoint_config(facts: Facts) -> Json:
    """How a job takes checkpoints."""
    return checkpoints.config(facts)


@router.post("/jobs/{jobid}/checkpoints", status_code=202)
def checkpoint(dispatcher: TheDispatcher, jobid: JobId, request: CheckpointBody | None = None) -> JSONResponse:
    """Take one now; ask for its outcome at /jobs/:jobid/checkpoints/:triggerid."""
    return pass_on(dispatcher, jobid, "POST", "/checkpoints", body=(request or CheckpointBody()).model_dump())


@router.get("/jobs/{jobid}/checkpoints/{triggerid}")
def checkpoint_status(dispatcher: TheDispatcher, facts: Facts, triggerid: str) -> JSONResponse:
    """The outcome of a checkpoint that was asked for."""
    return pass_on(dispatcher, facts["job_id"], "GET", f"/checkpoints/{_plain(triggerid)}")


@router.get("/jobs/{jobid}/checkpoints/details/{checkpointid}")
def checkpoint_details(facts: Facts, checkpointid: int) -> Json:
    """One checkpoint, vertex by vertex."""
    return checkpoints.details(facts, checkpointid) or not_found(f"checkpoint {checkpointid}")


@router.get("/jobs/{jobid}/checkpoints/details/{checkpointid}/subtasks/{vertexid}")
def checkpoint_subtasks(facts: Facts, vertex: Vertex, checkpointid: int) -> Json:
    """One checkpoint, subtask by subtask of one vertex."""
    found = checkpoints.subtasks(facts, checkpointid, vertex)
    return found or not_found(f"checkpoint {checkpointid} whose details are still kept")


# ---------------------------------------------------------------- actions


@router.patch("/jobs/{jobid}", status_code=202)
def cancel(dispatcher: TheDispatcher, jobid: JobId, mode: Literal["cancel"] = "cancel") -> JSONResponse:
    """Cancels a job."""
    return pass_on(dispatcher, jobid, "PATCH", "", {"mode": mode})


@router.post("/jobs/{jobid}/savepoints", status_code=202)
def savepoint(dispatcher: TheDispatcher, jobid: JobId, request: SavepointBody | None = None) -> JSONResponse:
    """Asks for a savepoint; the answer has the id to ask for its status."""
    return pass_on(
        dispatcher, jobid, "POST", "/savepoints", body=(request or SavepointBody()).model_dump(by_alias=True)
    )


@router.get("/jobs/{jobid}/savepoints/{triggerid}")
def savepoint_status(dispatcher: TheDispatcher, facts: Facts, triggerid: str) -> JSONResponse:
    """The outcome of a savepoint that was asked for."""
    return pass_on(dispatcher, facts["job_id"], "GET", f"/savepoints/{_plain(triggerid)}")


@router.post("/jobs/{jobid}/stop", status_code=202)
def stop(dispatcher: TheDispatcher, jobid: JobId, request: StopBody | None = None) -> JSONResponse:
    """Stop with a savepoint; ask for its outcome at /jobs/:jobid/savepoints/:triggerid."""
    return pass_on(dispatcher, jobid, "POST", "/stop", body=(request or StopBody()).model_dump())


@router.patch("/jobs/{jobid}/rescaling", status_code=202)
def rescale(
    dispatcher: TheDispatcher, jobid: JobId, parallelism: Annotated[int, Query(ge=1, le=32768)]
) -> JSONResponse:
    """Asks for another parallelism; the answer has the id to ask for its status."""
    return pass_on(dispatcher, jobid, "PATCH", "/rescaling", {"parallelism": str(parallelism)})


@router.get("/jobs/{jobid}/rescaling/{triggerid}")
def rescale_status(dispatcher: TheDispatcher, facts: Facts, triggerid: str) -> JSONResponse:
    """The outcome of a rescale that was asked for."""
    return pass_on(dispatcher, facts["job_id"], "GET", f"/rescaling/{_plain(triggerid)}")


@router.get("/jobs/{jobid}/state")
def state(dispatcher: TheDispatcher, facts: Facts, uid: str, name: str, key: str | None = None) -> JSONResponse:
    """Some entries of one state as of the newest checkpoint, or the value of one key; `key` is JSON, a list stands for a tuple."""
    query = {"uid": uid, "name": name, **({} if key is None else {"key": key})}
    return pass_on(dispatcher, facts["job_id"], "GET", "/state", query)


@router.get("/jobs/{jobid}/states")
def states(dispatcher: TheDispatcher, facts: Facts) -> JSONResponse:
    """Which states the newest checkpoint has, by operator: what can be asked for with /state."""
    return pass_on(dispatcher, facts["job_id"], "GET", "/states")


def _plain(trigger_id: str) -> str:
    """Part of a path that is asked of a driver: nothing but an id."""
    if not trigger_id.isalnum() or not trigger_id.isascii():
        not_found(f"action {trigger_id!r}")
    return trigger_id
