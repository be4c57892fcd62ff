"""From a subtask's frozen snapshot to handles: in the acknowledgement if it is small, else stored in the background."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.checkpoint import layout
from penstock.checkpoint.manifest import InlineState, StateHandle
from penstock.checkpoint.restore import encode_contents
from penstock.checkpoint.savepoint import savepoint_part
from penstock.checkpoint.storage import Storage
from penstock.checkpoint.store import CheckpointStore
from penstock.engine.messages import EpochPlan
from penstock.engine.settings import JobSettings
from penstock.engine.uploads import Uploads
from penstock.protocol.ids import TaskId
from penstock.state.snapshot import SnapshotContents
from penstock.state.snapshot_file import TableDelta


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSnapshot:
    """What the acknowledgement says of it."""

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
