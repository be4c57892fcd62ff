"""What a driver that was replaced still does, or its store still does for it, harms nobody: it is late, not lost.

Its manifest is carried out by the store at a moment of the test's choosing: before or after its successor has begun, has completed
a checkpoint of that number, of a higher one, has died. The sink keeps what is staged as files would.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from penstock.checkpoint.history import orphans, plan_counts
from penstock.checkpoint.layout import GenerationStart
from penstock.checkpoint.storage import Storage
from penstock.common.restart_strategy import RestartStrategies
from penstock.connectors.datagen import DataGeneratorSource
from penstock.driver.description import JobDescription
from penstock.driver.job_master import JobMaster
from penstock.errors import FencedError, JobFailedError, StorageError
from penstock.graph.partitioner import Hash
from penstock.protocol.ids import CheckpointId, Generation
from penstock.testing import EmbeddedJob, FlakyStorage, ManualClock, ScriptedSource
from tests.embedded.jobs import KEYS, CountOperator, Pipeline, Verdict, key_of, memory_storage, settings, uneven_script
from tests.embedded.late_storage import LateStorage
from tests.embedded.staged import StagedSink, staged

SCRIPT = uneven_script()


@pytest.fixture
def sink(request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"replaced-{request.node.name}"
    StagedSink.clear(name)
    yield name
    StagedSink.clear(name)


def job_of(sink: str, script: list[Any] = SCRIPT, **more: Any) -> JobDescription:
    job = replace(settings(restart=RestartStrategies.no_restart(), inline_threshold=0), **more)
    pipeline = Pipeline().source(ScriptedSource(script), 2).operator(CountOperator(), 2, Hash(key_of))
    return pipeline.sink(StagedSink(sink)).build(job)


def driver(job: JobDescription, storage: Storage) -> EmbeddedJob:
    return EmbeddedJob(job, JobMaster(job, storage, clock=ManualClock()))


class Died(RuntimeError):
    """A driver dies of this."""


def run_until(runtime: EmbeddedJob, epoch: int) -> None:
    def on_report(report: Any) -> None:
        if report.epoch >= epoch:
            raise Died

    runtime.master.on_report = on_report
    with pytest.raises(JobFailedError):
        runtime.run()


def exact(sink: str, script: list[Any] = SCRIPT) -> None:
    verdict = Verdict(script, StagedSink.results(sink))
    assert verdict.exact, verdict


def test_a_manifest_that_appears_when_the_successor_has_begun_is_never_resumed_from(sink: str) -> None:
    job, storage = job_of(sink), memory_storage()

    def replaced(carry_out: Callable[[], bool]) -> None:
        successor = driver(job, storage)
        successor.master.start()  # goes back to checkpoint 3, discards what is staged behind it, and dies

    late = LateStorage(storage, "chk-4/manifest", replaced)
    with pytest.raises(FencedError):
        driver(job, late).run()
    assert late.was_held
    assert storage.exists("checkpoints/chk-4/manifest.json"), "the store did it, late"
    driver(job, storage).run()
    exact(sink)


def test_a_manifest_that_appears_just_before_the_successors_of_that_number_gives_way(sink: str) -> None:
    job, storage = job_of(sink), memory_storage()

    def replaced(carry_out: Callable[[], bool]) -> None:
        successor = driver(job, storage)
        appeared: list[bool] = []

        def reach(point: str, epoch: int) -> None:
            if (point, epoch) == ("before-manifest", 4):
                appeared.append(carry_out())

        successor.master.reach = reach
        successor.run()
        assert appeared == [True]
        exact(sink)

    late = LateStorage(storage, "chk-4/manifest", replaced)
    with pytest.raises(FencedError):
        driver(job, late).run()
    assert late.was_held
    exact(sink)


def test_a_driver_does_not_mistake_its_own_late_manifest_for_what_it_goes_on_from(sink: str) -> None:
    """The store answers with an error and carries the write out afterwards: the same driver has gone back by then."""
    job = job_of(sink)
    job = replace(job, settings=replace(job.settings, restart=RestartStrategies.fixed_delay_restart(3, 10)))
    storage = memory_storage()
    pending: list[Callable[[], bool]] = []

    def fails(carry_out: Callable[[], bool]) -> None:
        pending.append(carry_out)
        raise StorageError("simulated: timed out")

    late = LateStorage(storage, "chk-4/manifest", fails)
    runtime = driver(job, late)
    epochs: list[int] = []

    def reach(point: str, epoch: int) -> None:
        if point == "before-run" and pending:  # it has gone back and discarded what was staged
            epochs.append(epoch)
            assert pending.pop()()

    runtime.master.reach = reach
    runtime.run()
    assert late.was_held
    assert epochs == [4]
    assert runtime.failures == 1, "the number is used again, as if nothing had been there"
    exact(sink)


def test_a_driver_that_is_replaced_while_it_notes_its_start_discards_nothing(sink: str) -> None:
    """It goes on behind checkpoint 4 and has not come to discard what is staged behind it, when its successor has completed 6 and
    died before it could commit that."""
    job, storage = job_of(sink), memory_storage()
    run_until(driver(job, storage), 4)

    def replaced(carry_out: Callable[[], bool]) -> None:
        successor = driver(job, storage)

        def reach(point: str, epoch: int) -> None:
            if (point, epoch) == ("after-manifest", 6):
                raise Died

        successor.master.reach = reach
        with pytest.raises(JobFailedError):
            successor.run()
        assert staged(sink) > 0

    late = LateStorage(storage, "-from-", replaced)
    with pytest.raises(FencedError):
        driver(job, late).run()
    assert late.was_held
    driver(job, storage).run()
    exact(sink)


def test_late_manifests_at_any_moment_lose_and_repeat_nothing(sink: str) -> None:
    """Of a driver, then of its successor, then of the same driver once more, each replaced or dead somewhere else."""
    seen: Counter[str] = Counter()
    for seed in range(12):
        StagedSink.clear(sink)
        _replaced_again_and_again(seed, sink, seen)
    assert min(seen["held"], seen["fenced"], seen["appeared as an orphan"]) >= 3, seen


def _replaced_again_and_again(seed: int, sink: str, seen: Counter[str]) -> None:
    rng = random.Random(seed)
    script, storage = uneven_script(seed), memory_storage()
    waiting: list[Callable[[], bool]] = []

    def maybe_appears(*_: Any) -> None:
        if waiting and rng.random() < 0.15:
            seen["appeared as an orphan"] += waiting.pop(rng.randrange(len(waiting)))()

    def live(depth: int) -> None:
        """One driver: replaced while its store is slow, by one that may be replaced in turn; or it hears of an error."""
        every = rng.choice([0, 0, 250, 450])
        job = job_of(sink, script, checkpoint_interval_ms=every)
        if rng.random() < 0.5:
            job = replace(job, settings=replace(job.settings, restart=RestartStrategies.fixed_delay_restart(9, 10)))

        def slow(carry_out: Callable[[], bool]) -> None:
            seen["held"] += 1
            waiting.append(carry_out)
            if rng.random() < 0.4:
                raise StorageError("simulated: timed out")
            if depth < 3:
                live(depth + 1)
            if rng.random() < 0.5:
                raise StorageError("simulated: timed out")

        held = rng.choice(["manifest", f"chk-{rng.randint(2, 7)}/manifest", "-from-"])
        runtime = driver(job, LateStorage(storage, held, slow))
        runtime.master.reach = maybe_appears
        dies = rng.choice([rng.randint(1, 7), 99])

        def on_report(report: Any) -> None:
            maybe_appears()
            if report.epoch >= dies:
                raise Died

        runtime.master.on_report = on_report
        try:
            runtime.run()
        except FencedError:
            seen["fenced"] += 1
        except (JobFailedError, StorageError):
            seen["failed"] += 1

    live(0)
    for carry_out in waiting:
        carry_out()
    driver(job_of(sink, script), storage).run()
    verdict = Verdict(script, StagedSink.results(sink))
    assert verdict.exact, f"seed {seed}: {verdict}"


# ---------------------------------------------------------------- plans


def numbers_job(sink: str, per_epoch: int) -> JobDescription:
    """100 numbers; how many of them an epoch reads is a setting of its driver. Checkpoints are rarer than epochs."""
    job = replace(
        settings(restart=RestartStrategies.no_restart(), checkpoint_interval_ms=900), epoch_max_records=per_epoch
    )
    source = DataGeneratorSource(number, 100)
    return Pipeline().source(source).operator(CountOperator(), 2, Hash(key_of)).sink(StagedSink(sink)).build(job)


def number(i: int) -> tuple[str, int, int]:
    return (KEYS[i * i % 7 % 5], 0, i)


@pytest.mark.parametrize("sizes", [(5, 11), (11, 5)])
@pytest.mark.parametrize("appears", [0, 7, 8, 9])
def test_a_plan_that_the_store_carries_out_late_is_not_run_in_place_of_the_successors(
    appears: int, sizes: tuple[int, int], sink: str
) -> None:
    """A driver plans epoch 7; before the store has the plan, another takes over, plans 7 and 8 otherwise, and dies. A third runs
    again what it finds. 0: it appears just before the successor's own."""
    storage = memory_storage()
    first, second = (numbers_job(sink, size) for size in sizes)
    moments: list[int] = []

    def replaced(carry_out: Callable[[], bool]) -> None:
        def appear() -> None:
            moments.append(appears)
            carry_out()

        def reach(point: str, epoch: int) -> None:
            if (point, epoch) == ("before-run", appears):
                appear()

        just_before = LateStorage(storage, "epochs/7.json", lambda own: appear() if appears == 0 else None)
        successor = driver(second, just_before)

        successor.master.reach = reach
        run_until(successor, 9)
        raise StorageError("simulated: timed out")

    late = LateStorage(storage, "epochs/7.json", replaced)
    with pytest.raises(FencedError, match="was replaced by 2"):
        driver(first, late).run()
    assert late.was_held
    assert moments == [appears]
    driver(second, storage).run()
    verdict = Verdict([number(i) for i in range(100)], StagedSink.results(sink))
    assert verdict.exact, verdict


