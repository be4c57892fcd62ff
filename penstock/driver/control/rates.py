"""Rates and ratios of a vertex over the last seconds, and which vertex holds the job up. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from penstock.engine.messages import EpochReport

WINDOW_MS: Final = 10_000
# Flink's limits for the colours of its page.
HIGH, LOW = 0.5, 0.1
_MOSTLY = 0.5


def recent_reports(reports: Sequence[EpochReport], now_ms: int) -> Sequence[EpochReport]:
    """Those of the last seconds; where an epoch takes longer than that, the last one, so that a job whose next epoch is long
    is not taken for one that does nothing."""
    return [r for r in reports if r.wall_ms > now_ms - WINDOW_MS] or reports[-1:]


def vertex_rates(
    recent: Sequence[EpochReport], vertex_id: int, parallelism: int, now_ms: int
) -> dict[str, list[float]]:
    """For each subtask: records a second in and out, and the part of the time it was busy, back-pressured or idle.

    The time is that of the reports, not of the epochs alone: a subtask that waits for the next epoch is idle. A runtime whose
    subtasks run all the time measures `idle_ms`, too: then the parts are of what was measured.
    """
    names = ("records_in", "records_out", "busy_ms", "back_pressured_ms", "idle_ms")
    sums = {name: [0.0] * parallelism for name in names}
    for report in recent:
        for vertex in report.vertices:
            if vertex["id"] == vertex_id and vertex["parallelism"] == parallelism:
                for name, totals in sums.items():
                    for subtask, value in enumerate(vertex["subtasks"].get(name, ())):
                        totals[subtask] += value
    span_ms = _span_ms(recent, now_ms)
    parts = zip(sums["busy_ms"], sums["back_pressured_ms"], sums["idle_ms"], strict=True)
    spans = [sum(measured) if measured[-1] > 0 else span_ms for measured in parts]
    busy = [min(1.0, value / span) for value, span in zip(sums["busy_ms"], spans, strict=True)]
    waited = zip(busy, sums["back_pressured_ms"], spans, strict=True)
    pressed = [min(1.0 - b, value / span) for b, value, span in waited]
    return {
        "records_in_per_second": [round(value * 1000 / span_ms, 3) for value in sums["records_in"]],
        "records_out_per_second": [round(value * 1000 / span_ms, 3) for value in sums["records_out"]],
        "busy": [round(value, 4) for value in busy],
        "back_pressured": [round(value, 4) for value in pressed],
        "idle": [round(1.0 - b - p, 4) for b, p in zip(busy, pressed, strict=True)],
    }


def committing(recent: Sequence[EpochReport], vertex_id: int, now_ms: int) -> float:
    """Part of the time that commits of a vertex's sinks took, in the driver: its subtasks are not busy with them."""
    spent = sum(vertex.get("commit_ms", 0.0) for r in recent for vertex in r.vertices if vertex["id"] == vertex_id)
    return round(min(1.0, float(spent) / _span_ms(recent, now_ms)), 4)


def _span_ms(recent: Sequence[EpochReport], now_ms: int) -> float:
    if not recent:
        return float(WINDOW_MS)
    began = recent[0].wall_ms - recent[0].duration_ms
    return max(1.0, now_ms - began)


def level_of(ratio: float) -> str:
    """Flink's words for a ratio."""
    return "high" if ratio > HIGH else "low" if ratio > LOW else "ok"


def bottleneck(facts: Mapping[str, Any]) -> str | None:
    """The key of the vertex that holds the job up; None unless epochs of most of the last seconds were held up by one."""
    epochs = [e for e in facts["epochs"] if e["wall_ms"] > facts["now_ms"] - WINDOW_MS] or facts["epochs"][-1:]
    if facts["state"] != "RUNNING" or not epochs:
        return None
    blamed: dict[int, float] = {}
    for epoch in epochs:
        if epoch.get("bottleneck") is not None:
            blamed[epoch["bottleneck"]] = blamed.get(epoch["bottleneck"], 0.0) + epoch["duration_ms"]
    span = max(1.0, facts["now_ms"] - (epochs[0]["wall_ms"] - epochs[0]["duration_ms"]))
    if sum(blamed.values()) < span * _MOSTLY:
        return None
    worst = max(blamed, key=lambda vertex: blamed[vertex])
    return next((str(v["key"]) for v in facts["vertices"] if v["id"] == worst), None)
