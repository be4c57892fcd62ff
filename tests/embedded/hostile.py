"""Everything at once: uneven sources, declined checkpoints, slow and failing stores, savepoints, stops, rescales, changed graphs,
crashes. One run follows from one number; `python -m tests.embedded.hostile --seed N` tells the story of a run.

A run is a chain of *lives* of one job. A life begins from nothing, from the job's folder or from a savepoint, at a parallelism
and with an order of inputs of its own. While it runs, the demon asks for savepoints, stops, rescales and checkpoints, makes
storage operations fail, lose their answers or come about after the death of who asked for them, and lets the process die. The
last life is left to come to its end. Then an oracle that knows only the input compares what is visible:

* every record is in exactly one window of its key or, where a split may be idle, on the side for late ones. Without idleness
  nothing is ever late, because every split is in order and the watermark waits for the slowest;
* the records of a key are counted 1, 2, 3, … without a gap;
* every timer has fired once.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import pickle
import random
import tempfile
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from penstock.checkpoint import layout, savepoint
from penstock.checkpoint.storage import ObjectStorage, Storage
from penstock.common import Configuration, Duration, Time, WatermarkStrategy
from penstock.common.restart_strategy import RestartStrategies
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.connectors.base import Committer, Sink, SinkWriter, WriterContext
from penstock.connectors.staging import StagedCommitter, StagedOutput, StagingWriter, staged_data
from penstock.datastream import OutputTag, StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction, ProcessWindowFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.driver.description import JobDescription
from penstock.driver.job_master import JobMaster
from penstock.driver.requests import CheckpointRequest, RescaleRequest, SavepointRequest
from penstock.errors import FencedError, JobFailedError, StorageError
from penstock.records import Block, Columns
from penstock.testing import (
    BarrierMode,
    CrashPlan,
    CrashPoint,
    EmbeddedJob,
    Epoch,
    ManualClock,
    ScriptedSource,
    SimulatedCrash,
    Split,
    Stamped,
)

WINDOW_MS: Final = 1_000
TIMER_MS: Final = 700
WIDTHS: Final = (1, 2, 3, 4, 7)
# How often each point is reached in one life, about: later occurrences would rarely fire.
POINTS: Final[dict[CrashPoint, int]] = {
    "source-block": 30,
    "process": 120,
    "barrier": 80,
    "before-snapshot": 40,
    "after-snapshot": 40,
    "before-upload": 40,
    "after-upload": 40,
    "before-run": 8,
    "before-manifest": 6,
    "after-manifest": 6,
    "during-sink-commit": 12,
    "after-sink-commit": 6,
    "before-savepoint": 1,
    "after-savepoint": 1,
    "after-commit": 8,
    "during-restore": 20,
}

# ---------------------------------------------------------------- input

Record: TypeAlias = tuple[int, str, int]  # key, id, event time


@dataclass(frozen=True, slots=True)
class Input:
    """What one source brings: a script of splits that begin, lag and end each in their own time."""

    script: tuple[Any, ...]

    @property
    def records(self) -> list[Record]:
        return [item.value for item in self.script if isinstance(item, Stamped)]


def uneven(name: str, rng: random.Random) -> Input:
    """Up to four splits: some lag far behind in event time, some begin late, some end at once, some never bring anything."""
    epochs = rng.randint(5, 10)
    splits: list[list[list[Record]]] = []
    for split in range(rng.randint(1, 4)):
        cells: list[list[Record]] = [[] for _ in range(epochs)]
        first = rng.choice([0, 0, 0, rng.randrange(epochs)])
        last = rng.choice([epochs - 1, epochs - 1, rng.randrange(first, epochs)])
        at = rng.choice([0, 0, 20_000, 60_000])  # lagging splits are those that begin at 0 beside one that does not
        pace = rng.choice([40, 150, 400])
        number = 0
        for epoch in range(first, last + 1):
            for _ in range(rng.choice([0, 1, 3, 6])):
                at += rng.randint(0, pace)
                # A skewed key has a third of all records.
                cells[epoch].append((rng.choice([0, 0, rng.randrange(9)]), f"{name}{split}.{number}", at))
                number += 1
        splits.append(cells)
    script: list[Any] = []
    for epoch in range(epochs):
        for split, cells in enumerate(splits):
            script.append(Split(f"{name}{split}"))
            script.extend(Stamped(record, record[2]) for record in cells[epoch])
        if epoch < epochs - 1:
            script.append(Epoch())
    return Input(tuple(script))


# ---------------------------------------------------------------- the outside world

# What is visible, by sink: commits in the order they came, each known by the name of what it commits.
_visible: dict[str, dict[str, list[tuple[int, list[Any]]]]] = {}


class OutsideSink(Sink):
    """A database that survives every crash. It stages as Kafka's and PostgreSQL's sinks do, in files of the job folder, and it
    knows a commit by its name: an epoch that was run again and committed again shows."""

    def __init__(self, name: str) -> None:
        self.name = name

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _Writer(context)

    def create_committer(self, sink_id: str) -> Committer:
        return _Committer(sink_id, self.name)


class _Writer(StagingWriter[list[Any]]):
    def encode(self, block: Block) -> list[Any] | None:
        assert not isinstance(block, Columns)
        return list(block.values)

    def pack(self, parts: list[list[Any]]) -> bytes:
        values = [value for part in parts for value in part]
        # Now and then more than is kept inside the manifest: then it is a file that can be thrown away too early.
        return pickle.dumps((values, bytes(20_000 if self._epoch % 3 else 0)))


class _Committer(StagedCommitter):
    def __init__(self, sink_id: str, name: str) -> None:
        super().__init__(sink_id)
        self._name = name

    def commit_staged(self, epoch: int, name: str, staged: Sequence[StagedOutput]) -> None:
        commits = _visible.setdefault(self._name, {})
        if name not in commits:
            commits[name] = [
                (part.epoch, pickle.loads(staged_data(part, self.storage, sink_id=self.sink_id))[0]) for part in staged
            ]


def visible(name: str, up_to: int | None = None) -> list[Any]:
    parts = [part for commit in _visible.get(name, {}).values() for part in commit]
    return [value for epoch, values in parts if up_to is None or epoch <= up_to for value in values]


# ---------------------------------------------------------------- the demon's storage

Harm: TypeAlias = Literal["fail", "answer-lost", "late"]


@dataclass(slots=True)
class HarmedStorage:
    """Any Storage whose operations fail, or are carried out although the answer is lost, or ("late") are carried out
    some operations after the process that asked for them has died. `story` is the proof."""

    inner: Storage
    rng: random.Random
    rate: float
    story: list[str]
    fired: Counter[str]
    armed: bool = True
    budget: int = 8
    _late: list[tuple[int, Callable[[], Any]]] = field(default_factory=list)
    _count: int = 0

    @property
    def url(self) -> str:
        return self.inner.url

    def put(self, path: str, data: bytes) -> None:
        self._do("put", path, lambda: self.inner.put(path, data))

    def put_new(self, path: str, data: bytes) -> bool:
        return bool(self._do("put_new", path, lambda: self.inner.put_new(path, data)))

    def get(self, path: str) -> bytes:
        data: bytes = self._do("get", path, lambda: self.inner.get(path))
        return data

    def exists(self, path: str) -> bool:
        return bool(self._do("exists", path, lambda: self.inner.exists(path)))

    def list(self, prefix: str) -> builtins.list[str]:
        return builtins.list(self._do("list", prefix, lambda: self.inner.list(prefix)))

    def delete(self, path: str) -> None:
        self._do("delete", path, lambda: self.inner.delete(path))

    def sweep(self, *, older_than_s: float = 3600.0) -> int:
        return self.inner.sweep(older_than_s=older_than_s)

    def _do(self, operation: str, path: str, carry_out: Callable[[], Any]) -> Any:
        if (
            path == layout.STATISTICS
        ):  # numbers for people, written by the wall clock: a run has to be the same every time
            return carry_out()
        self._count += 1
        for due, write in [late for late in self._late if late[0] <= self._count]:
            self._late.remove((due, write))
            write()
        rate = self.rate if operation in ("put", "put_new") else self.rate / 20  # a look is cheap and frequent
        # Who owns the folder is decided before a job runs; there a failing store is the next start's matter.
        if not self.armed or not self.budget or path.startswith("generations") or self.rng.random() >= rate:
            return carry_out()
        self.budget -= 1
        harm: Harm = self.rng.choice(["fail", "fail", "fail", "answer-lost", "late"])
        if harm == "late" and operation not in ("put", "put_new"):
            harm = "fail"
        self.fired[harm] += 1
        self.story.append(f"storage: {operation} of {path}: {harm}")
        if harm == "fail":
            raise StorageError(f"the demon: {operation} of {path} failed, nothing was done")
        if harm == "answer-lost":
            carry_out()
            raise StorageError(f"the demon: {operation} of {path} was carried out, but its answer was lost")

        def afterwards() -> None:
            self.story.append(f"storage: {operation} of {path} of a dead process is carried out now")
            with contextlib.suppress(StorageError):
                carry_out()

        self._late.append((self._count + self.rng.choice([1, 3, 10, 40, 100]), afterwards))
        raise SimulatedCrash(f"the process died while its {operation} of {path} was on the way")


# ---------------------------------------------------------------- the job


class _Stamp(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[2])


class _Ids(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, context.window().start, tuple(sorted(element[1] for element in elements))


class _Counts(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        ctx.timer_service().register_event_time_timer(timer_of(value[2]))
        yield "count", value[0], count, value[1]

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "timer", ctx.get_current_key(), timestamp


def timer_of(at: int) -> int:
    return (at // TIMER_MS + 1) * TIMER_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """What is committed under one name. A savepoint that the job went on after begins another one."""

    name: str

    def sink(self, of: str) -> str:
        return f"{self.name}-{of}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One version of the program: it may change between two lives."""

    inputs: tuple[Input, Input]
    idleness_ms: int | None
    settings: dict[str, Any]
    backend: str

    def describe(
        self, lineage: Lineage, *, parallelism: int, turned: bool, chained: bool, path: str | None, folder: Path
    ) -> JobDescription:
        config = Configuration()
        config.set_string("penstock.runtime", "embedded")
        config.set_string("state.backend.type", self.backend)
        if self.backend == "rocksdb":
            config.set_string("state.backend.rocksdb.localdir", str(folder))
        env = StreamExecutionEnvironment.get_execution_environment(config)
        env.set_parallelism(parallelism).set_max_parallelism(16)
        if not chained:
            env.disable_operator_chaining()
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Stamp())
        if self.idleness_ms is not None:
            strategy = strategy.with_idleness(Duration.of_millis(self.idleness_ms))
        a, b = (
            env.from_source(ScriptedSource(script.script), strategy, name).uid(name)
            for name, script in zip("ab", self.inputs, strict=True)
        )
        keyed = (b.union(a) if turned else a.union(b)).key_by(lambda record: record[0])
        tag = OutputTag("late")
        windows = (
            keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS)))
            .side_output_late_data(tag)
            .process(_Ids())
            .uid("windows")
        )
        windows.sink_to(OutsideSink(lineage.sink("windows"))).uid("windows-out")
        windows.get_side_output(tag).sink_to(OutsideSink(lineage.sink("late"))).uid("late-out")
        keyed.process(_Counts()).uid("counts").sink_to(OutsideSink(lineage.sink("counts"))).uid("counts-out")
        job = env._describe("hostile")
        return replace(job, settings=replace(job.settings, recovery_path=path, **self.settings))


