"""What a subtask hands over at a barrier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.protocol.events import Barrier, Event
from penstock.state.snapshot_file import TableDelta


@dataclass(slots=True, kw_only=True)
class SnapshotContents:
    """What a subtask is at a barrier: tables of its operators, its gate, and what was on the way to it (unaligned)."""

    tables: list[TableDelta]
    gate: dict[str, Any] | None
    channel_state: list[tuple[int, Event]] = field(default_factory=list)  # put back on the channels by the runtime
    moved_from: int | None = None  # restored at another parallelism: the old subtask it is of
    finished: bool = False
    full: bool = True
    # State that is larger than memory: what `tables` builds on, in parts of bounded size, for the thread that stores them.
    parts: Iterator[list[TableDelta]] | None = None


@dataclass(slots=True, kw_only=True)
class SnapshotTaken:
    """What a subtask did at a barrier: its snapshot, and what its sinks are to commit."""

    barrier: Barrier
    contents: SnapshotContents | None  # None: this barrier was not a checkpoint
    committables: dict[str, list[Any]]  # by sink
    complete: bool  # False while channel state is still being recorded (unaligned)
    overtaken: int = 0  # records that were on the way here when the barrier passed them (unaligned)
    alignment_ms: float = 0.0  # from the barrier's first arrival on a channel to the last
    sync_ms: float = 0.0  # that the task stood still for it
    skipped: bool = False  # there is none: its checkpoint was aborted before


def grouped(tables: Iterator[TableDelta], entries: int) -> Iterator[list[TableDelta]]:
    """Gather small tables into parts of about so many entries."""
    gathered: list[TableDelta] = []
    for table in tables:
        gathered.append(table)
        if sum(map(len, gathered)) >= entries:
            yield gathered
            gathered = []
    if gathered:
        yield gathered
