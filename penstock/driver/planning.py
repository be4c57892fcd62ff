"""What the next epoch does: what sources read, at which processing time, which request is served with it.

Or that there is nothing to do and the epoch is skipped. An epoch that an earlier attempt planned is planned alike: it reads
the same and says that it is the same time.

When is a loop at rest? Decides which sources may end, and whether an epoch is due although no source brings data.

Pure: what the driver knows in, decisions out. The bounded input of a loop ends in three steps:

    sources exhausted ─▶ nothing on the way back at a barrier ─▶ max wait time ─▶ the sources end: last watermark

Until then the sources are told that more may come, so that event time in the loop does not reach its end while records are
still going round. A barrier is a consistent cut: if nothing is on the way back there and the sources were exhausted before
it, the loop is empty, also while later epochs are under way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.checkpoint.manifest import Manifest, SourcePosition, SparkPosition
from penstock.checkpoint.ownership import StartPermit
from penstock.checkpoint.storage import Storage
from penstock.driver.description import JobDescription
from penstock.driver.plan_log import PlanLog
from penstock.driver.requests import PendingSavepoint, Requests, next_asked
from penstock.driver.sources import JobSources
from penstock.engine.messages import EpochPlan, SourceRanges, TaskAck
from penstock.functions.connectors import Json
from penstock.graph.iterations import Loop
from penstock.protocol.checkpoint_messages import Asked, Purpose

_UNKNOWN: Final = -1


class LoopTracker:
    """Knows how many records of each iteration are on their way back, and when an iteration may end."""

    def __init__(self, loops: Iterable[Loop]) -> None:
        self._loops = tuple(loops)
        self._waiting: dict[str, int] = {loop.tail: 0 for loop in self._loops}  # records on the way back, by tail
        self._exhausted: dict[str, int] = {}  # source → the first epoch planned without more to come
        self._quiet_since: dict[int, int] = {}  # head → when something last came back, or its input was exhausted
        self._ended: set[int] = set()  # heads whose input may end
        self._news = False

    def restored(self) -> None:
        """The job goes on from a checkpoint: what its tails hold is known when an epoch has run."""
        self._waiting = dict.fromkeys(self._waiting, _UNKNOWN)

    def plan(self, epoch: int, *, completed: int, exhausted: Collection[str], now: int) -> frozenset[str]:
        """The sources among `exhausted` that must not end in `epoch`. `completed` is the last epoch that is complete."""
        self._news = False
        for source in exhausted:
            self._exhausted.setdefault(source, epoch)
        held: set[str] = set()
        for loop in self._loops:
            if loop.head in self._ended or not loop.sources <= self._exhausted.keys():
                continue
            quiet_since = self._quiet_since.setdefault(loop.head, now)
            at_rest = max(self._exhausted[s] for s in loop.sources) <= completed and all(
                self._waiting[tail] == 0 for tail in loop.tails
            )
            if at_rest and now - quiet_since >= loop.max_wait_ms:
                self._ended.add(loop.head)
                self._news = True
            else:
                held |= loop.sources
        return frozenset(held)

    def completed(self, acks: Iterable[TaskAck], now: int) -> None:
        """An epoch is complete: the acknowledgements say what was on the way back at its barrier. Records that an unaligned
        barrier overtook may be anywhere, also inside a loop."""
        self._waiting = dict.fromkeys(self._waiting, 0)
        for ack in acks:
            for tail in self._waiting:
                self._waiting[tail] += ack.feedback.get(tail, 0) + ack.overtaken
        for loop in self._loops:
            if any(self._waiting[tail] for tail in loop.tails):
                self._quiet_since[loop.head] = now

    def due(self) -> bool:
        """An epoch has work to do: records to bring round, or an end to tell."""
        return self._news or not self.empty

    @property
    def empty(self) -> bool:
        """True if nothing is on its way back in any iteration."""
        return not any(self._waiting.values())


@dataclass(slots=True, kw_only=True)
class PlannedEpoch:
    """The facts of an epoch that are needed when it ends."""

    plan: EpochPlan
    states: Mapping[str, SourcePosition]  # of the sources, once the epoch is done
    started: float
    spark: SparkPosition | None = None
    admitted: int | None = None  # records each source may read


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkInput:
    """The sources that Spark reads: whether each has ended, and whether they bring something in this epoch."""

    finished: Mapping[str, bool]
    data: bool = False

    @property
    def bringing(self) -> Collection[str]:
        """The sources that bring something in this epoch."""
        return self.finished.keys() if self.data else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochInput:
    """The ranges that an epoch reads and the requests that it serves."""

    processing_time: int
    sources: dict[str, SourceRanges]
    states: dict[str, SourcePosition]
    bringing: frozenset[str]  # the sources that have records for it
    asked: Asked | None
    replayed: bool  # as it was logged by an earlier attempt

    @property
    def savepoint(self) -> str | None:
        """The folder of the savepoint that is taken at its end."""
        request = None if self.asked is None else self.asked.request
        return request.folder if isinstance(request, PendingSavepoint) else None

    @property
    def drain(self) -> bool:
        """True if the job is to be drained with this epoch."""
        return _drains(self.asked)

    @property
    def finished(self) -> bool:
        """True if every source has ended with this epoch."""
        return all(ranges.finished for ranges in self.sources.values())


class EpochPlanner:
    """Plans the epochs of one attempt of the job. Belongs to the JobMaster's thread."""

    def __init__(
        self,
        job: JobDescription,
        storage: Storage | None,
        sources: JobSources,
        requests: Requests,
        *,
        start: StartPermit,
        streaming: bool = False,
    ) -> None:
        """`streaming`: sources are granted what they read as they go on, and nothing of it is logged: after a failure they go on
        from a checkpoint, not from plans."""
        self._job, self._storage, self._sources, self._requests = job, storage, sources, requests
        self._streaming = streaming
        self._plans = PlanLog(storage, start)
        self._loops = LoopTracker(job.graph.loops)
        self._processing_time = 0
        self._last_run_ms = 0
        self._next_timer: int | None = None

    def restart(self, manifest: Manifest | None) -> None:
        """Go on behind a checkpoint; None: from the beginning."""
        if manifest is not None:
            self._loops.restored()
            self._processing_time = manifest.processing_time_ms
        self._sources.restart({} if manifest is None else manifest.sources)
        self._plans.load(0 if manifest is None else int(manifest.epoch))
        if self._streaming:
            self._plans.drop()

    def grant(self, now: int, most: Mapping[str, int] | None, only: Collection[str] | None) -> dict[str, SourceRanges]:
        """What sources may read on, behind all that they were granted; {}: nothing. One in front of a loop does not end here:
        that is for a barrier to tell."""
        before = self._sources.done
        sources, _ = self._sources.plan(now, None, most=most, only=only)
        ended = self._sources.done - before
        if self._job.graph.loops:
            sources = {operator_id: replace(part, finished=False) for operator_id, part in sources.items()}
        return {
            k: part
            for k, part in sources.items()
            # Splits that must wait for others are told so, else their readers take them for idle.
            if k in ended or self._sources.brings_something({k: part}) or any(r.paused for r in part.ranges)
        }

    def time(self, now: int) -> int:
        """Processing time, which does not go back behind that of the checkpoint."""
        return max(now, self._processing_time)

    @property
    def exhausted(self) -> bool:
        """Every source has been granted its last."""
        return self._sources.done >= self._job.sources.keys()

    @property
    def replaying(self) -> bool:
        """True while plans of an earlier attempt are still to be run again."""
        return self._plans.replaying

    @property
    def looping(self) -> bool:
        """Records are on the way back in a loop, or a loop's end is to be told."""
        return self._loops.due()

    @property
    def loops_empty(self) -> bool:
        """True if nothing is on its way back in any iteration."""
        return self._loops.empty

    def next(
        self,
        epoch: int,
        now: int,
        spark: SparkInput,
        *,
        completed: int,
        alone: bool,
        stop: bool,
        owed: bool,
        reads: bool = True,
    ) -> EpochInput | None:
        """None: there is nothing to do. `alone`: no epoch is under way, so this one may be skipped. `stop`: it must run.
        `owed`: a checkpoint is due of what has run since the last one. Without `reads` it is a barrier behind what was granted."""
        now = self.time(now)
        logged = self._plans.take(epoch)
        if logged is None and self._plans.replaying:
            # This epoch brought nothing and was skipped, and later ones were planned from where it started.
            if not (stop or spark.data) and alone:
                return None
            self._plans.drop()
        if logged is not None:
            now = max(int(logged["processing_time"]), self._processing_time)
        asked = None
        if logged is None and not self._plans.replaying:
            asked = next_asked(self._requests, self._job, self._storage)
        sources, states = self._read(epoch, now, spark, logged, drain=_drains(asked), completed=completed, reads=reads)
        planned = EpochInput(
            processing_time=now,
            sources=sources,
            states=states,
            bringing=frozenset(uid for uid, part in sources.items() if part.ranges).union(spark.bringing),
            asked=asked,
            replayed=logged is not None,
        )
        has_data = spark.data or self._sources.brings_something(sources) or self._loops.due()
        must = stop or asked is not None or planned.finished or planned.replayed
        if not (must or has_data or owed or self._due(now)) and alone:
            return None
        self._processing_time = self._last_run_ms = now
        return planned

    def _read(
        self,
        epoch: int,
        now: int,
        spark: SparkInput,
        logged: Mapping[str, Json] | None,
        *,
        drain: bool,
        completed: int,
        reads: bool,
    ) -> tuple[dict[str, SourceRanges], dict[str, SourcePosition]]:
        if drain:
            sources, states = self._sources.drain(now)
        else:
            sources, states = self._sources.plan(now, logged) if reads else self._sources.stand(now)
        for operator_id, ended in spark.finished.items():
            done = ended or drain
            sources[operator_id] = SourceRanges(ranges=(), finished=done)
            states[operator_id] = SourcePosition(state=None, finished=done)
        exhausted = {operator_id for operator_id, state in states.items() if state.finished}
        if not drain:  # draining does not wait for loops: what is on the way back is in the savepoint
            for operator_id in self._loops.plan(epoch, completed=completed, exhausted=exhausted, now=now):
                sources[operator_id] = replace(sources[operator_id], finished=False)
        return sources, states

    def _due(self, now: int) -> bool:
        """Reasons to run an epoch that brings no data and owes no checkpoint: a timer, idleness to be noticed."""
        timer = self._next_timer is not None and self._next_timer <= now
        return timer or now - self._last_run_ms >= self._job.settings.quiet_interval_ms

    def log(self, plan: EpochPlan, planned: EpochInput) -> None:
        """Before `plan` is run: one that fails is planned alike again."""
        if (
            not planned.drain and not self._streaming
        ):  # a drain that fails is not done again: the sources did not really end here
            self._plans.add(plan, planned.states, known=planned.replayed)

    def epoch_completed(self, plan: EpochPlan, acks: Collection[TaskAck]) -> None:
        """Takes note of watermarks, timers and feedback in the acknowledgements."""
        self._sources.observe(acks)
        timers = [timer for ack in acks if (timer := ack.next_processing_timer) is not None]
        self._next_timer = min(timers, default=None)
        if any(ack.skipped for ack in acks):  # no cut through the job: nobody knows what was on its way back
            self._loops.restored()
        else:
            self._loops.completed(acks, plan.processing_time)

    def checkpoint_completed(self, manifest: Manifest) -> None:
        """Drops plans that the checkpoint covers, and tells the sources."""
        self._plans.forget(int(manifest.epoch))
        self._sources.checkpoint_complete(manifest.sources)


def _drains(asked: Asked | None) -> bool:
    return asked is not None and asked.purpose is Purpose.DRAIN