@pytest.mark.parametrize("sizes", [(5, 11), (11, 5)])
def test_a_replaced_driver_that_plans_on_does_not_add_to_its_successors_plans(
    sizes: tuple[int, int], sink: str
) -> None:
    """Both have planned epoch 7, the successor has died, and the replaced one plans 8 behind its own 7."""
    storage = memory_storage()
    first, second = (numbers_job(sink, size) for size in sizes)

    def replaced(carry_out: Callable[[], bool]) -> None:
        just_before = LateStorage(storage, "epochs/7.json", lambda own: carry_out())
        run_until(driver(second, just_before), 7)

    late = LateStorage(storage, "epochs/7.json", replaced)
    with pytest.raises(FencedError, match="was replaced by 2"):  # it hears of that when it dies, not before
        run_until(driver(first, late), 8)
    assert late.was_held
    assert storage.exists("epochs/8.json")
    driver(second, storage).run()
    verdict = Verdict([number(i) for i in range(100)], StagedSink.results(sink))
    assert verdict.exact, verdict


# ---------------------------------------------------------------- what a replaced driver deletes


def files(storage: Storage) -> dict[str, bytes]:
    """All but who had the folder, and until when."""
    return {path: storage.get(path) for path in storage.list("") if not path.startswith("generations/")}


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_replaced_driver_that_is_cancelled_deletes_nothing(has_begun: bool, sink: str) -> None:
    """Its successor has completed checkpoints of its own; or has only just taken the folder over."""
    job, storage = job_of(sink, delete_on_cancel=True), memory_storage()
    replaced = driver(job, storage)
    before: dict[str, bytes] = {}

    def on_report(report: Any) -> None:
        if report.epoch == 3:
            if has_begun:
                run_until(driver(job, storage), 5)
            else:
                driver(job, storage).master.take_over()
            before.update(files(storage))
            replaced.cancel()

    replaced.master.on_report = on_report
    replaced.run()
    assert before
    assert files(storage) == before
    driver(job, storage).run()
    exact(sink)


