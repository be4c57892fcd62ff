"""Routes about a job's vertices."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query
from fastapi.responses import JSONResponse

from penstock.driver.control.rates import bottleneck
from penstock.service.documents import vertices as documents
from penstock.service.documents.results import aggregated, by_subtask
from penstock.service.rest.context import ERRORS, Facts, Json, Names, TheDispatcher, Vertex, not_found, pass_on
from penstock.service.rest.results import aggregations

router = APIRouter(prefix="/jobs/{jobid}/vertices/{vertexid}", tags=["vertices"], responses=ERRORS)


def known_subtask(vertex: Vertex, subtaskindex: int) -> int:
    """The subtask in the path; 404 if the vertex has none."""
    if not 0 <= subtaskindex < vertex["parallelism"]:
        not_found(f"subtask {subtaskindex} of {vertex['parallelism']}")
    return subtaskindex


Subtask = Annotated[int, Depends(known_subtask)]


@router.get("")
def vertex(facts: Facts, vertex: Vertex) -> Json:
    """A vertex and its subtasks."""
    return documents.details(facts, vertex)


@router.get("/backpressure")
def back_pressure(facts: Facts, vertex: Vertex) -> Json:
    """The back pressure of a vertex, with the vertex that causes it."""
    return documents.back_pressure(facts, vertex, bottleneck(facts))


@router.get("/flamegraph")
def flame_graph(
    dispatcher: TheDispatcher,
    facts: Facts,
    vertex: Vertex,
    type: Literal["full", "on_cpu", "off_cpu"] = "full",
    subtaskindex: Annotated[int | None, Query(ge=0)] = None,
) -> JSONResponse:
    """Where the vertex spends its time, sampled for five seconds while this is asked for; `root` is null until then."""
    if subtaskindex is not None and subtaskindex >= vertex["parallelism"]:
        not_found(f"subtask {subtaskindex} of {vertex['parallelism']}")
    query = {"type": type, **({} if subtaskindex is None else {"subtaskindex": str(subtaskindex)})}
    return pass_on(dispatcher, facts["job_id"], "GET", f"/vertices/{vertex['id']}/flamegraph", query)


@router.get("/watermarks")
def watermarks(vertex: Vertex) -> list[Json]:
    """The watermarks of the subtasks."""
    return documents.watermarks(vertex)


@router.get("/subtasks")
def subtasks(facts: Facts, vertex: Vertex) -> Json:
    """A vertex and its subtasks."""
    return documents.details(facts, vertex)


@router.get("/subtasktimes")
def subtask_times(facts: Facts, vertex: Vertex) -> Json:
    """When the subtasks entered which state."""
    return documents.subtask_times(facts, vertex)


@router.get("/subtasks/metrics")
def subtask_metrics(
    vertex: Vertex,
    get: Names = None,
    agg: Annotated[str | None, Query(max_length=100)] = None,
    subtasks: Annotated[
        str | None, Query(max_length=1000, pattern=r"^\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*$")
    ] = None,
) -> list[Json]:
    """Over all subtasks, or those in `subtasks`: `0,2,5-7`."""
    parts = by_subtask(documents.metrics(vertex), vertex["parallelism"])
    if subtasks is not None:
        chosen = _ranges(subtasks)
        parts = [part for index, part in enumerate(parts) if any(first <= index <= last for first, last in chosen)]
    return aggregated(parts, get, aggregations(agg))


def _ranges(text: str) -> list[tuple[int, int]]:
    ends = [part.partition("-") for part in text.split(",")]
    return [(int(first), int(last or first)) for first, _, last in ends]


@router.get("/taskmanagers")
def task_managers(facts: Facts, vertex: Vertex) -> Json:
    """The subtasks by slot process."""
    return documents.by_task_manager(facts, vertex)


@router.get("/subtasks/{subtaskindex}")
def subtask(facts: Facts, vertex: Vertex, subtaskindex: Subtask) -> Json:
    """One subtask."""
    return documents.subtask(facts, vertex, subtaskindex)


@router.get("/subtasks/{subtaskindex}/attempts/{attempt}")
def attempt(facts: Facts, vertex: Vertex, subtaskindex: Subtask, attempt: int) -> Json:
    """Of the current one, which is number 0: a job that goes back to a checkpoint does so as a whole."""
    if attempt != 0:
        not_found(f"attempt {attempt} of a subtask: only 0 is known")
    return subtask(facts, vertex, subtaskindex)


@router.get("/subtasks/{subtaskindex}/metrics")
def metrics_of_subtask(vertex: Vertex, subtaskindex: Subtask, get: Names = None) -> list[Json]:
    """The metrics of one subtask; `get` chooses some."""
    return documents.selected(by_subtask(documents.metrics(vertex), vertex["parallelism"])[subtaskindex], get)


@router.get("/metrics")
def metrics(vertex: Vertex, get: Names = None) -> list[Json]:
    """The metrics of a vertex, subtask by subtask; `get` chooses some."""
    return documents.selected(documents.metrics(vertex), get)


@router.get("/accumulators")
def accumulators(vertex: Vertex) -> Json:
    """The accumulators of a vertex."""
    return documents.accumulators(vertex)
