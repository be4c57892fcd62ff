"""The life of a checkpoint, from its barrier to its committed output. Pure: events in, instructions out.

One record per epoch, and no other ledger. An epoch's barrier brings acknowledgements; if the epoch is a checkpoint, snapshots
are stored, the manifest is written, which is the instant of commit, the sinks commit, and whoever asked hears of it:

    Begun ─▶ RUNNING ─ last Acknowledged ─▶ EpochEnded … Ended ─▶ STORING ─ last Uploaded ─▶ WriteManifest(permit)
      ─▶ WRITING ─ ManifestWritten ─▶ COMMITTING ─ SinksCommitted ─▶ WriteSavepoint? ─▶ EndRun? ─▶ the record is gone

An epoch that is no checkpoint, and one whose checkpoint was declined, is WAITING: its output belongs to the next checkpoint that
completes. A checkpoint can be declined while its barrier is still on the way; its epoch ends all the same, and soon, by
`AbortBarrier`. The rules of docs/design/0006 are marked where they are kept:

1. A run ends only when the checkpoint of its last barrier is committed.       `_finish`, `_decline`
2. A savepoint exists only when the output of its epoch is committed.          `_committed`
3. Staged output is discarded only with a `StartPermit`.                       `SinkCommits.recover`
4. Nothing shared is deleted but with one, by the newest generation.           `CheckpointStore`
5. A manifest is written only with a `ManifestPermit`, in order, one at a time. `_advance`
6. Facts of channels belong to their senders.                                  `input_facts`
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, assert_never

from penstock.errors import ProtocolError
from penstock.protocol.chains import Chains
from penstock.protocol.checkpoint_messages import (
    SEAL,
    A,
    Abandoned,
    AbortBarrier,
    Acknowledged,
    Asked,
    AwaitSinks,
    Begun,
    CheckpointEvent,
    CheckpointInstruction,
    CommitSinks,
    Decline,
    End,
    Ended,
    EndRun,
    EpochEnded,
    FailJob,
    HostLost,
    ManifestPermit,
    ManifestWritten,
    Notify,
    Purpose,
    Recovered,
    Refuse,
    SavepointFailed,
    SavepointWritten,
    SinksCommitted,
    Skipped,
    Subsume,
    TimePassed,
    Uploaded,
    WriteManifest,
    WriteSavepoint,
)
from penstock.protocol.ids import TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRules:
    """The settings of checkpoints that the machine keeps to."""

    stored: bool  # there is a job folder: without one no epoch is a checkpoint
    exactly_once: bool = True  # False: output is committed when its epoch has ended
    interval_ms: int | None = None  # None: checkpoints only when something asks for one
    min_pause_ms: int = 0
    timeout_s: float = 600.0
    max_concurrent: int = 1
    tolerable_failures: int = 0


# ---------------------------------------------------------------- records


class Stage(Enum):
    """Where a checkpoint is on its way."""

    RUNNING = "running"  # acknowledgements are missing
    ENDED = "ended"  # the driver has been told
    STORING = "storing"  # snapshots are on their way to storage
    WRITING = "writing"  # the manifest may be written
    COMMITTING = "committing"  # the manifest is there; sinks commit
    SAVING = "saving"  # its output is committed, its savepoint is being written
    WAITING = "waiting"  # no checkpoint of its own: a later one commits its output


@dataclass(slots=True, kw_only=True)
class _Record(Generic[A]):
    """One epoch, from its barrier until a checkpoint covers it."""

    epoch: int
    checkpoint: bool
    last: bool
    asked: Asked | None
    planned: Any
    told: tuple[int, ...]  # aborted checkpoints that tasks hear of with this epoch
    missing: set[TaskId]  # tasks that have not acknowledged
    stage: Stage = Stage.RUNNING
    acks: dict[TaskId, A] = field(default_factory=dict)
    finished: bool = False
    begun_s: float | None = None  # None: the time-out counts from its end
    declined: bool = False  # before its epoch had ended
    ended_s: float = 0.0
    uploading: dict[TaskId, str] = field(default_factory=dict)  # task → the attempt whose snapshot is awaited
    stored: dict[TaskId, tuple[Any, ...]] = field(default_factory=dict)
    sizes: dict[TaskId, int] = field(default_factory=dict)
    lost: dict[TaskId, str] = field(default_factory=dict)  # tasks whose snapshot will never be stored, and why
    upload_ms: float = 0.0
    host_lost: bool = False  # no fault of the store
    output: dict[str, list[Any]] = field(default_factory=dict)  # committables by sink, until they are committed

    def end(self, finished: bool, now_s: float) -> None:
        self.finished, self.ended_s = finished, now_s
        for task, ack in sorted(self.acks.items()):
            for sink, made in ack.committables.items():
                self.output.setdefault(sink, []).extend(made)
            if ack.uploading:
                self.uploading[task] = ack.attempt
            elif ack.handle is not None:
                self.stored[task], self.sizes[task] = (ack.handle,), ack.snapshot_bytes

    def uploaded(self, event: Uploaded) -> None:
        # Of another attempt, or of a checkpoint that was given up: its files will never be named by a manifest.
        if event.epoch != self.epoch or self.uploading.get(event.task) != event.attempt:
            return
        del self.uploading[event.task]
        if event.error is not None:
            self.lost[event.task] = event.error
            return
        self.stored[event.task], self.sizes[event.task] = event.handles, event.size
        self.upload_ms = max(self.upload_ms, event.duration_ms)

    def give_up(self, tasks: Iterable[TaskId], reason: str) -> None:
        for task in list(tasks):
            del self.uploading[task]
            self.lost[task] = reason


# ---------------------------------------------------------------- the machine


class CheckpointMachine(Generic[A]):
    """Feed it what happens with `handle`, in the order in which it does, and carry out what it says before the next event."""

    def __init__(self, tasks: Iterable[TaskId], rules: CheckpointRules, chains: Chains, *, now_ms: int = 0) -> None:
        """`Recovered` gives it the tasks of the next attempt."""
        self._tasks, self._rules, self.chains = frozenset(tasks), rules, chains
        self._records: dict[int, _Record[A]] = {}  # oldest first
        self._early: list[Uploaded | HostLost] = []  # faster than the last acknowledgement of their epoch
        self._last_begun = 0
        self._job_attempt = 0
        self._failed_in_a_row = 0
        self._triggered_ms = self._completed_ms = now_ms
        self.newest: int | None = None  # the newest complete checkpoint
        self.aborted: tuple[int, ...] = ()  # checkpoints, until every task has heard of it

    # ---------------------------------------------------------------- questions

    def due(self, now_ms: int) -> bool:
        """It is time for a checkpoint. A clock that was set back does not put checkpoints off until it has caught up."""
        rules = self._rules
        storing = sum(record.stage in (Stage.STORING, Stage.WRITING) for record in self._records.values())
        if not rules.stored or rules.interval_ms is None or storing >= rules.max_concurrent:
            return False
        elapsed, pause = now_ms - self._triggered_ms, now_ms - self._completed_ms
        return (elapsed >= rules.interval_ms or elapsed < 0) and (pause >= rules.min_pause_ms or pause < 0)

    def covers(self, epoch: int) -> bool:
        """The newest checkpoint holds all that was done up to `epoch`."""
        return epoch <= (self.newest or 0)

    @property
    def running(self) -> tuple[int, ...]:
        """Epochs that have not ended."""
        return tuple(epoch for epoch, record in self._records.items() if record.stage is Stage.RUNNING)

    @property
    def storing(self) -> bool:
        """Snapshots are on their way."""
        return any(record.stage is Stage.STORING for record in self._records.values())

    @property
    def committing(self) -> int | None:
        """The epoch whose output the sinks are committing."""
        return next((e for e, record in self._records.items() if record.stage is Stage.COMMITTING), None)

    def missing(self, epoch: int) -> list[TaskId]:
        """The tasks whose acknowledgement of an epoch has not come."""
        return sorted(self._records[epoch].missing)

    # ---------------------------------------------------------------- events

    def handle(self, event: CheckpointEvent[A]) -> list[CheckpointInstruction[A]]:
        """Takes an event and gives what is to be done, in order. An event that does not fit is a ProtocolError."""
        match event:
            case Begun():
                return self._begin(event)
            case Acknowledged(ack=ack):
                return self._acknowledge(ack)
            case Ended():
                return self._end(event)
            case Uploaded() | HostLost():
                return self._upload(event)
            case TimePassed(now_s=now_s):
                return self._time_out(now_s)
            case ManifestWritten():
                return self._written(event)
            case SinksCommitted(epoch=epoch):
                return self._committed(epoch)
            case SavepointWritten(epoch=epoch):
                return self._saved(self._in(epoch, Stage.SAVING), None)
            case SavepointFailed(epoch=epoch, reason=reason):
                return self._saved(self._in(epoch, Stage.SAVING), reason)
            case Skipped(epoch=epoch):
                self._last_begun = epoch
                return []
            case Abandoned(reason=reason):
                return self._abandon(reason)
            case Recovered():
                return self._recover(event)
        assert_never(event)

    def _begin(self, event: Begun) -> list[CheckpointInstruction[A]]:
        if event.epoch <= self._last_begun:
            raise ProtocolError(f"epoch {event.epoch} was begun after epoch {self._last_begun}: epochs only go forward")
        if event.checkpoint and not self._rules.stored:
            raise ProtocolError(f"epoch {event.epoch} was begun as a checkpoint of a job that has no folder")
        self._last_begun = event.epoch
        self._records[event.epoch] = _Record(
            epoch=event.epoch,
            checkpoint=event.checkpoint,
            last=event.last,
            asked=event.asked,
            planned=event.planned,
            told=self.aborted,
            missing=set(self._tasks),
            begun_s=event.now_s,
        )
        if event.checkpoint:
            self._triggered_ms = event.now_ms
        return []

    def _acknowledge(self, ack: A) -> list[CheckpointInstruction[A]]:
        if ack.job_attempt != self._job_attempt:
            return []  # of an earlier attempt, which may have run the same epoch
        record = self._records.get(ack.epoch)
        if record is None or ack.task not in record.missing:
            raise ProtocolError(
                f"task {ack.task} acknowledged epoch {ack.epoch}, for which nothing of it is awaited while epochs "
                f"{list(self.running)} are running: two attempts of one task reached the driver"
            )
        record.missing.discard(ack.task)
        record.acks[ack.task] = ack
        return self._next_ended()

    def _next_ended(self) -> list[CheckpointInstruction[A]]:
        """The oldest epoch that runs, if every task has acknowledged it. In order: a checkpoint builds on the one before it."""
        for record in self._records.values():
            if record.stage is Stage.ENDED:
                return []  # its turn is not over
            if record.stage is Stage.RUNNING:
                if record.missing:
                    return []
                record.stage = Stage.ENDED
                return [EpochEnded(epoch=record.epoch, planned=record.planned, asked=record.asked, acks=record.acks)]
        return []

    def _end(self, event: Ended) -> list[CheckpointInstruction[A]]:
        record = self._in(event.epoch, Stage.ENDED)
        record.end(event.finished, event.now_s)
        self.aborted = tuple(aborted for aborted in self.aborted if aborted not in record.told)
        out: list[CheckpointInstruction[A]] = []
        if event.not_saved is not None and (asked := record.asked) is not None:
            out.append(Refuse(epoch=record.epoch, asked=asked, reason=event.not_saved))
            record.asked = None
            if asked.purpose is Purpose.DRAIN:  # the sources did not really end here: the only way is back
                return [*out, FailJob(epoch=record.epoch, reason=f"drained, but not saved: {event.not_saved}")]
        if not self._rules.stored or not self._rules.exactly_once:
            out.append(CommitSinks(epoch=record.epoch, committables=_in_order(record.output), beside=False))
            record.output = {}
        if record.checkpoint:
            record.stage = Stage.STORING
            for early in self._early:
                self._receive(record, early)
        else:
            record.stage = Stage.WAITING if self._rules.stored else Stage.COMMITTING
        self._early = [e for e in self._early if isinstance(e, Uploaded) and e.epoch > record.epoch]
        return [*out, *self._advance(), *self._next_ended()]

    def _upload(self, event: Uploaded | HostLost) -> list[CheckpointInstruction[A]]:
        self._early.append(event)
        for record in self._records.values():
            if record.stage is Stage.STORING:
                self._receive(record, event)
        return self._advance()

    @staticmethod
    def _receive(record: _Record[A], event: Uploaded | HostLost) -> None:
        match event:
            case Uploaded():
                record.uploaded(event)
            case HostLost(process=process):
                gone = [task for task in record.uploading if record.acks[task].slot == process]
                record.host_lost = record.host_lost or bool(gone)
                record.give_up(gone, f"slot {process} was lost before the snapshot was stored")

    def _time_out(self, now_s: float) -> list[CheckpointInstruction[A]]:
        limit = self._rules.timeout_s
        out: list[CheckpointInstruction[A]] = []
        for record in self._records.values():
            since = record.ended_s if record.begun_s is None else record.begun_s
            if record.stage is Stage.STORING and now_s - since > limit:
                record.give_up(record.uploading, f"not stored within {limit:g} s (execution.checkpointing.timeout)")
            late = record.stage is Stage.RUNNING and record.begun_s is not None and now_s - record.begun_s > limit
            if late and record.checkpoint and not record.declined:
                record.declined = True
                missing = ", ".join(str(task) for task in sorted(record.missing)[:5])
                why = f"not acknowledged within {limit:g} s (execution.checkpointing.timeout) by {missing}"
                out += self._declined(record, why)
                if isinstance(out[-1], FailJob):
                    return out
                if not record.last:  # with its last barrier a task comes to rest, and has to hear what follows
                    out.append(AbortBarrier(epoch=record.epoch))
        return [*out, *self._advance()]

    def _advance(self) -> list[CheckpointInstruction[A]]:
        """Rule 5: the oldest checkpoint whose snapshots are all stored gets the permit for its manifest; no other does before
        that is written, nor while sinks commit, because a later manifest does not list that output any more."""
        out: list[CheckpointInstruction[A]] = []
        for record in self._records.values():
            if record.stage is Stage.WRITING:
                return out
            if record.stage is not Stage.STORING:
                continue
            if record.uploading:
                return out
            if record.declined:
                self._keep_aside(record)
                continue
            lacking = self.chains.lacks_base(record.acks)
            if record.lost or lacking:
                reason = "; ".join(f"{task}: {why}" for task, why in sorted(record.lost.items()))
                out += self._decline(record, reason or f"snapshots of {lacking} build on one that was lost")
                if isinstance(out[-1], FailJob):
                    return out  # nothing that follows would be heard
                continue
            if (committing := self.committing) is not None:
                return [*out, AwaitSinks(epoch=committing)]
            record.stage = Stage.WRITING
            return [*out, WriteManifest(permit=self._permit(record))]
        return out

    def _output(self, epoch: int) -> dict[str, list[Any]]:
        """Of all epochs up to `epoch` that no checkpoint covers, in their order."""
        output: dict[str, list[Any]] = {}
        for record in self._records.values():
            for sink, made in record.output.items() if record.epoch <= epoch else ():
                output.setdefault(sink, []).extend(made)
        return output

    def _permit(self, record: _Record[A]) -> ManifestPermit[A]:
        return ManifestPermit(
            epoch=record.epoch,
            planned=record.planned,
            acks=record.acks,
            chains=self.chains.extend(record.acks, record.stored),
            committables=_in_order(self._output(record.epoch)),
            finished=record.finished,
            size=sum(record.sizes.values()),
            seal=SEAL,
        )

    def _decline(self, record: _Record[A], reason: str) -> list[CheckpointInstruction[A]]:
        """What was stored stays part of its tasks' chains, a task that lost its snapshot writes a full one, and the output goes
        to the next checkpoint. Rule 1: a run that was to end with this barrier goes on, or goes back."""
        self._keep_aside(record)
        return self._declined(record, reason)

    def _keep_aside(self, record: _Record[A]) -> None:
        record.stage = Stage.WAITING
        self.chains.keep(record.acks, record.stored)

    def _declined(self, record: _Record[A], reason: str) -> list[CheckpointInstruction[A]]:
        self.aborted = (*self.aborted, record.epoch)
        out: list[CheckpointInstruction[A]] = [Decline(epoch=record.epoch, reason=reason)]
        if (asked := record.asked) is not None:
            record.asked = None
            out.append(
                Refuse(epoch=record.epoch, asked=asked, reason=f"checkpoint {record.epoch} was declined: {reason}")
            )
            if asked.purpose is Purpose.DRAIN:  # the sources did not really end here: the only way is back
                return [*out, FailJob(epoch=record.epoch, reason=f"its last checkpoint was declined: {reason}")]
        if record.host_lost:  # dealt with where the state of the host is missed
            return out
        self._failed_in_a_row += 1
        if self._failed_in_a_row > self._rules.tolerable_failures:
            why = (
                f"checkpoint {record.epoch} was declined, the {self._failed_in_a_row}. in a row, and "
                f"execution.checkpointing.tolerable-failed-checkpoints is {self._rules.tolerable_failures}: {reason}"
            )
            return [*out, FailJob(epoch=record.epoch, reason=why)]
        return out

    def _written(self, event: ManifestWritten) -> list[CheckpointInstruction[A]]:
        record = self._in(event.epoch, Stage.WRITING)
        record.stage = Stage.COMMITTING
        self.newest = record.epoch
        self._completed_ms = event.now_ms
        self._failed_in_a_row = 0
        asked = record.asked if record.asked is not None and record.asked.purpose is Purpose.CHECKPOINT else None
        if asked is not None:
            record.asked = None  # answered
        covered = _in_order(self._take_output(record.epoch))
        commit: list[CheckpointInstruction[A]] = [
            CommitSinks(epoch=record.epoch, committables=covered, beside=not record.last and not self._saves(record))
        ]
        after: list[CheckpointInstruction[A]] = [
            Subsume(epoch=record.epoch),
            Notify(
                completed=record.epoch,
                size=sum(record.sizes.values()),
                since_s=record.ended_s if record.begun_s is None else record.begun_s,
                acks=record.acks,
                upload_ms=record.upload_ms,
                asked=asked,
            ),
        ]
        # If not exactly once, output was committed with its epoch.
        return [*commit, *after] if self._rules.exactly_once else [*after, *self._committed(record.epoch)]

    def _take_output(self, epoch: int) -> dict[str, list[Any]]:
        """A manifest promises it now: the epochs before are done with."""
        output = self._output(epoch)
        for record in [r for r in self._records.values() if r.epoch <= epoch]:
            record.output = {}
            if record.epoch < epoch:
                del self._records[record.epoch]
        return output

    def _committed(self, epoch: int) -> list[CheckpointInstruction[A]]:
        """Rule 2: now, and not before, a savepoint of this epoch may exist."""
        record = self._records.get(epoch)
        if record is None or record.stage is not Stage.COMMITTING:
            if record is None or self._rules.exactly_once:
                raise ProtocolError(f"sinks have committed epoch {epoch}, which nobody asked them to")
            return []  # committed with its epoch; its checkpoint is still on its way
        if self._saves(record):
            assert record.asked is not None
            record.stage = Stage.SAVING
            return [WriteSavepoint(epoch=epoch, asked=record.asked)]
        return self._finish(record)

    def _saved(self, record: _Record[A], problem: str | None) -> list[CheckpointInstruction[A]]:
        out: list[CheckpointInstruction[A]] = []
        if problem is not None:
            assert record.asked is not None
            out.append(Refuse(epoch=record.epoch, asked=record.asked, reason=problem))
            record.asked = None
        return [*out, *self._finish(record)]

    def _finish(self, record: _Record[A]) -> list[CheckpointInstruction[A]]:
        """Rule 1: everything up to here is committed; if this was the last barrier, the run is over."""
        del self._records[record.epoch]
        asked, end = record.asked, None
        if record.finished:
            end = End.FINISHED
        elif asked is not None and asked.purpose.ends_run:
            end = End.MOVED if asked.purpose is Purpose.RESCALE else End.STOPPED
        if end is None:
            return [*self._advance(), *self._next_ended()]
        return [EndRun(epoch=record.epoch, end=end, asked=asked)]

    def _abandon(self, reason: str) -> list[CheckpointInstruction[A]]:
        out: list[CheckpointInstruction[A]] = []
        for record in self._records.values():
            if (asked := record.asked) is not None:
                record.asked = None
                out.append(Refuse(epoch=record.epoch, asked=asked, reason=reason))
        return out

    def _recover(self, event: Recovered) -> list[CheckpointInstruction[A]]:
        """What was begun behind `epoch` has failed. What is not behind it was committed, though nobody could say so."""
        begun = {record.epoch for record in self._records.values() if record.checkpoint and record.epoch > event.epoch}
        self.aborted = tuple(sorted({*self.aborted, *begun}))
        self._records.clear()
        self._early.clear()
        self._tasks = event.tasks
        self._last_begun, self._job_attempt = event.epoch, event.job_attempt
        self._failed_in_a_row = 0
        self._triggered_ms = self._completed_ms = event.now_ms
        self.newest = event.newest
        return []

    # ---------------------------------------------------------------- small

    def _in(self, epoch: int, stage: Stage) -> _Record[A]:
        record = self._records.get(epoch)
        if record is None or record.stage is not stage:
            where = "gone" if record is None else record.stage.value
            raise ProtocolError(f"epoch {epoch} should be {stage.value} and is {where}")
        return record

    @staticmethod
    def _saves(record: _Record[A]) -> bool:
        return record.asked is not None and record.asked.purpose.saves


def _in_order(output: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    return dict(sorted(output.items()))
