"""What each mode promises when the process dies, with a sink that shows every repetition."""

from __future__ import annotations

import itertools
import pickle
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.storage import LocalStorage
from penstock.common import Configuration, RestartStrategies, WatermarkStrategy
from penstock.common.options import CheckpointMode
from penstock.connectors.base import Committer
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import CheckpointingMode, ExternalizedCheckpointRetention, StreamExecutionEnvironment
from penstock.driver.client import JobClient
from penstock.engine.settings import JobSettings
from penstock.errors import ConfigurationError
from penstock.graph.partitioner import Hash
from penstock.runtime.embedded.crash import POINTS, CrashPoint
from penstock.testing import CrashPlan, EmbeddedJob, ListSink, ScriptedSource
from tests.embedded.jobs import (
    CountOperator,
    Pipeline,
    key_of,
    master_of,
    memory_storage,
    numbered_script,
    settings,
    values_of,
)

SCRIPT = numbered_script(splits=2, per_split=24, epochs=8)
DIES: list[CrashPoint] = [p for p in POINTS if "savepoint" not in p and "upload" not in p and p != "during-restore"]
_emitted: list[Any] = []


class EmittingSink(ListSink):
    """Not idempotent: what is committed twice is there twice."""

    def create_committer(self, sink_id: str) -> Committer:
        return _Emitter()


class _Emitter(Committer):
    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        _emitted.extend(value for staged in committables for value in pickle.loads(staged.pickled))


def run(mode: CheckpointMode, crashes: CrashPlan, interval_ms: int) -> list[Any]:
    """Epochs move the clock by 200 ms: an interval of 500 is a checkpoint every third epoch."""
    _emitted.clear()
    job = (
        Pipeline()
        .source(ScriptedSource(SCRIPT), 2)
        .operator(CountOperator(), 2, Hash(key_of))
        .sink(EmittingSink("emitted"))
        .build(replace(settings(checkpoint_interval_ms=interval_ms), mode=mode))
    )
    EmbeddedJob(job, master_of(job, memory_storage()), crashes=crashes).run()
    return list(_emitted)


def records(results: list[Any]) -> Counter[Any]:
    return Counter((key, split, number) for key, _, split, number in results)


@pytest.mark.parametrize("interval_ms", [0, 500])
@pytest.mark.parametrize("point", DIES)
def test_at_least_once_loses_nothing(point: CrashPoint, interval_ms: int) -> None:
    crashes = CrashPlan([(point, 2)])
    found = records(run("AT_LEAST_ONCE", crashes, interval_ms))
    assert crashes.fired == [(point, 2)]
    assert set(found) == set(values_of(SCRIPT))


def test_at_least_once_does_repeat_what_was_emitted_since_the_last_checkpoint() -> None:
    crashes = CrashPlan([("before-manifest", 2)])
    found = records(run("AT_LEAST_ONCE", crashes, 500))
    assert crashes.fired
    assert max(found.values()) == 2


@pytest.mark.parametrize("interval_ms", [0, 500])
@pytest.mark.parametrize("point", DIES)
def test_at_most_once_repeats_nothing_and_goes_on_behind_the_epoch_that_failed(
    point: CrashPoint, interval_ms: int
) -> None:
    crashes = CrashPlan([(point, 2)])
    results = run("AT_MOST_ONCE", crashes, interval_ms)
    found = records(results)
    assert crashes.fired == [(point, 2)]
    assert max(found.values()) == 1
    everything = values_of(SCRIPT)
    assert set(found) <= set(everything)
    lost = set(everything) - set(found)
    assert len(lost) <= len(everything) // 4, "one epoch of eight is skipped, not the job"
    last = max(number for _, _, number in everything)
    assert any(number == last for _, _, number in found), "the end was reached"


def test_at_most_once_loses_the_epoch_in_which_it_died_and_starts_with_empty_state() -> None:
    crashes = CrashPlan([("process", 12)])
    results = run("AT_MOST_ONCE", crashes, 0)
    assert crashes.fired
    found = records(results)
    assert len(found) < len(values_of(SCRIPT))
    counts = [count for _, count, _, _ in results]
    assert counts.count(1) > len({key for key, *_ in results}), "some key was counted from the beginning again"


@pytest.mark.parametrize("mode", ["AT_LEAST_ONCE", "AT_MOST_ONCE"])
def test_without_a_failure_every_mode_is_exact(mode: Any) -> None:
    found = records(run(mode, CrashPlan([]), 500))
    assert found == Counter(values_of(SCRIPT))


def test_random_crashes_keep_each_promise() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        planned = [(rng.choice(DIES), rng.randint(1, 6)) for _ in range(2)]
        assert set(records(run("AT_LEAST_ONCE", CrashPlan(planned), 500))) == set(values_of(SCRIPT))
        assert max(records(run("AT_MOST_ONCE", CrashPlan(planned), 500)).values()) == 1


# ---------------------------------------------------------------- through the API


