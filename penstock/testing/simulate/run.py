"""A run: a chain of *lives* of one job, then the oracle.

A life begins from nothing, from the job's folder or from a savepoint, at a parallelism, with inputs and operators of its own.
While it runs, the demon does its deeds. The last life, left alone, has to come to its end.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import tempfile
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal
from unittest import mock

from penstock.checkpoint import layout, object_storage, savepoint
from penstock.checkpoint.storage import LocalStorage, ObjectStorage
from penstock.checkpoint.store import CheckpointStore
from penstock.common.restart_strategy import RestartStrategies
from penstock.driver.description import JobDescription
from penstock.driver.job_master import JobMaster
from penstock.driver.requests import CheckpointRequest, RescaleRequest, SavepointRequest
from penstock.engine.messages import EpochReport, TaskAck
from penstock.errors import (
    CommitRefusedError,
    FencedError,
    JobDefinitionError,
    JobFailedError,
    PenstockError,
    ProtocolError,
    StorageError,
)
from penstock.protocol.gate import BarrierMode
from penstock.runtime.embedded.clock import ManualClock
from penstock.runtime.embedded.crash import CrashPlan, CrashPoint, SimulatedCrash
from penstock.runtime.embedded.job import EmbeddedJob
from penstock.testing.simulate import oracle, outside
from penstock.testing.simulate.demon import POINTS, Deed, Demon, any_deeds
from penstock.testing.simulate.outside import OutsideError, World
from penstock.testing.simulate.program import Version, any_program, any_version
from penstock.testing.simulate.restless import RestlessSpark
from penstock.testing.simulate.storage import SimulatedStorage
from penstock.testing.simulate.story import Story
from penstock.testing.simulate.workload import job_of, sinks_of

_MEMORY: Final = "memory:///simulation/"
_LATE: Final = 0.004  # of the steps of a stream find that checkpoints under way take too long, in a third of the runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one seed."""

    seed: int
    verdict: oracle.Verdict
    story: list[str]
    fired: Counter[str]

    @property
    def exact(self) -> bool:
        """True if nothing was lost, repeated or otherwise wrong."""
        return self.verdict.exact

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.verdict}; {replay(self.seed)}"


def replay(seed: int) -> str:
    """The command that runs a seed again and tells its story."""
    return f"python -m penstock.testing.simulate --seed {seed}"


def simulate(seed: int, *, without: Collection[int] = ()) -> Outcome:
    """One run. `without`: deeds, by their number in the story, that the demon leaves undone."""
    with (
        _seeded_names(seed),
        _quiet(),
        _fresh_memory(),
        tempfile.TemporaryDirectory(prefix="penstock-simulate-", dir=_memory_disk()) as folder,
    ):
        story = Story(folder=folder)
        try:
            verdict = _Run(seed, folder, story, without).judged()
        except Exception as error:
            story.tell(f"{type(error).__name__}: {error}")
            verdict = oracle.Verdict(wrong=[f"the run broke off: {type(error).__name__}: {error}"])
        story.tell(str(verdict))
        return Outcome(seed=seed, verdict=verdict, story=story.lines, fired=story.fired)