# ---------------------------------------------------------------- a run


@dataclass(slots=True, kw_only=True)
class Outcome:
    seed: int
    lost: int
    duplicated: int
    wrong: list[str]  # anything else that the oracle disagrees with
    story: list[str]
    faults: Counter[str]

    @property
    def exact(self) -> bool:
        return not (self.lost or self.duplicated or self.wrong)

    def __repr__(self) -> str:
        head = f"seed {self.seed}: lost {self.lost}, duplicated {self.duplicated}, {self.wrong[:5]}"
        return head + f"; python -m tests.embedded.hostile --seed {self.seed}"


class HostileRun:
    def __init__(self, seed: int, folder: Path) -> None:
        self.seed, self._folder = seed, folder
        self._rng = random.Random(seed)
        rng = self._rng
        self.story: list[str] = []
        self.faults: Counter[str] = Counter()
        self._clock = ManualClock()
        self._mode = rng.choice([BarrierMode.EXACTLY_ONCE] * 3 + [BarrierMode.UNALIGNED])
        # What was on the way at an unaligned barrier can only go on to the same subtasks: such a checkpoint is refused at another
        # parallelism, and for these runs the graph stays as it is.
        self.fixed = self._mode is BarrierMode.UNALIGNED
        self._widths: Sequence[int] = [rng.choice(WIDTHS)] if self.fixed else WIDTHS
        self._program = Program(
            inputs=(uneven("a", rng), uneven("b", rng)),
            idleness_ms=rng.choice([None, None, 600]),
            backend=rng.choice(["hashmap"] * 5 + ["rocksdb"]),
            settings={
                "checkpoint_interval_ms": rng.choice([0, 0, 500]),
                "block_size": rng.choice([1, 3, 50]),
                "inline_threshold": rng.choice([0, 0, 20 * 1024]),
                "compact_after": rng.choice([2, 10]),
                "retained": rng.choice([1, 2]),
                "tolerable_checkpoint_failures": rng.choice([0, 1, 3]),
                "max_concurrent_checkpoints": rng.choice([1, 1, 3]),
                "incremental": rng.choice([True, True, False]),
                "restart": RestartStrategies.fixed_delay_restart(40, 10),
            },
        )
        self._lineage = Lineage(name=uuid.uuid4().hex)
        self._kept: list[
            tuple[Lineage, int]
        ] = []  # what counts of lineages that were left at a savepoint, and up to where
        self._storage = self._new_folder()

    def _new_folder(self) -> HarmedStorage:
        storage = ObjectStorage(f"memory:///{uuid.uuid4().hex}")
        return HarmedStorage(
            storage, random.Random(self._rng.random()), self._rng.choice([0, 0.02, 0.08]), self.story, self.faults
        )

    # ------------------------------------------------------------ lives

    def run(self) -> Outcome:
        lives = self._rng.randint(1, 4)
        path: str | None = None
        for life in range(lives):
            path, over = self._live(life, path, last=life == lives - 1)
            if over:
                break
        return self._judge()

    def _live(self, life: int, path: str | None, *, last: bool) -> tuple[str | None, bool]:
        """One life. What the next one begins from (None: the folder), and whether the job has come to its end."""
        rng = self._rng
        self._tell(f"life {life}, from {path or 'the folder'}")
        job = self._describe(path)
        crashes = CrashPlan(
            [(point, rng.randint(1, POINTS[point])) for point in rng.sample(list(POINTS), rng.randint(0, 3))]
        )
        runtime = EmbeddedJob(
            job,
            JobMaster(job, self._storage, clock=self._clock),
            schedule="random",
            seed=rng.randrange(2**32),
            mode=self._mode,
            channel_capacity=rng.choice([1, 3, None]),
            max_in_flight=rng.randint(1, 3),
            crashes=crashes,
        )
        runtime.on_failure = lambda error: self._failed(error)
        demon = _Demon(self, runtime, rng, last=last)
        runtime.master.on_report = demon.epoch_ended
        self._storage.armed = True
        try:
            runtime.run()
        except JobFailedError as error:
            self._tell(f"the job failed for good: {error}")
            self.faults["job failed"] += 1
        except FencedError as error:
            assert self.faults["replaced"], "there was only one driver"
            self._tell(f"the driver was fenced: {error}")
            self.faults["fenced"] += 1
        except StorageError as error:  # nobody can go on with a folder that cannot be taken over or given back
            self._tell(f"the driver ended: {error}")
            self.faults["driver ended"] += 1
        self.faults.update(f"crash at {point}" for point, _ in crashes.fired)
        self.faults["declined"] += runtime.master.statistics.statistics.failed
        return self._go_on(runtime, demon, last=last)

    def _go_on(self, runtime: EmbeddedJob, demon: _Demon, *, last: bool) -> tuple[str | None, bool]:
        ended = runtime.master.restored is not None and runtime.master.restored.finished
        if ended and runtime.master.finished:
            self._tell("the job has come to its end")
            return None, True
        if last:  # left alone, it has to come to its end
            self._tell("once more, undisturbed")
            self._storage.armed = False
            return self._undisturbed()
        saved = demon.stopped or (demon.saved if self._rng.random() < 0.8 else None)
        if saved is None:
            return None, False
        epoch = int(savepoint.load(saved).epoch)
        if demon.stopped is None or demon.replaced:
            # The job went on after the savepoint: what it has done since is not part of what goes on from there.
            self._tell(f"the job is left where it is; another goes on from the savepoint of epoch {epoch}")
            self._kept.append((self._lineage, epoch))
            self._lineage = Lineage(name=uuid.uuid4().hex)
            self.faults["left at a savepoint"] += 1
            self._storage = self._new_folder()
        elif self._rng.random() < 0.7:
            self._storage = self._new_folder()
        return saved, False

    def _undisturbed(self) -> tuple[str | None, bool]:
        job = self._describe(path=None)
        EmbeddedJob(job, JobMaster(job, self._storage, clock=self._clock), schedule="random", mode=self._mode).run()
        return None, True

    def _describe(self, path: str | None) -> JobDescription:
        """The program as it is now: at another parallelism, its inputs in another order, chained otherwise."""
        rng = self._rng
        parallelism, turned = rng.choice(self._widths), rng.random() < 0.5 and not self.fixed
        chained = self.fixed or rng.random() < 0.7
        inputs = "b.union(a)" if turned else "a.union(b)"
        self._tell(f"parallelism {parallelism}, {inputs}, {'chained' if chained else 'not chained'}")
        return self._program.describe(
            self._lineage, parallelism=parallelism, turned=turned, chained=chained, path=path, folder=self._folder
        )

    def replaced(self) -> None:
        """Another driver takes the folder over while this one, cut off, believes that it owns it; and goes on for a while."""
        job = self._describe(path=None)
        other = EmbeddedJob(job, JobMaster(job, self._storage, clock=self._clock), schedule="random", mode=self._mode)
        left = self._rng.randint(1, 4)

        def epoch_ended(report: Any) -> None:
            nonlocal left
            left -= 1
            if not left:
                other.cancel()

        other.master.on_report = epoch_ended
        armed, self._storage.armed = self._storage.armed, False
        other.run()
        self._storage.armed = armed
        self._tell(f"the other driver ended after epoch {other.master.epoch}")

    def _failed(self, error: BaseException) -> None:
        self.faults["died" if isinstance(error, SimulatedCrash) else "failed"] += 1
        self._tell(f"{type(error).__name__}: {error}")

    def _tell(self, line: str) -> None:
        self.story.append(line)

    # ------------------------------------------------------------ the oracle

    def _results(self, of: str) -> list[Any]:
        kept = [value for lineage, epoch in self._kept for value in visible(lineage.sink(of), epoch)]
        return kept + visible(self._lineage.sink(of))

    def _judge(self) -> Outcome:
        records = [record for source in self._program.inputs for record in source.records]
        expected = Counter(record[1] for record in records)
        windows, late, counts = self._results("windows"), self._results("late"), self._results("counts")
        found = Counter([i for _, _, ids in windows for i in ids] + [record[1] for record in late])
        counted = Counter(result[3] for result in counts if result[0] == "count")
        lost = sum((expected - found).values()) + sum((expected - counted).values())
        duplicated = sum((found - expected).values()) + sum((counted - expected).values())
        wrong = list(self._disagreements(records, windows, late, counts))
        for lineage in [self._lineage, *(lineage for lineage, _ in self._kept)]:
            for of in ("windows", "late", "counts"):
                _visible.pop(lineage.sink(of), None)
        return Outcome(
            seed=self.seed, lost=lost, duplicated=duplicated, wrong=wrong, story=self.story, faults=self.faults
        )

    def _disagreements(
        self, records: list[Record], windows: list[Any], late: list[Any], counts: list[Any]
    ) -> Iterator[str]:
        per_key: Counter[int] = Counter()
        for result in counts:
            if result[0] == "count":
                per_key[result[1]] += 1
                if result[2] != per_key[result[1]]:
                    yield f"key {result[1]} was counted {result[2]} as its {per_key[result[1]]}. record"
        if self._program.idleness_ms is not None:
            return
        if late:
            yield f"{len(late)} records are late, although the watermark waits for the slowest split: {late[:3]}"
        expected: defaultdict[tuple[int, int], list[str]] = defaultdict(list)
        for key, identity, at in records:
            expected[key, at // WINDOW_MS * WINDOW_MS].append(identity)
        whole = Counter((key, start, tuple(sorted(ids))) for (key, start), ids in expected.items())
        if whole != Counter(windows):
            yield f"windows: missing {list(whole - Counter(windows))[:3]}, too many {list(Counter(windows) - whole)[:3]}"
        timers = Counter({("timer", key, timer_of(at)): 1 for key, _, at in records})
        fired = Counter(result for result in counts if result[0] == "timer")
        if timers != fired:
            yield f"timers: missing {list(timers - fired)[:3]}, too many {list(fired - timers)[:3]}"


class _Demon:
    """Asks a running job for things, after epochs that the seed chooses."""

    def __init__(self, run: HostileRun, runtime: EmbeddedJob, rng: random.Random, *, last: bool) -> None:
        self._run, self._runtime, self._rng, self._last = run, runtime, rng, last
        self._asked: list[SavepointRequest] = []
        self.replaced = False  # another driver has gone on with the job, whatever this one says of it

    @property
    def stopped(self) -> str | None:
        return self._path(stop=True)

    @property
    def saved(self) -> str | None:
        return self._path(stop=False)

    def _path(self, *, stop: bool) -> str | None:
        for request in reversed(self._asked):
            if request.stop == stop and request.answer.done() and request.answer.exception() is None:
                return request.answer.result()
        return None

    def epoch_ended(self, report: Any) -> None:
        if self._rng.random() > 0.25:
            return
        requests = self._runtime.master.requests
        kinds = ["savepoint", "checkpoint", "clock"] + ["rescale"] * (0 if self._run.fixed else 3)
        if not self._last:
            kinds += ["stop", "cancel", "savepoint and cancel", "replaced"]
        kind = self._rng.choice(kinds)
        self._run._tell(f"after epoch {report.epoch}: {kind}")
        self._run.faults[kind] += 1
        match kind:
            case "savepoint" | "stop":
                request = SavepointRequest(directory=str(self._run._folder / "saved"), stop=kind == "stop")
                self._asked.append(request)
                requests.savepoint(request)
            case "savepoint and cancel":
                request = SavepointRequest(directory=str(self._run._folder / "saved"))
                self._asked.append(request)
                requests.savepoint(request)
                # The moment it is reported it may be relied on: whoever hears of it ends the job at once.
                request.answer.add_done_callback(lambda done: None if done.exception() else self._die())
            case "rescale":
                requests.rescale(RescaleRequest(parallelism=self._rng.choice(WIDTHS)))
            case "checkpoint":
                requests.checkpoint(CheckpointRequest(full=self._rng.random() < 0.5))
            case "clock":
                self._run._clock.advance(self._rng.choice([-5_000, 300, 5_000]))
            case "cancel":
                self._runtime.cancel()
            case "replaced":
                self.replaced = True
                self._run.replaced()
                if self._rng.random() < 0.5:  # the user ends the driver that is no longer the job's, and all it has
                    master = self._runtime.master
                    master.settings = replace(master.settings, delete_on_cancel=True)
                    self._runtime.cancel()

    def _die(self) -> None:
        self._run._tell("the savepoint is reported: the job is killed")
        self._runtime.cancel()


def hostile_run(seed: int, folder: Path | None = None) -> Outcome:
    if folder is not None:
        return HostileRun(seed, folder).run()
    with tempfile.TemporaryDirectory(prefix="penstock-hostile-") as made:
        return HostileRun(seed, Path(made)).run()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=None, help="tell the story of this run")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the first seed of many")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        outcome = hostile_run(arguments.seed)
        print("\n".join(outcome.story))
        print(outcome)
        raise SystemExit(not outcome.exact)
    started, faults, bad = time.monotonic(), Counter[str](), list[Outcome]()
    for seed in range(arguments.first, arguments.first + arguments.runs):
        try:
            outcome = hostile_run(seed)
        except Exception as error:
            outcome = Outcome(
                seed=seed, lost=0, duplicated=0, wrong=[f"{type(error).__name__}: {error}"], story=[], faults=Counter()
            )
        faults += outcome.faults
        if not outcome.exact:
            bad.append(outcome)
            print(outcome, flush=True)
    for fault, count in sorted(faults.items()):
        print(f"{count:8d}  {fault}")
    print(
        f"{arguments.runs} runs in {time.monotonic() - started:.0f} s: lost {sum(o.lost for o in bad)}, "
        f"duplicated {sum(o.duplicated for o in bad)}, runs that were not exact: {len(bad)}"
    )
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    # Under its own name: what travels pickled finds the outside world of this module, not a copy of it.
    from tests.embedded import hostile

    hostile.main()
