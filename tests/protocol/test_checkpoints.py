"""The checkpoint machine: events in, instructions out. Its rules, each by an example; then all of them in random lives."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ProtocolError
from penstock.protocol.chains import Chains
from penstock.protocol.checkpoint_messages import (
    Abandoned,
    AbortBarrier,
    Acknowledged,
    Acknowledgement,
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
from penstock.protocol.checkpoints import CheckpointMachine, CheckpointRules
from penstock.protocol.ids import TaskId, VertexId

A, B = TaskId(VertexId(0), 0), TaskId(VertexId(1), 0)


@dataclass(frozen=True, slots=True)
class State:
    name: str
    size: int = 10
    inline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack(Acknowledgement):
    attempt: str = "first"
    slot: str = "host:1"
    snapshot_bytes: int = 10


Instruction = CheckpointInstruction[Ack]


def machine(tasks: Iterable[TaskId] = (A, B), **rules: Any) -> CheckpointMachine[Ack]:
    return CheckpointMachine(tasks, CheckpointRules(**{"stored": True, **rules}), Chains(compact_after=2))


def acknowledge(of: CheckpointMachine[Ack], epoch: int, *, upload: bool = False, **more: Any) -> list[Instruction]:
    """By both tasks; the epoch's output is one committable of each."""
    out: list[Instruction] = []
    for task in (A, B):
        made = {"sink": [f"{epoch}/{task}"]}
        state = {"uploading": True} if upload else {"handle": State(f"{epoch}/{task}")}
        out += of.handle(Acknowledged(ack=Ack(task=task, epoch=epoch, committables=made, **state, **more)))
    return out


def run(of: CheckpointMachine[Ack], epoch: int, **begun: Any) -> list[Instruction]:
    """An epoch up to what the machine says when it has ended, its snapshots in the acknowledgements."""
    of.handle(Begun(epoch=epoch, **{"checkpoint": True, **begun}))
    acknowledge(of, epoch)
    return of.handle(Ended(epoch=epoch, finished=False, now_s=0.0))


def permit_of(instructions: list[Instruction]) -> ManifestPermit[Ack]:
    (write,) = (i for i in instructions if isinstance(i, WriteManifest))
    return write.permit


def kinds(instructions: list[Instruction]) -> list[str]:
    return [type(instruction).__name__ for instruction in instructions]


def asked(purpose: Purpose) -> Asked:
    return Asked(purpose=purpose, request=purpose.value)


# ---------------------------------------------------------------- one after the other


def test_an_epoch_has_ended_when_every_task_has_acknowledged_and_every_earlier_one_has() -> None:
    checkpoints = machine()
    checkpoints.handle(Begun(epoch=1, checkpoint=True))
    checkpoints.handle(Begun(epoch=3, checkpoint=False))
    assert acknowledge(checkpoints, 3) == [], "epoch 1 has not ended"
    assert checkpoints.handle(Acknowledged(ack=Ack(task=B, epoch=1, handle=State("b")))) == []
    assert checkpoints.missing(1) == [A]
    (first,) = checkpoints.handle(Acknowledged(ack=Ack(task=A, epoch=1, handle=State("a"))))
    assert isinstance(first, EpochEnded)
    assert (first.epoch, sorted(first.acks)) == (1, [A, B])
    after = checkpoints.handle(Ended(epoch=1, finished=False, now_s=0.0))
    assert kinds(after) == ["WriteManifest", "EpochEnded"]
    assert isinstance(after[1], EpochEnded)
    assert after[1].epoch == 3


def test_a_second_acknowledgement_of_a_task_is_an_error_and_one_of_an_earlier_attempt_is_nothing() -> None:
    checkpoints = machine()
    checkpoints.handle(Recovered(epoch=4, newest=4, job_attempt=2, tasks=frozenset((A, B)), now_ms=0))
    checkpoints.handle(Begun(epoch=5, checkpoint=True))
    assert acknowledge(checkpoints, 5, job_attempt=1) == []
    assert checkpoints.missing(5) == [A, B]
    checkpoints.handle(Acknowledged(ack=Ack(task=A, epoch=5, job_attempt=2)))
    with pytest.raises(ProtocolError, match="two attempts of one task"):
        checkpoints.handle(Acknowledged(ack=Ack(task=A, epoch=5, job_attempt=2)))
    with pytest.raises(ProtocolError, match="acknowledged epoch 6"):
        checkpoints.handle(Acknowledged(ack=Ack(task=A, epoch=6, job_attempt=2)))


