"""From acknowledged epochs to completed checkpoints: waits for snapshots to be stored, completes in order, declines.

A checkpoint whose snapshots are not all stored does not hold up the epochs behind it. If one of its snapshots is lost, it
is declined and the next one covers it: what was stored stays part of its tasks' chains, a task that lost its snapshot
writes a full one, and the output it would have committed goes to the next.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.driver.checkpoint_statistics import StatisticsKeeper
from penstock.driver.pending_checkpoints import PendingCheckpoint
from penstock.driver.state_chains import StateChains
from penstock.engine.settings import JobSettings
from penstock.engine.uploads import Uploaded, UploadEvent, UploadInbox
from penstock.errors import CheckpointFailedError

_log = logging.getLogger("penstock")


@dataclass(slots=True, kw_only=True)
class UploadWatch:
    """How the driver hears that snapshots are stored, and what it does to hear it soon. Its runtime may change that."""

    inbox: UploadInbox = field(default_factory=UploadInbox)  # what slots report of snapshots they store
    patience_ms: float = 50.0  # how long an epoch's end may wait for them
    finish: Callable[[], None] = lambda: None  # for a runtime that stores nothing by itself: now it must


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What became durable, and how long that took."""

    size: int = 0
    manifest_ms: float = 0.0

    def and_(self, other: Settled) -> Settled:
        return Settled(size=self.size + other.size, manifest_ms=self.manifest_ms + other.manifest_ms)


class Checkpointing:
    """The pending checkpoints of one attempt of the job. Belongs to the JobMaster's thread; only the inbox is shared."""

    def __init__(
        self,
        settings: JobSettings,
        uploads: UploadWatch,
        chains: StateChains,
        *,
        complete: Callable[[PendingCheckpoint], Settled],
        inherit: Callable[[dict[str, list[Any]]], None],
        declined: Callable[[int], None],
        now_ms: Callable[[], int],
        statistics: StatisticsKeeper,
    ) -> None:
        """`complete` makes a checkpoint durable and commits it; `declined` hears of one that never will be, and `inherit`
        takes its committables when no other is pending."""
        self._settings, self._uploads, self._chains = settings, uploads, chains
        self._complete, self._inherit, self._declined = complete, inherit, declined
        self._now, self._statistics = now_ms, statistics
        self._pending: list[PendingCheckpoint] = []  # oldest first
        self._early: list[UploadEvent] = []  # reports that were faster than the acknowledgement of their epoch
        self._patient = True
        self._failed_in_a_row = 0
        self.triggered_ms = self.completed_ms = now_ms()

    @property
    def due(self) -> bool:
        """By the clock, not by the epoch's processing time: a replayed epoch has that of its first run. A clock that was
        set back must not put checkpoints off until it has caught up."""
        settings, now = self._settings, self._now()
        interval = settings.checkpoint_interval_ms
        if interval is None or len(self._pending) >= settings.max_concurrent_checkpoints:
            return False
        elapsed, pause = now - self.triggered_ms, now - self.completed_ms
        return (elapsed >= interval or elapsed < 0) and (pause >= settings.min_pause_ms or pause < 0)

    def acknowledged(self, checkpoint: PendingCheckpoint, *, last: bool) -> Settled:
        """Its epoch has ended. `last`: nothing follows, so all of it must be stored, now."""
        for event in self._early:
            checkpoint.receive(event)
        self._early = [e for e in self._early if isinstance(e, Uploaded) and e.epoch > checkpoint.epoch]
        self._pending.append(checkpoint)
        if last:
            self._uploads.finish()
            limit_ms = self._settings.checkpoint_timeout_ms
            settled = self.settle(limit_ms)
            if self._pending:
                raise CheckpointFailedError(
                    f"the last checkpoint was not stored within {limit_ms / 1000:.0f} s (execution.checkpointing.timeout): the "
                    "job goes back to the one before it"
                )
            return settled
        # A store that is fast is worth a moment: the checkpoint is then complete with its epoch, and a slot that is lost
        # later is restored alone. One that was not done in time is not waited for again until it is fast.
        settled = self.settle(self._uploads.patience_ms if self._patient else 0)
        self._patient = self._patient and not self._pending
        return settled

    def settle(self, wait_ms: float = 0) -> Settled:
        """Complete the checkpoints whose snapshots have all been stored, oldest first; decline those that never will be."""
        settled = Settled()
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            self._receive(deadline - time.monotonic())
            while self._pending and not self._pending[0].missing:
                checkpoint = self._pending.pop(0)
                lacking = self._chains.lacks_base(checkpoint.completed.acks)
                if checkpoint.failed or lacking:
                    self._decline(
                        checkpoint, checkpoint.reason() or f"snapshots of {lacking} build on one that was lost"
                    )
                else:
                    done = self._complete(checkpoint)
                    settled = settled.and_(done)
                    duration_ms = (time.monotonic() - checkpoint.started) * 1000
                    self._statistics.completed(checkpoint.epoch, done.size, duration_ms)
                    self._failed_in_a_row = 0
                    self._patient = checkpoint.upload_ms < self._uploads.patience_ms
                    self.completed_ms = self._now()
            if not self._pending or time.monotonic() >= deadline:
                return settled

    def _receive(self, wait_s: float) -> None:
        awaiting = any(checkpoint.missing for checkpoint in self._pending)
        for event in self._uploads.inbox.take(max(0.0, wait_s) if awaiting else 0.0):
            self._early.append(event)
            for checkpoint in self._pending:
                checkpoint.receive(event)
        limit = self._settings.checkpoint_timeout_ms / 1000
        for checkpoint in self._pending:
            if checkpoint.missing and time.monotonic() - checkpoint.started > limit:
                checkpoint.give_up(f"not stored within {limit:g} s (execution.checkpointing.timeout)")

    def epoch_without_checkpoint(self, epoch: int) -> None:
        self._early = [e for e in self._early if isinstance(e, Uploaded) and e.epoch > epoch]

    def _decline(self, checkpoint: PendingCheckpoint, reason: str) -> None:
        self._chains.keep(checkpoint.completed.acks, checkpoint.handles)
        if self._pending:
            heir = self._pending[0].committables
            for sink_id, made in checkpoint.committables.items():
                heir[sink_id] = [*made, *heir.get(sink_id, [])]
        else:
            self._inherit(checkpoint.committables)
        self._declined(checkpoint.epoch)
        self._statistics.failed(checkpoint.epoch, reason)
        _log.warning("checkpoint %d was declined: %s", checkpoint.epoch, reason)
        if checkpoint.slot_lost:  # dealt with where the slot's state is missed
            return
        self._failed_in_a_row += 1
        if self._failed_in_a_row > self._settings.tolerable_checkpoint_failures:
            raise CheckpointFailedError(
                f"checkpoint {checkpoint.epoch} was declined, the {self._failed_in_a_row}. in a row, and "
                f"execution.checkpointing.tolerable-failed-checkpoints is {self._settings.tolerable_checkpoint_failures}: {reason}"
            )
