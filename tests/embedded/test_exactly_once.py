"""Whole jobs under random interleavings and crashes, against a sequential reference. Nothing lost, nothing twice, nothing
out of order within a key; and each run says whether its crash happened."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.connectors.base import Json, Source, SourcePlan, SplitEnumerator, SplitRange, SplitReader
from penstock.graph.partitioner import Broadcast, Rebalance
from penstock.records import Block, Rows
from penstock.runtime.embedded.crash import POINTS as ALL_POINTS
from penstock.testing import (
    Abort,
    BarrierMode,
    CrashPlan,
    CrashPoint,
    EmbeddedJob,
    Epoch,
    ListSink,
    ScriptedSource,
    SimulatedCrash,
    Split,
    Watermark,
)
from tests.embedded.jobs import (
    CountOperator,
    Pipeline,
    Verdict,
    counting_job,
    master_of,
    memory_storage,
    numbered_script,
    settings,
)

SCRIPT = numbered_script(splits=3, per_split=12, epochs=4)
# How often each point is reached in an undisturbed run, about: later occurrences would rarely fire.
OFTEN: dict[CrashPoint, int] = {
    "source-block": 15,
    "process": 60,
    "barrier": 40,
    "before-snapshot": 25,
    "after-snapshot": 25,
    "before-upload": 25,
    "after-upload": 25,
}

# These jobs take no savepoint.
POINTS = [point for point in ALL_POINTS if "savepoint" not in point]
IN_ORDER = [point for point in POINTS if "upload" not in point]  # there, snapshots are stored at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    seed: int
    verdict: Verdict
    fired: tuple[tuple[CrashPoint, int], ...]
    crashes: int


@pytest.fixture
def sink(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a ListSink of this test's own."""
    name = request.node.name
    ListSink.clear(name)
    yield name
    ListSink.clear(name)


def random_run(seed: int, mode: BarrierMode) -> Outcome:
    """Parallelism, capacity, barriers under way, crash points and interleaving all follow from the seed."""
    rng = random.Random(seed)
    name = f"random-{mode.value}-{seed}"
    a, b, c, d = (rng.randint(1, 3) for _ in range(4))
    # Half of the runs store every snapshot in the background, any number of epochs later.
    job = counting_job(SCRIPT, name, parallelism=(a, b, c, d), job=settings(inline_threshold=(0, 20 * 1024)[seed % 2]))
    possible = [p for p in POINTS if p != "during-restore" and (seed % 2 == 0 or "upload" not in p)]
    points = [rng.choice(possible) for _ in range(2)]
    crashes = CrashPlan(
        [(point, rng.randint(1, OFTEN.get(point, 4))) for point in points] + [("during-restore", rng.randint(1, 20))]
    )
    runtime = EmbeddedJob(
        job,
        master_of(job, memory_storage()),
        schedule="random",
        seed=seed,
        mode=mode,
        channel_capacity=rng.choice([1, 2, 4, None]),
        max_in_flight=rng.randint(1, 4),
        crashes=crashes,
    )
    runtime.run()
    outcome = Outcome(
        seed=seed, verdict=Verdict(SCRIPT, ListSink.results(name)), fired=tuple(crashes.fired), crashes=runtime.crashes
    )
    ListSink.clear(name)
    return outcome


@pytest.fixture(scope="module", params=[BarrierMode.EXACTLY_ONCE, BarrierMode.UNALIGNED], ids=lambda mode: mode.value)
def outcomes(request: pytest.FixtureRequest) -> list[Outcome]:
    return [random_run(seed, request.param) for seed in range(200)]


def test_nothing_is_lost_duplicated_or_reordered_whatever_the_interleaving_and_wherever_it_crashes(
    outcomes: list[Outcome],
) -> None:
    assert [outcome for outcome in outcomes if not outcome.verdict.exact] == []


def test_nearly_every_run_did_crash_and_every_point_was_hit(outcomes: list[Outcome]) -> None:
    assert sum(1 for outcome in outcomes if outcome.fired) > 190
    assert all(outcome.crashes == len(outcome.fired) for outcome in outcomes)
    hit = Counter(point for outcome in outcomes for point, _ in outcome.fired)
    assert set(hit) == set(POINTS)
    planned = 3 * len(outcomes)
    assert hit.total() > planned / 2


