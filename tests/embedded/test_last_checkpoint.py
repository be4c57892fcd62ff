"""A job is FINISHED, a stop is done and a job is rescaled only when the checkpoint of the last barrier is committed.

Its snapshots are lost on the way to the store while failed checkpoints are tolerated. The splits are uneven: one ends early, one
comes late, one is long, so that a loss at the end is a loss of some and not of all.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from penstock.checkpoint import savepoint
from penstock.common.restart_strategy import RestartStrategies
from penstock.driver.description import JobDescription
from penstock.driver.requests import JobEndedError, RescaleRequest, SavepointRequest
from penstock.errors import CheckpointFailedError, JobFailedError, PenstockError
from penstock.graph.partitioner import Hash
from penstock.protocol.checkpoint_messages import HostLost
from penstock.state.backends import StateSettings
from penstock.testing import CrashPlan, EmbeddedJob, FlakyStorage, ListSink, ScriptedSource, StorageFault
from tests.embedded.jobs import (
    UNEVEN_EPOCHS,
    CountOperator,
    Pipeline,
    Verdict,
    counting_job,
    key_of,
    master_of,
    memory_storage,
    read_until,
    settings,
    uneven_script,
)

EPOCHS = UNEVEN_EPOCHS
SCRIPT = uneven_script()


@pytest.fixture
def sink(request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"last-{request.node.name}"
    ListSink.clear(name)
    yield name
    ListSink.clear(name)


def job_of(sink: str, *, tolerated: int = 1, script: list[Any] = SCRIPT, **more: Any) -> JobDescription:
    """Every snapshot is a file of its own, so that each can be lost."""
    few = RestartStrategies.fixed_delay_restart(3, 10)
    job = replace(settings(restart=few, inline_threshold=0), tolerable_checkpoint_failures=tolerated, **more)
    return counting_job(script, sink, job=job)


def lost_at(*checkpoints: int) -> list[StorageFault]:
    """The first snapshot of each of these checkpoints does not get to the store."""
    return [StorageFault(operation="put_new", call=1, path_contains=f"chk-{n}/") for n in checkpoints]


def exact(sink: str, script: list[Any] = SCRIPT) -> None:
    verdict = Verdict(script, ListSink.results(sink))
    assert verdict.exact, f"{verdict} of {sum(isinstance(item, tuple) for item in script)}"


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("lost", [(EPOCHS,), (EPOCHS - 1, EPOCHS), (EPOCHS, EPOCHS + 1)])
def test_a_bounded_job_whose_last_checkpoint_is_declined_does_not_end_without_its_output(
    lost: tuple[int, ...], backend: Literal["hashmap", "rocksdb"], sink: str
) -> None:
    storage = FlakyStorage(memory_storage(), lost_at(*lost))
    job = job_of(sink, tolerated=len(lost), state=StateSettings(backend=backend))
    runtime = EmbeddedJob(job, master_of(job, storage))
    runtime.run()
    assert len(storage.fired) == len(lost)
    exact(sink)
    assert runtime.failures == 0, "it was tolerated: the checkpoint is tried again, the job does not go back"
    newest = runtime.master.restored
    assert newest is not None
    assert newest.finished, "who starts it again finds that it has ended"


def test_if_the_last_checkpoint_cannot_be_stored_the_job_fails(sink: str) -> None:
    storage = FlakyStorage(memory_storage(), [f for n in range(EPOCHS, 40) for f in lost_at(n)])
    job = job_of(sink, tolerated=2)
    job = replace(job, settings=replace(job.settings, restart=RestartStrategies.no_restart()))
    runtime = EmbeddedJob(job, master_of(job, storage))
    with pytest.raises(JobFailedError, match=r"tolerable-failed-checkpoints is 2"):
        runtime.run()
    assert len(storage.fired) == 3
    assert not runtime.master.finished


def test_a_last_checkpoint_lost_with_its_slot_is_not_the_end(sink: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No fault of the store, so it does not count; it is declined all the same."""
    job = job_of(sink, tolerated=0)
    runtime = EmbeddedJob(job, master_of(job, memory_storage()), schedule="random", seed=3)
    uploads, made = runtime.master.uploads, runtime._uploads
    told: list[int] = []

    def lost_with_the_last() -> Any:
        stepped = made()
        store_all = uploads.finish

        def finish() -> None:
            if not told:
                told.append(runtime.master.epoch)
                uploads.inbox.put(HostLost(process="embedded"))
            store_all()

        uploads.finish = finish
        return stepped

    monkeypatch.setattr(runtime, "_uploads", lost_with_the_last)
    runtime.run()
    (last,) = told
    read = {report.epoch: report.records_in for report in runtime.master.reports}
    assert read[last], "all was read by then"
    assert not any(brought for epoch, brought in read.items() if epoch > last), "all was read by then"
    assert runtime.master.epoch > last, "the last barrier was sent again"
    exact(sink)


