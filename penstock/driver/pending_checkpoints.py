"""Checkpoints whose epoch has ended and whose snapshots are still on their way to storage. Pure bookkeeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.checkpoint.manifest import StateHandle
from penstock.engine.messages import TaskAck
from penstock.engine.uploads import SlotLost, Uploaded, UploadEvent
from penstock.protocol.coordinator import CompletedEpoch
from penstock.protocol.ids import TaskId


@dataclass(slots=True, kw_only=True)
class PendingCheckpoint:
    """Everything the manifest will say, but for the handles that are missing. Owns the committables it promises."""

    epoch: int
    completed: CompletedEpoch[TaskAck]
    committables: dict[str, list[Any]]
    describe: Callable[..., Any]  # makes the manifest of tasks, committables and size
    save: Callable[[], None] | None = None  # writes the savepoint of this epoch, once its output is committed
    started: float = field(default_factory=time.monotonic)
    missing: dict[TaskId, str] = field(default_factory=dict)  # task → the attempt whose upload is awaited
    handles: dict[TaskId, tuple[StateHandle, ...]] = field(default_factory=dict)
    sizes: dict[TaskId, int] = field(default_factory=dict)
    failed: dict[TaskId, str] = field(default_factory=dict)
    upload_ms: float = 0.0
    slot_lost: bool = False  # no fault of the store

    def __post_init__(self) -> None:
        for task, ack in self.completed.acks.items():
            if ack.uploading:
                self.missing[task] = ack.attempt
            elif ack.handle is not None:
                self.handles[task] = (ack.handle,)
                self.sizes[task] = ack.snapshot_bytes

    def receive(self, event: UploadEvent) -> None:
        match event:
            case Uploaded():
                # Of another attempt, or of a checkpoint that was given up: its files will never be named by a manifest.
                if event.epoch != self.epoch or self.missing.get(event.task) != event.attempt:
                    return
                del self.missing[event.task]
                if event.error is not None:
                    self.failed[event.task] = event.error
                    return
                self.handles[event.task], self.sizes[event.task] = event.handles, event.size
                self.upload_ms = max(self.upload_ms, event.duration_ms)
            case SlotLost():
                acks = self.completed.acks
                gone = [task for task in self.missing if acks[task].slot == event.process]
                self.slot_lost = self.slot_lost or bool(gone)
                self._fail(gone, f"slot {event.process} was lost before the snapshot was stored")

    def give_up(self, reason: str) -> None:
        self._fail(list(self.missing), reason)

    def _fail(self, tasks: list[TaskId], reason: str) -> None:
        for task in tasks:
            del self.missing[task]
            self.failed[task] = reason

    def reason(self) -> str:
        return "; ".join(f"{task}: {why}" for task, why in sorted(self.failed.items()))
