"""A running job changes its parallelism between two epochs, under load, and its answer stays exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration, Duration, Time, WatermarkStrategy
from penstock.common.restart_strategy import RestartStrategies
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction, ProcessWindowFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import EventTimeSessionWindows
from penstock.driver.client import JobClient
from penstock.driver.requests import JobEndedError, RescaleRequest
from penstock.errors import JobDefinitionError, PenstockError, StorageError
from penstock.graph.job_graph import rescaled
from penstock.testing import CrashPlan, EmbeddedJob, ListSink
from tests.chaos.job import EventTime, build
from tests.chaos.verify import verify
from tests.embedded.jobs import Verdict, counting_job, master_of, memory_storage, numbered_script, settings

RECORDS, SPLITS = 30_000, 3
SCRIPT = numbered_script(splits=3, per_split=60, epochs=12)


def environment(folder: Path, parallelism: int) -> StreamExecutionEnvironment:
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    config.set_string("penstock.job.dir", str(folder / "job"))
    config.set_string("execution.checkpointing.interval", "0 ms")
    config.set_string("penstock.epoch.interval", "1 ms")
    config.set_string("penstock.epoch.max-records", "500")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    return env.set_parallelism(parallelism)


def widths(client: JobClient) -> list[int]:
    """The parallelisms the job had, in order."""
    seen: list[int] = []
    for report in client.epoch_reports():
        width = max(vertex["parallelism"] for vertex in report.vertices)
        if not seen or seen[-1] != width:
            seen.append(width)
    return seen


def test_live_2_to_5_to_3_under_load_is_exact(tmp_path: Path) -> None:
    env = environment(tmp_path, 2)
    build(env, tmp_path, RECORDS, None, SPLITS)
    client = env.execute_async("live")
    first = client.rescale(5).result()
    second = client.rescale(3).result()
    client.get_job_execution_result().result()
    assert (first.before, first.after, second.before, second.after) == (2, 5, 5, 3)
    assert first.pause_ms > 0
    assert widths(client) == [2, 5, 3]
    assert {report.job_attempt for report in client.epoch_reports()} == {0, 1, 2}
    counts = verify(tmp_path, RECORDS, SPLITS)
    assert counts["records"] == RECORDS
    assert counts["late"] > 0


class Alarms(KeyedProcessFunction):
    """Counts, and says so for every key once, by an event-time timer that is far ahead."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        if not self.count.value():
            ctx.timer_service().register_event_time_timer(1_000_000)
        self.count.update((self.count.value() or 0) + 1)
        return ()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "timer", ctx.get_current_key(), self.count.value()