def test_at_least_once_loses_nothing_and_does_duplicate() -> None:
    outcomes = [random_run(seed, BarrierMode.AT_LEAST_ONCE) for seed in range(100)]
    assert [outcome for outcome in outcomes if outcome.verdict.lost] == []
    assert sum(outcome.verdict.duplicated for outcome in outcomes) > 10
    assert sum(1 for outcome in outcomes if outcome.fired) > 90


@pytest.mark.parametrize("mode", list(BarrierMode))
def test_without_a_crash_every_mode_is_exact(mode: BarrierMode, sink: str) -> None:
    for seed in range(5):
        ListSink.clear(sink)
        job = counting_job(SCRIPT, sink)
        EmbeddedJob(
            job,
            master_of(job, memory_storage()),
            schedule="random",
            seed=seed,
            mode=mode,
            channel_capacity=2,
            max_in_flight=3,
        ).run()
        assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_the_same_seed_gives_the_same_run(sink: str) -> None:
    seen = []
    for _ in range(2):
        ListSink.clear(sink)
        job = counting_job(SCRIPT, sink)
        crashes = CrashPlan([("process", 40)])
        EmbeddedJob(
            job, master_of(job, memory_storage()), schedule="random", seed=7, max_in_flight=3, crashes=crashes
        ).run()
        assert crashes.fired == [("process", 40)]
        seen.append((ListSink.by_epoch(sink), dict(crashes.reached)))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("mode", list(BarrierMode))
@pytest.mark.parametrize("point", IN_ORDER)
def test_in_order_a_crash_at_any_point_changes_nothing(point: CrashPoint, mode: BarrierMode, sink: str) -> None:
    undisturbed = counting_job(SCRIPT, sink)
    EmbeddedJob(undisturbed, master_of(undisturbed, memory_storage()), mode=mode).run()
    expected = ListSink.by_epoch(sink)
    assert Verdict(SCRIPT, ListSink.results(sink)).exact

    ListSink.clear(sink)
    job = counting_job(SCRIPT, sink)
    planned: list[tuple[CrashPoint, int]] = [(point, 2)]
    if point == "during-restore":
        planned.append(("after-manifest", 2))
    crashes = CrashPlan(planned)
    EmbeddedJob(job, master_of(job, memory_storage()), mode=mode, crashes=crashes).run()
    assert sorted(crashes.fired) == sorted(planned)
    assert Verdict(SCRIPT, ListSink.results(sink)).exact
    if mode is not BarrierMode.UNALIGNED:  # there, what was on the way is processed in a later epoch after a recovery
        assert ListSink.by_epoch(sink) == expected


def test_output_promised_by_a_manifest_is_committed_by_the_next_process(sink: str) -> None:
    job = counting_job(SCRIPT, sink)
    crashes = CrashPlan([("after-manifest", 2)])
    EmbeddedJob(job, master_of(job, memory_storage()), crashes=crashes).run()
    assert ListSink.commits(sink) == [1, 2, 3, 4]


def test_a_crash_after_the_commit_commits_again_and_adds_nothing(sink: str) -> None:
    job = counting_job(SCRIPT, sink)
    crashes = CrashPlan([("after-commit", 2)])
    EmbeddedJob(job, master_of(job, memory_storage()), crashes=crashes).run()
    assert ListSink.commits(sink) == [1, 2, 2, 3, 4]
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_a_finished_job_started_again_does_nothing_more(sink: str) -> None:
    storage = memory_storage()
    job = counting_job(SCRIPT, sink)
    EmbeddedJob(job, master_of(job, storage)).run()
    before = ListSink.results(sink)
    again = EmbeddedJob(job, master_of(job, storage))
    again.run()
    assert again.master.finished
    assert ListSink.results(sink) == before