def test_epochs_only_go_forward_and_those_that_are_skipped_are_gone() -> None:
    checkpoints = machine()
    checkpoints.handle(Begun(epoch=2, checkpoint=False))
    with pytest.raises(ProtocolError, match="only go forward"):
        checkpoints.handle(Begun(epoch=2, checkpoint=False))
    checkpoints.handle(Skipped(epoch=7))
    with pytest.raises(ProtocolError, match="only go forward"):
        checkpoints.handle(Begun(epoch=7, checkpoint=False))


# ---------------------------------------------------------------- rule 5: the manifest


def test_a_manifest_is_permitted_when_every_snapshot_is_stored_and_lists_what_no_checkpoint_covers() -> None:
    checkpoints = machine()
    assert run(checkpoints, 1, checkpoint=False) == []
    checkpoints.handle(Begun(epoch=2, checkpoint=True))
    acknowledge(checkpoints, 2, upload=True)
    assert checkpoints.handle(Ended(epoch=2, finished=False, now_s=0.0)) == []
    stale = Uploaded(task=A, epoch=2, attempt="an earlier one", handles=(State("stale"),))
    early = Uploaded(task=A, epoch=1, attempt="first", handles=(State("early"),))
    assert checkpoints.handle(stale) == checkpoints.handle(early) == []
    assert checkpoints.handle(Uploaded(task=A, epoch=2, attempt="first", handles=(State("a"),), size=7)) == []
    permit = permit_of(checkpoints.handle(Uploaded(task=B, epoch=2, attempt="first", handles=(State("b"),), size=8)))
    assert permit.chains == {A: (State("a"),), B: (State("b"),)}
    assert permit.committables == {"sink": ["1/0/0", "1/1/0", "2/0/0", "2/1/0"]}
    assert (permit.epoch, permit.size) == (2, 15)


def test_nobody_else_can_make_a_permit() -> None:
    given = permit_of(run(machine(), 1))
    with pytest.raises(ProtocolError, match="permitted"):
        ManifestPermit(
            epoch=1, planned=None, acks={}, chains={}, committables={}, finished=False, size=0, seal=object()
        )
    assert given.epoch == 1


def test_reports_that_are_faster_than_the_last_acknowledgement_count() -> None:
    checkpoints = machine()
    checkpoints.handle(Begun(epoch=1, checkpoint=True))
    for task in (A, B):
        checkpoints.handle(Uploaded(task=task, epoch=1, attempt="first", handles=(State("x"),)))
    acknowledge(checkpoints, 1, upload=True)
    assert kinds(checkpoints.handle(Ended(epoch=1, finished=False, now_s=0.0))) == ["WriteManifest"]


def test_one_manifest_at_a_time_and_none_while_sinks_commit() -> None:
    checkpoints = machine()
    assert kinds(run(checkpoints, 1)) == ["WriteManifest"]
    assert run(checkpoints, 2) == [], "the manifest of 1 is being written"
    written = checkpoints.handle(ManifestWritten(epoch=1, now_ms=0))
    assert kinds(written) == ["CommitSinks", "Subsume", "Notify"]
    assert checkpoints.handle(TimePassed(now_s=1.0)) == [AwaitSinks(epoch=1)], "a later one does not list that output"
    assert permit_of(checkpoints.handle(SinksCommitted(epoch=1))).committables == {"sink": ["2/0/0", "2/1/0"]}


# ---------------------------------------------------------------- declined


def declined(of: CheckpointMachine[Ack], epoch: int, error: str = "disk full", **begun: Any) -> list[Instruction]:
    of.handle(Begun(epoch=epoch, checkpoint=True, **begun))
    acknowledge(of, epoch, upload=True)
    of.handle(Ended(epoch=epoch, finished=begun.get("last", False), now_s=0.0))
    of.handle(Uploaded(task=A, epoch=epoch, attempt="first", handles=(State(f"{epoch}/a"),)))
    return of.handle(Uploaded(task=B, epoch=epoch, attempt="first", error=error))


