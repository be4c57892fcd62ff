"""What happened, read from the job's own journal (`epochs.jsonl`), and the numbers the view and the report show."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from penstock.engine.messages import EpochReport

_KNOWN = {item.name for item in fields(EpochReport)}


class Journal:
    """Follows the journal while the driver appends to it; outlives the driver."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self.epochs: list[EpochReport] = []

    def poll(self) -> list[EpochReport]:
        """Read what is new; returns the new epochs."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        whole = data.rfind(b"\n") + 1  # the last line may still be on its way
        self._position += whole
        new = [epoch for line in data[:whole].splitlines() if (epoch := _epoch(line)) is not None]
        self.epochs += new
        return new


def _epoch(line: bytes) -> EpochReport | None:
    try:
        entry = json.loads(line)
        return EpochReport(**{name: value for name, value in entry.items() if name in _KNOWN})
    except (ValueError, TypeError):  # a line that a killed driver left half written
        return None


@dataclass(slots=True, kw_only=True)
class Incident:
    """A process that was killed, and how the job came back."""

    kind: Literal["worker", "driver"]
    pid: int
    killed_ms: int
    slots: tuple[str, ...] = ()  # the processes of its tasks just before
    generation: int = 0
    recovered_ms: int | None = None
    restored_tasks: int = 0
    job_restarted: bool = False
    job_attempt: int = 0

    def notice(self, epoch: EpochReport) -> bool:
        """True if `epoch` is the first one to complete after the recovery."""
        if self.recovered_ms is not None or epoch.wall_ms <= self.killed_ms:
            return False
        if self.kind == "driver":
            back = epoch.generation > self.generation
        else:  # a barrier that was under way may still come through
            back = all(int(slot.rpartition(":")[2]) != self.pid for slot in epoch.slots)
        if back:
            self.recovered_ms = epoch.wall_ms
            self.restored_tasks = epoch.restored_tasks + epoch.replayed_tasks
            self.job_restarted = self.kind == "driver" or epoch.job_attempt > self.job_attempt
        return back

    @property
    def recovery_s(self) -> float | None:
        return None if self.recovered_ms is None else (self.recovered_ms - self.killed_ms) / 1000

    def outcome(self) -> str:
        if self.recovery_s is None:
            return f"{self.kind} killed, not recovered yet"
        return f"{self.kind} {self.recovery()}"

    def recovery(self) -> str:
        restarted = "job not restarted" if not self.job_restarted else "job resumed"
        tasks = f"{self.restored_tasks} task{'' if self.restored_tasks == 1 else 's'} restored"
        return f"recovered in {self.recovery_s or 0.0:.1f} s: {tasks}, {restarted}"


@dataclass(slots=True, kw_only=True)
class History:
    """Everything the view and the report draw."""

    clicks: int
    epochs: list[EpochReport] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    _counted: dict[int, int] = field(default_factory=dict)  # clicks by epoch, those of repeated ones once

    @property
    def records(self) -> int:
        return sum(self._counted.values())

    def latency_ms(self) -> tuple[float, float] | None:
        """Median and 99th percentile of the newest clicks' way to the running totals: of the slower subtask."""
        for vertex in self.epochs[-1].vertices if self.epochs else ():
            for operator in vertex.get("operators", {}).values():
                told = [operator["user"].get(f"latency_p{share}_ms", []) for share in (50, 99)]
                if all(any(values) for values in told):
                    half, most = (max(value for value in values if value is not None) for values in told)
                    return half, most
        return None

    def add(self, epochs: Sequence[EpochReport]) -> list[Incident]:
        """Take new epochs in; returns the incidents they ended."""
        self.epochs += epochs
        for epoch in epochs:  # a job that went back runs epochs again: what it had read in them before does not count
            self._counted = {n: read for n, read in self._counted.items() if n < epoch.epoch}
            self._counted[epoch.epoch] = epoch.records_in
        return [incident for epoch in epochs for incident in self.incidents if incident.notice(epoch)]

    def rate(self, now_ms: float, span_ms: float = 3_000) -> float:
        """Clicks a second over the last `span_ms`, each epoch's clicks spread over the time it took."""
        total = 0.0
        for position in range(len(self.epochs) - 1, -1, -1):
            epoch = self.epochs[position]
            if epoch.wall_ms <= now_ms - span_ms:
                break
            start = self.began(position)
            overlap = min(now_ms, epoch.wall_ms) - max(now_ms - span_ms, start)
            total += epoch.records_in * max(0.0, overlap) / max(1.0, epoch.wall_ms - start)
        return total * 1000 / span_ms

    def began(self, position: int) -> float:
        """Since when the clicks of an epoch count: the end of the epoch before, unless the driver was down then."""
        epoch = self.epochs[position]
        before = self.epochs[position - 1] if position else None
        if before is None or before.generation != epoch.generation:
            return epoch.wall_ms - epoch.duration_ms
        return before.wall_ms

    def settled_ms(self, now_ms: int) -> int:
        """Up to when rates are known: what the running epoch does shows only at its end. If that takes unusually
        long, nothing is coming through and the answer is now."""
        if not self.epochs:
            return now_ms
        newest = self.epochs[-1]
        return newest.wall_ms if now_ms - newest.wall_ms < max(1_500, 2 * newest.duration_ms) else now_ms

    def lag_ms(self, now_ms: int) -> int | None:
        """The time of day minus the watermark; event time here is the time of day. None once the stream has ended
        or before the first watermark."""
        if not self.epochs or self.epochs[-1].watermark is None:
            return None
        return now_ms - self.epochs[-1].watermark

    def lag_series(self) -> list[tuple[int, float]]:
        """(wall ms, lag in s) at the end of every epoch, and just before it: the lag grows while an epoch runs."""
        points: list[tuple[int, float]] = []
        before: int | None = None
        for epoch in self.epochs:
            if before is not None:
                points.append((epoch.wall_ms - 1, (epoch.wall_ms - 1 - before) / 1000))
            if epoch.watermark is not None:
                points.append((epoch.wall_ms, (epoch.wall_ms - epoch.watermark) / 1000))
            before = epoch.watermark
        return points

    def rate_series(self, step_ms: int = 250, span_ms: int = 500) -> list[tuple[int, float]]:
        if not self.epochs:
            return []
        start = int(self.epochs[0].wall_ms - self.epochs[0].duration_ms)
        return [(t, self.rate(t, span_ms)) for t in range(start + step_ms, self.epochs[-1].wall_ms + 1, step_ms)]

    def checkpoint_series(self) -> list[tuple[int, float]]:
        """(wall ms, KiB) of every checkpoint."""
        return [(epoch.wall_ms, epoch.checkpoint_bytes / 1024) for epoch in self.epochs if epoch.checkpoint]
