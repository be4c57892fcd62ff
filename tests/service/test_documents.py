"""Documents of REST from facts that a driver may write."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.protocol.events import MAX_WATERMARK, MIN_WATERMARK
from penstock.service.documents import checkpoints, jobs, vertices
from penstock.service.documents.jobs import event_time
from penstock.service.program import UserProgram
from penstock.service.submission import Submission, facts_without_a_job

_NONE = MIN_WATERMARK


@pytest.mark.parametrize(
    ("source", "window", "archive", "expected"),
    [
        ([_NONE, _NONE], [50, 40], [_NONE], 40),  # watermarks are made behind the source; the archive has none
        ([70, _NONE], [50, 50], [60], 50),  # a subtask of the source is idle
        ([70, 70], [_NONE, _NONE], [_NONE], None),  # not there yet
        ([MAX_WATERMARK] * 2, [MAX_WATERMARK] * 2, [MAX_WATERMARK], MAX_WATERMARK),
    ],
)
def test_event_time_is_what_has_come_to_the_ends_of_the_job(
    source: list[int], window: list[int], archive: list[int], expected: int | None
) -> None:
    def vertex(number: int, marks: list[int], *inputs: int) -> dict[str, Any]:
        return {"id": number, "inputs": [{"vertex": i} for i in inputs], "subtasks": {"watermark": marks}}

    vertices = [vertex(1, source), vertex(2, window, 1), vertex(3, archive, 1)]
    assert event_time({"vertices": vertices}) == expected
    assert event_time({"vertices": [{"id": 1, "inputs": [], "subtasks": {}}]}) is None


def test_a_source_that_holds_event_time_back_is_named_until_event_time_goes_on() -> None:
    source = {**_vertex(watermark=[70, MIN_WATERMARK]), "id": 1}
    window = {**_vertex(watermark=[MIN_WATERMARK] * 2), "id": 2, "inputs": [{"vertex": 1}]}
    facts = {**_job(source), "vertices": [source, window]}
    assert jobs.held_back(facts) == [{"id": "a" * 32, "name": "count", "subtasks": [1], "of": 2}]
    named = {**source, "operators": [{"uid": "clicks"}]}
    for key, held in (("splits-clicks", 0), ("splits-others", 1)):  # a notice says more of it
        assert len(jobs.held_back({**facts, "vertices": [named, window], "notices": [{"key": key}]})) == held
    window["subtasks"]["watermark"] = [60, 60]  # the subtask is idle, and not waited for
    assert jobs.held_back(facts) == []
    source["subtasks"]["watermark"] = window["subtasks"]["watermark"] = [MIN_WATERMARK] * 2  # a job without event time
    assert jobs.held_back(facts) == []


def _vertex(**columns: list[Any]) -> dict[str, Any]:
    return {
        "id": 1, "key": "a" * 32, "name": "count", "level": 0, "parallelism": 2, "inputs": [],
        "operators": [{"uid": "clicks", "name": "the clicks", "kind": "source", "stateful": False}],
        "subtasks": {
            "records_in": [90, 10], "records_out": [0, 0], "busy_ms": [500.0, 100.0], "back_pressured_ms": [0.0, 0.0], **columns,
        },
        "rates": {
            "records_in_per_second": [9.0, 1.0], "records_out_per_second": [0.0, 0.0], "busy": [0.5, 0.1],
            "back_pressured": [0.25, 0.0], "idle": [0.25, 0.9],
        },
    }  # fmt: skip


def _job(vertex: dict[str, Any], **more: Any) -> dict[str, Any]:
    submission = Submission(job_id="b" * 32, program=UserProgram(entry="/job.py"), submitted_ms=1_000)
    return {**facts_without_a_job(submission, "RUNNING", None, 2_000), "vertices": [vertex], **more}


def test_a_list_of_jobs_says_how_each_is_run_once_that_is_chosen() -> None:
    facts = _job(_vertex())
    assert jobs.overview({**facts, "runtime": "auto"})["execution-mode"] is None
    assert jobs.overview({**facts, "runtime": "auto", "execution_mode": "pipelined"})["execution-mode"] == "pipelined"
    assert jobs.overview({**facts, "runtime": "spark"})["execution-mode"] == "epochs", "facts of earlier versions"


def test_a_vertex_tells_how_evenly_its_work_is_spread() -> None:
    facts = _job(_vertex(state_entries=[4, 2]))
    told = vertices.details(facts, facts["vertices"][0])["aggregated"]["metrics"]
    read = {"min": 10, "max": 90, "avg": 50.0, "sum": 100, "median": 50.0, "p25": 10, "p75": 90, "p95": 90}
    assert told["read-records"] == read
    assert (told["busy"]["min"], told["busy"]["median"], told["busy"]["max"]) == (0.1, 0.3, 0.5)
    assert told["state-entries"]["sum"] == 6
    assert jobs.vertex_summary(facts, facts["vertices"][0])["skew"] == 0.8  # both are 4 of 5 away from the mean
    assert jobs.skew([5, 5]) == jobs.skew([0, 0]) == jobs.skew([]) == 0.0


def test_the_time_of_a_subtask_is_told_as_flink_does() -> None:
    facts = _job(_vertex())
    told = vertices.back_pressure(facts, facts["vertices"][0], None)["subtasks"]
    assert [(t["busyRatio"], t["ratio"], t["idleRatio"]) for t in told] == [(0.5, 0.25, 0.25), (0.1, 0.0, 0.9)]


def test_latency_to_a_vertex_is_told_where_the_runtime_measures_it() -> None:
    quick, slow = ({"count": 10, "p50": p, "p95": 2 * p, "p99": 3 * p, "max": 4 * p} for p in (5, 7))
    facts = _job(
        _vertex(
            latency=[{"clicks": quick}, {"clicks": slow}],
            operator_latency=[{"clean": {"clicks": quick}}, {"clean": {"clicks": slow}}],
        )
    )
    [vertex] = jobs.details(facts, None)["vertices"]
    assert vertex["latency"] == [
        {"source": "clicks", "source-name": "the clicks", "count": 20, "p50": 7, "p95": 14, "p99": 21, "max": 28}
    ]
    assert vertices.subtask(facts, facts["vertices"][0], 0)["latency"][0]["p99"] == 15
    metric = "latency.source_id.clicks.operator_id.clean.operator_subtask_index.1.latency_p95"
    assert vertices.job_metrics(facts)[metric] == 14
    without = _job(_vertex())
    assert jobs.details(without, None)["vertices"][0]["latency"] == []
    assert vertices.subtask(without, without["vertices"][0], 0)["latency"] == []


def test_sinks_of_one_name_are_told_apart_in_the_latency_of_a_job() -> None:
    operators = [("in", "clicks"), ("out", "Print"), ("late", "Print"), ("files", "Files")]
    facts = _job({**_vertex(), "operators": [{"uid": uid, "name": name} for uid, name in operators]})
    facts["latency"] = [{"source": "in", "sink": uid} for uid in ("out", "late", "files")]
    told = [(pair["source-name"], pair["sink-name"]) for pair in jobs.latency(facts)]
    assert told == [("clicks", "Print (out)"), ("clicks", "Print (late)"), ("clicks", "Files")]


def test_a_job_tells_how_it_runs_and_why() -> None:
    told = jobs.details(_job(_vertex(), execution_mode="pipelined", execution_mode_reason="no iteration"), None)
    assert (told["execution-mode"], told["execution-mode-reason"]) == ("pipelined", "no iteration")
    older = jobs.details(_job(_vertex(), runtime="spark"), None)
    assert (older["execution-mode"], older["execution-mode-reason"]) == ("epochs", None)


def _checkpoint(**columns: list[Any]) -> dict[str, Any]:
    always = {"snapshot_bytes": [100, 300], "snapshot_ms": [4.0, 6.0], "alignment_ms": [1.0, 3.0]}
    return {
        "id": 7, "status": "COMPLETED", "is_savepoint": False, "trigger_ms": 1000, "ack_ms": 1100, "duration_ms": 100, "bytes": 400,
        "manifest_ms": 0.0, "commit_ms": 0.0, "path": None, "subtasks": 2, "vertices": {"1": {**always, **columns}},
    }  # fmt: skip


def _with(checkpoint: dict[str, Any]) -> dict[str, Any]:
    counts = {"completed": 1, "failed": 0, "restored": 0}
    return _job(_vertex(), checkpoints={"counts": counts, "history": [checkpoint], "restored": None})


def test_a_subtask_tells_how_a_checkpoint_went_in_flinks_shape() -> None:
    facts = _with(
        _checkpoint(
            start_delay_ms=[50.0, 20.0], alignment_buffered_bytes=[0, 4096], sync_ms=[1.0, 2.0], async_ms=[3.0, 4.0]
        )
    )
    told = checkpoints.subtasks(facts, 7, facts["vertices"][0])
    assert told is not None
    assert told["subtasks"][1] == {
        "index": 1, "status": "completed", "ack_timestamp": 1100, "end_to_end_duration": 29.0, "checkpointed_size": 300,
        "state_size": 300, "checkpoint": {"sync": 2.0, "async": 4.0}, "start_delay": 20.0, "unaligned_checkpoint": False,
        "aborted": False,
        "alignment": {"buffered": 4096, "processed": 0, "persisted": 0, "duration": 3.0},
    }  # fmt: skip
    summary = told["summary"]
    assert (summary["start_delay"]["max"], summary["alignment"]["buffered"]["max"]) == (50.0, 4096.0)
    assert (summary["checkpoint_duration"]["sync"]["avg"], summary["alignment"]["duration"]["min"]) == (1.5, 1.0)
    assert (told["alignment_buffered"], told["end_to_end_duration"]) == (4096, 55.0)
    statistics = checkpoints.statistics(facts)
    assert statistics["history"][0]["alignment_buffered"] == 4096
    assert statistics["summary"]["alignment_buffered"]["max"] == 4096


def test_what_a_runtime_does_not_measure_in_a_checkpoint_is_zero() -> None:
    facts = _with(_checkpoint())
    told = checkpoints.subtasks(facts, 7, facts["vertices"][0])
    assert told is not None
    first = told["subtasks"][0]
    assert (first["start_delay"], first["checkpoint"], first["alignment"]["buffered"]) == (
        0,
        {"sync": 0, "async": 4.0},
        0,
    )
    assert first["end_to_end_duration"] == 5.0
