"""How long records take from a source to a sink: from the plan of their epoch to the commit that covers it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.waiting import HISTORY, LatencyTracker
from penstock.graph.job_graph import JobGraph, build_job_graph


def _environment(folder: Path | None = None) -> StreamExecutionEnvironment:
    settings = {"penstock.runtime": "embedded", "penstock.epoch.interval": "1 ms", "penstock.epoch.max-records": "10"}
    if folder is not None:
        settings |= {"penstock.job.dir": str(folder), "execution.checkpointing.interval": "0 ms"}
    return StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))


def _two_sources(env: StreamExecutionEnvironment, count: int = 100) -> None:
    """a → sink "one"; a and b, behind an exchange → sink "both"."""
    sources = [
        env.from_source(DataGeneratorSource(lambda i: i, count), WatermarkStrategy.no_watermarks(), name).uid(name)
        for name in ("a", "b")
    ]
    sources[0].filter(lambda i: False).print().uid("one")
    sources[0].union(sources[1]).key_by(lambda i: i).filter(lambda i: False).print().uid("both")


@pytest.fixture
def graph() -> JobGraph:
    env = _environment()
    _two_sources(env)
    return build_job_graph(env._stream_graph(None, pickled=False))


def test_an_epoch_is_measured_from_its_plan_to_the_commit_that_covers_it(graph: JobGraph) -> None:
    tracker = LatencyTracker(graph)
    tracker.planned(1, 100, {"a"})
    tracker.planned(2, 250, {"a", "b"})
    tracker.planned(3, 900, {"a"})  # under way while the checkpoint of 2 completes
    for sink, at in (("one", 1000), ("both", 1010)):
        tracker.committed(sink, 2, at)
    tracker.all_committed(2)
    found = {(pair["source"], pair["sink"]): pair for pair in tracker.summary()}
    assert sorted(found) == [("a", "both"), ("a", "one"), ("b", "both")], "nothing of b can come to sink one"
    assert [found["a", "one"][name] for name in ("p50_ms", "p99_ms", "last_ms", "epochs")] == [900, 900, 750, 2]
    assert found["b", "both"]["last_ms"] == 760
    tracker.committed("one", 3, 1100)
    assert next(p for p in tracker.summary() if p["sink"] == "one")["last_ms"] == 200


def test_a_repeated_epoch_counts_from_its_first_plan_and_once(graph: JobGraph) -> None:
    tracker = LatencyTracker(graph)
    tracker.planned(1, 100, {"a"})
    tracker.went_back()
    tracker.planned(1, 100, {"a"})  # from the log, with its time
    tracker.committed("one", 1, 5100)
    assert [(pair["last_ms"], pair["epochs"]) for pair in tracker.summary()] == [(5000, 1)]


def test_quantiles_are_over_the_newest_epochs(graph: JobGraph) -> None:
    tracker = LatencyTracker(graph)
    for epoch in range(1, 2 * HISTORY + 1):
        tracker.planned(epoch, 0, {"a"})
        tracker.committed("one", epoch, epoch)
        tracker.all_committed(epoch)
    (pair,) = tracker.summary()
    assert (pair["epochs"], pair["p50_ms"], pair["p99_ms"]) == (HISTORY, HISTORY + 65, 2 * HISTORY - 1)


@pytest.mark.parametrize("checkpoints", [True, False])
def test_a_running_job_reports_every_pair(checkpoints: bool, tmp_path: Path) -> None:
    env = _environment(tmp_path if checkpoints else None)
    _two_sources(env)
    client = env.execute_async()
    client.get_job_execution_result().result()
    report = client.epoch_reports()[-1]
    assert {(p["source"], p["sink"]) for p in report.latency} == {("a", "one"), ("a", "both"), ("b", "both")}
    assert all(pair["epochs"] == 10 for pair in report.latency), "100 records, 10 an epoch"
    assert all(0 <= pair["p50_ms"] <= pair["p99_ms"] < 60_000 for pair in report.latency)
