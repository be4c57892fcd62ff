"""Metrics of several jobs, subtasks or processes as one number each, in Flink's shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

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
