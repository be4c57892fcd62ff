"""Messages between the driver and the task hosts of a pipelined job, on one connection for each host.

host ── Enlist ──▶ driver ── StartHost or NotWanted ──▶ host ── HostReady ──▶ driver
driver ── GrantSources, TriggerBarrier, CheckpointsSettled, FeedbackTaken, FeedbackSent, TakeSamples, EndAttempt ──▶ host
host ── Acknowledge, GrantRead, FeedbackSent, FeedbackTaken, Uploaded, Sampled, HostFailed ──▶ driver
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from penstock.engine.messages import EpochPlan, SourceRanges, Splits
from penstock.operators.iteration import Feedback
from penstock.protocol.checkpoint_messages import Uploaded
from penstock.protocol.gate import BarrierMode
from penstock.protocol.ids import TaskId
from penstock.runtime.connection.messages import HostFailed, Sampled, TakeSamples


@dataclass(frozen=True, slots=True)
class HostId:
    """A host runs the tasks of one level and one index."""

    level: int
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Enlist:
    """The first word of a host: which it is, of which attempt, and the process it runs in."""

    host: HostId
    job_attempt: int
    name: str  # by which acknowledgements name it


@dataclass(frozen=True, slots=True, kw_only=True)
class StartHost:
    """The job, and where it goes on."""

    job: bytes  # a HostJob
    version: str
    checkpoint: int | None
    epoch: int
    processing_time: int
    mode: BarrierMode
    flush_gap_ms: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NotWanted:
    """The host is of an attempt that is over."""

    reason: str


@dataclass(frozen=True, slots=True)
class HostReady:
    """Its tasks are restored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantSources:
    """Sources may read this, behind what they were granted before."""

    sources: Mapping[str, SourceRanges]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantRead:
    """A source has read all of its oldest grant, in so many seconds. Of one in an alignment group, how far event time has come in
    each of its splits: others may have to wait for it, or it for others."""

    task: TaskId
    seconds: float
    splits: Splits


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerBarrier:
    """A barrier, behind what was granted."""

    plan: EpochPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledge:
    """A task has taken its snapshot. Its bytes may hold objects of the user's classes."""

    ack: bytes  # a TaskAck


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointsSettled:
    """The newest complete checkpoint. `oldest`: the first whose state files it still refers to."""

    completed: int
    oldest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortCheckpoint:
    """A checkpoint whose barrier was triggered is aborted: nobody waits for that barrier any more."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackSent:
    """Records on the way from a loop's tail to its head."""

    tail: str
    subtask: int
    feedback: Feedback


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackTaken:
    """A loop's head had taken so many blocks when the epoch ended there."""

    tail: str
    subtask: int
    epoch: int
    taken: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndAttempt:
    """The attempt is over. `completed`: the last checkpoint, for listeners; functions are closed. `over`: the job is, too."""

    completed: int | None
    over: bool = False


ToHost: TypeAlias = (
    GrantSources
    | TriggerBarrier
    | AbortCheckpoint
    | CheckpointsSettled
    | FeedbackSent
    | FeedbackTaken
    | TakeSamples
    | EndAttempt
)
FromHost: TypeAlias = (
    HostReady | Acknowledge | GrantRead | FeedbackSent | FeedbackTaken | Uploaded | Sampled | HostFailed
)