def test_output_of_a_declined_checkpoint_goes_to_the_next_before_what_came_after_it() -> None:
    checkpoints = machine(tolerable_failures=1)
    assert declined(checkpoints, 1) == [Decline(epoch=1, reason=f"{B}: disk full")]
    assert checkpoints.aborted == (1,)
    assert checkpoints.chains.lengths([A, B]) == {A: 1, B: 0}, "the one that lost its snapshot writes a full one"
    permit = permit_of(run(checkpoints, 2))
    assert permit.committables == {"sink": ["1/0/0", "1/1/0", "2/0/0", "2/1/0"]}
    assert len(checkpoints.aborted) == 0, "with epoch 2 every task has heard of it"


def test_more_failures_in_a_row_than_are_tolerated_fail_the_job_and_success_forgives() -> None:
    checkpoints = machine(tolerable_failures=1)
    declined(checkpoints, 1)
    run(checkpoints, 2)
    checkpoints.handle(ManifestWritten(epoch=2, now_ms=0))
    checkpoints.handle(SinksCommitted(epoch=2))
    assert kinds(declined(checkpoints, 3)) == ["Decline"]
    out = declined(checkpoints, 4)
    assert kinds(out) == ["Decline", "FailJob"]
    assert isinstance(out[1], FailJob)
    assert "the 2. in a row" in out[1].reason


def test_a_lost_host_fails_what_it_was_storing_and_is_no_fault_of_the_store() -> None:
    checkpoints = machine(tolerable_failures=0)
    checkpoints.handle(Begun(epoch=1, checkpoint=True))
    for task, slot in ((A, "host:1"), (B, "host:2")):
        checkpoints.handle(Acknowledged(ack=Ack(task=task, epoch=1, uploading=True, slot=slot)))
    checkpoints.handle(Ended(epoch=1, finished=False, now_s=0.0))
    assert checkpoints.handle(HostLost(process="host:3")) == []
    assert checkpoints.handle(HostLost(process="host:2")) == []
    stored = checkpoints.handle(Uploaded(task=A, epoch=1, attempt="first", handles=(State("a"),)))
    assert kinds(stored) == ["Decline"], "but not FailJob"


def test_what_was_stored_before_its_process_died_is_stored() -> None:
    checkpoints = machine()
    checkpoints.handle(Begun(epoch=1, checkpoint=True))
    acknowledge(checkpoints, 1, upload=True)
    checkpoints.handle(Ended(epoch=1, finished=False, now_s=0.0))
    checkpoints.handle(Uploaded(task=A, epoch=1, attempt="first", handles=(State("a"),)))
    checkpoints.handle(Uploaded(task=B, epoch=1, attempt="first", handles=(State("b"),)))
    assert checkpoints.handle(HostLost(process="host:1")) == []
    assert not checkpoints.storing


def test_a_checkpoint_that_is_not_stored_in_time_is_declined() -> None:
    checkpoints = machine(timeout_s=5.0, tolerable_failures=1)
    checkpoints.handle(Begun(epoch=1, checkpoint=True))
    acknowledge(checkpoints, 1, upload=True)
    checkpoints.handle(Ended(epoch=1, finished=False, now_s=100.0))
    assert checkpoints.handle(TimePassed(now_s=104.0)) == []
    (out,) = checkpoints.handle(TimePassed(now_s=106.0))
    assert isinstance(out, Decline)
    assert "not stored within 5 s" in out.reason


def test_a_checkpoint_whose_barrier_is_too_long_on_its_way_is_declined_and_its_epoch_ends_all_the_same() -> None:
    checkpoints = machine(timeout_s=5.0, tolerable_failures=1)
    checkpoints.handle(Begun(epoch=1, checkpoint=True, now_s=100.0, asked=asked(Purpose.CHECKPOINT)))
    checkpoints.handle(Acknowledged(ack=Ack(task=A, epoch=1, handle=State("a"), committables={"sink": ["1"]})))
    assert checkpoints.handle(TimePassed(now_s=104.0)) == []
    declined, refused, abort = checkpoints.handle(TimePassed(now_s=106.0))
    assert isinstance(declined, Decline)
    assert f"not acknowledged within 5 s (execution.checkpointing.timeout) by {B}" in declined.reason
    assert isinstance(refused, Refuse)
    assert abort == AbortBarrier(epoch=1), "tasks need not wait for it"
    assert checkpoints.aborted == (1,), "listeners hear of it"
    assert checkpoints.handle(TimePassed(now_s=120.0)) == [], "once"
    assert kinds(checkpoints.handle(Acknowledged(ack=Ack(task=B, epoch=1, handle=State("b"))))) == ["EpochEnded"]
    assert checkpoints.handle(Ended(epoch=1, finished=False, now_s=121.0)) == []
    permit = permit_of(run(checkpoints, 2, now_s=121.0))
    assert permit.committables["sink"][0] == "1", "its output goes with the next checkpoint"