def ask(runtime: EmbeddedJob, after: int, action: Any) -> None:
    """Once, when epoch `after` has ended: it is served with the next."""
    asked: list[int] = []

    def on_report(report: Any) -> None:
        if report.epoch == after and not asked:
            asked.append(after)
            action()

    runtime.master.on_report = on_report


@pytest.mark.parametrize("lost", [(4,), (3, 4)])
def test_a_stop_whose_checkpoint_is_declined_is_not_done_and_the_job_goes_on(
    lost: tuple[int, ...], sink: str, tmp_path: Path
) -> None:
    storage = FlakyStorage(memory_storage(), lost_at(*lost))
    job = job_of(sink, tolerated=2)
    runtime = EmbeddedJob(job, master_of(job, storage))
    request = SavepointRequest(directory=str(tmp_path), stop=True)
    ask(runtime, 3, lambda: runtime.master.requests.savepoint(request))
    runtime.run()
    assert len(storage.fired) == len(lost)
    with pytest.raises(CheckpointFailedError, match="checkpoint 4 was declined"):
        request.answer.result(0)
    assert not list(tmp_path.iterdir()), "a savepoint of output that nobody has committed is none"
    exact(sink)


@pytest.mark.parametrize("crash", [None, "before-savepoint", "after-savepoint", "before-manifest", "after-manifest"])
@pytest.mark.parametrize("drain", [False, True])
def test_stopped_after_a_declined_checkpoint_and_resumed_from_the_savepoint_nothing_is_lost(
    drain: bool, crash: Any, sink: str, tmp_path: Path
) -> None:
    """Asked for again until it is there; then the job goes on elsewhere from it, or, without one, in its folder."""
    storage = FlakyStorage(memory_storage(), lost_at(3, 4))
    job = job_of(sink, tolerated=2)
    crashes = CrashPlan([] if crash is None else [(crash, 2 if crash.endswith("manifest") else 1)])
    runtime = EmbeddedJob(job, master_of(job, storage), crashes=crashes)
    made: list[str] = []

    def stop() -> None:
        def again(answer: Any) -> None:
            if answer.exception() is None:
                made.append(answer.result())
            elif not isinstance(answer.exception(), JobEndedError):
                stop()

        request = SavepointRequest(directory=str(tmp_path), stop=True, drain=drain)
        request.answer.add_done_callback(again)
        runtime.master.requests.savepoint(request)

    ask(runtime, 3, stop)
    runtime.run()
    assert len(storage.fired) == 2
    assert len(crashes.fired) == (crash is not None)
    for path in made:
        if drain:
            assert savepoint.load(path).finished
        resumed = replace(job, settings=replace(job.settings, recovery_path=path))
        EmbeddedJob(resumed, master_of(resumed, memory_storage())).run()
    assert made or crash
    newest = runtime.master.restored
    assert newest is not None
    # Drained is ended, also if the driver died before it could say where the savepoint is.
    exact(sink, read_until(SCRIPT, newest) if drain else SCRIPT)


