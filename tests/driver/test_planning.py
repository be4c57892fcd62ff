"""What an epoch reads, when it is skipped, and that it is planned alike when it is run again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from penstock.checkpoint.layout import epoch_plan
from penstock.checkpoint.ownership import StartPermit
from penstock.checkpoint.storage import Storage
from penstock.driver.admission import Admission
from penstock.driver.description import JobDescription
from penstock.driver.planning import EpochInput, EpochPlanner, SparkInput
from penstock.driver.requests import Requests, SavepointRequest
from penstock.driver.sources import JobSources
from penstock.engine.messages import EpochPlan, SourceRanges, TaskAck
from penstock.errors import FencedError, StorageError
from penstock.functions.connectors import SplitRange
from penstock.protocol.ids import TaskId, VertexId
from penstock.testing import Epoch, ListSink, ScriptedSource
from tests.checkpoint.permits import started
from tests.embedded.jobs import Pipeline, memory_storage, settings
from tests.embedded.late_storage import LateStorage

NO_SPARK = SparkInput(finished={})
QUIET = [("a", 0, 0), Epoch(), Epoch(), ("a", 0, 1), Epoch(), ("a", 0, 2)]  # nothing new in the second epoch
STARTED = 1_000_000


def job_of(script: Sequence[Any]) -> JobDescription:
    return Pipeline().source(ScriptedSource(script)).sink(ListSink("planning")).build(settings())


def planner_of(
    job: JobDescription,
    storage: Storage | None = None,
    requests: Requests | None = None,
    generation: int = 1,
) -> EpochPlanner:
    sources = JobSources(job.sources, Admission(most=None, target_ms=None))
    start = StartPermit.without_folder() if storage is None else started(storage, generation)
    planner = EpochPlanner(job, storage, sources, requests or Requests(), start=start)
    planner.restart(None)
    return planner


def run_of(epoch: int, planned: EpochInput) -> EpochPlan:
    return EpochPlan(
        epoch=epoch,
        checkpoint=False,
        processing_time=planned.processing_time,
        sources=planned.sources,
        accepted={},
        chain_lengths={},
        base_checkpoint=None,
        restorable=False,
    )


def plan(
    planner: EpochPlanner, epoch: int, now: int = STARTED, *, owed: bool = False, **how: bool
) -> EpochInput | None:
    """And log it, as the JobMaster does before an epoch runs."""
    chosen = {"alone": True, "stop": False, **how}
    planned = planner.next(epoch, now, NO_SPARK, completed=epoch - 1, owed=owed, **chosen)
    if planned is not None:
        planner.log(run_of(epoch, planned), planned)
    return planned


def test_an_epoch_without_anything_to_do_is_skipped() -> None:
    planner = planner_of(job_of(QUIET))
    first = plan(planner, 1)
    assert first is not None
    assert first.bringing == {"source"}
    assert plan(planner, 2) is None


def test_an_epoch_without_data_runs_if_it_must_or_a_checkpoint_is_owed_or_others_are_under_way() -> None:
    for how in ({"stop": True}, {"owed": True}, {"alone": False}):
        planner = planner_of(job_of(QUIET))
        plan(planner, 1)
        assert plan(planner, 2, **how) is not None, how


def test_a_timer_that_is_due_and_a_long_silence_are_reasons_to_run() -> None:
    job = job_of(QUIET)
    waiting = planner_of(job)
    first = plan(waiting, 1)
    assert first is not None
    acknowledged = TaskAck(task=TaskId(VertexId(0), 0), epoch=1, attempt="a", next_processing_timer=STARTED + 5)
    waiting.epoch_completed(run_of(1, first), [acknowledged])
    assert plan(waiting, 2, STARTED + 5) is not None
    silent = planner_of(job)
    plan(silent, 1)
    assert plan(silent, 2, STARTED + int(job.settings.quiet_interval_ms)) is not None


def test_an_epoch_that_is_run_again_reads_the_same_at_the_same_time_and_skipped_ones_stay_skipped() -> None:
    job, storage = job_of(QUIET), memory_storage()
    first = planner_of(job, storage)
    planned = [plan(first, epoch, STARTED + 10 * epoch) for epoch in (1, 2, 3)]
    assert [p is None for p in planned] == [False, True, False]
    again = planner_of(job, storage)
    assert again.replaying
    replayed = [plan(again, epoch, STARTED + 5000) for epoch in (1, 2, 3)]
    assert [p and (p.sources, p.processing_time) for p in replayed] == [
        p and (p.sources, p.processing_time) for p in planned
    ]
    assert [p and p.replayed for p in replayed] == [True, None, True]
    assert not again.replaying


def test_processing_time_does_not_go_back_with_the_clock() -> None:
    planner = planner_of(job_of(QUIET))
    plan(planner, 1, STARTED)
    back = plan(planner, 2, STARTED - 1000, stop=True)
    assert back is not None
    assert back.processing_time == STARTED


def test_a_drain_ends_all_sources_and_is_not_done_again(tmp_path: Any) -> None:
    job, storage, requests = job_of(QUIET), memory_storage(), Requests()
    planner = planner_of(job, storage, requests)
    plan(planner, 1)
    requests.savepoint(SavepointRequest(directory=str(tmp_path), stop=True, drain=True))
    drained = plan(planner, 2)
    assert drained is not None
    assert drained.finished
    assert drained.bringing == frozenset()
    after = planner_of(job, storage)
    plan(after, 1)
    assert not after.replaying, "the drain was not logged"
    assert plan(after, 2) is None


def test_a_replaced_driver_cannot_plan_an_epoch_that_its_successor_has_planned() -> None:
    storage, job = memory_storage(), job_of([("a", 0, 0), Epoch(), ("a", 0, 1)])
    replaced, successor = planner_of(job, storage, generation=1), planner_of(job, storage, generation=2)
    assert plan(replaced, 1) is not None
    assert plan(successor, 1, STARTED + 5) is not None  # it took over before that was there
    assert plan(successor, 2) is not None
    logged = storage.get(epoch_plan(2))
    with pytest.raises(FencedError, match="epoch 2 was planned by generation 2"):
        plan(replaced, 2, STARTED + 7)
    assert storage.get(epoch_plan(2)) == logged


def test_a_plan_of_a_failed_attempt_that_the_store_carries_out_late_is_not_run_again() -> None:
    """The store answers with an error; the same driver goes back and plans the epoch otherwise; then the first plan is written."""
    waiting: list[Callable[[], bool]] = []

    def fails(carry_out: Callable[[], bool]) -> None:
        waiting.append(carry_out)
        raise StorageError("simulated: timed out")

    storage = memory_storage()
    late, job = LateStorage(storage, "epochs/1.json", fails), job_of([("a", 0, 0)])
    with pytest.raises(StorageError):
        plan(planner_of(job, late), 1)
    assert plan(planner_of(job, late), 1, STARTED + 5) is not None
    waiting.pop()()
    again = plan(planner_of(job, storage), 1, STARTED + 9)
    assert again is not None
    assert again.processing_time == STARTED + 5, "the plan that was run"


def test_a_grant_tells_splits_that_must_wait_for_others_that_they_do() -> None:
    job = job_of(QUIET)
    planner = planner_of(job)
    assert set(planner.grant(STARTED, None, None)) == {"source"}
    waiting = SplitRange(split="0", ordinal=0, start=1, end=1, paused=True)
    planner._sources.plan = lambda *now, **how: (  # type: ignore[method-assign]
        {"source": SourceRanges(ranges=(waiting,), finished=False)},
        {},
    )
    assert planner.grant(STARTED, None, None)["source"].ranges == (waiting,), "else its reader takes it for idle"
