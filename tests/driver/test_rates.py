"""Rates over the last seconds, the vertex that holds a job up, and what Prometheus is told."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.driver.control.rates import bottleneck, committing, level_of, recent_reports, vertex_rates
from penstock.driver.control.resource_manager import SlotCount
from penstock.engine.messages import EpochReport
from penstock.service.prometheus import exposition


def _report(wall_ms: int, duration_ms: float, busy: list[float], pressed: list[float]) -> EpochReport:
    columns = {"records_in": [100, 300], "records_out": [0, 0], "busy_ms": busy, "back_pressured_ms": pressed}
    vertex = {"id": 1, "parallelism": 2, "subtasks": columns}
    return EpochReport(
        epoch=1, wall_ms=wall_ms, checkpoint=False, duration_ms=duration_ms, records_in=0, records_out=0, watermark=None,
        vertices=[vertex],
    )  # fmt: skip


def test_rates_are_over_the_time_of_the_reports_and_waiting_between_epochs_is_idle() -> None:
    reports = [_report(1500, 500, [100, 500], [100, 0]), _report(2000, 400, [100, 300], [100, 0])]
    rates = vertex_rates(reports, 1, 2, now_ms=3000)  # from 1000 to 3000
    assert rates["records_in_per_second"] == [100.0, 300.0]
    assert rates["busy"] == [0.1, 0.4]
    assert rates["back_pressured"] == [0.1, 0.0]
    reports[0].vertices[0]["commit_ms"] = 500.0
    assert committing(reports, 1, now_ms=3000) == 0.25
    assert committing(reports, 2, now_ms=3000) == committing([], 1, now_ms=3000) == 0.0
    assert rates["idle"] == [0.8, 0.6]
    assert vertex_rates([], 1, 2, now_ms=3000)["idle"] == [1.0, 1.0]
    assert vertex_rates(reports, 1, 3, now_ms=3000)["busy"] == [0.0, 0.0, 0.0]  # rescaled: those were other subtasks
    assert [level_of(ratio) for ratio in (0.1, 0.11, 0.51)] == ["ok", "low", "high"]


def test_a_job_whose_next_epoch_is_long_is_not_shown_as_doing_nothing() -> None:
    old, last = _report(10_000, 500, [1, 1], [0, 0]), _report(20_000, 10_000, [8000, 4000], [0, 0])
    assert recent_reports([old, last], now_ms=25_000) == [last]
    long_ago = recent_reports([old, last], now_ms=50_000)
    assert long_ago == [last]
    assert vertex_rates(long_ago, 1, 2, now_ms=50_000)["busy"] == [0.2, 0.1], "and less the longer nothing is told"
    assert recent_reports([], now_ms=50_000) == []


def test_time_that_a_runtime_measured_as_idle_is_what_the_parts_are_of() -> None:
    report = _report(1500, 500, [100, 300], [100, 0])
    report.vertices[0]["subtasks"]["idle_ms"] = [800, 100]
    rates = vertex_rates([report], 1, 2, now_ms=3000)
    assert [rates[name][0] for name in ("busy", "back_pressured", "idle")] == [0.1, 0.1, 0.8]
    assert [rates[name][1] for name in ("busy", "back_pressured", "idle")] == [0.75, 0.0, 0.25]


def _facts(state: str, blamed: list[int | None]) -> dict[str, Any]:
    epochs = [{"wall_ms": 1000 * (n + 1), "duration_ms": 1000, "bottleneck": b} for n, b in enumerate(blamed)]
    vertices = [{"id": number, "key": key} for number, key in ((0, "source"), (1, "sink"))]
    return {"state": state, "now_ms": 1000 * len(blamed), "epochs": epochs, "vertices": vertices}


@pytest.mark.parametrize(
    ("state", "blamed", "expected"),
    [("RUNNING", [1, 1, 0], "sink"), ("RUNNING", [1, None, None], None), ("FINISHED", [1, 1], None), ("RUNNING", [], None)],
)  # fmt: skip
def test_the_vertex_that_held_most_epochs_up_is_named_only_if_most_were_held_up(
    state: str, blamed: list[int | None], expected: str | None
) -> None:
    assert bottleneck(_facts(state, blamed)) == expected


def test_a_vertex_that_holds_a_long_epoch_up_is_named_until_the_next_has_ended() -> None:
    facts = _facts("RUNNING", [1])
    facts["epochs"][0]["duration_ms"] = 20_000
    assert bottleneck({**facts, "now_ms": 15_000}) == "sink"
    assert bottleneck({**facts, "now_ms": 99_000}) is None, "the time since is not that epoch's any more"


def test_names_of_users_cannot_break_the_format() -> None:
    facts = {
        "job_id": "j", "name": 'a "quoted"\nname \\', "state": "RUNNING", "start_ms": 0, "transitions": [], "drivers": 1,
        "totals": {"epochs": 0, "records_in": 2**60, "records_out": 0, "late_dropped": 0}, "epochs": [], "watermark": None,
        "checkpoints": {"counts": {"completed": 0, "failed": 0}, "history": []}, "vertices": [],
    }  # fmt: skip
    text = exposition([facts], SlotCount(offered=None, taken=3))
    assert r'job_name="a \"quoted\"\nname \\"' in text
    assert "penstock_slots_taken 3\n" in text
    assert "penstock_slots_offered" not in text
    assert all(line.startswith(("#", "penstock_")) for line in text.splitlines())
    assert exposition([]) == ""