def test_a_drain_whose_checkpoint_is_declined_takes_the_job_back(sink: str, tmp_path: Path) -> None:
    """Its sources did not really end: it cannot go on from there, and must not end there."""
    storage = FlakyStorage(memory_storage(), lost_at(4))
    job = job_of(sink)
    runtime = EmbeddedJob(job, master_of(job, storage))
    request = SavepointRequest(directory=str(tmp_path), stop=True, drain=True)
    ask(runtime, 3, lambda: runtime.master.requests.savepoint(request))
    runtime.run()
    assert len(storage.fired) == 1
    assert runtime.failures == 1
    assert request.answer.exception(0) is not None
    assert not list(tmp_path.iterdir())
    exact(sink)


class ClosesBadly(CountOperator):
    """The first of all to be closed raises."""

    closed: ClassVar[list[int]] = []

    def close(self) -> None:
        self.closed.append(1)
        if len(self.closed) == 1:
            raise RuntimeError("cannot be closed")


def test_a_stop_is_not_reported_when_the_job_goes_on_after_all(sink: str, tmp_path: Path) -> None:
    """The savepoint is whole and then a close() fails: the job goes back and on. Who resumed from the savepoint as well would
    have everything twice."""
    ClosesBadly.closed.clear()
    job = job_of(sink)
    pipeline = (
        Pipeline().source(ScriptedSource(SCRIPT), 2).operator(ClosesBadly(), 2, Hash(key_of)).sink(ListSink(sink))
    )
    runtime = EmbeddedJob(built := pipeline.build(job.settings), master_of(built, memory_storage()))
    first, second = (SavepointRequest(directory=str(tmp_path), stop=True) for _ in range(2))
    ask(runtime, 3, lambda: runtime.master.requests.savepoint(first))
    first.answer.add_done_callback(lambda _: runtime.master.requests.savepoint(second))
    runtime.run()
    assert runtime.failures == 1
    with pytest.raises(PenstockError, match=r"the job did not stop: .* is whole"):
        first.answer.result(0)
    resumed = replace(built, settings=replace(built.settings, recovery_path=second.answer.result(0)))
    EmbeddedJob(resumed, master_of(resumed, memory_storage())).run()
    exact(sink)


def test_a_rescaling_whose_checkpoint_is_declined_does_not_come_about(sink: str) -> None:
    storage = FlakyStorage(memory_storage(), lost_at(4))
    job = replace(job_of(sink), graph=counting_job(SCRIPT, sink, parallelism=(2, 2, 2, 2)).graph)
    runtime = EmbeddedJob(job, master_of(job, storage))
    request = RescaleRequest(parallelism=3)
    ask(runtime, 3, lambda: runtime.master.requests.rescale(request))
    runtime.run()
    assert len(storage.fired) == 1
    with pytest.raises(CheckpointFailedError, match="checkpoint 4 was declined"):
        request.answer.result(0)
    exact(sink)


@pytest.mark.parametrize("seed", range(12))
def test_random_losses_stops_and_barriers_in_flight_lose_nothing(seed: int, sink: str, tmp_path: Path) -> None:
    """Several checkpoints under way, some snapshots lost, stopped and resumed twice: what a run leaves, the next goes on with."""
    rng = random.Random(seed)
    script = uneven_script(seed)
    job = job_of(sink, tolerated=3, script=script, max_concurrent_checkpoints=rng.randint(1, 3))
    fired, path = 0, None
    for _ in range(3):
        calls = rng.sample(range(1, 60), 4)
        faults = [StorageFault(operation="put_new", call=call, path_contains=".state") for call in calls]
        storage = FlakyStorage(memory_storage(), faults)
        resumed = replace(job, settings=replace(job.settings, recovery_path=path))
        runtime = EmbeddedJob(
            resumed, master_of(resumed, storage), schedule="random", seed=rng.randrange(2**16), max_in_flight=3
        )
        request = SavepointRequest(directory=str(tmp_path), stop=True)
        ask(runtime, rng.randint(1, EPOCHS), functools.partial(runtime.master.requests.savepoint, request))
        runtime.run()
        fired += len(storage.fired)
        if not request.answer.done() or request.answer.exception() is not None:
            break  # it ran to its end
        path = request.answer.result()
    else:
        last = replace(job, settings=replace(job.settings, recovery_path=path))
        EmbeddedJob(last, master_of(last, memory_storage())).run()
    assert fired
    exact(sink, script)