def _memory_disk() -> str | None:
    """A file system that need not be waited for, if there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@contextlib.contextmanager
def _seeded_names(seed: int) -> Iterator[None]:
    """Names of files and tokens are random, and files are listed in the order of their names."""
    names = random.Random(f"{seed} names")

    def named() -> uuid.UUID:
        return uuid.UUID(int=names.getrandbits(128), version=4)

    with mock.patch.object(uuid, "uuid4", named):
        yield


@contextlib.contextmanager
def _fresh_memory() -> Iterator[None]:
    """The next run of the same seed uses the same names."""
    try:
        yield
    finally:
        for url in [url for url in object_storage._memory_stores if url.startswith(_MEMORY)]:
            del object_storage._memory_stores[url]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    log = logging.getLogger("penstock")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


class _Gone(BaseException):
    """A driver that nobody hears of again."""


class _Master(JobMaster):
    """Hears of hosts that it has given up: their acknowledgements come late."""

    story: Story | None = None
    heard: TaskAck | None = None  # the last one
    late: Callable[[TaskAck], None] | None = None  # called once, with an acknowledgement of an earlier attempt

    def acknowledge(self, ack: TaskAck) -> list[EpochReport]:
        before, self.heard = self.heard, ack
        if self.late is not None and before is not None and before.job_attempt < ack.job_attempt:
            late, self.late = self.late, None
            late(before)
        return super().acknowledge(ack)

    def take_aborted(self) -> list[int]:
        aborted = super().take_aborted()
        for epoch in aborted if self.story is not None else ():
            assert self.story is not None
            self.story.happened("barrier aborted", f"  checkpoint {epoch} took too long and is aborted on its way")
        return aborted


class _Run:
    def __init__(self, seed: int, folder: str, story: Story, without: Collection[int]) -> None:
        self._rng = random.Random(f"{seed}")
        self._seed, self._folder, self._without = seed, folder, without
        self.late = seed % 3 == 0  # checkpoints take too long now and then
        self.story = story
        self.clock = ManualClock()
        self.world = World(began_ms=self.clock.now_ms, story=story)
        self.program = any_program(f"simulation {seed}", self._rng)
        self.version: Version | None = None
        self._deeds = 0
        self._lineages = 0
        self._lineage = self._new_lineage()
        self._kept: list[
            tuple[str, int]
        ] = []  # lineages that were left at a savepoint, and the epoch up to which they count
        self._folders = 0
        self.storage = self._new_folder()
        self._path: str | None = None  # the savepoint that drivers of the folder start from, if it has no checkpoint
        self.cut: set[str] = set()  # inputs that were not read to their end
        self.wrong: list[str] = []

    def _new_lineage(self) -> str:
        self._lineages += 1
        return f"lineage-{self._lineages}"

    def _new_folder(self) -> SimulatedStorage:
        self._folders += 1
        name = uuid.uuid4().hex
        local = self.program.on_disk
        inner = LocalStorage(f"{self._folder}/{name}") if local else ObjectStorage(f"{_MEMORY}{name}")
        return SimulatedStorage(inner, self.story)

    # ---------------------------------------------------------------- lives

    def judged(self) -> oracle.Verdict:
        for brings in self.program.inputs:
            self.story.tell(f"input {brings.name}: {brings.describe()}")
        self.story.tell(self.program.describe())
        with outside.new_world(self.program.world, self.world):
            lives, path = self._rng.choice([1, 2, 2, 3, 4]), None
            for life in range(lives):
                path, over = self._live(life, path, last=life == lives - 1)
                if over:
                    break
            return self._judge()

    def _live(self, life: int, path: str | None, *, last: bool) -> tuple[str | None, bool]:
        """One life. Where the next one begins (None: at the folder), and whether the job has come to its end."""
        rng = random.Random(f"{self._seed} life {life}")
        self._path = path
        self.version = any_version(self.program, rng, self.version)
        if self.version.removed:
            self.cut.add("b")
        self.story.tell(f"life {life}, from {path or 'the folder'}: {self.version.describe()}")
        if life and rng.random() < 0.2:
            self._probe(rng)
        deeds = any_deeds(
            rng,
            self._deeds,
            last=last,
            fixed=self.program.fixed,
            may_drain="loops" not in self.program.branches and not self.cut,
        )
        self._deeds += len(deeds)
        living = _Life(self, rng, path, [deed for deed in deeds if deed.number not in self._without])
        self.storage.ask = living.demon.harm
        try:
            living.run()
        finally:
            self.storage.ask = None
        return self._go_on(living, path, rng, last=last)

    def _go_on(self, life: _Life, path: str | None, rng: random.Random, *, last: bool) -> tuple[str | None, bool]:
        going_back = rng.random() < 0.8
        elsewhere = rng.random() < 0.7
        if life.over:
            self.story.tell("the job has come to its end")
            return None, True
        if last:
            self.story.tell("once more, undisturbed")
            self.storage.settle()
            self.world.failing.clear()
            alone = _Life(self, rng, path, [], calm=True)
            alone.run()
            if not alone.over:
                self.wrong.append("left alone, the job did not come to its end")
            return None, True
        stopped = life.path_of("stop")
        saved = stopped or (life.path_of("savepoint") if going_back else None)
        if saved is None:
            return path, False  # started again as it was: from there, if it has not yet a checkpoint of its own
        if stopped is None or life.replaced:
            # The job went on after the savepoint: what it has done since is not part of what goes on from there.
            epoch = int(savepoint.load(saved).epoch)
            self.story.happened(
                "left at a savepoint",
                f"the job is left where it is; another goes on from the savepoint of epoch {epoch}",
            )
            self._kept.append((self._lineage, epoch))
            self._lineage = self._new_lineage()
            self.storage = self._new_folder()
        elif elsewhere:
            self.storage = self._new_folder()
        return saved, False

    def new_runtime(
        self, job: JobDescription, rng: random.Random, crashes: CrashPlan, *, calm: bool = False
    ) -> EmbeddedJob:
        schedule: Literal["random", "ordered"] = "ordered" if rng.random() < 0.4 else "random"
        if self.program.mode is not BarrierMode.EXACTLY_ONCE:
            schedule = "random"
        rate = 0.0 if calm else rng.choice([0.0, 0.01, 0.05])
        restless = RestlessSpark(random.Random(rng.random()), rate, self.story)
        apart = schedule == "random" and rng.random() < 0.6
        how = "level by level" if schedule == "ordered" else "as a stream, hosts apart" if apart else "as a stream"
        self.story.happened(f"run {how}", f"  run {how}")
        master = _Master(job, self.storage, clock=self.clock)
        master.story = self.story
        return EmbeddedJob(
            job,
            master,
            schedule=schedule,
            seed=rng.randrange(2**32),
            mode=self.program.mode,
            channel_capacity=rng.choice([1, 3, None]),
            max_in_flight=rng.randint(1, 3),
            apart=apart,
            late=_LATE if self.late and not calm else 0.0,
            crashes=crashes,
            mischief=restless,
        )

    def job(self, version: Version, path: str | None) -> JobDescription:
        local = self._folder if self.program.backend == "rocksdb" else None
        return job_of(self.program, version, lineage=self._lineage, path=path, local_dir=local)

    # ---------------------------------------------------------------- another driver

    def replace_driver(self, seed: int, *, early: bool) -> None:
        """Another driver takes the folder over while this one, cut off, believes that it owns it. It goes on for a while, and is
        ended, or is gone. `early`: before it has a checkpoint, mostly."""
        assert self.version is not None
        rng = random.Random(f"{self._seed} driver {seed}")
        version = any_version(self.program, rng, self.version)
        version = replace(version, removed=self.version.removed)
        dies = rng.random() < (0.85 if early else 0.6)
        left = rng.randint(1, 4)
        points: list[CrashPoint] = ["before-manifest", "before-run", "process", "barrier"]
        points += ["after-manifest"] * 4  # with output that is promised and not made
        point = rng.choice(points if early and rng.random() < 0.8 else list(POINTS))
        times = rng.choice([1, 2]) if point.endswith("-manifest") else rng.choice([1, 2, 2, 3, 5, 20])
        gone = _Vanishing(point, times if dies else 0)
        self.story.tell(f"  another driver takes over: {version.describe()}")
        other = self.new_runtime(self.job(version, self._path), rng, gone)

        def epoch_ended(report: Any) -> None:
            nonlocal left
            left -= 1
            if not left:
                if dies:
                    raise _Gone
                other.cancel()

        other.master.on_report = epoch_ended
        ask, self.storage.ask = self.storage.ask, None
        try:
            other.run()
        except _Gone:
            self.story.tell("  nobody hears of the other driver again")
        finally:
            self.storage.ask = ask
        self.story.tell(f"  the other driver came to epoch {other.master.epoch}")

    def _probe(self, rng: random.Random) -> None:
        """A copy of the job goes on with a program that has to be refused: another one under the same uids, whose state means
        something else, or one whose values are not of their declared type."""
        assert self.version is not None
        newest = CheckpointStore(self.storage.inner, 1).latest()
        if newest is None or newest.finished:
            return
        mistyped = rng.random() < 0.6 and "loops" not in self.program.branches
        if mistyped:
            wrong = replace(self.version, mistyped=True)
        elif {"windows", "pairs", "totals", "sums"} & set(self.program.branches):
            wrong = replace(self.version, window_ms=2 * oracle.WINDOW_MS, reach_ms=2 * oracle.REACH_MS)
        else:
            return
        kept, self.storage = self.storage, self._new_folder()
        for path in kept.inner.list(""):
            self.storage.inner.put(path, kept.inner.get(path))
        visible = {sink: dict(commits) for sink, commits in self.world.visible.items()}
        job = self.job(wrong, None)
        job = replace(job, settings=replace(job.settings, restart=RestartStrategies.no_restart()))
        runtime = self.new_runtime(job, rng, CrashPlan(()))

        def taken(report: EpochReport) -> None:
            if report.records_in or not mistyped:
                self.wrong.append(
                    f"{'a value of another type' if mistyped else 'state that means something else'} was taken"
                )
                runtime.cancel()

        runtime.master.on_report = taken
        clock, failing = self.clock.now_ms, self.world.failing.copy()
        self.world.failing.clear()
        try:
            runtime.run()
        except PenstockError as error:
            self.story.happened("another program was refused", f"another program was refused: {error}")
            if not mistyped and not isinstance(error, JobDefinitionError):
                self.wrong.append(f"another program failed with {type(error).__name__}: {error}")
        finally:
            self.storage, self.world.visible, self.world.failing = kept, visible, failing
            self.clock.advance(clock - self.clock.now_ms)

    # ---------------------------------------------------------------- the end

    def _judge(self) -> oracle.Verdict:
        visible = {
            name: [value for lineage, epoch in self._kept for value in self.world.results(f"{lineage} {name}", epoch)]
            + self.world.results(f"{self._lineage} {name}")
            for name in sinks_of(self.program.branches)
        }
        truth = oracle.Truth(
            splits={split: records for brings in self.program.inputs for split, records in brings.records().items()},
            cut=frozenset(self.cut),
            late=self.program.idleness_ms is not None,
            repeats=self.program.mode is BarrierMode.AT_LEAST_ONCE,
        )
        verdict = oracle.judge(truth, visible)
        verdict.wrong += [*self.wrong, *self.world.wrong]
        if any(file.stat().st_mode & 0o077 for file in Path(self._folder).rglob("*")):
            verdict.wrong.append("others than the user may look into the job's files")
        return verdict


class _Vanishing(CrashPlan):
    """The process is gone at a point, and no other one starts in its place."""

    def __init__(self, point: CrashPoint, occurrence: int) -> None:
        super().__init__(())
        self._point, self._left = point, occurrence

    def reach(self, point: CrashPoint) -> None:
        if point == self._point:
            self._left -= 1
            if not self._left:
                raise _Gone


class _Life:
    """One driver of the job and those that follow it when it crashes, with the demon beside it."""

    def __init__(
        self, run: _Run, rng: random.Random, path: str | None, deeds: list[Deed], *, calm: bool = False
    ) -> None:
        self._run, self._story = run, run.story
        for deed in deeds:
            self._story.tell(f"  planned: {deed.describe()}")
        self.demon = Demon(deeds, run.story, carry_out=self._carry_out, advance=run.clock.advance)
        assert run.version is not None
        self._runtime = run.new_runtime(run.job(run.version, path), rng, self.demon, calm=calm)
        self._runtime.on_failure = self._failed
        self._runtime.master.on_report = self._epoch_ended
        self._asked: list[tuple[str, SavepointRequest]] = []
        self._stop_reported = False
        self._damaged: dict[str, bytes] = {}
        self._last_failure, self._in_a_row = ("", -1), 0
        self._last_epoch = 0  # since the last failure
        self.replaced = False  # another driver has gone on with the job, whatever this one says of it
        self.over = False

    def run(self) -> None:
        try:
            self._runtime.run()
        except FencedError as error:
            if not self.replaced:
                self._run.wrong.append(f"a driver was fenced, and there was only one: {error}")
            self._ended("fenced", error)
        except JobFailedError as error:
            self._ended("job failed", error)
            if self._damaged:
                self._run.wrong.append("a damaged checkpoint was tried again and again")
        except CommitRefusedError as error:
            self._ended("commit refused", error)
        except (StorageError, OutsideError, SimulatedCrash) as error:
            # Nobody can go on with a folder that cannot be taken over or given back, or with a damaged checkpoint.
            self._ended("driver ended", error)
        master = self._runtime.master
        self._story.fired["declined"] += master.statistics.statistics.failed
        self.over = master.finished and master.restored is not None and master.restored.finished
        self._mend()

    def _ended(self, how: str, error: BaseException) -> None:
        self._story.happened(how, f"{how}: {type(error).__name__}: {error}")
        blames = isinstance(error, PenstockError) and not isinstance(error, FencedError)
        if blames and self._is_replaced() and "generations/" not in str(error) and not self._damaged:
            self._run.wrong.append(f"a driver that was replaced does not say so: {type(error).__name__}: {error}")

    def _is_replaced(self) -> bool:
        """There is a newer generation than that of this driver."""
        newest = layout.generations(self._run.storage.inner.list(layout.GENERATIONS))
        return self.replaced and newest[-1] > self._runtime.master.generation

    def _failed(self, error: BaseException) -> None:
        self._story.happened(
            "died" if isinstance(error, SimulatedCrash) else "failed", f"  {type(error).__name__}: {error}"
        )
        if "execution.checkpointing.timeout" in str(error) and not self._run.late:
            self._run.wrong.append(f"snapshots were awaited that nobody stores: {error}")
        self._last_epoch = 0
        failure = (str(error), self._runtime.master.epoch)
        if failure == self._last_failure and self._in_a_row >= 3 and not self._noticed():
            self._run.wrong.append(f"nobody says that {failure} happens again and again")
        self._in_a_row = self._in_a_row + 1 if failure == self._last_failure else 1
        self._last_failure = failure

    def _noticed(self) -> bool:
        return any(notice["key"] == "same-failure" for notice in self._runtime.master.notices.to_json())

    def _epoch_ended(self, report: EpochReport) -> None:
        self._in_a_row = 0
        if report.epoch <= self._last_epoch:
            self._run.wrong.append(f"epoch {report.epoch} came behind {self._last_epoch}, and nothing had failed")
        self._last_epoch = report.epoch
        if self._stop_reported:
            self._run.wrong.append(f"a stop was reported, and epoch {report.epoch} was run afterwards")
        self._is_in_time(report)
        self._story.tell(
            f"  epoch {report.epoch} ended: {report.records_in} records in, {report.records_out} out"
            + (", a checkpoint" if report.checkpoint else "")
        )

    def _is_in_time(self, report: EpochReport) -> None:
        """Event time is not held back, but by the slowest split and by readers that have none. A barrier that overtakes records
        overtakes watermarks, too: then where time stands at it says nothing."""
        inputs, checkpoint = self._run.program.inputs, self._runtime.master.restored
        by_clock = self._runtime.apart  # it is said when time has come, not at every barrier
        overtakes = self._run.program.mode is BarrierMode.UNALIGNED
        if checkpoint is None or checkpoint.epoch != report.epoch or by_clock or overtakes:
            return
        read = [
            (brings.splits[split], end)
            for brings in inputs
            if brings.name in checkpoint.sources
            for split, end in checkpoint.sources[brings.name].state.items()
        ]
        readers = max(vertex["parallelism"] for vertex in report.vertices)
        everyone_reads = readers <= min(len(b.splits) for b in inputs) and all(end < len(a) for a, end in read)
        due = oracle.event_time([([arrival.record for arrival in arrivals], end) for arrivals, end in read])
        if due is None or (readers > 1 and not everyone_reads):
            return
        if behind := [v["name"] for v in report.vertices if "Window" in v["name"] and v["watermark"] < due]:
            self._run.wrong.append(f"event time is held back in epoch {report.epoch}: {behind} are not yet at {due}")

    def path_of(self, kind: str) -> str | None:
        """The newest savepoint that was reported."""
        for asked, request in reversed(self._asked):
            if asked == kind and request.answer.done() and request.answer.exception() is None:
                return request.answer.result()
        return None

    # ---------------------------------------------------------------- deeds

    def _carry_out(self, deed: Deed) -> None:
        requests = self._runtime.master.requests
        if deed.replaces:
            self.replaced = True
            self._run.replace_driver(deed.detail, early=True)
            return
        match deed.act:
            case "clock forward":
                self._run.clock.advance(deed.detail)
            case "clock back":
                self._run.clock.advance(-deed.detail)
            case "savepoint":
                self._ask(deed.act)
            case "stop":
                self._ask(deed.act)
                if deed.detail % 5 == 0:  # and it does not come about: the job goes on
                    self._story.tell("  the next close fails")
                    self._run.world.failing["close"] += 1
            case (
                "drain"
            ):  # windows are closed where the job stands: it has come to its end, if not to that of its input
                self._run.cut |= {"a", "b"}
                self._ask(deed.act)
            case "savepoint, and killed when it is reported":
                # The moment it is reported it may be relied on: whoever hears of it ends the job at once.
                request = self._ask("savepoint")
                request.answer.add_done_callback(lambda done: None if done.exception() else self._killed())
            case "rescale" | "rescale, and no state can be stored":
                rescale = RescaleRequest(parallelism=deed.detail)
                rescale.answer.add_done_callback(self._rescaled)
                requests.rescale(rescale)
                if deed.act != "rescale":
                    self.demon.refuse("write of state", 40)
            case "checkpoint":
                requests.checkpoint(CheckpointRequest(full=bool(deed.detail)))
            case "cancel":
                self._runtime.cancel()
            case "replaced":
                self.replaced = True
                self._run.replace_driver(deed.detail, early=False)
                if deed.detail % 2:  # the user ends the driver that is no longer the job's, and all it has
                    master = self._runtime.master
                    master.settings = replace(master.settings, delete_on_cancel=True)
                    self._runtime.cancel()
            case "failing reads":
                self._run.world.failing["read"] += deed.detail
            case "failing commits":
                self._run.world.failing["commit"] += deed.detail
            case "failing close":
                self._run.world.failing["close"] += deed.detail
            case "late acknowledgement":
                if isinstance(self._runtime.master, _Master):
                    self._runtime.master.late = self._hear_zombie
            case "damaged checkpoint":
                self._damage()

    def _hear_zombie(self, ack: TaskAck) -> None:
        master = self._runtime.master
        self._story.happened(
            "an acknowledgement came late",
            f"  task {ack.task} of attempt {ack.job_attempt} acknowledges epoch {ack.epoch}, in attempt {master.job_attempt}",
        )
        try:
            heard = JobMaster.acknowledge(master, ack)
        except ProtocolError as error:
            self._run.wrong.append(f"an acknowledgement of an earlier attempt was not ignored: {error}")
        else:
            if heard:
                self._run.wrong.append("an acknowledgement of an earlier attempt completed an epoch")

    def _damage(self) -> None:
        """The newest checkpoint is damaged, and the process dies: who goes on has to say so, at once. Mended when the life is
        over."""
        storage = self._run.storage.inner
        completed = layout.completed_checkpoints(storage.list(layout.CHECKPOINTS))
        if not completed:
            return
        path = layout.checkpoint_manifest(completed[-1])
        self._damaged[path] = storage.get(path)
        storage.put(path, self._damaged[path].replace(b"1", b"2"))
        self._story.happened("a checkpoint is damaged", f"  {path} is damaged, and the process dies")
        raise SimulatedCrash("the process died when a checkpoint was damaged")

    def _mend(self) -> None:
        for path, data in self._damaged.items():
            if self._run.storage.inner.exists(path):
                self._run.storage.inner.put(path, data)

    def _ask(self, kind: str) -> SavepointRequest:
        request = SavepointRequest(
            directory=f"{_MEMORY}{uuid.uuid4().hex}", stop=kind != "savepoint", drain=kind == "drain"
        )
        self._asked.append((kind, request))
        self._runtime.master.requests.savepoint(request)
        if request.stop:
            request.answer.add_done_callback(self._stopped)
        return request

    def _rescaled(self, done: Any) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        self._story.happened("rescaled", f"  the job has moved at checkpoint {done.result().checkpoint}")
        moved = done.result().before != done.result().after
        if moved and layout.checkpoint_manifest(done.result().checkpoint) not in self._run.storage.written:
            self._run.wrong.append(f"the job moved at checkpoint {done.result().checkpoint}, which was never completed")

    def _stopped(self, done: Any) -> None:
        self._stop_reported = self._stop_reported or done.exception() is None

    def _killed(self) -> None:
        self._story.tell("  the savepoint is reported: the job is killed")
        self._runtime.cancel()