def test_a_driver_that_has_its_folder_deletes_its_checkpoints_when_cancelled(sink: str) -> None:
    job, storage = job_of(sink, delete_on_cancel=True), memory_storage()
    cancelled = driver(job, storage)
    cancelled.master.on_report = lambda report: cancelled.cancel() if report.epoch == 3 else None
    cancelled.run()
    assert not storage.list("checkpoints")
    assert not storage.list("epochs")


def test_a_driver_that_comes_while_checkpoints_are_deleted_starts_afresh_and_keeps_its_own(sink: str) -> None:
    """It may find some of them: with two retained, the older is deleted when it comes. It must not go on from the other."""
    job, storage = job_of(sink, delete_on_cancel=True, retained=2), memory_storage()
    epochs: list[int] = []

    class Interrupted(FlakyStorage):
        def delete(self, path: str) -> None:
            super().delete(path)
            if cancelled._cancelled.is_set() and path.endswith("manifest.json") and not epochs:
                StagedSink.clear(sink)
                newcomer = driver(job, storage)
                newcomer.master.on_report = lambda report: epochs.append(report.epoch)
                newcomer.run()

    cancelled = driver(job, Interrupted(storage, ()))
    cancelled.master.on_report = lambda report: cancelled.cancel() if report.epoch == 3 else None
    cancelled.run()
    assert epochs[0] == 1
    assert len(storage.list("checkpoints")) > 0
    exact(sink)


