"""Failures inside a running job: the restart strategy is asked, the job goes back to its last checkpoint, the result is exact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from penstock.checkpoint.storage import LocalStorage, Storage
from penstock.checkpoint.store import CheckpointStore
from penstock.common.restart_strategy import RestartStrategies
from penstock.connectors.base import Committer
from penstock.driver.description import JobDescription
from penstock.engine.messages import EpochReport
from penstock.errors import CorruptSnapshotError, FencedError, JobFailedError, StorageError, UserFunctionError
from penstock.graph.partitioner import Hash
from penstock.operators.base import Operator
from penstock.records import Block
from penstock.testing import CrashPlan, EmbeddedJob, FlakyStorage, ListSink, ManualClock, ScriptedSource, StorageFault
from tests.embedded.jobs import (
    CountOperator,
    Pipeline,
    Verdict,
    counting_job,
    key_of,
    master_of,
    memory_storage,
    numbered_script,
    settings,
    values_of,
)

SCRIPT = numbered_script(splits=2, per_split=20, epochs=8)
TOTAL = len(values_of(SCRIPT))
THREE_TIMES = RestartStrategies.fixed_delay_restart(3, 500)

calls: Counter[str] = Counter()  # of this process: a restarted job does not start it again


class FailingMap:
    """Raises at its n-th records, counted over all attempts and subtasks."""

    def __init__(self, *at: int) -> None:
        self.at = at

    def map(self, value: Any) -> Any:
        calls["map"] += 1
        if calls["map"] in self.at:
            raise ValueError(f"call {calls['map']}")
        return value


class FailingSnapshots(Operator):
    """Passes everything on, and raises in its n-th snapshots."""

    def __init__(self, *at: int) -> None:
        super().__init__()
        self.at = at

    def process(self, input: int, block: Block) -> None:
        self.ctx.output.block(block)

    def snapshot_state(self) -> None:
        calls["snapshot"] += 1
        if calls["snapshot"] in self.at:
            raise ValueError(f"snapshot {calls['snapshot']}")


@pytest.fixture(autouse=True)
def _fresh_calls() -> None:
    calls.clear()


@pytest.fixture
def sink(request: pytest.FixtureRequest) -> Iterator[str]:
    name = request.node.name
    ListSink.clear(name)
    yield name
    ListSink.clear(name)


def failing_job(sink: str, *at: int, restart: Any = THREE_TIMES, checkpoints: bool = True) -> JobDescription:
    return (
        Pipeline()
        .source(ScriptedSource(SCRIPT), 2)
        .map(FailingMap(*at), 2, by=Hash(key_of))
        .operator(CountOperator(), 3)
        .sink(ListSink(sink), 2)
        .build(settings(restart=restart, checkpoint_interval_ms=0 if checkpoints else None))
    )


@pytest.mark.parametrize("part", [1, 2, 3])
@pytest.mark.parametrize("schedule", ["ordered", "random"])
def test_a_function_that_throws_at_some_quarter_of_the_run_changes_nothing(part: int, schedule: Any, sink: str) -> None:
    job = failing_job(sink, TOTAL * part // 4)
    runtime = EmbeddedJob(job, master_of(job, memory_storage()), schedule=schedule, seed=part, max_in_flight=2)
    states: list[str] = []
    runtime.on_state = states.append
    runtime.run()
    assert (runtime.failures, runtime.delayed_ms, states) == (1, 500, ["RESTARTING", "RUNNING"])
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_the_restart_delay_passes_on_the_manual_clock(sink: str) -> None:
    job = failing_job(sink, 5)
    master = master_of(job, memory_storage())
    assert isinstance(master.clock, ManualClock)
    before = master.clock()
    EmbeddedJob(job, master).run()
    epochs = 8 + 1  # the first one ran twice
    assert master.clock() == before + 500 + epochs * job.settings.epoch_interval_ms


def test_fixed_delay_gives_up_after_its_attempts(sink: str) -> None:
    job = failing_job(sink, *range(10, 100))
    runtime = EmbeddedJob(job, master_of(job, memory_storage()))
    with pytest.raises(
        JobFailedError, match=r"(?s)call 13.*failed in epoch 2 .*no further attempt after 4 failure"
    ) as failure:
        runtime.run()
    assert isinstance(failure.value.__cause__, UserFunctionError)
    assert runtime.failures == 4


def test_a_failure_rate_allows_failures_that_are_far_apart(sink: str) -> None:
    rate = RestartStrategies.failure_rate_restart(1, 1000, 10)
    job = failing_job(sink, 4, TOTAL, restart=rate)
    runtime = EmbeddedJob(job, master_of(job, memory_storage()))
    runtime.run()
    assert runtime.failures == 2
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_a_failure_rate_refuses_failures_that_are_close_together(sink: str) -> None:
    rate = RestartStrategies.failure_rate_restart(1, 1000, 10)
    job = failing_job(sink, 4, 6, restart=rate)
    with pytest.raises(JobFailedError, match="after 2 failure"):
        EmbeddedJob(job, master_of(job, memory_storage())).run()


def test_exponential_delays_grow(sink: str) -> None:
    exponential = RestartStrategies.exponential_delay_restart(100, 1000, 2.0, 60_000, 0.0)
    job = failing_job(sink, 3, 4, 5, restart=exponential)
    runtime = EmbeddedJob(job, master_of(job, memory_storage()))
    runtime.run()
    assert runtime.delayed_ms == 100 + 200 + 400
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_without_checkpointing_the_first_failure_is_the_last(sink: str) -> None:
    job = failing_job(sink, 3, restart=RestartStrategies.fall_back_restart(), checkpoints=False)
    with pytest.raises(JobFailedError, match="after 1 failure"):
        EmbeddedJob(job, master_of(job, None)).run()


def test_in_simulated_time_a_strategy_that_never_gives_up_does_not_hang(sink: str) -> None:
    job = failing_job(sink, *range(1, 10_000), restart=RestartStrategies.exponential_delay_restart(1, 2, 1.1, 3, 0.0))
    with pytest.raises(JobFailedError, match="after 100 failure"):
        EmbeddedJob(job, master_of(job, memory_storage())).run()


def complete_checkpoints(storage: Storage) -> list[int]:
    """Those that can be seen; each must be whole."""
    store = CheckpointStore(storage, 1)
    found = store.completed()
    for checkpoint in found:
        store.verify(store.load(checkpoint))
    return [int(checkpoint) for checkpoint in found]


@pytest.mark.parametrize("schedule", ["ordered", "random"])
def test_a_failure_inside_a_snapshot_leaves_the_previous_checkpoint_the_newest(schedule: Any, sink: str) -> None:
    job = (
        Pipeline()
        .source(ScriptedSource(SCRIPT), 2)
        .operator(CountOperator(), 2)
        .operator(FailingSnapshots(4, 9), 2)
        .sink(ListSink(sink))
        .build(replace(settings(restart=THREE_TIMES, inline_threshold=0), asynchronous=False))
    )
    storage = memory_storage()
    runtime = EmbeddedJob(job, master_of(job, storage), schedule=schedule, seed=1)
    visible: list[list[int]] = []
    runtime.on_state = lambda state: visible.append(complete_checkpoints(storage)) if state == "RESTARTING" else None
    runtime.run()
    # Two subtasks: the 4th snapshot is in epoch 2, the 9th (two epochs later, one of them twice) in epoch 4.
    assert visible == [[1], [3]]
    assert runtime.failures == 2
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


STORAGE_FAULTS = {
    "state file not written": StorageFault(operation="put_new", call=22, path_contains=".state"),
    "state file written, answer lost": StorageFault(
        operation="put_new", call=22, path_contains=".state", kind="answer-lost"
    ),
    "manifest not written": StorageFault(operation="put_new", call=3, path_contains="manifest"),
    "manifest written, answer lost": StorageFault(
        operation="put_new", call=3, path_contains="manifest", kind="answer-lost"
    ),
    "plan not logged": StorageFault(operation="put_new", call=3, path_contains="epochs/"),
    "plan logged, answer lost": StorageFault(operation="put_new", call=3, path_contains="epochs/", kind="answer-lost"),
    "old files not deleted": StorageFault(operation="delete", call=2),
    "listing fails": StorageFault(operation="list", call=20),
}


# A stream logs no plans.
FAULTS_BY_SCHEDULE = [
    pytest.param(fault, schedule, id=f"{schedule}-{name}")
    for schedule in ("ordered", "random")
    for name, fault in STORAGE_FAULTS.items()
    if schedule == "ordered" or fault.path_contains != "epochs/"
]


@pytest.mark.parametrize(("fault", "schedule"), FAULTS_BY_SCHEDULE)
def test_failing_storage_never_shows_a_partial_checkpoint(fault: StorageFault, schedule: Any, sink: str) -> None:
    inner = memory_storage()
    storage = FlakyStorage(inner, [fault])
    # At once, so that the n-th call comes at the same place in each schedule.
    stored_at_once = replace(settings(restart=THREE_TIMES, inline_threshold=0), asynchronous=False)
    job = counting_job(SCRIPT, sink, job=stored_at_once)
    runtime = EmbeddedJob(job, master_of(job, storage), schedule=schedule, seed=3, max_in_flight=2)
    visible: list[list[int]] = []
    runtime.on_state = lambda state: visible.append(complete_checkpoints(inner))
    runtime.run()
    assert storage.fired == [fault]
    assert runtime.failures == 1
    assert all(visible)
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_slow_storage_only_takes_time(sink: str) -> None:
    job = counting_job(SCRIPT, sink)
    clock = ManualClock()
    slow = StorageFault(operation="put_new", call=3, path_contains="manifest", kind="slow")
    storage = FlakyStorage(memory_storage(), [slow], on_slow=lambda: clock.advance(60_000))
    master = master_of(job, storage)
    master.clock = clock
    runtime = EmbeddedJob(job, master)
    runtime.run()
    assert storage.fired == [slow]
    assert runtime.failures == 0
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_a_failure_during_restore_and_again_converges(sink: str) -> None:
    restore_fails = [StorageFault(operation="get", call=n, path_contains=".state") for n in (1, 3)]
    storage = FlakyStorage(memory_storage(), restore_fails)
    job = (
        Pipeline()
        .source(ScriptedSource(SCRIPT), 2)
        .map(FailingMap(TOTAL // 2), 2, by=Hash(key_of))
        .operator(CountOperator(), 3)
        .sink(ListSink(sink), 2)
        .build(settings(restart=THREE_TIMES, inline_threshold=0))
    )
    runtime = EmbeddedJob(job, master_of(job, storage))
    runtime.run()
    assert storage.fired == restore_fails
    assert runtime.failures == 3
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_a_failure_while_the_driver_itself_recovers_counts_as_one_more(sink: str) -> None:
    fault = StorageFault(operation="get", call=1, path_contains="manifest")
    storage = FlakyStorage(memory_storage(), [fault])
    job = failing_job(sink, TOTAL // 2)
    runtime = EmbeddedJob(job, master_of(job, storage))
    runtime.run()
    assert storage.fired == [fault]
    assert runtime.failures >= 1
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_crashes_during_restore_one_after_the_other_converge(sink: str) -> None:
    job = counting_job(SCRIPT, sink)
    crashes = CrashPlan([("process", 50), ("during-restore", 1), ("during-restore", 4), ("during-restore", 6)])
    runtime = EmbeddedJob(job, master_of(job, memory_storage()), crashes=crashes)
    runtime.run()
    assert len(crashes.fired) == runtime.crashes == 4
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_a_job_on_local_storage_survives_a_crash_and_a_failure(sink: str, tmp_path: Any) -> None:
    job = failing_job(sink, TOTAL // 2)
    crashes = CrashPlan([("before-manifest", 2)])
    runtime = EmbeddedJob(job, master_of(job, LocalStorage(tmp_path)), crashes=crashes)
    runtime.run()
    assert (runtime.crashes, runtime.failures) == (1, 1)
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_a_fenced_job_stops_and_asks_no_strategy(sink: str) -> None:
    storage = memory_storage()
    job = counting_job(SCRIPT, sink, job=settings(restart=THREE_TIMES))
    runtime = EmbeddedJob(job, master_of(job, storage))
    runtime.master.on_report = lambda report: master_of(job, storage).start() if report.epoch == 2 else None
    with pytest.raises(FencedError):
        runtime.run()
    assert runtime.failures == 0
    assert ListSink.commits(sink) == [1, 2, 2], "the newcomer commits again what it finds; the old one nothing more"


def test_a_replaced_driver_that_misses_a_checkpoint_says_that_it_was_replaced(sink: str) -> None:
    """Its successor has subsumed the checkpoint that it would go back to."""
    storage = memory_storage()
    job = counting_job(SCRIPT, sink, job=settings(restart=THREE_TIMES))
    runtime = EmbeddedJob(job, master_of(job, storage))

    def replaced(report: EpochReport) -> None:
        if report.epoch == 2:
            master_of(job, storage).start()
            raise CorruptSnapshotError("checkpoints/chk-2/manifest.json: there is no such checkpoint")

    runtime.master.on_report = replaced
    with pytest.raises(FencedError, match="was replaced by 2") as caught:
        runtime.run()
    assert "there is no such checkpoint" in str(caught.value.__cause__)


def test_a_driver_that_is_replaced_while_it_looks_for_a_checkpoint_says_that_it_was_replaced(sink: str) -> None:
    """What it has found is gone when it reads it."""
    storage = memory_storage()
    job = counting_job(SCRIPT, sink, job=settings(restart=THREE_TIMES))
    first = EmbeddedJob(job, master_of(job, storage))
    first.master.on_report = lambda report: first.cancel() if report.epoch == 2 else None
    first.run()

    class Replaced(FlakyStorage):
        def list(self, prefix: str) -> list[str]:
            found = super().list(prefix)
            if prefix == "checkpoints" and not newcomer.master.finished:
                newcomer.run()
            return found

    newcomer = EmbeddedJob(job, master_of(job, storage))
    with pytest.raises(FencedError, match="was replaced by 3") as caught:
        EmbeddedJob(job, master_of(job, Replaced(storage, ()))).run()
    assert newcomer.master.finished
    assert "there is no such checkpoint" in str(caught.value.__cause__)


def test_a_cancelled_job_stops_between_two_epochs_and_can_be_resumed(sink: str) -> None:
    storage = memory_storage()
    job = counting_job(SCRIPT, sink)
    first = EmbeddedJob(job, master_of(job, storage))
    first.master.on_report = lambda report: first.cancel() if report.epoch == 3 else None
    first.run()
    assert not first.master.finished
    assert ListSink.commits(sink) == [1, 2, 3]
    EmbeddedJob(job, master_of(job, storage)).run()
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_statistics_that_cannot_be_read_are_no_reason_not_to_start(sink: str) -> None:
    storage = memory_storage()
    job = counting_job(SCRIPT, sink)
    EmbeddedJob(job, master_of(job, storage)).run()
    flaky = FlakyStorage(storage, [StorageFault(operation="get", call=1, path_contains="statistics")])
    EmbeddedJob(job, master_of(job, flaky)).run()
    assert len(flaky.fired) == 1
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_a_lost_answer_is_an_error_that_says_so() -> None:
    storage = FlakyStorage(memory_storage(), [StorageFault(operation="put", call=1, kind="answer-lost")])
    with pytest.raises(StorageError, match="put of a was carried out, but its answer was lost"):
        storage.put("a", b"x")
    assert storage.get("a") == b"x"


class AwaySink(ListSink):
    """Its committer cannot reach the outside world the first `calls["away"]` times."""

    def create_committer(self, sink_id: str) -> Committer:
        return _AwayCommitter(super().create_committer(sink_id))


class _AwayCommitter(Committer):
    def __init__(self, inner: Committer) -> None:
        self._inner = inner

    def commit(self, epoch: int, committables: Any) -> None:
        if calls["away"]:
            calls["away"] -= 1
            raise ConnectionError("the sink is away")
        self._inner.commit(epoch, committables)


def test_a_sink_that_is_away_when_the_job_is_started_again_is_a_question_for_the_restart_strategy() -> None:
    storage = memory_storage()
    ListSink.clear("away")

    def job(attempts: int) -> EmbeddedJob:
        strategy = RestartStrategies.fixed_delay_restart(attempts, 10)
        pipeline = Pipeline().source(ScriptedSource(SCRIPT)).sink(AwaySink("away"))
        described = pipeline.build(settings(restart=strategy))
        return EmbeddedJob(described, master_of(described, storage))

    calls["away"] = 2  # in the epoch itself and when that is recovered from
    with pytest.raises(JobFailedError, match="the sink is away"):
        job(1).run()
    calls["away"] = 2
    again = job(2)
    again.run()
    assert again.failures == 2
    assert sorted(ListSink.results("away")) == sorted(values_of(SCRIPT))
