"""How long an epoch takes that brings nothing: the fixed price of a trigger, and where it goes.

Three levels (two exchanges), a checkpoint at every epoch, epochs one after the other. The price is the time from one
epoch's commit to the next one's, so nothing can hide between them.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.rates import EpochEnd, Run, percentile
from penstock.common import Types, WatermarkStrategy
from penstock.connectors.base import Json, Source, SourcePlan, SplitEnumerator, SplitRange, SplitReader
from penstock.connectors.program import CollectSink, deliveries
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.records import Block


class SilentSource(Source):
    """Two splits that never bring anything and never end."""

    def create_enumerator(self) -> SplitEnumerator:
        return _SilentEnumerator()

    def create_reader(self) -> SplitReader:
        return _SilentReader()

    @property
    def bounded(self) -> bool:
        return False


class _SilentEnumerator(SplitEnumerator):
    def restore(self, state: Json) -> None:
        pass

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        ranges = tuple(SplitRange(split=str(i), ordinal=i, start=0, end=0) for i in range(2))
        return SourcePlan(ranges=ranges, state=0, finished=False, records=0)


class _SilentReader(SplitReader):
    def read(self, split: SplitRange, block_size: int) -> Iterator[Block]:
        yield from ()


class Counting(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        yield value


class Stopwatch:
    """Times of calls the driver makes, by epoch; set around methods of live classes, in this process only."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = defaultdict(list)

    def around(self, owner: Any, method: str, name: str) -> None:
        original: Callable[..., Any] = getattr(owner, method)

        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                self.spent[name].append((time.perf_counter() - started) * 1000)

        setattr(owner, method, timed)


def measure_empty_epochs(env: StreamExecutionEnvironment, spec: dict[str, Any]) -> Run:
    warm_up, measured = int(spec["warm_up"]), int(spec["epochs"])
    watch = _watch_driver()
    stream = env.from_source(SilentSource(), WatermarkStrategy.no_watermarks(), "silence").uid("silence")
    first = stream.key_by(lambda value: value).process(Counting()).uid("first")
    sink = first.key_by(lambda value: value).process(Counting()).uid("second").sink_to(CollectSink()).uid("sink")
    deliveries[sink._node.operator_id] = lambda epoch, values: None
    started = time.time()
    client = env.execute_async("benchmark-empty")
    enough = threading.Event()
    ended = client.get_job_execution_result()
    while len(client.epoch_reports()) < warm_up + measured and not ended.done():
        enough.wait(0.25)
    phases, stages = _spark_phases(measured), _spark_stages(measured)
    client.cancel()
    ended.result()
    reports = client.epoch_reports()[: warm_up + measured]
    counted = reports[warm_up:]
    ends = [r.wall_ms / 1000 for r in reports]
    periods = [(b - a) * 1000 for a, b in zip(ends[warm_up - 1 :], ends[warm_up:], strict=False)]
    parts: dict[str, list[float]] = {
        **{f"Spark: {name}": values for name, values in phases.items()},
        **{f"driver: {name}": values[warm_up : warm_up + measured] for name, values in watch.spent.items()},
        **stages,
        "driver: manifest": [r.manifest_ms for r in counted],
        "driver: sink commit": [r.commit_ms for r in counted],
        **{
            f"slot: level {v['level']} busy, two slots": [r.vertices[i]["busy_ms"] for r in counted]
            for i, v in enumerate(counted[0].vertices)
        },
        **{
            f"slot: level {v['level']} snapshot": [r.vertices[i]["snapshot_ms"] for r in counted]
            for i, v in enumerate(counted[0].vertices)
        },
    }
    return Run(
        started=started,
        epochs=[EpochEnd(at=at, records=0, checkpoint=True) for at in ends],
        details={
            "period_ms": {f"p{p}": round(percentile(periods, p), 1) for p in (10, 50, 90)},
            "epochs": len(periods),
            "parts_ms": {name: round(percentile(values, 50), 2) for name, values in parts.items() if values},
        },
    )


def _watch_driver() -> Stopwatch:
    from pyspark.sql import DataFrame
    from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame

    from penstock.driver.job_master import JobMaster
    from penstock.runtime.epochs.job import _Attempt

    watch = Stopwatch()
    assert issubclass(ClassicFrame, DataFrame)
    watch.around(_Attempt, "on_batch", "foreachBatch callback")
    watch.around(JobMaster, "plan_epoch", "plan and log the epoch")
    watch.around(ClassicFrame, "toArrow", "Spark job (toArrow)")
    watch.around(JobMaster, "complete_epoch", "complete (manifest, commit, report)")
    return watch


def _spark_phases(epochs: int) -> dict[str, list[float]]:
    """Structured Streaming's own account of its triggers."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    assert session is not None
    phases: dict[str, list[float]] = defaultdict(list)
    for query in session.streams.active:
        for progress in query.recentProgress[-epochs:]:
            for name, value in progress.durationMs.items():
                phases[name].append(float(value))
    return phases


def _spark_stages(epochs: int) -> dict[str, list[float]]:
    """Time of each stage of the latest jobs, and between the job's submission and its first stage."""
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    assert session is not None
    context: Any = session.sparkContext
    stages = json_stages(context)
    out: dict[str, list[float]] = defaultdict(list)
    for job in stages[-epochs:]:
        for number, (submitted, completed) in enumerate(job):
            out[f"Spark job: stage {number}"].append(completed - submitted)
        out["Spark job: all stages"].append(job[-1][1] - job[0][0])
    return out


def json_stages(context: Any) -> list[list[tuple[float, float]]]:
    """(submitted, completed) in ms of every stage of every finished job the status store remembers, oldest first."""
    store = context._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    found = []
    for index in range(jobs.size()):
        job = jobs.apply(index)
        if job.status().toString() != "SUCCEEDED":
            continue
        times = []
        ids = job.stageIds()
        for at in range(ids.size()):
            stage = store.lastStageAttempt(ids.apply(at))
            if stage.submissionTime().isDefined() and stage.completionTime().isDefined():
                times.append((stage.submissionTime().get().getTime(), stage.completionTime().get().getTime()))
        if times:
            found.append((job.jobId(), sorted(times)))
    return [times for _, times in sorted(found)]
