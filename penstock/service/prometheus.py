"""Metrics in Prometheus' text format. The names are documented in docs/reference/metrics.md. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from penstock.driver.control.rates import bottleneck
from penstock.driver.control.resource_manager import SlotCount
from penstock.service.documents.jobs import event_time

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_NO_WATERMARK, _ENDED = -(2**63), 2**63 - 1

# name, type, help; the order is the order of the output
METRICS: Final = (
    ("penstock_slots_offered", "gauge", "Slots all jobs may have together; absent when there is no limit."),
    ("penstock_slots_taken", "gauge", "Slots that running jobs have."),
    ("penstock_job_state", "gauge", "1 for the state the job is in."),
    ("penstock_job_start_time_seconds", "gauge", "When the job was started, seconds since 1970."),
    ("penstock_job_restarts_total", "counter", "Times the job went back to a checkpoint."),
    ("penstock_job_drivers_total", "counter", "Driver processes the job has had."),
    ("penstock_job_epochs_total", "counter", "Epochs completed."),
    ("penstock_job_records_in_total", "counter", "Records read by all sources; those of a repeated epoch again."),
    ("penstock_job_records_out_total", "counter", "Records that reached sinks."),
    ("penstock_job_late_records_dropped_total", "counter", "Records dropped as late by windows."),
    ("penstock_job_epoch_duration_seconds", "gauge", "The last epoch, from its plan to after its commit."),
    ("penstock_job_watermark_seconds", "gauge", "The event time at the job's ends, seconds since 1970."),
    ("penstock_latency_seconds", "gauge", "From a source's plan of an epoch to a sink's commit of it; label quantile."),
    ("penstock_checkpoints_completed_total", "counter", "Checkpoints and savepoints completed."),
    ("penstock_checkpoints_failed_total", "counter", "Checkpoints that were begun and not completed."),
    ("penstock_checkpoint_last_bytes", "gauge", "Snapshots written in the last checkpoint."),
    ("penstock_checkpoint_last_duration_seconds", "gauge", "The last checkpoint, end to end."),
    (
        "penstock_epoch_admitted_records",
        "gauge",
        "What each source might read in the last epoch; absent without a bound.",
    ),
    ("penstock_vertex_bottleneck", "gauge", "1 for the vertex that holds the job up, 0 for the others."),
    ("penstock_vertex_commit_seconds", "gauge", "Commits of the vertex's sinks in the last epoch."),
    ("penstock_subtask_records_in_total", "counter", "Records at the head of the chain."),
    ("penstock_subtask_records_out_total", "counter", "Records from the last operator of the chain."),
    ("penstock_subtask_busy_seconds_total", "counter", "Time spent working."),
    ("penstock_subtask_back_pressured_seconds_total", "counter", "Time spent waiting for what is downstream."),
    ("penstock_subtask_busy_ratio", "gauge", "Part of the last ten seconds spent working."),
    (
        "penstock_subtask_back_pressured_ratio",
        "gauge",
        "Part of the last ten seconds spent waiting for what is downstream.",
    ),
    ("penstock_subtask_watermark_seconds", "gauge", "Seconds since 1970; absent before the first and after the last."),
    ("penstock_subtask_state_entries", "gauge", "Entries in keyed tables and timers."),
    ("penstock_subtask_snapshot_bytes", "gauge", "The subtask's part of the last checkpoint."),
    ("penstock_subtask_alignment_seconds", "gauge", "From the barrier's first arrival to the snapshot."),
    ("penstock_user_metric", "gauge", "What user functions measure; label metric is uid.name."),
)

Sample = tuple[str, dict[str, str], float]


def exposition(jobs: Iterable[Mapping[str, Any]], slots: SlotCount | None = None) -> str:
    """All samples of all jobs, gathered by metric as the format demands."""
    gathered: dict[str, list[str]] = {name: [] for name, _, _ in METRICS}
    samples = list(_slot_samples(slots)) if slots is not None else []
    for facts in jobs:
        samples.extend(_job_samples(facts))
    for name, labels, value in samples:
        shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        gathered[name].append(f"{name}{{{shown}}} {value:.17g}" if labels else f"{name} {value:.17g}")
    lines = []
    for name, kind, text in METRICS:
        if gathered[name]:
            lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", *gathered[name]]
    return "\n".join(lines) + "\n" if lines else ""


def _slot_samples(slots: SlotCount) -> Iterator[Sample]:
    if slots.offered is not None:
        yield "penstock_slots_offered", {}, slots.offered
    yield "penstock_slots_taken", {}, slots.taken


def _job_samples(facts: Mapping[str, Any]) -> Iterator[Sample]:
    job = {"job_id": facts["job_id"], "job_name": facts["name"]}
    checkpoints, repeated = facts["checkpoints"], facts.get("repeated", {})
    # A counter never goes back: what was repeated is in it.
    totals = {name: count + repeated.get(name, 0) for name, count in facts["totals"].items()}
    yield "penstock_job_state", {**job, "state": facts["state"]}, 1
    yield "penstock_job_start_time_seconds", job, facts["start_ms"] / 1000
    yield "penstock_job_restarts_total", job, sum(step["state"] == "RESTARTING" for step in facts["transitions"])
    yield "penstock_job_drivers_total", job, facts["drivers"]
    yield "penstock_job_epochs_total", job, totals["epochs"]
    yield "penstock_job_records_in_total", job, totals["records_in"]
    yield "penstock_job_records_out_total", job, totals["records_out"]
    yield "penstock_job_late_records_dropped_total", job, totals["late_dropped"]
    if facts["epochs"]:
        yield "penstock_job_epoch_duration_seconds", job, facts["epochs"][-1]["duration_ms"] / 1000
        if (admitted := facts["epochs"][-1].get("admitted")) is not None:
            yield "penstock_epoch_admitted_records", job, admitted
    reached = event_time(facts)
    if reached is not None and reached < _ENDED:
        yield "penstock_job_watermark_seconds", job, reached / 1000
    for pair in facts.get("latency", ()):  # absent in facts of an older version
        for quantile, name in (("0.5", "p50_ms"), ("0.99", "p99_ms")):
            labels = {**job, "source": pair["source"], "sink": pair["sink"], "quantile": quantile}
            yield "penstock_latency_seconds", labels, pair[name] / 1000
    yield "penstock_checkpoints_completed_total", job, checkpoints["counts"]["completed"]
    yield "penstock_checkpoints_failed_total", job, checkpoints["counts"]["failed"]
    if checkpoints["history"]:
        yield "penstock_checkpoint_last_bytes", job, checkpoints["history"][-1]["bytes"]
        yield "penstock_checkpoint_last_duration_seconds", job, checkpoints["history"][-1]["duration_ms"] / 1000
    slow = bottleneck(facts)
    spent = {v["id"]: v.get("commit_ms", 0.0) for v in facts["epochs"][-1]["vertices"]} if facts["epochs"] else {}
    for vertex in facts["vertices"]:
        labels = {**job, "vertex": vertex["key"], "vertex_name": vertex["name"]}
        yield "penstock_vertex_bottleneck", labels, float(vertex["key"] == slow)
        if any(operator["kind"] == "sink" for operator in vertex["operators"]):
            yield "penstock_vertex_commit_seconds", labels, spent.get(vertex["id"], 0.0) / 1000
        yield from _vertex_samples(job, vertex)


# metric, column of the subtasks, divisor
_COLUMNS: Final = (
    ("penstock_subtask_records_in_total", "records_in", 1),
    ("penstock_subtask_records_out_total", "records_out", 1),
    ("penstock_subtask_busy_seconds_total", "busy_ms", 1000),
    ("penstock_subtask_back_pressured_seconds_total", "back_pressured_ms", 1000),
    ("penstock_subtask_state_entries", "state_entries", 1),
    ("penstock_subtask_snapshot_bytes", "snapshot_bytes", 1),
    ("penstock_subtask_alignment_seconds", "alignment_ms", 1000),
)


def _vertex_samples(job: dict[str, str], vertex: Mapping[str, Any]) -> Iterator[Sample]:
    columns = vertex["subtasks"]
    labels = [
        {**job, "vertex": vertex["key"], "vertex_name": vertex["name"], "subtask": str(index)}
        for index in range(vertex["parallelism"])
    ]
    for name, column, divisor in _COLUMNS:
        repeated = columns.get(column.replace("records_", "repeated_"), ()) if column.startswith("records_") else ()
        for index, value in enumerate(columns.get(column, ())):
            yield name, labels[index], (value + (repeated[index] if repeated else 0)) / divisor
    for index, label in enumerate(labels):
        yield "penstock_subtask_busy_ratio", label, vertex["rates"]["busy"][index]
        yield "penstock_subtask_back_pressured_ratio", label, vertex["rates"]["back_pressured"][index]
    for index, watermark in enumerate(columns.get("watermark", ())):
        if _NO_WATERMARK < watermark < _ENDED:
            yield "penstock_subtask_watermark_seconds", labels[index], watermark / 1000
    for index, values in enumerate(columns.get("user", ())):
        for name, value in values.items():
            if isinstance(value, int | float):
                yield "penstock_user_metric", {**labels[index], "metric": name}, value


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
