"""A slow vertex is named, what feeds it is back-pressured, and sources are given less until it is fast again."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.base import Committer, Sink, SinkWriter, WriterContext
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import JobClient, StreamExecutionEnvironment
from penstock.driver.control.home import JobHome
from penstock.driver.waiting import CommitTime, EpochBounds, slowest, waited_ms
from penstock.protocol.ids import VertexId
from penstock.records import Block
from penstock.service.dispatcher import Dispatcher
from penstock.service.rest.app import create_app
from penstock.testing import ListSink
from tests.driver.jobs import eventually
from tests.service.served import served

SOURCE, SINK = VertexId(0), VertexId(1)
TARGET_MS = 100


@pytest.mark.parametrize(
    ("bounds", "duration_ms", "read", "expected"),
    [
        (EpochBounds(interval_ms=200), 150, 10**6, False),
        (EpochBounds(interval_ms=200), 250, 1, True),  # the next epoch starts late
        (EpochBounds(target_ms=1000, admitted=500), 1100, 1, True),
        (EpochBounds(target_ms=1000, admitted=500), 900, 500, True),  # more was there to read
        (EpochBounds(target_ms=1000, admitted=500), 900, 300, False),
        (EpochBounds(target_ms=1000, admitted=500), 100, 500, False),  # admission is still growing
        (EpochBounds(target_ms=1000, admitted=None), 900, 10**6, False),
    ],
)
def test_an_epoch_is_held_up_when_it_is_late_or_sources_had_more_than_they_were_given(
    bounds: EpochBounds, duration_ms: float, read: int, expected: bool
) -> None:
    assert bounds.held_up(duration_ms, [0, read]) is expected


def test_the_slowest_vertex_is_to_blame_unless_the_time_went_elsewhere() -> None:
    assert slowest({SOURCE: 100, SINK: 700}, 1000) == SINK
    assert slowest({SOURCE: 10, SINK: 70}, 1000) is None
    assert slowest({}, 1000) is None


def test_where_admission_has_bounded_the_records_less_of_the_epoch_is_enough() -> None:
    """Spark took 2 s of 2.7: records were bounded so that the sink works for half a second, because it is slow."""
    bounds = EpochBounds(target_ms=1000, admitted=500)
    assert slowest({SOURCE: 10, SINK: 500}, 2700, bounds.least_share([500])) == SINK
    assert slowest({SOURCE: 10, SINK: 500}, 2700, bounds.least_share([200])) is None
    assert slowest({SOURCE: 10, SINK: 200}, 2700, bounds.least_share([500])) is None
    assert EpochBounds(admitted=500).least_share([500]) == EpochBounds().least_share([10**6]) == 0.25


def test_a_feeder_waits_while_the_bottleneck_works_but_not_while_it_works_itself() -> None:
    assert waited_ms(duration_ms=1000, busy_ms=100, blocked_ms=0, bottleneck_ms=700) == 700
    assert waited_ms(duration_ms=1000, busy_ms=600, blocked_ms=0, bottleneck_ms=700) == 400
    assert waited_ms(duration_ms=1000, busy_ms=100, blocked_ms=800, bottleneck_ms=700) == 800


def test_a_commit_counts_where_it_was_waited_for_or_paces_the_epochs() -> None:
    assert CommitTime(took_ms=500, held_ms=500).after(300) == 800  # in the way of the next epoch
    assert CommitTime(took_ms=500, held_ms=0.1).after(300) == 300  # beside it, and over in time
    assert CommitTime(took_ms=1300, held_ms=300).after(600) == 1300  # beside it, but epochs wait for commits


class _SlowCommits(ListSink):
    """A commit takes `seconds`, beside the next epoch or not."""

    def __init__(self, name: str, seconds: float, *, beside: bool) -> None:
        super().__init__(name)
        self._seconds, self._beside = seconds, beside

    def create_committer(self, sink_id: str) -> Committer:
        return _SlowCommitter(super().create_committer(sink_id), self._seconds, beside=self._beside)


class _SlowCommitter(Committer):
    def __init__(self, inner: Committer, seconds: float, *, beside: bool) -> None:
        self._inner, self._seconds, self.commits_beside_next_epoch = inner, seconds, beside

    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        time.sleep(self._seconds)
        self._inner.commit(epoch, committables)


@pytest.mark.parametrize("beside", [False, True])
def test_of_several_sinks_the_one_whose_commit_is_slow_is_named(tmp_path: Path, beside: bool) -> None:
    settings = {
        "penstock.runtime": "embedded",
        "penstock.epoch.interval": "10 ms",
        "penstock.epoch.max-records": "100",
        "penstock.job.dir": str(tmp_path),
        "execution.checkpointing.interval": "0 ms",
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    source = DataGeneratorSource(lambda index: index, 500)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    for name, seconds in (("fast", 0.0), ("slow", 0.4), ("also fast", 0.001)):
        stream.rebalance().sink_to(_SlowCommits(f"{name} {beside}", seconds, beside=beside)).name(name).uid(name)
    client = env.execute_async("three sinks")
    client.get_job_execution_result().result()
    full = [report for report in client.epoch_reports()[1:] if report.records_in]  # those before had nothing to commit
    assert len(full) >= 3
    for report in full:
        names = {vertex["id"]: vertex["name"] for vertex in report.vertices}
        assert names[report.bottleneck or -1] == "slow"
        spent = {vertex["name"]: vertex["commit_ms"] for vertex in report.vertices}
        assert spent["slow"] >= 400  # most of the epoch, also where other programs have the cores
        assert spent["slow"] > spent["also fast"] >= 1
        assert sum(spent.values()) <= report.commit_ms + 1
        fed = {v["name"]: v["back_pressured_ms"] for v in report.vertices}
        assert fed["numbers"] > 20
        assert fed["fast"] == 0


class _Slow(Sink):
    """Takes `seconds` for each record: set while the job runs, in its process."""

    seconds = 0.0

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _SlowWriter()

    def create_committer(self, sink_id: str) -> Committer:
        return ListSink("slow").create_committer(sink_id)


class _SlowWriter(SinkWriter):
    def begin_epoch(self, epoch: int, attempt: str) -> None:
        pass

    def write(self, block: Block) -> None:
        if _Slow.seconds:
            time.sleep(_Slow.seconds * len(block))

    def prepare_commit(self) -> list[Any]:
        return []


@pytest.fixture
def job(tmp_path: Path) -> Iterator[JobClient]:
    configuration = Configuration.from_dict(
        {
            "penstock.runtime": "embedded",
            "penstock.job.home": str(tmp_path),
            "penstock.epoch.interval": "20 ms",
            "penstock.epoch.target": f"{TARGET_MS} ms",
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    source = DataGeneratorSource(lambda index: index, None, rate_per_second=10_000)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    stream.rebalance().sink_to(_Slow()).name("slow sink")
    client = env.execute_async("slow")
    yield client
    _Slow.seconds = 0.0
    client.cancel().result()


def test_a_slow_sink_is_named_sources_get_less_and_the_job_recovers_with_it(job: JobClient, tmp_path: Path) -> None:
    dispatcher = Dispatcher(JobHome(tmp_path))
    with served(create_app(dispatcher, token="t"), "t") as rest:
        eventually(lambda: len(job.epoch_reports()) > 20, "epochs")
        path = f"/jobs/{job.get_job_id()}"
        source, sink = rest.get(path).json()["vertices"]
        eventually(lambda: rest.get(path).json()["bottleneck"] is None, "nothing is in the way yet")
        before = max(report.admitted or 0 for report in job.epoch_reports())

        _Slow.seconds = 0.001  # 1,000 a second where 10,000 come
        eventually(lambda: rest.get(path).json()["bottleneck"] == sink["id"], "the sink is named")

        def told(vertex: str, **expected: Any) -> bool:
            """In one answer: another one may be of an epoch that was not held up."""
            answer = _pressure(rest, path, vertex)
            return all(answer[name] == value for name, value in expected.items())

        held_up_by = {"bottleneck-vertex": {"id": sink["id"], "name": sink["name"]}}
        eventually(
            lambda: told(source["id"], backpressureLevel="high", bottleneck=False, **held_up_by), "the source waits"
        )
        eventually(lambda: told(sink["id"], backpressureLevel="ok", bottleneck=True), "the sink waits for nobody")
        in_prometheus = re.compile(rf'penstock_vertex_bottleneck{{.*vertex="{sink["id"]}".*}} 1\n')
        eventually(lambda: in_prometheus.search(rest.get("/metrics").text) is not None, "Prometheus names the sink")

        def settled() -> bool:
            """It takes some epochs to learn how slow the sink is, more of them when other programs use the machine."""
            latest = job.epoch_reports()[-5:]
            short = sorted(report.duration_ms for report in latest)[2] < TARGET_MS * 3  # so memory is bounded
            return short and all((report.admitted or 0) < before / 10 for report in latest)

        eventually(settled, "epochs get short again, with less to read")

        _Slow.seconds = 0.0
        eventually(lambda: (job.epoch_reports()[-1].admitted or 0) > before / 4, "sources get more again")
        eventually(lambda: not job.epoch_reports()[-1].held_up, "the backlog is worked off")
        eventually(lambda: rest.get(path).json()["bottleneck"] is None, "nothing is in the way any more")
    dispatcher.close()


def _pressure(rest: httpx.Client, path: str, vertex: str) -> dict[str, Any]:
    found: dict[str, Any] = rest.get(f"{path}/vertices/{vertex}/backpressure").json()
    return found