def test_epochs_between_two_checkpoints_are_committed_with_the_second(sink: str) -> None:
    # The clock moves by 200 ms an epoch: epoch 3 is the first checkpoint, epoch 4 the last because the job ends.
    job = counting_job(SCRIPT, sink, job=settings(checkpoint_interval_ms=400))
    crashes = CrashPlan([("before-run", 2)])
    EmbeddedJob(job, master_of(job, memory_storage()), crashes=crashes).run()
    assert crashes.fired, "in epoch 2, when epoch 1 had run but was in no checkpoint"
    assert ListSink.commits(sink) == [3, 4]
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_a_job_without_storage_runs_and_commits_every_epoch(sink: str) -> None:
    job = counting_job(SCRIPT, sink, job=settings(checkpoint_interval_ms=None))
    EmbeddedJob(job, master_of(job, None)).run()
    assert ListSink.commits(sink) == [1, 2, 3, 4]
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_broadcast_and_rebalance_deliver_under_random_scheduling_and_a_crash(sink: str) -> None:
    values = [("k", 0, n) for n in range(30)]
    script: list[Any] = [*values[:10], Epoch(), *values[10:20], Epoch(), *values[20:]]
    for seed in range(10):
        ListSink.clear(sink)
        job = (
            Pipeline()
            .source(ScriptedSource(script))
            .map(_tagged, 3, by=Broadcast())
            .map(_tagged, 2, by=Rebalance())
            .sink(ListSink(sink))
            .build(settings())
        )
        crashes = CrashPlan([("process", 25)])
        EmbeddedJob(
            job, master_of(job, memory_storage()), schedule="random", seed=seed, channel_capacity=1, crashes=crashes
        ).run()
        assert crashes.fired
        assert Counter(ListSink.results(sink)) == dict.fromkeys(values, 3)


def _tagged(value: Any) -> Any:
    return value


def test_a_script_with_an_abort_reads_from_top_to_bottom(sink: str) -> None:
    source = ScriptedSource(
        [
            ("a", 0, 0),
            ("b", 0, 1),
            Epoch(),
            ("a", 0, 2),
            Abort(),  # the process dies here, with ("a", 0, 2) processed but in no checkpoint
            ("a", 0, 3),
            Split("other"),
            ("b", 1, 0),
            Watermark(10),
            Epoch(),
            ("b", 1, 1),
        ]
    )
    job = Pipeline().source(source).operator(CountOperator(), 2).sink(ListSink(sink)).build(settings())
    runtime = EmbeddedJob(job, master_of(job, memory_storage()))
    runtime.run()
    assert (runtime.crashes, source.aborts_fired) == (1, 1)
    assert {epoch: sorted(values) for epoch, values in ListSink.by_epoch(sink).items()} == {
        1: [("a", 1, 0, 0), ("b", 1, 0, 1)],
        2: [("a", 2, 0, 2), ("a", 3, 0, 3), ("b", 2, 1, 0)],
        3: [("b", 3, 1, 1)],
    }


def test_a_crash_cannot_be_caught_by_user_code() -> None:
    assert not issubclass(SimulatedCrash, Exception)


def test_a_crash_at_an_unknown_point_cannot_be_planned() -> None:
    with pytest.raises(ValueError, match="the points are source-block"):
        CrashPlan([("nowhere", 1)])  # type: ignore[list-item]


class ArrivingSource(Source):
    """Holds as many records as have arrived when it is asked; the outside world survives a crash."""

    arrived: Iterator[int]

    def __init__(self, total: int) -> None:
        self.total = total

    bounded = True

    def create_enumerator(self) -> SplitEnumerator:
        return _ArrivingEnumerator(self.total)

    def create_reader(self) -> SplitReader:
        return _NumberReader()


class _ArrivingEnumerator(SplitEnumerator):
    def __init__(self, total: int) -> None:
        self._total, self._position = total, 0

    def restore(self, state: Json) -> None:
        self._position = state

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        start, self._position = self._position, next(ArrivingSource.arrived)
        done = self._position == self._total
        ranges = (SplitRange(split="0", ordinal=0, start=start, end=self._position, last=done),)
        return SourcePlan(ranges=ranges, state=self._position, finished=done)


class _NumberReader(SplitReader):
    def read(self, split: SplitRange, block_size: int) -> Iterator[Block]:
        yield Rows([("k", 0, number) for number in range(split.start, split.end)])


@pytest.mark.parametrize("arrived", [[2, 2, 4, 4, 4, 6], [2, 2, 2, 4, 4, 4, 4, 6]])
def test_an_epoch_that_was_skipped_is_skipped_again_when_later_plans_are_replayed(
    arrived: Sequence[int], sink: str
) -> None:
    """Epoch 2 finds nothing and is skipped; a later epoch is planned, logged and lost in a crash. Were epoch 2 planned anew,
    it would read what the logged plan reads as well."""
    ArrivingSource.arrived = iter([*arrived, *[6] * 5])
    job = Pipeline().source(ArrivingSource(6)).operator(CountOperator()).sink(ListSink(sink)).build(settings())
    crashes = CrashPlan([("before-run", 2)])
    EmbeddedJob(job, master_of(job, memory_storage()), crashes=crashes).run()
    assert crashes.fired
    assert ListSink.results(sink) == [("k", number + 1, 0, number) for number in range(6)]