def test_barriers_that_come_too_late_count_as_failures_until_the_job_fails() -> None:
    checkpoints = machine(timeout_s=5.0, tolerable_failures=1)
    checkpoints.handle(Begun(epoch=1, checkpoint=True, now_s=100.0))
    checkpoints.handle(Begun(epoch=2, checkpoint=True, now_s=101.0))
    checkpoints.handle(Begun(epoch=3, checkpoint=False, now_s=101.0))
    assert kinds(checkpoints.handle(TimePassed(now_s=105.5))) == ["Decline", "AbortBarrier"]
    assert kinds(checkpoints.handle(TimePassed(now_s=107.0))) == ["Decline", "FailJob"]


def test_the_last_barrier_of_a_run_is_not_aborted() -> None:
    checkpoints = machine(timeout_s=5.0, tolerable_failures=1)
    checkpoints.handle(Begun(epoch=1, checkpoint=True, last=True, now_s=100.0))
    assert kinds(checkpoints.handle(TimePassed(now_s=106.0))) == ["Decline"]


def test_a_task_that_skipped_an_aborted_checkpoint_builds_on_what_it_had() -> None:
    checkpoints = machine(timeout_s=5.0, tolerable_failures=1)
    run(checkpoints, 1, now_s=99.0)
    checkpoints.handle(ManifestWritten(epoch=1, now_ms=0))
    checkpoints.handle(SinksCommitted(epoch=1))
    checkpoints.handle(Begun(epoch=2, checkpoint=True, now_s=100.0))
    checkpoints.handle(Acknowledged(ack=Ack(task=A, epoch=2, full=False, handle=State("2a"))))
    checkpoints.handle(TimePassed(now_s=106.0))
    skipped = Ack(task=B, epoch=2, skipped=True, committables={"sink": ["of 2"]})
    assert kinds(checkpoints.handle(Acknowledged(ack=skipped))) == ["EpochEnded"]
    checkpoints.handle(Ended(epoch=2, finished=False, now_s=106.0))
    assert checkpoints.chains.lengths([A, B]) == {A: 2, B: 1}, "neither need write all of its state"
    checkpoints.handle(Begun(epoch=3, checkpoint=True, now_s=107.0))
    acknowledge(checkpoints, 3, full=False)
    permit = permit_of(checkpoints.handle(Ended(epoch=3, finished=False, now_s=107.0)))
    assert len(permit.chains[A]) == 3
    assert len(permit.chains[B]) == 2
    assert permit.committables["sink"][0] == "of 2"


def test_the_snapshots_of_a_checkpoint_that_was_declined_on_the_way_are_what_the_next_builds_on() -> None:
    checkpoints = machine(timeout_s=5.0, tolerable_failures=1)
    checkpoints.handle(Begun(epoch=1, checkpoint=True, now_s=100.0))
    checkpoints.handle(TimePassed(now_s=106.0))
    acknowledge(checkpoints, 1)
    checkpoints.handle(Ended(epoch=1, finished=False, now_s=106.0))
    checkpoints.handle(Begun(epoch=2, checkpoint=True, now_s=107.0))
    acknowledge(checkpoints, 2, full=False)
    permit = permit_of(checkpoints.handle(Ended(epoch=2, finished=False, now_s=107.0)))
    assert [state.name for state in permit.chains[A]] == [f"1/{A}", f"2/{A}"]


