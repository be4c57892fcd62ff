"""Records of epochs that are repeated are counted once, whoever repeats them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration, RestartStrategies
from penstock.common.options import ControlOptions
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.control.facts import FactsRecorder
from penstock.driver.control.home import JobHome
from penstock.driver.life_cycle import LifeCycle
from penstock.engine.messages import EpochReport
from penstock.service.prometheus import exposition
from tests.driver.test_life_cycle import facts_of


def _report(facts: FactsRecorder, epoch: int, records: int, *, checkpoint: bool = False) -> None:
    vertex = facts.snapshot()["vertices"][0]["id"]
    columns: dict[str, list[Any]] = {
        name: [records] for name in ("records_in", "records_out", "snapshot_bytes", "snapshot_ms", "alignment_ms")
    }
    columns |= {"busy_ms": [10.0], "back_pressured_ms": [0.0]}
    summed = {"records_in": records, "records_out": records, "busy_ms": 10.0, "back_pressured_ms": 0.0}
    about = {"id": vertex, "parallelism": 1, "late_dropped": 1, "commit_ms": 0.0, "watermark": 0, "operators": {}}
    facts.on_report(
        EpochReport(
            epoch=epoch, wall_ms=10, checkpoint=checkpoint, duration_ms=1.0, records_in=records, records_out=records,
            watermark=None, vertices=[{**about, **summed, "subtasks": columns}],
        )
    )  # fmt: skip


def _counted(facts: FactsRecorder) -> tuple[Any, ...]:
    told = facts.snapshot()
    totals, subtasks = told["totals"], told["vertices"][0]["subtasks"]
    assert subtasks["records_out"] == subtasks["records_in"]
    return totals["epochs"], totals["records_in"], totals["late_dropped"], subtasks["records_in"], subtasks["busy_ms"]


def test_a_job_that_goes_back_to_a_checkpoint_counts_the_repeated_epochs_once() -> None:
    facts = facts_of(LifeCycle(0))
    _report(facts, 1, 100, checkpoint=True)
    _report(facts, 2, 20)
    _report(facts, 3, 3)
    assert _counted(facts) == (3, 123, 3, [123], [30.0])
    _report(facts, 2, 20)  # back to checkpoint 1
    assert _counted(facts) == (2, 120, 2, [120], [40.0]), "work that was done twice took its time twice"
    told = exposition([facts.snapshot()])
    assert re.search(r"penstock_job_records_in_total\{.*\} 143\n", told), "a counter of Prometheus never goes back"
    assert re.search(r"penstock_subtask_records_in_total\{.*\} 143\n", told)
    _report(facts, 3, 3, checkpoint=True)
    _report(facts, 4, 4000)
    assert _counted(facts)[:2] == (4, 4123)


def test_a_job_without_a_checkpoint_begins_to_count_anew() -> None:
    facts = facts_of(LifeCycle(0))
    _report(facts, 1, 100)
    _report(facts, 1, 100)
    assert _counted(facts) == (1, 100, 1, [100], [20.0])


def test_a_checkpoint_that_did_not_become_complete_is_not_counted_from() -> None:
    facts = facts_of(LifeCycle(0))
    _report(facts, 1, 100, checkpoint=True)
    _report(facts, 2, 20, checkpoint=True)  # whose files were never stored
    _report(facts, 2, 20)
    assert _counted(facts)[:2] == (2, 120)


def test_the_next_driver_counts_on_from_the_checkpoint_also_if_the_one_between_ran_no_epoch() -> None:
    first, second, third = (facts_of(LifeCycle(0)) for _ in range(3))
    _report(first, 1, 100, checkpoint=True)
    _report(first, 2, 20)
    second.continue_from(first.snapshot())
    assert _counted(second)[:2] == (2, 120)
    third.continue_from(second.snapshot())
    _report(third, 2, 20)
    assert _counted(third)[:2] == (2, 120)


def test_facts_of_an_earlier_version_are_counted_on_from() -> None:
    first, second = facts_of(LifeCycle(0)), facts_of(LifeCycle(0))
    _report(first, 1, 100, checkpoint=True)
    old = first.snapshot()
    del old["counted"]
    second.continue_from(old)
    _report(second, 2, 20)
    assert _counted(second)[:2] == (2, 120)


def test_a_job_that_failed_once_tells_as_many_records_as_its_source_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_RUNTIME", "embedded")
    failed = tmp_path / "failed"

    def once(n: int) -> int:
        if n == 450 and not failed.exists():
            failed.touch()
            raise ValueError("once")
        return n

    configuration = Configuration().set_string(ControlOptions.HOME.key, str(tmp_path / "home"))
    configuration.set_string("penstock.epoch.max-records", "100")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 1))
    env.enable_checkpointing(3_600_000)  # no checkpoint before the failure: all epochs are repeated
    env.from_sequence(1, 1000).map(once).print()
    env.execute("once")
    [folder] = JobHome(tmp_path / "home").all()
    facts = folder.facts()
    assert failed.exists()
    assert facts is not None
    assert [step["state"] for step in facts["transitions"]].count("RESTARTING") == 1
    assert facts["totals"]["records_in"] == facts["totals"]["records_out"] == 1000
