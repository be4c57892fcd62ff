"""How checkpoints went, over the whole life of a job: kept in the job folder, so that a restart does not forget."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final, Literal

from penstock.checkpoint import layout
from penstock.checkpoint.storage import Storage
from penstock.errors import StorageError

_HISTORY: Final = 20
_VERSION: Final = 1
_WRITE_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRecord:
    """One checkpoint that was completed, declined or restored."""

    checkpoint_id: int
    status: Literal["completed", "failed", "restored"]
    at_ms: int
    bytes: int = 0
    duration_ms: float = 0.0  # from the end of its epoch, or in a stream from its trigger, until it was complete
    start_delay_ms: float = 0.0  # of the task whose first barrier came last
    alignment_ms: float = 0.0  # of the task that waited longest from its first barrier to its last
    alignment_buffered_bytes: int = 0  # behind early barriers, of all tasks
    overtaken: int = 0  # records in the checkpoint because its barriers overtook them
    sync_ms: float = 0.0  # of the task that stood still longest
    async_ms: float = 0.0  # of the snapshot that took longest to be stored
    reason: str = ""


@dataclass(slots=True, kw_only=True)
class CheckpointStatistics:
    """Counts since the job's first start, and the newest checkpoints, oldest first."""

    completed: int = 0
    failed: int = 0
    restored: int = 0
    starts: int = 0
    history: list[CheckpointRecord] = field(default_factory=list)

    def latest(self, status: Literal["completed", "failed", "restored"]) -> CheckpointRecord | None:
        """The newest checkpoint with this outcome; None if there is none."""
        return next((record for record in reversed(self.history) if record.status == status), None)


class StatisticsKeeper:
    """Never a reason to fail: what cannot be read is begun anew, what cannot be written is written later. Written at most
    once a second and at the end, so a driver that is killed may lose the last second's."""

    def __init__(self, storage: Storage | None, now_ms: Callable[[], int]) -> None:
        self._storage, self._now = storage, now_ms
        self._written = 0.0
        self.statistics = CheckpointStatistics()

    def load(self) -> None:
        """Reads what earlier starts of the job have written."""
        if self._storage is None:
            return
        try:
            stored = json.loads(self._storage.get(layout.STATISTICS))
            if stored.pop("version") == _VERSION:
                known = {f.name for f in fields(CheckpointRecord)}
                history = [
                    CheckpointRecord(**{k: v for k, v in r.items() if k in known}) for r in stored.pop("history")
                ]
                self.statistics = CheckpointStatistics(**stored, history=history)
        except (StorageError, OSError, ValueError, TypeError, KeyError, AttributeError):
            pass
        self.statistics.starts += 1

    def completed(self, checkpoint_id: int, size: int, duration_ms: float, **measured: float) -> None:
        """Counts a checkpoint that is complete. `measured`: further fields of its record."""
        self.statistics.completed += 1
        rounded = {name: round(value, 1) for name, value in measured.items()}
        self._add("completed", checkpoint_id, bytes=size, duration_ms=round(duration_ms, 1), **rounded)

    def failed(self, checkpoint_id: int, reason: str) -> None:
        """Counts a checkpoint that was begun and not completed."""
        self.statistics.failed += 1
        self._add("failed", checkpoint_id, reason=reason[:500])

    def restored(self, checkpoint_id: int) -> None:
        """Counts a checkpoint that the job goes on from."""
        self.statistics.restored += 1
        self._add("restored", checkpoint_id)

    def _add(self, status: Literal["completed", "failed", "restored"], checkpoint_id: int, **more: Any) -> None:
        record = CheckpointRecord(checkpoint_id=checkpoint_id, status=status, at_ms=self._now(), **more)
        self.statistics.history.append(record)
        del self.statistics.history[:-_HISTORY]
        if time.monotonic() - self._written >= _WRITE_EVERY_S:
            self.write()

    def write(self) -> None:
        """Stores the statistics in the job folder."""
        if self._storage is None:
            return
        self._written = time.monotonic()
        try:
            data = json.dumps({"version": _VERSION, **asdict(self.statistics)}).encode()
            self._storage.put(layout.STATISTICS, data)
        except Exception:  # numbers for people to look at are not worth a job; the next attempt is soon
            self._written = 0.0