def test_a_delta_that_builds_on_a_lost_snapshot_is_not_part_of_a_checkpoint() -> None:
    checkpoints = machine(tolerable_failures=5)
    declined(checkpoints, 1)
    checkpoints.handle(Begun(epoch=2, checkpoint=True))
    acknowledge(checkpoints, 2, full=False)
    (out,) = checkpoints.handle(Ended(epoch=2, finished=False, now_s=0.0))
    assert isinstance(out, Decline)
    assert "build on one that was lost" in out.reason


# ---------------------------------------------------------------- rule 1: the end


def test_a_run_ends_when_the_checkpoint_of_its_last_barrier_is_committed() -> None:
    checkpoints = machine()
    checkpoints.handle(Begun(epoch=1, checkpoint=True, last=True))
    acknowledge(checkpoints, 1)
    assert kinds(checkpoints.handle(Ended(epoch=1, finished=True, now_s=0.0))) == ["WriteManifest"]
    commit, *_ = checkpoints.handle(ManifestWritten(epoch=1, now_ms=0))
    assert isinstance(commit, CommitSinks)
    assert not commit.beside
    assert checkpoints.handle(SinksCommitted(epoch=1)) == [EndRun(epoch=1, end=End.FINISHED, asked=None)]


@pytest.mark.parametrize("purpose", [Purpose.STOP, Purpose.RESCALE])
def test_a_run_whose_last_checkpoint_is_declined_goes_on_and_who_asked_hears_of_it(purpose: Purpose) -> None:
    checkpoints = machine(tolerable_failures=1)
    out = declined(checkpoints, 1, last=True, asked=asked(purpose))
    assert kinds(out) == ["Decline", "Refuse"]
    run(checkpoints, 2)
    checkpoints.handle(ManifestWritten(epoch=2, now_ms=0))
    assert checkpoints.handle(SinksCommitted(epoch=2)) == [], "the end was refused"


def test_a_drained_run_whose_last_checkpoint_is_declined_can_only_go_back() -> None:
    out = declined(machine(tolerable_failures=9), 1, last=True, asked=asked(Purpose.DRAIN))
    assert kinds(out) == ["Decline", "Refuse", "FailJob"]


def test_a_rescaled_run_ends_moved() -> None:
    checkpoints = machine()
    request = asked(Purpose.RESCALE)
    run(checkpoints, 1, last=True, asked=request)
    checkpoints.handle(ManifestWritten(epoch=1, now_ms=0))
    assert checkpoints.handle(SinksCommitted(epoch=1)) == [EndRun(epoch=1, end=End.MOVED, asked=request)]


# ---------------------------------------------------------------- rule 2: savepoints


@pytest.mark.parametrize(("purpose", "end"), [(Purpose.SAVEPOINT, False), (Purpose.STOP, True)])
def test_a_savepoint_is_written_when_the_output_of_its_epoch_is_committed(purpose: Purpose, end: bool) -> None:
    checkpoints, request = machine(), asked(purpose)
    assert kinds(run(checkpoints, 1, asked=request, last=end)) == ["WriteManifest"]
    assert kinds(checkpoints.handle(ManifestWritten(epoch=1, now_ms=0))) == ["CommitSinks", "Subsume", "Notify"]
    assert checkpoints.handle(SinksCommitted(epoch=1)) == [WriteSavepoint(epoch=1, asked=request)]
    ended = [EndRun(epoch=1, end=End.STOPPED, asked=request)] if end else []
    assert checkpoints.handle(SavepointWritten(epoch=1)) == ended


def test_a_savepoint_that_cannot_be_written_is_refused_and_the_job_goes_on() -> None:
    checkpoints, request = machine(), asked(Purpose.STOP)
    run(checkpoints, 1, asked=request, last=True)
    checkpoints.handle(ManifestWritten(epoch=1, now_ms=0))
    checkpoints.handle(SinksCommitted(epoch=1))
    out = checkpoints.handle(SavepointFailed(epoch=1, reason="disk full"))
    assert out == [Refuse(epoch=1, asked=request, reason="disk full")]


