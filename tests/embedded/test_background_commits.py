"""Committers that commit beside the next epoch: what overlaps, what waits for it, and that all stays exactly once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from penstock.common.restart_strategy import RestartStrategies
from penstock.connectors.base import Committer
from penstock.driver.description import JobDescription
from penstock.driver.requests import SavepointRequest
from penstock.engine.settings import JobSettings
from penstock.errors import FencedError, JobFailedError
from penstock.graph.partitioner import Hash
from penstock.runtime.embedded.crash import POINTS, CrashPoint
from penstock.testing import CrashPlan, EmbeddedJob, ListSink, ScriptedSource
from tests.embedded.jobs import (
    CountOperator,
    Pipeline,
    Verdict,
    key_of,
    master_of,
    memory_storage,
    numbered_script,
    settings,
)

EPOCHS = 6
SCRIPT = numbered_script(splits=2, per_split=24, epochs=EPOCHS)
RETRY = RestartStrategies.fixed_delay_restart(3, 0)
DIES = [point for point in POINTS if "upload" not in point and point != "during-restore"]
_before_commit: list[Callable[[int], None]] = []
_log: list[str] = []
_NAME = "beside"


class BesideSink(ListSink):
    def create_committer(self, sink_id: str) -> Committer:
        return _Beside(super().create_committer(sink_id))


class _Beside(Committer):
    commits_beside_next_epoch = True

    def __init__(self, inner: Committer) -> None:
        self._inner = inner

    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        for hook in list(_before_commit):
            hook(epoch)
        self._inner.commit(epoch, committables)
        _log.append(f"committed {epoch}")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    ListSink.clear(_NAME)
    _before_commit.clear()
    _log.clear()


def job(given: JobSettings | None = None) -> JobDescription:
    return (
        Pipeline()
        .source(ScriptedSource(SCRIPT), 2)
        .operator(CountOperator(), 2, Hash(key_of))
        .sink(BesideSink(_NAME), 2)
        .build(given or settings())
    )


def runtime(given: JobSettings | None = None, **options: Any) -> EmbeddedJob:
    description = job(given)
    return EmbeddedJob(description, master_of(description, memory_storage()), **options)


def noting(runtime: EmbeddedJob) -> None:
    """The driver's points in the log, beside the commits."""
    runtime.master.reach = lambda point, epoch: _log.append(f"{point} {epoch}")


def verdict() -> Verdict:
    return Verdict(SCRIPT, ListSink.results(_NAME))


def test_an_epoch_runs_while_the_one_before_it_is_being_committed() -> None:
    begun = threading.Event()

    def until_the_next_epoch_runs(epoch: int) -> None:
        if epoch == 1:
            assert begun.wait(60), "epoch 2 was not begun while epoch 1 was being committed"

    _before_commit.append(until_the_next_epoch_runs)
    run = runtime()
    run.master.reach = lambda point, epoch: begun.set() if (point, epoch) == ("before-run", 2) else None
    run.run()
    assert begun.is_set()
    assert verdict().exact, verdict()


def test_no_manifest_is_written_before_the_commit_before_it_is_over() -> None:
    run = runtime()
    noting(run)
    run.run()
    for epoch in range(1, EPOCHS):
        assert _log.index(f"committed {epoch}") < _log.index(f"before-manifest {epoch + 1}")
    assert _log.index(f"committed {EPOCHS}") < _log.index(f"before-spark-log {EPOCHS}"), "the last one is waited for"


def test_the_time_of_a_commit_is_in_the_report_of_the_epoch_that_waited_for_it() -> None:
    held = threading.Event()

    def take_a_while(epoch: int) -> None:
        if epoch == 2:
            held.wait(0.5)

    _before_commit.append(take_a_while)
    run = runtime()
    run.run()
    reports = {report.epoch: report.commit_ms for report in run.master.reports}
    assert reports[3] >= 450 > reports[2]
    (pair,) = run.master.reports[-1].latency
    assert pair["epochs"] == EPOCHS, "and its latency is measured like that of any other"


@pytest.mark.parametrize("point", DIES)
def test_a_process_that_dies_anywhere_leaves_every_record_exactly_once(point: CrashPoint) -> None:
    crashes = CrashPlan([(point, 2), (point, 4)])
    runtime(settings(restart=RETRY), crashes=crashes).run()
    assert crashes.fired == [(point, 2), (point, 4)]
    assert verdict().exact, verdict()


def test_a_commit_that_fails_takes_the_job_back_to_the_checkpoint_that_promises_it() -> None:
    failed: list[int] = []

    def fail_once(epoch: int) -> None:
        if epoch == 3 and not failed:
            failed.append(epoch)
            raise OSError("the other system is away")

    _before_commit.append(fail_once)
    run = runtime(settings(restart=RETRY))
    run.run()
    assert failed == [3]
    assert run.master.job_attempt == 1
    assert verdict().exact, verdict()
    assert ListSink.commits(_NAME) == list(range(1, EPOCHS + 1))


def test_a_commit_that_fails_without_a_restart_strategy_fails_the_job() -> None:
    def fail(epoch: int) -> None:
        raise OSError("the other system is away")

    _before_commit.append(fail)
    with pytest.raises(JobFailedError, match="is away"):
        runtime().run()


def test_an_attempt_that_was_fenced_does_not_commit_again_whatever_else_failed_meanwhile() -> None:
    attempts: list[int] = []
    fenced = threading.Event()

    def refuse(epoch: int) -> None:
        attempts.append(epoch)
        fenced.set()
        raise FencedError("a newer attempt has taken over")

    _before_commit.append(refuse)
    run = runtime(settings(restart=RETRY))

    def fail(point: str, epoch: int) -> None:
        if (point, epoch) == ("before-run", 2):
            assert fenced.wait(60)
            raise OSError("something else failed first")

    run.master.reach = fail
    with pytest.raises(FencedError):
        run.run()
    assert attempts == [1]


def test_a_commit_that_hangs_is_an_error_and_not_a_wait_without_end() -> None:
    free = threading.Event()

    def hang(epoch: int) -> None:
        free.wait(10)

    _before_commit.append(hang)
    try:
        with pytest.raises(JobFailedError, match="commit of epoch 1 did not end within"):
            runtime(replace(settings(), epoch_timeout_ms=50)).run()
    finally:
        free.set()


def test_a_savepoint_finds_all_output_before_it_visible() -> None:
    run = runtime()
    noting(run)
    asked: list[Any] = []

    def ask(report: Any) -> None:
        if report.epoch == 3 and not asked:
            asked.append(SavepointRequest(directory=None))
            run.master.requests.savepoint(asked[0])

    run.master.on_report = ask
    run.run()
    assert asked[0].answer.result(0)
    assert _log.index("committed 4") < _log.index("before-savepoint 4")
    assert verdict().exact, verdict()