class Sessions(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield "session", key, context.window().start, context.window().end, len(list(elements))


def test_sessions_and_timers_in_flight_move_with_their_keys(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    name = request.node.name
    ListSink.clear(name)
    env = environment(tmp_path, 3)
    source = DataGeneratorSource(lambda i: (i % 50, i * 10, i), 6000, splits=3)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(100)).with_timestamp_assigner(
        EventTime()
    )
    events = env.from_source(source, strategy, "events").uid("events").key_by(lambda e: e[0])
    sessions = events.window(EventTimeSessionWindows.with_gap(Time.seconds(30))).process(Sessions()).uid("sessions")
    alarms = events.process(Alarms()).uid("alarms")
    sessions.union(alarms).sink_to(ListSink(name)).uid("sink")
    client = env.execute_async("in flight")
    assert client.rescale(7).result().after == 7
    assert client.rescale(1).result().after == 1
    assert client.rescale(2).result().after == 2
    client.get_job_execution_result().result()
    found = sorted(ListSink.results(name))
    # One session a key, open from the first record to the last, and one timer a key, set at the first.
    expected: list[tuple[Any, ...]] = [("session", key, key * 10, (5950 + key) * 10 + 30_000, 120) for key in range(50)]
    expected += [("timer", key, 120) for key in range(50)]
    assert found == sorted(expected)


def test_operators_with_a_parallelism_of_their_own_keep_it(tmp_path: Path) -> None:
    env = environment(tmp_path, 2)
    stream = env.from_collection([1, 2, 3]).map(lambda n: n).set_parallelism(2).map(lambda n: n + 1)
    stream.print()
    job = env._describe("fixed").graph.job
    found = {node.id: node.parallelism for v in rescaled(job, 4).vertices.values() for node in v.nodes}
    assert [found[node] for node in sorted(found)] == [1, 2, 4, 4]


@pytest.mark.parametrize(
    ("point", "occurrence", "comes_about"),
    [("before-manifest", 4, False), ("after-manifest", 4, False), ("during-restore", 3, False), ("process", 150, True)],
)
def test_a_crash_around_a_rescale_keeps_the_job_exact(
    point: Any, occurrence: int, comes_about: bool, request: pytest.FixtureRequest
) -> None:
    sink = request.node.name
    ListSink.clear(sink)
    job = counting_job(SCRIPT, sink, parallelism=(2, 2, 2, 2))
    crashes = CrashPlan([(point, occurrence)])
    runtime = EmbeddedJob(job, master_of(job, memory_storage()), crashes=crashes)
    asked = RescaleRequest(parallelism=5)

    def on_report(report: Any) -> None:
        if report.epoch == 3 and not asked.answer.running() and not asked.answer.done():
            runtime.master.requests.rescale(asked)

    runtime.master.on_report = on_report
    runtime.run()
    assert crashes.fired == [(point, occurrence)]
    assert asked.answer.done()
    assert (asked.answer.exception() is None) == comes_about
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def test_a_store_that_fails_while_the_job_is_rescaled_keeps_it_exact(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job is at its new parallelism when it reads the checkpoint to go on from, and stays there when that fails."""
    sink = request.node.name
    ListSink.clear(sink)
    restarting = settings(restart=RestartStrategies.fixed_delay_restart(3, 10))
    job = counting_job(SCRIPT, sink, parallelism=(2, 2, 2, 2), job=restarting)
    storage = memory_storage()
    runtime = EmbeddedJob(job, master_of(job, storage))
    asked = RescaleRequest(parallelism=5)
    found = storage.list
    failed: list[str] = []

    def once_not_found(prefix: str) -> list[str]:
        if runtime.master.graph_version == 1 and not failed:
            failed.append(prefix)
            raise StorageError("the store is away")
        return found(prefix)

    monkeypatch.setattr(storage, "list", once_not_found)

    def on_report(report: Any) -> None:
        if report.epoch == 3 and not asked.answer.done():
            runtime.master.requests.rescale(asked)

    runtime.master.on_report = on_report
    runtime.run()
    assert (len(failed), runtime.failures) == (1, 1)
    assert asked.answer.result().after == 5
    assert max(vertex["parallelism"] for vertex in runtime.master.reports[-1].vertices) == 5
    assert Verdict(SCRIPT, ListSink.results(sink)).exact


def run_for_a_while(folder: Path, parallelism: int, rescale_to: int | None = None) -> list[int]:
    """A driver that begins, or goes on with, the job in `folder`, and its parallelisms; it ends in the middle of the data."""
    env = environment(folder, parallelism)
    source = DataGeneratorSource(lambda i: (i % 50, i), None, splits=3, rate_per_second=20_000)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    numbers.key_by(lambda n: n[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sum").filter(lambda _: False).print()
    client = env.execute_async("kept")
    if rescale_to is not None:
        client.rescale(rescale_to).result()
    client.trigger_checkpoint().result()
    client.cancel().result()
    client.get_job_execution_result().result()
    return widths(client)


def test_a_rescaled_job_stays_so_when_another_driver_goes_on_with_it(tmp_path: Path) -> None:
    assert run_for_a_while(tmp_path, 2, rescale_to=5) == [2, 5]
    assert run_for_a_while(tmp_path, 2) == [5]
    assert run_for_a_while(tmp_path, 2, rescale_to=4) == [5, 4]
    assert run_for_a_while(tmp_path, 2) == [4]
    assert run_for_a_while(tmp_path, 3) == [3], "the program asks for something else by now"
    assert run_for_a_while(tmp_path, 2) == [2]
    assert run_for_a_while(tmp_path, 2, rescale_to=1) == [2, 1]
    assert run_for_a_while(tmp_path, 2, rescale_to=2) == [1, 2]
    assert run_for_a_while(tmp_path, 2) == [2]


def test_a_rescale_that_the_job_does_not_allow_is_refused_and_the_job_goes_on(tmp_path: Path) -> None:
    env = environment(tmp_path, 2)
    build(env, tmp_path, 9000, None, SPLITS)
    client = env.execute_async("refused")
    with pytest.raises(JobDefinitionError, match="between 1 and the max parallelism 128"):
        client.rescale(1000).result()
    assert client.rescale(2).result().pause_ms == 0, "it is 2 already"
    client.get_job_execution_result().result()
    assert verify(tmp_path, 9000, SPLITS)["records"] == 9000
    with pytest.raises(JobEndedError):
        client.rescale(3).result()


def test_without_checkpoints_a_running_job_cannot_be_rescaled(request: pytest.FixtureRequest) -> None:
    job = counting_job(SCRIPT, request.node.name, job=settings(checkpoint_interval_ms=None))
    runtime = EmbeddedJob(job, master_of(job, None))
    answer = runtime.master.requests.rescale(RescaleRequest(parallelism=3))
    runtime.run()
    with pytest.raises(PenstockError, match="checkpointing is off"):
        answer.result(0)


def test_a_job_that_cannot_keep_up_is_scaled_up_and_one_that_idles_down(tmp_path: Path) -> None:
    """Embedded, nothing gets faster with more subtasks: what is tested is that the decision reaches the job."""
    config = Configuration()
    config.set_string("penstock.rescale.auto.enabled", "true")
    config.set_string("penstock.rescale.auto.min", "3")
    config.set_string("penstock.rescale.auto.max", "4")
    env = environment(tmp_path, 2)
    env.configure(config)
    build(env, tmp_path, 12_000, None, SPLITS)
    client = env.execute_async("follows its load")
    client.get_job_execution_result().result()
    assert widths(client)[:2] == [2, 3], "below the least it may have"
    assert verify(tmp_path, 12_000, SPLITS)["records"] == 12_000