def test_a_savepoint_of_which_a_task_could_not_store_its_part_does_not_keep_the_checkpoint_from_completing() -> None:
    checkpoints, request = machine(), asked(Purpose.SAVEPOINT)
    checkpoints.handle(Begun(epoch=1, checkpoint=True, asked=request))
    acknowledge(checkpoints, 1)
    out = checkpoints.handle(Ended(epoch=1, finished=False, now_s=0.0, not_saved="no folder"))
    assert kinds(out) == ["Refuse", "WriteManifest"]
    drained = machine()
    drained.handle(Begun(epoch=1, checkpoint=True, last=True, asked=asked(Purpose.DRAIN)))
    acknowledge(drained, 1)
    out = drained.handle(Ended(epoch=1, finished=True, now_s=0.0, not_saved="no folder"))
    assert kinds(out) == ["Refuse", "FailJob"], "the sources did not really end: the only way is back"


def test_a_checkpoint_that_was_asked_for_is_answered_with_its_manifest() -> None:
    checkpoints, request = machine(), asked(Purpose.CHECKPOINT)
    run(checkpoints, 1, asked=request)
    notice = checkpoints.handle(ManifestWritten(epoch=1, now_ms=0))[-1]
    assert isinstance(notice, Notify)
    assert (notice.completed, notice.asked) == (1, request)


# ---------------------------------------------------------------- other ways to run


def test_without_a_folder_output_is_committed_with_its_epoch() -> None:
    checkpoints = machine(stored=False)
    out = run(checkpoints, 1, checkpoint=False)
    assert out == [CommitSinks(epoch=1, committables={"sink": ["1/0/0", "1/1/0"]}, beside=False)]
    assert checkpoints.handle(SinksCommitted(epoch=1)) == []
    with pytest.raises(ProtocolError, match="no folder"):
        checkpoints.handle(Begun(epoch=2, checkpoint=True))


def test_at_least_once_output_is_committed_with_its_epoch_and_not_again_with_the_checkpoint() -> None:
    checkpoints = machine(exactly_once=False)
    assert kinds(run(checkpoints, 1)) == ["CommitSinks", "WriteManifest"]
    assert checkpoints.handle(SinksCommitted(epoch=1)) == []
    assert kinds(checkpoints.handle(ManifestWritten(epoch=1, now_ms=0))) == ["Subsume", "Notify"]


def test_a_recovery_makes_void_what_was_under_way_and_tells_of_what_was_begun() -> None:
    checkpoints = machine()
    request = asked(Purpose.SAVEPOINT)
    run(checkpoints, 1)
    checkpoints.handle(ManifestWritten(epoch=1, now_ms=0))
    checkpoints.handle(Begun(epoch=2, checkpoint=False))
    checkpoints.handle(Begun(epoch=3, checkpoint=True, asked=request))
    assert checkpoints.handle(Abandoned(reason="a crash")) == [Refuse(epoch=3, asked=request, reason="a crash")]
    checkpoints.handle(Recovered(epoch=1, newest=1, job_attempt=1, tasks=frozenset((A,)), now_ms=0))
    assert (checkpoints.aborted, checkpoints.running, checkpoints.newest) == ((3,), (), 1)
    checkpoints.handle(Begun(epoch=2, checkpoint=False))
    assert checkpoints.missing(2) == [A]


@pytest.mark.parametrize(
    ("now", "due"), [(0, False), (99, False), (100, True), (-5, True)], ids=["start", "early", "due", "clock set back"]
)
def test_a_checkpoint_is_due_by_the_clock(now: int, due: bool) -> None:
    assert machine(interval_ms=100).due(now) is due


def test_no_checkpoint_is_due_while_enough_are_being_stored_or_the_last_was_just_completed() -> None:
    checkpoints = machine(interval_ms=0, min_pause_ms=50)
    checkpoints.handle(Begun(epoch=1, checkpoint=True, now_ms=100))
    acknowledge(checkpoints, 1, upload=True)
    checkpoints.handle(Ended(epoch=1, finished=False, now_s=0.0))
    assert not checkpoints.due(1000)
    for task in (A, B):
        checkpoints.handle(Uploaded(task=task, epoch=1, attempt="first", handles=(State("x"),)))
    checkpoints.handle(ManifestWritten(epoch=1, now_ms=1000))
    assert not checkpoints.due(1049)
    assert checkpoints.due(1050)


# ---------------------------------------------------------------- random lives