def start(folder: Path, count: int | None, **config: str) -> JobClient:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict(
            {
                "penstock.runtime": "embedded",
                "penstock.job.dir": str(folder / "job"),
                "execution.checkpointing.interval": "0 ms",
                "penstock.epoch.interval": "1 ms",
                "penstock.epoch.max-records": "50",
                **config,
            }
        )
    )
    env.set_restart_strategy(RestartStrategies.no_restart())
    source = DataGeneratorSource(lambda i: i, count)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    numbers.key_by(lambda n: n % 3).reduce(max).uid("largest").sink_to(ListSink("unused")).uid("sink")
    return env.execute_async("numbers")


def cancel_after(client: JobClient, checkpoints: int) -> None:
    deadline = time.monotonic() + 30
    while client.checkpoint_statistics().completed < checkpoints and time.monotonic() < deadline:
        time.sleep(0.005)
    client.cancel().result()


@pytest.mark.parametrize("retention", list(ExternalizedCheckpointRetention))
def test_a_cancelled_job_keeps_or_deletes_its_checkpoints_as_it_was_told(
    retention: ExternalizedCheckpointRetention, tmp_path: Path
) -> None:
    key = "execution.checkpointing.externalized-checkpoint-retention"
    cancel_after(start(tmp_path, None, **{key: retention.name}), 3)
    left = LocalStorage(tmp_path / "job").list("checkpoints")
    assert bool(left) == (retention is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION)


def test_statistics_are_kept_across_starts_of_the_job(tmp_path: Path) -> None:
    first = start(tmp_path, None)
    cancel_after(first, 3)
    before = first.checkpoint_statistics()
    assert (before.starts, before.restored, before.failed) == (1, 0, 0)
    assert before.completed >= 3
    second = start(tmp_path, None)
    cancel_after(second, before.completed + 1)
    after = second.checkpoint_statistics()
    assert (after.starts, after.restored) == (2, 1)
    assert after.completed > before.completed
    latest = after.latest("completed")
    assert latest is not None
    assert latest.bytes > 0


def test_statistics_that_cannot_be_read_are_begun_anew(tmp_path: Path) -> None:
    cancel_after(start(tmp_path, None), 2)
    (tmp_path / "job" / "checkpoint-statistics.json").write_text("{half")
    again = start(tmp_path, None)
    cancel_after(again, 1)
    assert again.checkpoint_statistics().starts == 1


@pytest.mark.parametrize(
    ("key", "value", "field", "expected"),
    [
        ("execution.checkpointing.timeout", "5 s", "checkpoint_timeout_ms", 5000),
        ("execution.checkpointing.min-pause", "250 ms", "min_pause_ms", 250),
        ("execution.checkpointing.tolerable-failed-checkpoints", "4", "tolerable_checkpoint_failures", 4),
        ("execution.checkpointing.incremental", "false", "incremental", False),
        ("execution.checkpointing.snapshot-compression", "true", "snapshot_compression", "lz4"),
        ("execution.checkpointing.mode", "at-least-once", "mode", "AT_LEAST_ONCE"),
        ("penstock.checkpoint.asynchronous", "false", "asynchronous", False),
    ],
)
def test_options_are_read_from_the_configuration(key: str, value: str, field: str, expected: Any) -> None:
    assert getattr(JobSettings.of({key: value}), field) == expected
    with pytest.raises(ConfigurationError, match=key):
        JobSettings.of({key: "nonsense"})


def test_options_set_in_code_go_over_the_configuration() -> None:
    env = StreamExecutionEnvironment.get_execution_environment(
        Configuration.from_dict({"execution.checkpointing.timeout": "1 s", "execution.checkpointing.min-pause": "2 s"})
    )
    config = env.get_checkpoint_config()
    config.set_checkpoint_timeout(3000).set_checkpointing_mode(CheckpointingMode.AT_MOST_ONCE)
    chosen = JobSettings.of(env._effective_configuration())
    assert (chosen.checkpoint_timeout_ms, chosen.min_pause_ms, chosen.mode) == (3000, 2000, "AT_MOST_ONCE")


def test_a_pause_keeps_checkpoints_apart_and_turned_off_increments_are_full(tmp_path: Path) -> None:
    script = numbered_script(splits=1, per_split=20, epochs=10)
    job = (
        Pipeline()
        .source(ScriptedSource(script))
        .operator(CountOperator(), 1, Hash(key_of))
        .sink(ListSink("unused"))
        .build(replace(settings(), min_pause_ms=500, incremental=False))
    )
    runtime = EmbeddedJob(job, master_of(job, memory_storage()))
    runtime.run()
    taken = [report.epoch for report in runtime.master.reports if report.checkpoint]
    assert all(later - earlier >= 3 for earlier, later in itertools.pairwise(taken[:-1])), taken
    manifest = runtime.master.restored
    assert manifest is not None
    assert {len(task.handles) for task in manifest.tasks} == {1}
    ListSink.clear("unused")
