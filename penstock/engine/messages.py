"""What the JobMaster tells the tasks about an epoch, and what they answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.checkpoint.manifest import StateHandle
from penstock.common.accumulators import Accumulator
from penstock.functions.connectors import Json, SplitRange
from penstock.protocol.checkpoint_messages import Acknowledgement
from penstock.protocol.ids import TaskId

Splits: TypeAlias = Mapping[str, tuple[int, bool]]  # the watermark of each split of a source, and whether it is idle


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRanges:
    """One source's part of an epoch."""

    ranges: tuple[SplitRange, ...]
    finished: bool
    # In all ranges, if the source says; a plan that was logged does not.
    records: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochPlan:
    """Everything a task needs to run its part of an epoch; decided and logged by the driver before it runs.

    `accepted` names, for each task, the version of its state the epoch starts from: the attempt whose
    acknowledgement was taken last, or the checkpoint the job was restored from. A slot that holds another version
    restores from `base_checkpoint` or, if that is older, gives up (the job then goes back to its last checkpoint).
    """

    epoch: int
    checkpoint: bool
    processing_time: int
    sources: Mapping[str, SourceRanges]  # by operator id
    accepted: Mapping[TaskId, str]
    chain_lengths: Mapping[TaskId, int]  # handles in each task's newest checkpoint; 0 asks for a full snapshot
    base_checkpoint: int | None
    restorable: bool  # no epoch has run since `base_checkpoint`: a lost task can be restored from it
    job_attempt: int = 0
    no_inline: frozenset[TaskId] = frozenset()  # tasks with enough small snapshots in the manifest
    savepoint: str | None = None  # a folder: every task writes a full snapshot into it as well
    last: bool = False  # no epoch follows as things stand: the sources end, the job stops or is rescaled here
    graph_version: int = 0  # one more for every rescale of the running job
    aborted_checkpoints: tuple[int, ...] = ()  # begun in an earlier attempt and never completed
    feedback: int = 0  # what came to a tail up to the end of this epoch is handed to its head by now

    @property
    def fence(self) -> tuple[int, int]:
        """Which run of which epoch: a job that goes back runs the same epoch again, and what its earlier attempt still says
        is not meant for the later one. Larger is newer."""
        return self.job_attempt, self.epoch

    @property
    def snapshot(self) -> bool:
        """Tasks take a snapshot at the end of this epoch."""
        return self.checkpoint or self.savepoint is not None

    def full_snapshot(self, task: TaskId) -> bool:
        """All of the task's state, not only what changed: the driver wants nothing built on the chain any more, or the
        snapshot must stand alone."""
        return self.savepoint is not None or self.chain_lengths.get(task, 0) == 0

    @property
    def finished(self) -> bool:
        """All input ends: the job ends with this epoch, unless records are still on the way back in a loop."""
        return all(ranges.finished for ranges in self.sources.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAck(Acknowledgement):
    """A task's acknowledgement of barrier n. Its snapshot is in it, or was handed to the thread that stores it."""

    handle: StateHandle | None = None
    savepoint: StateHandle | None = None  # in the savepoint's folder
    savepoint_error: str | None = None  # why it is not: the job goes on without that savepoint
    watermark: int = 0
    next_processing_timer: int | None = None
    feedback: Mapping[str, int] = field(default_factory=dict)  # records on the way back at the barrier, by tail
    overtaken: int = 0  # records that the barrier overtook: channel state of an unaligned checkpoint
    accumulators: Mapping[str, Accumulator[Any, Any]] = field(default_factory=dict)  # since the job began
    metrics: Mapping[str, Json] = field(default_factory=dict)  # counters by operator id, see docs/metrics
    busy_ms: float = 0.0
    back_pressured_ms: float = 0.0
    idle_ms: float = 0.0
    state_entries: int = 0
    snapshot_ms: float = 0.0
    start_delay_ms: float = 0.0  # from the plan to the first barrier here
    alignment_ms: float = 0.0  # from the first barrier to the last
    alignment_buffered_bytes: int = 0  # that came meanwhile behind a barrier
    sync_ms: float = 0.0  # of the snapshot, in which the task stood still
    recovered: str = "no"  # "restored" from a checkpoint, "replayed" after a rollback, or "no"
    machine: Mapping[str, int] = field(default_factory=dict)  # memory of its process and host, see engine/machine.py


@dataclass(slots=True, kw_only=True)
class EpochReport:
    """One line of the job's history: written to `epochs.jsonl`, read by the demo's view and by reports."""

    epoch: int
    wall_ms: int
    checkpoint: bool
    duration_ms: float
    records_in: int
    records_out: int
    watermark: int | None
    feedback: int = 0
    checkpoint_bytes: int = 0
    manifest_ms: float = 0.0
    commit_ms: float = 0.0
    job_attempt: int = 0
    generation: int = 0
    restored_tasks: int = 0
    replayed_tasks: int = 0
    vertices: list[dict[str, Any]] = field(default_factory=list)
    slots: list[str] = field(default_factory=list)
    machines: dict[str, dict[str, int]] = field(default_factory=dict)  # by slot, see engine/machine.py
    latency: list[dict[str, Any]] = field(default_factory=list)  # for each source and sink, see driver/waiting.py
    admitted: int | None = None  # records each source might read
    held_up: bool = False  # it took longer than it should, or a source had more to read than it was given
    bottleneck: int | None = None  # the vertex because of which