class World:
    """Stands in for the driver and all around it: answers instructions now or later, and writes down what has come about."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.rules = CheckpointRules(
            stored=rng.random() < 0.9,
            exactly_once=rng.random() < 0.8,
            tolerable_failures=rng.choice([0, 1, 5]),
            max_concurrent=3,
        )
        self.machine: CheckpointMachine[Ack] = CheckpointMachine((A, B), self.rules, Chains(compact_after=2))
        self.epoch = 0
        self.attempt = 0
        self.made: dict[int, list[str]] = {}  # output by epoch, of this history
        self.visible: list[str] = []
        self.promised: tuple[int, list[str]] | None = None  # by the newest manifest
        self.manifest = 0
        self.writing: int | None = None
        self.committing: int | None = None
        self.waiting: list[CheckpointEvent[Ack]] = []  # answers and reports that come in any order
        self.open: dict[int, Asked] = {}  # requests that nobody has answered
        self.finished: set[int] = set()
        self.end: EndRun | None = None

    def live(self, steps: int) -> None:
        for _ in range(steps):
            if self.end is not None:
                return
            choice = self.rng.random()
            if choice < 0.04:
                self.crash()
            elif choice < 0.35 and len(self.machine.running) < 3 and not self.finished:
                self.begin()
            elif self.waiting:
                self.feed(self.waiting.pop(self.rng.randrange(len(self.waiting))))
            else:
                self.feed(TimePassed(now_s=self.rng.choice([1.0, 1.0, 10_000.0])))

    def begin(self) -> None:
        self.epoch += 1
        purpose = self.rng.choice([None, None, None, *Purpose])
        if purpose in (Purpose.CHECKPOINT, Purpose.RESCALE) and not self.rules.stored:
            purpose = None
        request = None if purpose is None else Asked(purpose=purpose, request=object())
        last = purpose is not None and purpose.ends_run
        checkpoint = self.rules.stored and (request is not None or self.rng.random() < 0.6)
        if self.rng.random() < 0.03 or purpose is Purpose.DRAIN:
            self.finished.add(self.epoch)
            last, checkpoint = True, self.rules.stored
        if request is not None:
            self.open[self.epoch] = request
        self.made[self.epoch] = [f"{self.epoch}/{task}/{self.attempt}" for task in (A, B)]
        self.feed(Begun(epoch=self.epoch, checkpoint=checkpoint, last=last, asked=request))
        for task, output in zip((A, B), self.made[self.epoch], strict=True):
            upload = checkpoint and self.rng.random() < 0.5
            ack = Ack(
                task=task,
                epoch=self.epoch,
                attempt=f"{self.epoch}.{self.attempt}",
                job_attempt=self.attempt,
                uploading=upload,
                handle=State(output) if checkpoint and not upload else None,
                full=self.machine.chains.lengths([task])[task] == 0,
                committables={"sink": [output]},
            )
            self.waiting.append(Acknowledged(ack=ack))
            if upload:
                lost = self.rng.random() < 0.15
                self.waiting.append(
                    Uploaded(
                        task=task,
                        epoch=self.epoch,
                        attempt=ack.attempt,
                        handles=() if lost else (State(output),),
                        error="lost" if lost else None,
                    )
                )
        if last:
            self.finish_all()

    def finish_all(self) -> None:
        """Nothing follows: the driver waits for all that is under way."""
        while self.waiting and self.end is None:
            self.feed(self.waiting.pop(self.rng.randrange(len(self.waiting))))
        self.finished.clear()

    def feed(self, event: CheckpointEvent[Ack]) -> None:
        events = [event]
        while events:
            following = events.pop(0)
            if isinstance(following, SinksCommitted) and following.epoch == self.committing:
                self.committing = None
            if isinstance(following, SavepointWritten) and not self.open[following.epoch].purpose.ends_run:
                # Until now it can be refused as well, by a job that fails: the shell does not take back that it is there.
                del self.open[following.epoch]
            for instruction in self.machine.handle(following):
                if isinstance(instruction, FailJob):
                    self.crash()
                    return
                events += self.carry_out(instruction)

    def carry_out(self, instruction: Instruction) -> list[CheckpointEvent[Ack]]:
        match instruction:
            case EpochEnded(epoch=epoch):
                not_saved = "no room" if epoch in self.open and self.rng.random() < 0.1 else None
                return [Ended(epoch=epoch, finished=epoch in self.finished, now_s=1.0, not_saved=not_saved)]
            case WriteManifest(permit=permit):
                assert self.writing is None, "one manifest at a time"
                assert self.committing is None, "a later manifest does not list what is being committed"
                assert permit.epoch > self.manifest, "in order"
                if self.rules.exactly_once:
                    covered = [o for e in sorted(self.made) if self.manifest < e <= permit.epoch for o in self.made[e]]
                    assert permit.committables.get("sink", []) == covered, "all that no checkpoint covers, in order"
                    self.promised = (permit.epoch, covered)
                self.writing, self.manifest = permit.epoch, permit.epoch
                self.waiting.append(ManifestWritten(epoch=permit.epoch, now_ms=0))
            case CommitSinks(epoch=epoch, committables=committables, beside=beside):
                if self.rules.exactly_once and self.rules.stored:
                    assert self.manifest == epoch, "output becomes visible behind its manifest"
                    self.writing = None
                self.visible += committables.get("sink", [])
                if beside:
                    self.committing = epoch
                    self.waiting.append(SinksCommitted(epoch=epoch))
                else:
                    return [SinksCommitted(epoch=epoch)]
            case AwaitSinks(epoch=epoch):
                assert self.committing == epoch
                self.waiting = [w for w in self.waiting if not isinstance(w, SinksCommitted)]
                return [SinksCommitted(epoch=epoch)]
            case Notify(completed=epoch, asked=request):
                self.writing = None
                if request is not None:
                    assert self.open.pop(epoch) is request
            case WriteSavepoint(epoch=epoch):
                wanted = [output for e in sorted(self.made) if e <= epoch for output in self.made[e]]
                assert [o for o in self.visible if o in wanted] == wanted, "rule 2"
                if self.rng.random() < 0.2:
                    return [SavepointFailed(epoch=epoch, reason="disk full")]
                return [SavepointWritten(epoch=epoch)]
            case Refuse(epoch=epoch, asked=request):
                assert self.open.pop(epoch) is request, "each is answered once"
            case EndRun():
                self.end = instruction
                assert not self.machine.running or instruction.end is not End.FINISHED
            case Decline() | Subsume():
                pass
            case _:
                raise AssertionError(instruction)
        return []

    def crash(self) -> None:
        """Back to the newest manifest: what it promises is committed again, what came behind it is run again."""
        self.feed(Abandoned(reason="a crash"))
        assert self.open == {} or all(e <= self.manifest for e in self.open)
        self.open.clear()
        if self.rules.exactly_once:
            kept = {output for epoch, outputs in self.made.items() if epoch <= self.manifest for output in outputs}
            assert set(self.visible) <= kept or not self.rules.stored, "nothing is visible that no manifest promises"
            if self.promised is not None:
                self.visible += [output for output in self.promised[1] if output not in self.visible]
        self.made = {e: outputs for e, outputs in self.made.items() if e <= self.manifest}
        self.epoch, self.attempt = self.manifest, self.attempt + 1
        late: list[CheckpointEvent[Ack]] = [
            w for w in self.waiting if self.rng.random() < 0.3 and isinstance(w, Acknowledged | Uploaded)
        ]
        self.waiting, self.writing, self.committing = late, None, None
        self.finished.clear()
        self.machine.chains.adopt({})
        self.feed(
            Recovered(
                epoch=self.epoch,
                newest=self.manifest or None,
                job_attempt=self.attempt,
                tasks=frozenset((A, B)),
                now_ms=0,
            )
        )


@settings(max_examples=400, deadline=None)
@given(st.randoms(use_true_random=False))
def test_whatever_happens_output_is_committed_once_in_order_and_nothing_ends_without_it(rng: random.Random) -> None:
    world = World(rng)
    world.live(120)
    if world.rules.exactly_once and world.rules.stored:
        assert len(world.visible) == len(set(world.visible)), "nothing twice"
        order = [int(output.split("/")[0]) for output in world.visible]
        assert order == sorted(order)
    if world.end is not None and world.rules.stored and world.rules.exactly_once:
        wanted = [o for e in sorted(world.made) if e <= world.end.epoch for o in world.made[e]]
        assert world.visible == wanted, "rule 1: a run ends with all its output"
