"""What all routes share: the dispatcher, and how to say that something is not there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NoReturn

from fastapi import Depends, HTTPException, Path, Query, Request
from fastapi.responses import JSONResponse

from penstock.driver.control.answers import Answer
from penstock.service.dispatcher import Dispatcher
from penstock.service.documents import vertices

Json = dict[str, Any]

# Documented once, for every route: what is wrong with a request is said in Flink's shape.
_ERROR = {"content": {"application/json": {"schema": {"type": "object", "properties": {"errors": {"type": "array"}}}}}}
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The request makes no sense.", **_ERROR},
    401: {"description": "The token is missing or wrong.", **_ERROR},
    404: {"description": "There is no such thing.", **_ERROR},
    409: {"description": "The job is in no state for this.", **_ERROR},
    413: {"description": "The request is too large.", **_ERROR},
}


def the_dispatcher(request: Request) -> Dispatcher:
    """The dispatcher that this server serves."""
    dispatcher: Dispatcher = request.app.state.dispatcher
    return dispatcher


TheDispatcher = Annotated[Dispatcher, Depends(the_dispatcher)]
JobId = Annotated[str, Path(description="32 hexadecimal digits")]
VertexKey = Annotated[str, Path(description="32 hexadecimal digits; see the job's vertices")]


def not_found(what: str) -> NoReturn:
    """Answers 404."""
    raise HTTPException(404, f"there is no {what}")


def job_facts(dispatcher: TheDispatcher, jobid: JobId) -> Json:
    """The facts of the job in the path; 404 if there is none."""
    known = dispatcher.job(jobid)
    facts = None if known is None else known.facts()
    if facts is None:
        not_found(f"job {jobid}")
    return facts


Facts = Annotated[Json, Depends(job_facts)]


def job_vertex(facts: Facts, vertexid: VertexKey) -> Json:
    """The vertex in the path; 404 if the job has none."""
    vertex = vertices.find(facts, vertexid)
    if vertex is None:
        not_found(f"vertex {vertexid} in job {facts['job_id']}")
    return vertex


Vertex = Annotated[Json, Depends(job_vertex)]


def respond(answer: Answer) -> JSONResponse:
    """The answer as a response."""
    return JSONResponse(answer.body, status_code=answer.status)


def pass_on(
    dispatcher: Dispatcher,
    job_id: str,
    method: str,
    path: str,
    query: Mapping[str, str] | None = None,
    body: Mapping[str, Any] | None = None,
) -> JSONResponse:
    """The answer of the job's driver, or of who speaks for it, to a request below /jobs/:jobid."""
    return respond(dispatcher.ask(job_id, method, f"/jobs/{job_id}{path}", query or {}, body or {}))


Names = Annotated[str | None, Query(max_length=4096)]
LogSize = Annotated[int, Query(ge=1, le=16 << 20)]
