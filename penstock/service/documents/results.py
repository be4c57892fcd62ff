"""Documents about what a job has come to, and how wide it is meant to be.

Metrics of several jobs, subtasks or processes as one number each, in Flink's shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from penstock.service.documents.jobs import times

Json: TypeAlias = dict[str, Any]

# Flink's words for how an application ended.
_APPLICATION: Final = {"FINISHED": "SUCCEEDED", "FAILED": "FAILED", "CANCELED": "CANCELED"}


def execution_result(facts: Json) -> Json:
    """Flink's document of how a job ended, or that it has not."""
    if facts["state"] not in _APPLICATION:
        return {"status": {"id": "IN_PROGRESS"}, "job-execution-result": None}
    last = facts["exceptions"][-1] if facts["state"] == "FAILED" and facts["exceptions"] else None
    return {
        "status": {"id": "COMPLETED"},
        "job-execution-result": {
            "id": facts["job_id"],
            "application-status": _APPLICATION[facts["state"]],
            "accumulator-results": {name: value["value"] for name, value in facts.get("accumulators", {}).items()},
            "net-runtime": times(facts)["duration"],
            **({} if last is None else {"failure-cause": {"class": last["name"], "stack-trace": last["stacktrace"]}}),
        },
    }


def accumulators(facts: Json) -> Json:
    """Flink's document of a job's accumulators."""
    found = [{"name": name, **value} for name, value in facts.get("accumulators", {}).items()]
    return {
        "job-accumulators": [],
        "user-task-accumulators": found,
        "serialized-user-task-accumulators": {},  # only Java's clients could read them
    }


def resource_requirements(facts: Json) -> Json:
    """What Flink's adaptive scheduler is told. A job here has the parallelism it was given, neither more nor less."""
    return {
        vertex["key"]: {"parallelism": {"lowerBound": vertex["parallelism"], "upperBound": vertex["parallelism"]}}
        for vertex in facts["vertices"]
    }


def wanted_parallelism(facts: Json, requirements: dict[str, int]) -> int | None:
    """The one parallelism that upper bounds by vertex ask for; None if they ask for what there is. ValueError if they ask for
    something that cannot be."""
    now = {vertex["key"]: vertex["parallelism"] for vertex in facts["vertices"]}
    unknown = sorted(requirements.keys() - now.keys())
    if unknown:
        raise ValueError(f"the job has no vertices {', '.join(unknown)}")
    changed = {upper for key, upper in requirements.items() if upper != now[key]}
    if len(changed) > 1:
        raise ValueError(
            f"upper bounds {sorted(changed)} differ: all vertices whose parallelism may change have the same one; give one number"
        )
    return changed.pop() if changed else None


AGGREGATIONS: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "min": min,
    "max": max,
    "avg": lambda values: sum(values) / len(values),
    "sum": sum,
}


def aggregated(parts: Iterable[Mapping[str, float]], wanted: str | None, aggregations: Sequence[str]) -> list[Json]:
    """The names there are in any part; or, of those wanted, each aggregation over the parts that have it."""
    parts = list(parts)
    if wanted is None:
        return [{"id": name} for name in sorted({name for part in parts for name in part})]
    found = []
    for name in wanted.split(","):
        values = [part[name] for part in parts if name in part]
        if values:
            found.append({"id": name} | {how: float(AGGREGATIONS[how](values)) for how in aggregations})
    return found


def by_subtask(metrics: Mapping[str, float], parallelism: int) -> list[dict[str, float]]:
    """From `0.numRecordsIn`, `1.numRecordsIn`, … to one dictionary a subtask."""
    found: list[dict[str, float]] = [{} for _ in range(parallelism)]
    for name, value in metrics.items():
        subtask, _, metric = name.partition(".")
        found[int(subtask)][metric] = value
    return found
