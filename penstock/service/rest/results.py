"""Routes about what jobs have come to, metrics over several of them, and how wide one is to be."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from penstock.service.documents import results as documents
from penstock.service.documents import vertices
from penstock.service.documents.results import AGGREGATIONS, aggregated
from penstock.service.rest.context import ERRORS, Facts, Json, Names, TheDispatcher, respond

router = APIRouter(tags=["jobs"], responses=ERRORS)


class Bounds(BaseModel):
    """The parallelism that is wanted; the upper bound counts."""

    lowerBound: Annotated[int, Field(ge=1, le=32768)] = 1
    upperBound: Annotated[int, Field(ge=1, le=32768)]


class VertexRequirements(BaseModel):
    """The bounds that are wanted of one vertex."""

    parallelism: Bounds


def aggregations(agg: Annotated[str | None, Query(max_length=100)] = None) -> list[str]:
    """The aggregations that the query asks for; 400 for one that is not known."""
    wanted = list(AGGREGATIONS) if agg is None else agg.split(",")
    unknown = [name for name in wanted if name not in AGGREGATIONS]
    if unknown:
        raise HTTPException(400, f"agg={','.join(unknown)}: choose from {', '.join(AGGREGATIONS)}")
    return wanted


@router.get("/jobs/metrics")
def metrics_of_jobs(
    dispatcher: TheDispatcher,
    get: Names = None,
    agg: Annotated[str | None, Query(max_length=100)] = None,
    jobs: Names = None,
) -> list[Json]:
    """Over all jobs, or those in `jobs`."""
    chosen = None if jobs is None else set(jobs.split(","))
    facts = [job.facts() for job in dispatcher.jobs() if chosen is None or job.job_id in chosen]
    parts = [vertices.job_metrics(known) for known in facts if known is not None]
    return aggregated(parts, get, aggregations(agg))


@router.get("/jobs/{jobid}/execution-result")
def execution_result(facts: Facts) -> Json:
    """How a job ended, or that it has not."""
    return documents.execution_result(facts)


@router.get("/jobs/{jobid}/accumulators")
def accumulators(facts: Facts) -> Json:
    """The accumulators of a job."""
    return documents.accumulators(facts)


@router.get("/jobs/{jobid}/jobmanager/config")
def driver_config(facts: Facts) -> list[Json]:
    """The configuration of the job's driver; secrets are hidden."""
    return [{"key": key, "value": value} for key, value in sorted(facts["configuration"].items())]


@router.get("/jobs/{jobid}/resource-requirements")
def resource_requirements(facts: Facts) -> Json:
    """The parallelism that each vertex has."""
    return documents.resource_requirements(facts)


@router.put("/jobs/{jobid}/resource-requirements")
def require(dispatcher: TheDispatcher, facts: Facts, wanted: dict[str, VertexRequirements]) -> JSONResponse:
    """Rescale to the upper bounds; the outcome is at /jobs/:jobid/rescaling/:triggerid."""
    try:
        parallelism = documents.wanted_parallelism(facts, {k: v.parallelism.upperBound for k, v in wanted.items()})
    except ValueError as error:
        raise HTTPException(400, str(error)) from error
    if parallelism is None:
        return JSONResponse({})
    query = {"parallelism": str(parallelism)}
    answer = dispatcher.ask(facts["job_id"], "PATCH", f"/jobs/{facts['job_id']}/rescaling", query, {})
    return JSONResponse(answer.body) if answer.status == 202 else respond(answer)
