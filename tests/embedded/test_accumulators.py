"""Accumulators of whole jobs: every record counts once, whatever dies; and the user's own metrics."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration, WatermarkStrategy
from penstock.common.accumulators import AverageAccumulator, Histogram, IntCounter, ListAccumulator
from penstock.connectors.program import CollectionSource
from penstock.datastream import MapFunction, StreamExecutionEnvironment
from penstock.errors import JobDefinitionError
from penstock.runtime.embedded.crash import POINTS, CrashPoint
from penstock.testing import (
    BarrierMode,
    CrashPlan,
    EmbeddedJob,
    Epoch,
    ListSink,
    OperatorHarness,
    ScriptedSource,
    Split,
)
from tests.embedded.jobs import configured, master_of, memory_storage, settings

VALUES = range(40)
SCRIPT = [
    item
    for epoch in range(4)
    for item in [
        *([Epoch()] if epoch else []),
        *(Split("x"), *VALUES[epoch * 10 : epoch * 10 + 5]),
        *(Split("y"), *VALUES[epoch * 10 + 5 : epoch * 10 + 10]),
    ]
]


class Counting(MapFunction):
    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at

    def open(self, runtime_context: Any) -> None:
        self.seen = IntCounter()
        runtime_context.add_accumulator("seen", self.seen)
        self.digits = runtime_context.get_histogram("digits")
        self.mean = AverageAccumulator()
        runtime_context.add_accumulator("mean", self.mean)
        self.all = ListAccumulator()
        runtime_context.add_accumulator("all", self.all)

    def map(self, value: int) -> int:
        if value == self.stop_at:
            raise RuntimeError("enough")
        self.seen.add(1)
        self.digits.add(value % 10)
        self.mean.add(value)
        self.all.add(value)
        return value


EXPECTED = {"seen": 40, "digits": dict.fromkeys(range(10), 4), "mean": 19.5, "all": list(VALUES)}


def results_of(runtime: EmbeddedJob) -> dict[str, Any]:
    results = runtime.master.accumulators.results()
    return {**results, "all": sorted(results["all"])}


def job_of(crashes: CrashPlan | None, *, seed: int = 0, mode: BarrierMode = BarrierMode.EXACTLY_ONCE) -> EmbeddedJob:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).set_max_parallelism(8)
    source = env.from_source(ScriptedSource(SCRIPT), WatermarkStrategy.no_watermarks(), "source")
    source.rebalance().map(Counting()).sink_to(ListSink("accumulators"))
    job = replace(env._describe("accumulators"), job_id="job", settings=settings())
    return EmbeddedJob(
        job,
        master_of(job, memory_storage()),
        schedule="random",
        seed=seed,
        mode=mode,
        max_in_flight=2,
        crashes=crashes,
    )


@pytest.mark.parametrize("mode", [BarrierMode.EXACTLY_ONCE, BarrierMode.UNALIGNED], ids=lambda mode: mode.value)
def test_every_record_counts_once_wherever_the_job_crashes(mode: BarrierMode) -> None:
    points: list[CrashPoint] = [point for point in POINTS if point != "during-restore"]
    crashed = 0
    for seed, (point, occurrence) in enumerate(itertools.product(points, (1, 3))):
        runtime = job_of(CrashPlan([(point, occurrence)]), seed=seed, mode=mode)
        runtime.run()
        assert results_of(runtime) == EXPECTED, f"{point} {occurrence}"
        crashed += runtime.crashes
    ListSink.clear("accumulators")
    assert crashed > 15


def test_a_driver_that_died_after_the_last_checkpoint_still_gives_the_results() -> None:
    crashes = CrashPlan([])
    undisturbed = job_of(crashes)
    undisturbed.run()
    runtime = job_of(CrashPlan([("after-manifest", crashes.reached["after-manifest"])]))
    runtime.run()
    ListSink.clear("accumulators")
    assert runtime.crashes == 1
    assert runtime.master.reports[-1].epoch == undisturbed.master.epoch - 1  # the last epoch was not run again
    assert results_of(runtime) == EXPECTED


def start(folder: Path, parallelism: int, function: Any) -> Any:
    config = configured(folder / "job", {"restart-strategy.type": "none"})
    env = StreamExecutionEnvironment.get_execution_environment(config)
    source = CollectionSource(list(VALUES), epochs=[10, 20, 30])
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "source").uid("source")
    counted = numbers.rebalance().map(function).uid("counting").set_parallelism(parallelism)
    counted.sink_to(ListSink(str(folder))).uid("sink").set_parallelism(1)
    return env.execute_async("resumed")


@pytest.mark.parametrize(("before", "after"), [(2, 2), (3, 1), (1, 4)])
def test_a_resumed_job_counts_on_at_any_parallelism(before: int, after: int, tmp_path: Path) -> None:
    stopped = start(tmp_path, before, Counting(stop_at=25))
    with pytest.raises(Exception, match="enough"):
        stopped.get_job_execution_result().result()
    assert stopped.get_accumulators().result()["seen"] == 20
    client = start(tmp_path, after, Counting())
    results = client.get_job_execution_result().result().get_all_accumulator_results()
    ListSink.clear(str(tmp_path))
    assert {**results, "all": sorted(results["all"])} == EXPECTED
    assert client.get_accumulators().result() == results


def test_a_name_is_added_once_in_an_operator_and_is_of_one_class() -> None:
    class Twice(MapFunction):
        def open(self, runtime_context: Any) -> None:
            runtime_context.get_int_counter("x").add(1)
            assert runtime_context.get_int_counter("x").get_local_value() == 1
            assert runtime_context.get_accumulator("y") is None
            with pytest.raises(JobDefinitionError, match="has an accumulator 'x' already"):
                runtime_context.add_accumulator("x", IntCounter())
            with pytest.raises(JobDefinitionError, match="'x' as a Histogram, but it is a IntCounter"):
                runtime_context.get_histogram("x")
            with pytest.raises(JobDefinitionError, match="must be an Accumulator"):
                runtime_context.add_accumulator("z", 5)

        def map(self, value: Any) -> Any:
            return value

    OperatorHarness.for_function(Twice()).push(1)


def test_a_retry_forgets_what_the_failed_attempt_added() -> None:
    harness = OperatorHarness.for_function(Counting()).push(1).push(2)
    harness.snapshot()
    harness.push(3).rollback().push(4)
    seen = harness.state.accumulators.values()
    assert seen["all"].get_local_value() == [1, 2, 4]
    assert isinstance(seen["digits"], Histogram)


def test_an_accumulator_that_nobody_adds_any_more_is_kept() -> None:
    class Plain(MapFunction):
        def map(self, value: Any) -> Any:
            return value

    data = OperatorHarness.for_function(Counting()).push(1).snapshot()
    plain = OperatorHarness.for_function(Plain()).restore(data).push(2)
    again = OperatorHarness.for_function(Counting()).restore(plain.snapshot()).push(3)
    assert again.state.accumulators.values()["all"].get_local_value() == [1, 3]


class Measured(MapFunction):
    def open(self, runtime_context: Any) -> None:
        group = runtime_context.get_metrics_group()
        self.counter, self.meter = group.counter("records"), group.add_group("rates", "all").meter("events")
        self.sizes = group.distribution("sizes")
        self.last = 0
        group.gauge("last", lambda: self.last)

    def map(self, value: int) -> int:
        self.counter.inc()
        self.meter.mark_event(2)
        self.sizes.update(value)
        self.last = value
        return value


def test_reports_show_the_users_own_metrics_by_subtask() -> None:
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.from_collection([3, 1, 2]).map(Measured()).uid("measured").print()
    client = env.execute_async("measured")
    client.get_job_execution_result().result()
    (vertex,) = client.epoch_reports()[-1].vertices
    assert vertex["operators"]["measured"]["user"] == {
        "last": [2],
        "rates.all.events": [6],
        "records": [3],
        "sizes.count": [3],
        "sizes.max": [3],
        "sizes.min": [1],
        "sizes.sum": [6],
    }
