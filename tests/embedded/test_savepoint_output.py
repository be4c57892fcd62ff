"""A savepoint is reported when the output up to its epoch is committed, not earlier and not with more.

So it does not matter when the job dies: whoever resumes from it finds that output there, and makes what comes after it.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint import savepoint
from penstock.driver.description import JobDescription
from penstock.driver.job_master import JobMaster
from penstock.driver.requests import SavepointRequest
from penstock.errors import CheckpointFailedError, JobFailedError
from penstock.testing import EmbeddedJob, FlakyStorage, ListSink, StorageFault
from tests.embedded.jobs import (
    Verdict,
    counting_job,
    master_of,
    memory_storage,
    read_until,
    settings,
    uneven_script,
)

SCRIPT = uneven_script()


@pytest.fixture
def sink(request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"saved-{request.node.name}"
    ListSink.clear(name)
    yield name
    ListSink.clear(name)


def job_of(sink: str, script: list[Any] = SCRIPT, **more: Any) -> JobDescription:
    return counting_job(script, sink, job=replace(settings(inline_threshold=0), epoch_interval_ms=1, **more))


def resume(job: JobDescription, path: str) -> None:
    job = replace(job, settings=replace(job.settings, recovery_path=path))
    EmbeddedJob(job, master_of(job, memory_storage())).run()


class Died(RuntimeError):
    """The job dies of this, and nobody starts it again."""


class SlowStore:
    """Of one checkpoint the first snapshot is stored only when it is let go."""

    def __init__(self, checkpoint: int) -> None:
        self.fault = StorageFault(operation="put_new", call=1, kind="slow", path_contains=f"chk-{checkpoint}/")
        self.folder = memory_storage()
        self.storage = FlakyStorage(self.folder, [self.fault], on_slow=self._slow)
        self._blocked, self._released = threading.Event(), threading.Event()

    def _slow(self) -> None:
        self._blocked.set()
        assert self._released.wait(30), "nobody let the store go"

    def let_go(self) -> None:
        assert self._blocked.wait(30)
        self._released.set()


def savepoint_of_a_slow_checkpoint(sink: str, directory: Path, at_epoch_5: Any) -> tuple[SlowStore, SavepointRequest]:
    """In real time: threads store snapshots, and the store does not answer for that of the savepoint, 3."""
    slow, job = SlowStore(3), job_of(sink)
    master = JobMaster(job, slow.storage)
    request = SavepointRequest(directory=str(directory))

    def on_report(report: Any) -> None:
        if report.epoch == 2:
            master.requests.savepoint(request)
        if report.epoch == 5:
            at_epoch_5(slow, request)

    master.on_report = on_report
    try:
        EmbeddedJob(job, master).run()
    except JobFailedError as error:
        if not isinstance(error.__cause__, Died):
            raise
        slow.let_go()
    assert slow.storage.fired == [slow.fault]
    return slow, request


def test_a_savepoint_while_uploads_are_slow_and_then_the_job_dies(sink: str, tmp_path: Path) -> None:
    def die(slow: SlowStore, request: SavepointRequest) -> None:
        raise Died("between the savepoint and its output")

    slow, request = savepoint_of_a_slow_checkpoint(sink, tmp_path, die)
    job = job_of(sink)
    if request.answer.exception(0) is None:
        resume(job, request.answer.result())
    else:
        assert not list(tmp_path.iterdir()), "whole or absent"
        EmbeddedJob(job, master_of(job, slow.folder)).run()
    verdict = Verdict(SCRIPT, ListSink.results(sink))
    assert verdict.exact, verdict


def test_a_savepoint_is_reported_with_its_output_while_later_epochs_run(sink: str, tmp_path: Path) -> None:
    early: list[bool] = []
    visible: list[Verdict] = []

    def store(slow: SlowStore, request: SavepointRequest) -> None:
        early.append(request.answer.done())
        request.answer.add_done_callback(lambda answer: visible.append(Verdict(_saved(answer), ListSink.results(sink))))
        slow.let_go()

    savepoint_of_a_slow_checkpoint(sink, tmp_path, store)
    assert early == [False], "two epochs later its output was not committed"
    assert [verdict.exact for verdict in visible] == [True], visible
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def _saved(answer: Future[str]) -> list[Any]:
    return read_until(SCRIPT, savepoint.load(answer.result()))


def test_a_savepoint_whose_checkpoint_is_declined_fails_and_the_job_goes_on(sink: str, tmp_path: Path) -> None:
    """The next checkpoint commits its output together with that of another epoch, which the savepoint would make again."""
    fault = StorageFault(operation="put_new", call=1, path_contains="chk-3/")
    storage = FlakyStorage(memory_storage(), [fault])
    job = job_of(sink, tolerable_checkpoint_failures=1)
    runtime = EmbeddedJob(job, master_of(job, storage))
    request = SavepointRequest(directory=str(tmp_path))

    def on_report(report: Any) -> None:
        if report.epoch == 2:
            runtime.master.requests.savepoint(request)

    runtime.master.on_report = on_report
    runtime.run()
    assert storage.fired == [fault]
    with pytest.raises(CheckpointFailedError, match="checkpoint 3 was declined"):
        request.answer.result(0)
    assert not list(tmp_path.iterdir())
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_whenever_a_savepoint_is_reported_exactly_its_output_is_committed(sink: str, tmp_path: Path) -> None:
    seen: Counter[str] = Counter()
    for seed in range(8):
        ListSink.clear(sink)
        _random_savepoints(seed, sink, tmp_path, seen)
    assert min(seen["resumed"], seen["late"], seen["lost"], seen["refused"]) >= 2, seen


def _random_savepoints(seed: int, sink: str, directory: Path, seen: Counter[str]) -> None:
    """Snapshots stored in any order, any number of epochs later, some never; savepoints in between; the job dies at random."""
    rng = random.Random(seed)
    script = uneven_script(seed)
    faults = [StorageFault(operation="put_new", call=rng.randint(1, 60), path_contains=".state") for _ in range(2)]
    job = job_of(sink, script, tolerable_checkpoint_failures=10, max_concurrent_checkpoints=rng.randint(1, 3))
    folder = memory_storage()
    storage = FlakyStorage(folder, faults)
    runtime = EmbeddedJob(job, master_of(job, storage), schedule="random", seed=seed, max_in_flight=rng.randint(1, 3))
    asked, dies = rng.randint(1, 3), rng.randint(3, 4)
    made: list[str] = []

    def overtaken(path: str) -> bool:
        return not Verdict(read_until(script, savepoint.load(path)), ListSink.results(sink)).exact

    def answered(answer: Future[str]) -> None:
        if answer.exception() is not None:
            seen["refused"] += 1
            return
        made.append(answer.result())
        seen["late"] += runtime.master.epoch > savepoint.load(made[-1]).epoch
        seen["wrong"] += overtaken(made[-1])

    def on_report(report: Any) -> None:
        if report.epoch >= asked:
            request = SavepointRequest(directory=str(directory))
            request.answer.add_done_callback(answered)
            runtime.master.requests.savepoint(request)
        if report.epoch == dies:
            raise Died("somewhere")

    runtime.master.on_report = on_report
    with pytest.raises(JobFailedError, match="somewhere"):
        runtime.run()
    seen["lost"] += len(storage.fired)
    assert not seen["wrong"], seed
    if made and not overtaken(made[-1]):  # nothing was committed after it
        resume(job, made[-1])
        seen["resumed"] += 1
    else:
        EmbeddedJob(job, master_of(job, folder)).run()
    verdict = Verdict(script, ListSink.results(sink))
    assert verdict.exact, f"seed {seed}: {verdict}"
