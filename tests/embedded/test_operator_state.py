"""Operator state and checkpoint listeners in whole jobs: exactly once wherever it crashes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.common import RestartStrategies, WatermarkStrategy
from penstock.connectors.collection import CollectionSource
from penstock.datastream import (
    CheckpointedFunction,
    CheckpointListener,
    FlatMapFunction,
    MapFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.functions import FunctionInitializationContext, FunctionSnapshotContext
from penstock.datastream.state import ListStateDescriptor
from penstock.errors import JobDefinitionError
from penstock.testing import BarrierMode, CrashPlan, CrashPoint, EmbeddedJob, Epoch, ListSink, ScriptedSource, Split
from penstock.testing.crash import POINTS
from tests.embedded.jobs import configured, master_of, memory_storage, settings

_names = itertools.count()
SCRIPT = [
    item
    for epoch in range(5)
    for item in ([Epoch()] if epoch else [])
    + [Split("x"), *range(epoch * 8, epoch * 8 + 4), Split("y"), *range(epoch * 8 + 4, epoch * 8 + 8)]
]


class InThrees(FlatMapFunction, CheckpointedFunction):
    """Passes records on three at a time; what waits is in an attribute, and in the state at the end of each epoch."""

    def open(self, runtime_context: Any) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("waiting"))
        self.waiting = list(self.state.get())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update(self.waiting)

    def flat_map(self, value: int) -> Iterator[Any]:
        self.waiting.append(value)
        if len(self.waiting) == 3:
            yield self.subtask, tuple(self.waiting)
            self.waiting.clear()


def run(
    function: Any,
    *,
    crashes: CrashPlan | None = None,
    mode: BarrierMode = BarrierMode.EXACTLY_ONCE,
    seed: int = 0,
    parallelism: int = 2,
    schedule: Any = "random",
    script: list[Any] = SCRIPT,
    **options: Any,
) -> tuple[list[Any], EmbeddedJob]:
    name = f"operator-state-{next(_names)}"
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism).set_max_parallelism(8)
    source = env.from_source(ScriptedSource(script), WatermarkStrategy.no_watermarks(), "source")
    apply = source.flat_map if isinstance(function, FlatMapFunction) else source.map
    apply(function).uid("function").start_new_chain().sink_to(ListSink(name))
    job = replace(env._describe("operator state"), job_id="job", settings=settings(**options))
    runtime = EmbeddedJob(
        job,
        master_of(job, memory_storage() if job.settings.checkpoint_interval_ms is not None else None),
        schedule=schedule,
        seed=seed,
        mode=mode,
        max_in_flight=2,
        crashes=crashes,
    )
    runtime.run()
    results = ListSink.results(name)
    ListSink.clear(name)
    return results, runtime


@pytest.mark.parametrize("mode", [BarrierMode.EXACTLY_ONCE, BarrierMode.UNALIGNED], ids=lambda mode: mode.value)
def test_what_a_function_keeps_is_exact_wherever_the_job_crashes(mode: BarrierMode) -> None:
    undisturbed, _ = run(InThrees(), schedule="ordered")
    assert len(undisturbed) == 12  # 40 records in two subtasks, of which each keeps two
    points: list[CrashPoint] = [point for point in POINTS if point != "during-restore"]
    fired = 0
    for seed, (point, occurrence) in enumerate(itertools.product(points, (1, 2, 3))):
        crashes = CrashPlan([(point, occurrence), ("during-restore", 3)])
        results, runtime = run(InThrees(), crashes=crashes, mode=mode, seed=seed)
        assert sorted(results) == sorted(undisturbed), f"{point} {occurrence}"
        fired += runtime.crashes
    assert fired > 40


class Neighbours(MapFunction, CheckpointedFunction):
    """What each subtask finds in a union list when it starts."""

    def open(self, runtime_context: Any) -> None:
        self.union.update([runtime_context.get_index_of_this_subtask()])

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.union = context.get_operator_state_store().get_union_list_state(ListStateDescriptor("subtasks"))
        self.found = (context.get_restored_checkpoint_id(), tuple(self.union.get()))

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        pass

    def map(self, value: Any) -> Any:
        return value, self.found


def test_a_union_list_gives_every_subtask_everything_also_at_the_same_parallelism() -> None:
    results, runtime = run(Neighbours(), crashes=CrashPlan([("before-run", 3)]), schedule="ordered", parallelism=3)
    assert runtime.crashes == 1
    assert {found for value, found in results if value < 16} == {(None, ())}
    assert {found for value, found in results if value >= 16} == {(2, (0, 1, 2))}


def resumable(
    folder: Path, parallelism: int, values: list[int], cuts: list[int], function: Any
) -> StreamExecutionEnvironment:
    config = configured(folder / "job", {"restart-strategy.type": "none"})
    env = StreamExecutionEnvironment.get_execution_environment(config)
    source = env.from_source(CollectionSource(values, epochs=cuts), WatermarkStrategy.no_watermarks(), "source")
    source.uid("source").rebalance().flat_map(function).uid("threes").set_parallelism(parallelism).sink_to(
        ListSink(str(folder))
    ).uid("sink").set_parallelism(1)
    return env


class Stopping(InThrees):
    """Fails for good at one value, so that the job can be resumed in another shape."""

    def __init__(self, stop_at: int | None) -> None:
        self.stop_at = stop_at

    def flat_map(self, value: int) -> Iterator[Any]:
        if value == self.stop_at:
            raise RuntimeError("enough")
        yield from super().flat_map(value)


@pytest.mark.parametrize(("before", "after"), [(2, 2), (3, 2), (2, 5), (1, 3)])
def test_a_job_resumed_at_another_parallelism_deals_its_lists_out(before: int, after: int, tmp_path: Path) -> None:
    values, cuts = list(range(60)), [10, 20, 30, 40]
    with pytest.raises(Exception, match="enough"):
        resumable(tmp_path, before, values, cuts, Stopping(25)).execute()
    resumable(tmp_path, after, values, cuts, Stopping(None)).execute()
    passed_on = [value for _, three in ListSink.results(str(tmp_path)) for value in three]
    ListSink.clear(str(tmp_path))
    assert len(set(passed_on)) == len(passed_on)
    assert len(passed_on) >= 60 - 2 * max(before, after)
    assert set(passed_on) <= set(values)


def test_operator_state_that_no_operator_claims_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="enough"):
        resumable(tmp_path, 1, list(range(20)), [10], Stopping(15)).execute()
    env = resumable(tmp_path, 1, list(range(20)), [10], lambda value: [value])
    ListSink.clear(str(tmp_path))
    next(node for node in env._nodes.values() if node.uid == "threes").uid = "other"
    with pytest.raises(JobDefinitionError, match="'threes'"):
        env.execute()


class Listener(MapFunction, CheckpointListener):
    log: ClassVar[list[Any]] = []  # of the class: it outlives crashes
    failed: ClassVar[list[int]] = []

    def __init__(self, fail_at: int | None = None) -> None:
        self.fail_at = fail_at

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.log.append(("complete", checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.log.append(("aborted", checkpoint_id))

    def map(self, value: int) -> int:
        if value == self.fail_at and not self.failed:
            self.failed.append(value)
            raise RuntimeError("once")
        self.log.append(value)
        return value


@pytest.fixture
def log() -> list[Any]:
    Listener.log.clear()
    Listener.failed.clear()
    return Listener.log


ONE_A_DAY = [Split("x"), 1, Epoch(), 2, Epoch(), 3]


def test_a_listener_hears_of_each_checkpoint_before_the_records_after_it_and_of_the_last_one_at_the_end(
    log: list[Any],
) -> None:
    run(Listener(), script=ONE_A_DAY, schedule="ordered", parallelism=1)
    assert log == [1, ("complete", 1), 2, ("complete", 2), 3, ("complete", 3)]


def test_after_a_crash_a_fresh_listener_is_told_of_the_checkpoint_it_starts_from(log: list[Any]) -> None:
    _, runtime = run(
        Listener(), script=ONE_A_DAY, schedule="ordered", parallelism=1, crashes=CrashPlan([("after-manifest", 2)])
    )
    assert runtime.crashes == 1
    assert log == [1, ("complete", 1), 2, ("complete", 2), 3, ("complete", 3)]


def test_a_checkpoint_whose_epoch_failed_was_aborted(log: list[Any]) -> None:
    restart = RestartStrategies.fixed_delay_restart(1, 0)
    _, runtime = run(Listener(fail_at=2), script=ONE_A_DAY, schedule="ordered", parallelism=1, restart=restart)
    assert runtime.failures == 1
    assert log == [1, ("complete", 1), ("aborted", 2), ("complete", 1), 2, ("complete", 2), 3, ("complete", 3)]


def test_without_checkpoints_there_is_nothing_to_tell(log: list[Any]) -> None:
    run(Listener(), script=ONE_A_DAY, schedule="ordered", parallelism=1, checkpoint_interval_ms=None)
    assert log == [1, 2, 3]


def test_what_moves_to_another_task_and_back_is_not_found_in_both() -> None:
    """Chained, not chained, chained: the first task goes on in between, and what its snapshots build on must not hold what
    another task goes on with."""
    name, storage = f"operator-state-{next(_names)}", memory_storage()
    for chained, until in ((True, 1), (False, 3), (True, 5)):
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(1).set_max_parallelism(8)
        if not chained:
            env.disable_operator_chaining()
        source = env.from_source(ScriptedSource(SCRIPT), WatermarkStrategy.no_watermarks(), "source").uid("source")
        source.flat_map(InThrees()).uid("threes").sink_to(ListSink(name)).uid("sink")
        job = replace(env._describe("operator state"), job_id="job", settings=settings())
        runtime = EmbeddedJob(job, master_of(job, storage))

        def epoch_ended(report: Any, runtime: EmbeddedJob = runtime, until: int = until) -> None:
            if report.epoch == until:
                runtime.cancel()

        runtime.master.on_report = epoch_ended
        runtime.run()
    passed = sorted(value for _, values in ListSink.results(name) for value in values)
    ListSink.clear(name)
    assert passed == sorted(set(passed))
    assert len(passed) == 39, "of 40 records one waits"
