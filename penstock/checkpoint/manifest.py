"""The manifest: the one file whose existence makes a checkpoint complete, and all one needs to resume from it.

Everything in it that decides anything is a typed field. Its bytes, and those of every version before, are `manifest_file`'s.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from penstock.errors import CorruptSnapshotError
from penstock.protocol.ids import CheckpointId, Generation

Json: TypeAlias = Any  # what json.dumps accepts

FORMAT_VERSION = 3
WHAT_TO_DO: Final = "resume from an older checkpoint or a savepoint, or bring the file back from a copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineState:
    """Small state, kept in the manifest itself: saves a file and a round trip."""

    data: bytes

    @property
    def inline(self) -> bool:
        """True: the state is in the manifest."""
        return True

    @property
    def size(self) -> int:
        """How many bytes the state has."""
        return len(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """State in a file of its own; size and checksum are known before it is read."""

    path: str
    size: int
    crc32: int

    @property
    def inline(self) -> bool:
        """False: the state is in a file."""
        return False

    def verify(self, data: bytes, *, source: str | None = None) -> None:
        """CorruptSnapshotError, naming the file, if these are not the bytes that were written."""
        name = source or self.path
        if len(data) != self.size:
            raise CorruptSnapshotError(f"{name}: {len(data)} bytes instead of {self.size}: {WHAT_TO_DO}")
        found = zlib.crc32(data)
        if found != self.crc32:
            raise CorruptSnapshotError(f"{name}: checksum {found:08x} instead of {self.crc32:08x}: {WHAT_TO_DO}")


StateHandle: TypeAlias = InlineState | FileState


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """One subtask's state: a full snapshot, then the deltas since, in the order to apply them."""

    vertex: str  # uid
    subtask: int
    parallelism: int
    key_group_range: range | None = None  # None: the vertex has no keyed state
    handles: tuple[StateHandle, ...] = ()
    operators: tuple[str, ...] | None = None  # uids of those whose state is in here; None: not known (version 1)

    def __post_init__(self) -> None:
        if not 0 <= self.subtask < self.parallelism:
            raise ValueError(f"vertex {self.vertex!r} has no subtask {self.subtask} of {self.parallelism}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePosition:
    """Where a source goes on."""

    state: Json  # its enumerator's own; None: Spark reads it
    finished: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkPosition:
    """Where the sources go on that Spark reads: the lines of its offset log after a batch, and what the sources keep beside."""

    batch: int
    lines: tuple[str, ...]
    files: Mapping[str, FileState] = field(default_factory=dict)  # by the name that the source knows it by
    location: str | None = None  # instead of `files`: the folder of the query, for as long as that is there


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescaled:
    """The job has another parallelism than its program gave it."""

    given: int
    now: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A complete checkpoint or savepoint. Immutable once written; the same manifest always gives the same bytes."""

    job_id: str
    job_name: str
    checkpoint_id: CheckpointId
    epoch: int
    generation: Generation
    kind: Literal["checkpoint", "savepoint"] = "checkpoint"
    created_ms: int
    processing_time_ms: int
    max_parallelism: int
    sources: Mapping[str, SourcePosition] = field(default_factory=dict)  # by uid
    spark: SparkPosition | None = None
    tasks: tuple[TaskState, ...] = ()
    stateful: tuple[str, ...] = ()  # uids of the operators that keep state: a job that goes on must have them
    committables: Mapping[str, bytes] = field(default_factory=dict)  # by the sink's uid; `pack_committables`
    finished: bool = False
    rescaled: Rescaled | None = None
    restored_from: str | None = None  # the savepoint that the job folder began with, as it was given
    claimed_savepoint: str | None = None  # it belongs to the job folder: it goes when this checkpoint does
    format_version: int = FORMAT_VERSION

    @property
    def state_bytes(self) -> int:
        """How much state it holds, wherever that is."""
        return sum(handle.size for task in self.tasks for handle in task.handles)

    def file_states(self) -> list[FileState]:
        """Every file this manifest needs."""
        states = [h for task in self.tasks for h in task.handles if isinstance(h, FileState)]
        return [*states, *(() if self.spark is None else self.spark.files.values())]
