"""Watermark alignment: sources of a group do not run further ahead of the slowest than the drift allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.manifest import SourcePosition
from penstock.common import Configuration, Duration
from penstock.common.restart_strategy import RestartStrategies
from penstock.common.watermark_strategy import TimestampAssigner, WatermarkAlignment, WatermarkStrategy
from penstock.connectors.base import Json, Source, SourcePlan, SplitEnumerator, SplitRange, SplitReader
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.files import FileSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.admission import Admission
from penstock.driver.sources import JobSources, SourceAlignment
from penstock.engine.messages import TaskAck
from penstock.errors import JobDefinitionError
from penstock.protocol.events import MIN_WATERMARK
from penstock.protocol.ids import TaskId, VertexId

GROUP = WatermarkAlignment(group="g", max_drift_ms=100, update_interval_ms=1)


def ack(operator_id: str, splits: dict[str, int], *, idle: Sequence[str] = (), subtask: int = 0) -> TaskAck:
    marks = {split: (mark, split in idle) for split, mark in splits.items()}
    return TaskAck(task=TaskId(VertexId(0), subtask), epoch=1, attempt="", metrics={operator_id: {"splits": marks}})


class Counting(Source, SplitEnumerator):
    """Two splits that get ten more records with every plan; can hold back single splits if asked to."""

    bounded = False

    def __init__(self, *, obeys: bool = True) -> None:
        self.obeys = obeys
        self.positions = {"a": 0, "b": 0}
        self.waiting: frozenset[str] = frozenset()
        self.plans = 0

    def create_enumerator(self) -> SplitEnumerator:
        return self

    def create_reader(self) -> SplitReader:
        raise AssertionError

    def restore(self, state: Json) -> None:
        self.positions = dict(state)

    def pause(self, splits: frozenset[str]) -> None:
        self.waiting = splits if self.obeys else frozenset()

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        self.plans += 1
        ranges = []
        for ordinal, split in enumerate(self.positions):
            if split not in self.waiting:
                start = self.positions[split]
                self.positions[split] += 10
                ranges.append(SplitRange(split=split, ordinal=ordinal, start=start, end=start + 10))
        return SourcePlan(ranges=tuple(ranges), state=dict(self.positions), finished=False)


def planner(**sources: Counting) -> JobSources:
    made = JobSources(dict(sources), Admission(most=None, target_ms=None), dict.fromkeys(sources, GROUP))
    made.restart({})
    return made


def read(made: JobSources, now: int) -> dict[str, list[str]]:
    """By source, the splits that get records."""
    ranges, _ = made.plan(now, None)
    return {name: [r.split for r in source.ranges if r.start != r.end] for name, source in ranges.items()}


def test_a_source_that_is_ahead_of_the_group_gets_nothing_until_the_others_have_come_closer() -> None:
    fast, slow = Counting(), Counting()
    made = planner(fast=fast, slow=slow)
    assert read(made, 0) == {"fast": ["a", "b"], "slow": ["a", "b"]}
    made.observe([ack("fast", {"a": 1101, "b": 1200}), ack("slow", {"a": 1000, "b": 5000})])
    ranges, states = made.plan(1, None)
    assert [asdict(r) for r in ranges["fast"].ranges] == [
        {"split": "a", "ordinal": 0, "start": 10, "end": 10, "last": False, "paused": True},
        {"split": "b", "ordinal": 1, "start": 10, "end": 10, "last": False, "paused": True},
    ]
    assert states["fast"] == SourcePosition(state={"a": 10, "b": 10}, finished=False)
    assert fast.plans == 1, "not even asked"
    assert [r.split for r in ranges["slow"].ranges if r.start != r.end] == ["a"]
    made.observe([ack("slow", {"a": 1001, "b": 5000})])
    assert read(made, 2) == {"fast": ["a"], "slow": ["a"]}, "1101 is not more than 100 ahead of 1001"


def test_a_source_that_cannot_hold_back_a_split_waits_only_as_a_whole() -> None:
    source, other = Counting(obeys=False), Counting()
    made = planner(source=source, other=other)
    read(made, 0)
    made.observe([ack("source", {"a": 0, "b": 500}), ack("other", {"a": 50})])
    assert read(made, 1)["source"] == ["a", "b"]
    made.observe([ack("source", {"a": 400, "b": 500})])
    assert read(made, 2)["source"] == []


def test_a_split_without_a_watermark_holds_the_group_back_an_idle_one_does_not() -> None:
    made = planner(fast=Counting(), silent=Counting())
    read(made, 0)
    made.observe([ack("fast", {"a": 10, "b": 10}), ack("silent", {"a": MIN_WATERMARK, "b": MIN_WATERMARK})])
    assert read(made, 1)["fast"] == []
    made.observe([ack("silent", {"a": MIN_WATERMARK, "b": MIN_WATERMARK}, idle=("a", "b"))])
    assert read(made, 2)["fast"] == ["a", "b"]


def test_watermarks_come_from_all_subtasks_and_ended_splits_no_longer_count() -> None:
    alignment = SourceAlignment({"s": GROUP, "t": GROUP})
    alignment.observe([ack("s", {"a": 0}, subtask=0), ack("s", {"b": 90}, subtask=1), ack("t", {"x": 150})])
    assert alignment.ahead("t", 0) == {"x"}
    assert alignment.ahead("s", 0) == frozenset()
    alignment.observe([ack("s", {}, subtask=0)])
    assert alignment.ahead("t", 1) == frozenset()


def test_decisions_stand_for_the_length_of_the_interval() -> None:
    slow = WatermarkAlignment(group="g", max_drift_ms=100, update_interval_ms=1000)
    alignment = SourceAlignment({"s": slow, "t": slow})
    assert alignment.ahead("s", 10) == frozenset()
    alignment.observe([ack("s", {"a": 500}), ack("t", {"a": 0})])
    assert alignment.ahead("s", 1009) == frozenset()
    assert alignment.ahead("s", 1010) == {"a"}
    assert alignment.ahead("s", 900) == {"a"}, "a clock that was set back does not freeze the decision"


def test_groups_do_not_see_each_other() -> None:
    other = WatermarkAlignment(group="other", max_drift_ms=100, update_interval_ms=1)
    alignment = SourceAlignment({"s": GROUP, "t": other})
    alignment.observe([ack("s", {"a": 5000}), ack("t", {"a": 0})])
    assert alignment.ahead("s", 0) == frozenset()
    assert alignment.ahead("unaligned", 0) == frozenset()


def test_a_replayed_plan_holds_back_what_it_held_back_then() -> None:
    made = planner(fast=Counting(), slow=Counting())
    read(made, 0)
    made.observe([ack("fast", {"a": 1000, "b": 1000}), ack("slow", {"a": 0, "b": 0})])
    ranges, states = made.plan(1, None)
    logged = {
        "sources": {
            name: {"ranges": [asdict(r) for r in s.ranges], "finished": s.finished, "state": states[name].state}
            for name, s in ranges.items()
        }
    }
    again = planner(fast=Counting(), slow=Counting())  # knows no watermarks
    assert again.plan(1, logged) == (ranges, states)


def test_single_files_wait(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("1\n2\n")
    enumerator = FileSource.text(tmp_path, max_bytes_per_epoch=2).create_enumerator()
    first = enumerator.plan(now_ms=0, max_records=None).ranges[0].split
    enumerator.pause(frozenset({first}))
    plan = enumerator.plan(now_ms=1, max_records=None)
    assert first not in {r.split for r in plan.ranges if r.start != r.end}
    assert not plan.finished
    enumerator.pause(frozenset())
    for now in range(2, 10):
        plan = enumerator.plan(now_ms=now, max_records=None)
        if plan.finished:
            break
    assert plan.finished


# -------------------------------------------------------------------- whole jobs

calls: Counter[str] = Counter()
FAST_MS, SLOW_MS, RECORDS, PER_EPOCH, DRIFT = 1000, 100, 200, 5, 3000


class Time(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class Numbers:
    def __init__(self, name: str, step_ms: int) -> None:
        self.name, self.step_ms = name, step_ms

    def __call__(self, index: int) -> tuple[str, int]:
        return self.name, index * self.step_ms


class FailsOnce:
    def __call__(self, value: Any) -> Any:
        calls["map"] += 1
        if calls["map"] == 100:
            raise ValueError("once")
        return value


def run(tmp_path: Path, *, aligned: bool, idle_ms: int | None = None, silent: bool = False) -> list[tuple[str, int]]:
    calls.clear()
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    config.set_string("penstock.job.dir", str(tmp_path / f"job-{aligned}"))
    config.set_string("execution.checkpointing.interval", "20 ms")
    config.set_string("penstock.epoch.interval", "1 ms")
    config.set_string("penstock.epoch.quiet-interval", "5 ms")
    config.set_string("penstock.epoch.max-records", str(PER_EPOCH))
    env = StreamExecutionEnvironment(config)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 0))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Time())
    if idle_ms is not None:
        strategy = strategy.with_idleness(Duration.of_millis(idle_ms))
    if aligned:
        strategy = strategy.with_watermark_alignment("g", Duration.of_millis(DRIFT), Duration.of_millis(1))
    fast = env.from_source(DataGeneratorSource(Numbers("fast", FAST_MS), RECORDS), strategy, "fast")
    slow = env.from_source(DataGeneratorSource(Numbers("slow", SLOW_MS), RECORDS), strategy, "slow")
    both = fast.union(slow)
    if silent:
        nothing = DataGeneratorSource(Numbers("silent", 1), None, rate_per_second=1e-9)
        both = both.union(env.from_source(nothing, strategy, "silent"))
    expected = 2 * RECORDS
    with both.map(FailsOnce()).execute_and_collect() as result:
        return [next(result) for _ in range(expected)]


def lead(records: list[tuple[str, int]]) -> int:
    """How far the fast source was ever ahead of the slow one, while that still had records."""
    at, most = {"fast": 0, "slow": 0}, 0
    for name, timestamp in records:
        at[name] = timestamp
        if at["slow"] < (RECORDS - 1) * SLOW_MS:
            most = max(most, at["fast"] - at["slow"])
    return most


def test_the_fast_source_waits_for_the_slow_one_and_every_record_comes_once_also_after_a_failure(
    tmp_path: Path,
) -> None:
    every = sorted([("fast", n * FAST_MS) for n in range(RECORDS)] + [("slow", n * SLOW_MS) for n in range(RECORDS)])
    free = run(tmp_path, aligned=False)
    assert sorted(free) == every
    assert lead(free) > (RECORDS - PER_EPOCH - 1) * (FAST_MS - SLOW_MS) / 2
    aligned = run(tmp_path, aligned=True)
    assert sorted(aligned) == every
    assert calls["map"] > 2 * RECORDS, "nothing was replayed"
    # One epoch is planned before its watermark is known, and one is read while a job that went back knows none.
    assert lead(aligned) <= DRIFT + 3 * PER_EPOCH * FAST_MS


def test_an_idle_source_does_not_hold_the_group_back(tmp_path: Path) -> None:
    records = run(tmp_path, aligned=True, idle_ms=30, silent=True)
    assert len(records) == 2 * RECORDS


@pytest.mark.parametrize(
    ("group", "drift", "interval"), [("", 1, 1), ("g", -1, 1), ("g", 1, 0)], ids=["group", "drift", "interval"]
)
def test_alignments_that_cannot_be_are_refused(group: str, drift: int, interval: int) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    with pytest.raises(JobDefinitionError, match="watermark alignment needs"):
        strategy.with_watermark_alignment(group, Duration.of_millis(drift), Duration.of_millis(interval))


def test_only_sources_can_be_aligned() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment("g", Duration.of_seconds(1))
    with pytest.raises(JobDefinitionError, match="only a source can wait"):
        StreamExecutionEnvironment().from_collection([1]).assign_timestamps_and_watermarks(strategy)
