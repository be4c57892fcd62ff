"""Snapshots on their way to storage: who stores them, and what is heard of it.

A subtask's snapshot is frozen, and encoded, at the barrier. Storing it may take as long as the store likes: the next epoch
runs meanwhile, and the checkpoint completes when `Uploaded` has come from every subtask.

From a subtask's frozen snapshot to handles: in the acknowledgement if it is small, else stored in the background.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from penstock.checkpoint import layout
from penstock.checkpoint.manifest import InlineState, StateHandle
from penstock.checkpoint.restore import encode_contents
from penstock.checkpoint.savepoint import savepoint_part
from penstock.checkpoint.storage import Storage
from penstock.checkpoint.store import CheckpointStore
from penstock.engine.messages import EpochPlan
from penstock.engine.settings import JobSettings
from penstock.protocol.checkpoint_messages import HostLost, Uploaded
from penstock.protocol.ids import TaskId
from penstock.state.snapshot import SnapshotContents
from penstock.state.snapshot_file import TableDelta

Store: TypeAlias = Callable[[], tuple[tuple[StateHandle, ...], int]]  # → handles and bytes


UploadEvent: TypeAlias = Uploaded | HostLost


class Uploads(Protocol):
    """Stores snapshots, on its own threads or step by step."""

    def submit(self, task: TaskId, epoch: int, attempt: str, store: Store) -> None:
        """Store a snapshot, now or later, and report. Never raises what storing raises."""
        ...


def carry_out(task: TaskId, epoch: int, attempt: str, store: Store) -> Uploaded:
    """Stores one snapshot and reports how it went; it never raises."""
    started = time.perf_counter()
    try:
        handles, size = store()
    except Exception as error:  # the driver decides what a lost snapshot means
        return Uploaded(task=task, epoch=epoch, attempt=attempt, error=f"{type(error).__name__}: {error}")
    duration_ms = (time.perf_counter() - started) * 1000
    return Uploaded(task=task, epoch=epoch, attempt=attempt, handles=handles, size=size, duration_ms=duration_ms)


class BackgroundUploads(Uploads):
    """A few threads of the slot. They are daemons: a slot that ends does not wait for them."""

    def __init__(self, report: Callable[[Uploaded], None], *, threads: int = 2) -> None:
        self._report = report
        self._waiting: queue.SimpleQueue[Callable[[], Uploaded] | None] = queue.SimpleQueue()
        self._threads = threads
        self._started = False

    def submit(self, task: TaskId, epoch: int, attempt: str, store: Store) -> None:
        if not self._started:
            self._started = True
            for number in range(self._threads):
                threading.Thread(target=self._work, name=f"penstock-upload-{number}", daemon=True).start()
        self._waiting.put(lambda: carry_out(task, epoch, attempt, store))

    def _work(self) -> None:
        while (work := self._waiting.get()) is not None:
            self._report(work())

    def close(self) -> None:
        """What is under way ends by itself; nothing new is started once the queue is empty."""
        for _ in range(self._threads if self._started else 0):
            self._waiting.put(None)


class ImmediateUploads(Uploads):
    """Nothing else happens until the snapshot is stored."""

    def __init__(self, report: Callable[[Uploaded], None]) -> None:
        self._report = report

    def submit(self, task: TaskId, epoch: int, attempt: str, store: Store) -> None:
        self._report(carry_out(task, epoch, attempt, store))


class UploadInbox:
    """Where reports wait for the JobMaster, which has one thread. `put` may be called from any."""

    def __init__(self) -> None:
        self._events: list[UploadEvent] = []
        self._changed = threading.Condition()

    def put(self, event: UploadEvent) -> None:
        """Leaves a report, and wakes the JobMaster if it waits."""
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    def take(self, timeout_s: float = 0.0) -> list[UploadEvent]:
        """The reports that have come; if there is none, waits so long for the first."""
        with self._changed:
            if not self._events and timeout_s > 0:
                self._changed.wait(timeout_s)
            events, self._events = self._events, []
            return events


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSnapshot:
    """The part of an acknowledgement that is about the snapshot."""

    handle: StateHandle | None = None  # None: not a checkpoint, or `uploading`
    uploading: bool = False
    size: int = 0
    saved: dict[str, Any] = field(default_factory=dict)  # of a savepoint


class SnapshotWriter:
    """Encodes the snapshot of a task at its barrier and hands it to the uploads."""

    def __init__(self, store: CheckpointStore | None, settings: JobSettings, uploads: Uploads) -> None:
        self._store, self._settings, self._uploads = store, settings, uploads

    @property
    def storage(self) -> Storage | None:
        """The storage of checkpoints; None in a job without any."""
        return None if self._store is None else self._store.storage

    def write(
        self, plan: EpochPlan, task: TaskId, state_id: str, attempt: str, contents: SnapshotContents | None
    ) -> WrittenSnapshot:
        """Encodes at once: values are the user's own objects, which the next epoch may change."""
        if contents is None:
            return WrittenSnapshot()
        compression = self._settings.snapshot_compression
        data = encode_contents(contents, compression)
        name = layout.state_name(state_id, task.subtask, attempt)
        threshold = self._settings.inline_threshold
        saved = {} if plan.savepoint is None else savepoint_part(plan.savepoint, name, data, threshold)
        if not plan.checkpoint:
            return WrittenSnapshot(saved=saved, size=len(data))
        if contents.parts is None and len(data) <= (0 if task in plan.no_inline else threshold):
            return WrittenSnapshot(handle=InlineState(data=data), saved=saved, size=len(data))
        store, epoch, parts = self._store, plan.epoch, contents.parts
        assert store is not None

        def store_all() -> tuple[tuple[StateHandle, ...], int]:
            handles: list[StateHandle] = []
            size = len(data)
            for number, tables in enumerate(parts or ()):
                part = encode_contents(_part(tables), compression)
                part_name = layout.state_name(state_id, task.subtask, f"{attempt}.{number}")
                handles.append(store.write_state(epoch, part_name, part))
                size += len(part)
            handles.append(store.write_state(epoch, name, data))
            return tuple(handles), size

        self._uploads.submit(task, epoch, attempt, store_all)
        return WrittenSnapshot(uploading=True, saved=saved, size=len(data))


def _part(tables: list[TableDelta]) -> SnapshotContents:
    return SnapshotContents(tables=tables, gate=None, full=True)
