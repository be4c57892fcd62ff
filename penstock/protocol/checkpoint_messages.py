"""What happens to checkpoints, and what is to be done about it: the words between `CheckpointMachine` and the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeAlias, TypeVar

from penstock.errors import ProtocolError
from penstock.protocol.ids import TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """What the machine reads of a task's acknowledgement of a barrier."""

    task: TaskId
    epoch: int
    attempt: str
    job_attempt: int = 0  # of the plan that was run
    slot: str = ""  # which process did it: host:port:pid
    handle: Any = None  # where the snapshot is. None: there is none, or `uploading`
    uploading: bool = False  # the snapshot is on its way to storage; `Uploaded` follows
    full: bool = True  # the snapshot holds everything, not only what changed
    skipped: bool = False  # the task had heard that the checkpoint is aborted, and took no snapshot
    snapshot_bytes: int = 0
    committables: Mapping[str, list[Any]] = field(default_factory=dict)  # by sink


A = TypeVar("A", bound=Acknowledgement)


class Purpose(Enum):
    """The request of a client that an epoch serves."""

    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"
    STOP = "stop"  # with a savepoint
    DRAIN = "drain"  # as a stop, at the end of event time: the sources have said that all is over
    RESCALE = "rescale"

    @property
    def saves(self) -> bool:
        """True if a savepoint is wanted."""
        return self in (Purpose.SAVEPOINT, Purpose.STOP, Purpose.DRAIN)

    @property
    def ends_run(self) -> bool:
        """True if the run ends with this epoch: the job stops, or goes on at another parallelism."""
        return self in (Purpose.STOP, Purpose.DRAIN, Purpose.RESCALE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A client's request on its way; what `request` is, only the driver knows."""

    purpose: Purpose
    request: Any


# ---------------------------------------------------------------- events


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """The barrier of `epoch` is on its way. `last`: as things stand no epoch follows. `now_s`: the time-out counts from here; None:
    from the end of the epoch, which takes as long as what it reads."""

    epoch: int
    checkpoint: bool
    last: bool = False
    asked: Asked | None = None
    planned: Any = None  # what the driver has to know of the epoch when it ends
    now_ms: int = 0
    now_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged(Generic[A]):
    """A task has ended its part of an epoch."""

    ack: A


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The driver has taken note of `EpochEnded`. `finished`: nothing is left to do for the job. `not_saved`: why there will be
    no savepoint of this epoch, if one was asked for and a task could not store its part."""

    epoch: int
    finished: bool
    now_s: float
    not_saved: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Uploaded:
    """One task's snapshot of one checkpoint is stored; or `error` says why it never will be."""

    task: TaskId
    epoch: int
    attempt: str
    handles: tuple[Any, ...] = ()
    size: int = 0
    duration_ms: float = 0.0
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLost:
    """A process is gone, and so is what it was storing."""

    process: str  # host:port:pid


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed:
    """The clock has moved."""

    now_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestWritten:
    """It is there, by this call or by an earlier one whose answer was lost."""

    epoch: int
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SinksCommitted:
    """All sinks have committed what `CommitSinks` of this epoch named."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointWritten:
    """The savepoint of this epoch is complete."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointFailed:
    """The savepoint of this epoch could not be written."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """`epoch` had nothing to do and was not run."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Abandoned:
    """Requests of clients for epochs that are under way will not come about."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The job goes on from the end of `epoch`: what was under way is void, and what an earlier attempt still says is stale."""

    epoch: int
    job_attempt: int
    newest: int | None  # the checkpoint it goes on from
    tasks: frozenset[TaskId]
    now_ms: int


CheckpointEvent: TypeAlias = (
    Begun
    | Acknowledged[A]
    | Ended
    | Uploaded
    | HostLost
    | TimePassed
    | ManifestWritten
    | SinksCommitted
    | SavepointWritten
    | SavepointFailed
    | Skipped
    | Abandoned
    | Recovered
)


# ---------------------------------------------------------------- instructions


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnded(Generic[A]):
    """Every task has acknowledged, and every earlier epoch has ended. Answer with `Ended`."""

    epoch: int
    planned: Any
    asked: Asked | None
    acks: Mapping[TaskId, A]


SEAL: Any = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestPermit(Generic[A]):
    """Permission to write the manifest of one checkpoint, and all it says of tasks and output. Only the machine gives it."""

    epoch: int
    planned: Any
    acks: Mapping[TaskId, A]
    chains: Mapping[TaskId, tuple[Any, ...]]  # of each task, the handles to restore from, in order
    committables: Mapping[str, list[Any]]  # by sink: of this epoch and of those before it that no checkpoint covers
    finished: bool
    size: int
    seal: Any = field(repr=False)

    def __post_init__(self) -> None:
        if self.seal is not SEAL:
            raise ProtocolError("a manifest may only be written by who was permitted to by the checkpoint machine")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteManifest(Generic[A]):
    """Answer with `ManifestWritten`. If it cannot be written the job goes back: `Recovered`."""

    permit: ManifestPermit[A]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitSinks:
    """Answer with `SinksCommitted`. `beside`: that may come later, while further epochs run."""

    epoch: int
    committables: Mapping[str, list[Any]]
    beside: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitSinks:
    """Wait for the commit of `epoch`; answer with `SinksCommitted`."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Subsume:
    """Checkpoints before `epoch` may go, as retention says."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify(Generic[A]):
    """Checkpoint `completed` is complete: tell sources, statistics and who asked for it."""

    completed: int
    size: int
    since_s: float  # when its barrier was sent, or its epoch had ended
    acks: Mapping[TaskId, A]
    upload_ms: float
    asked: Asked | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSavepoint:
    """Answer with `SavepointWritten` or `SavepointFailed`."""

    epoch: int
    asked: Asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Decline:
    """The checkpoint of `epoch` will never be complete. Its output goes to the next; tasks hear that it was aborted."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortBarrier:
    """The barrier of a checkpoint that was declined is still on its way: tasks that it has not come to need not wait for it. They
    end the epoch as soon as they hear of it, and acknowledge it without a snapshot."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """The request that `epoch` was to serve did not come about: tell the client."""

    epoch: int
    asked: Asked
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailJob:
    """The job goes back to its last checkpoint, or ends: its restart strategy decides."""

    epoch: int
    reason: str


class End(Enum):
    """How a job ends, or its run at this parallelism."""

    FINISHED = "finished"
    STOPPED = "stopped"  # with a savepoint
    MOVED = "moved"  # goes on at another parallelism


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRun:
    """All output up to `epoch` is committed, and the run is over."""

    epoch: int
    end: End
    asked: Asked | None


CheckpointInstruction: TypeAlias = (
    EpochEnded[A]
    | WriteManifest[A]
    | CommitSinks
    | AwaitSinks
    | Subsume
    | Notify[A]
    | WriteSavepoint
    | Decline
    | AbortBarrier
    | Refuse
    | FailJob
    | EndRun
)