def test_a_replaced_driver_that_fails_discards_nothing_that_its_successor_has_staged(sink: str) -> None:
    """Going back discards what is staged behind the checkpoint: the successor's, if nobody looks who owns the folder."""
    storage = memory_storage()
    job = job_of(sink, checkpoint_interval_ms=450)
    again = replace(job, settings=replace(job.settings, restart=RestartStrategies.fixed_delay_restart(3, 10)))
    replaced, successor = driver(again, storage), driver(job, storage)
    failed: list[int] = []

    def on_report(report: Any) -> None:
        if report.epoch == 2 and not failed:
            failed.append(2)
            successor.run()
            raise Died

    def interrupted(report: Any) -> None:
        """Between two checkpoints of the successor, with output staged, the replaced one fails and wants to go back."""
        before = staged(sink)
        with pytest.raises(FencedError):
            replaced.master.recover()
        successor_staged.append((before, staged(sink)))

    successor_staged: list[tuple[int, int]] = []
    successor.master.on_report = interrupted
    replaced.master.on_report = on_report
    with pytest.raises(FencedError):
        replaced.run()
    assert failed
    assert max(successor_staged)[0] > 0
    assert all(before == after for before, after in successor_staged)
    exact(sink)


def test_a_driver_in_doubt_does_not_take_the_folder_back_from_its_successor(sink: str) -> None:
    job, storage = job_of(sink), memory_storage()
    again = replace(job, settings=replace(job.settings, restart=RestartStrategies.fixed_delay_restart(3, 10)))

    def replaced(carry_out: Callable[[], bool]) -> None:
        driver(job, storage).master.start()
        raise StorageError("simulated: timed out")

    runtime = driver(again, LateStorage(storage, "chk-4/manifest", replaced))
    with pytest.raises(FencedError, match="was replaced by 2"):
        runtime.run()
    assert runtime.failures == 0, "no strategy was asked"
    driver(job, storage).run()
    exact(sink)


# ---------------------------------------------------------------- which checkpoints are the job's


@pytest.mark.parametrize(
    ("committed", "starts", "expected"),
    [
        ([], {}, []),
        ([(4, 1), (5, 1)], {}, []),
        ([(5, 1), (8, 2), (10, 1), (12, 2)], {}, [10]),  # as told before starts were noted
        ([(4, 1), (5, 1)], {1: 0, 2: 4}, [5]),  # appeared when its successor had begun
        ([(3, 1)], {2: 0}, [3]),  # … from nothing
        ([(4, 1), (5, 1), (6, 2)], {1: 0, 2: 4}, [5]),  # below the successor's own
        ([(4, 1), (5, 2), (9, 1)], {1: 0, 2: 4}, [9]),  # above it
        ([(4, 1), (5, 1)], {1: 0, 2: 4, 3: 5}, []),  # 2's note was late: 3 had not seen it and adopted 5
        ([(4, 1), (5, 2), (6, 2), (7, 3)], {1: 0, 2: 4, 3: 5}, [6]),
        ([(4, 1), (5, 2), (6, 3)], {3: 5}, []),  # the first to note its start
        ([(4, 1), (5, 2)], {1: 0, 2: 4, 3: 5}, []),
    ],
)
def test_history_is_read_backwards_from_the_newest_generation(
    committed: list[tuple[int, int]], starts: dict[int, int], expected: list[int]
) -> None:
    found = orphans(
        [(CheckpointId(n), Generation(g)) for n, g in committed],
        {Generation(g): GenerationStart(checkpoint=CheckpointId(n), planned=n) for g, n in starts.items()},
    )
    assert sorted(found) == expected


def test_a_plan_counts_unless_a_newer_generation_began_without_it() -> None:
    starts = {
        Generation(2): GenerationStart(checkpoint=CheckpointId(4), planned=7),
        Generation(3): GenerationStart(checkpoint=CheckpointId(6), planned=9),
    }
    counted = {by: [n for n in range(5, 12) if plan_counts(n, Generation(by), starts)] for by in (1, 2, 3)}
    assert counted == {1: [5, 6, 7], 2: [5, 6, 7, 8, 9], 3: [5, 6, 7, 8, 9, 10, 11]}
