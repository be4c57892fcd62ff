"""What clients ask of a running job; served by the JobMaster between two epochs.

Any thread may ask; only the thread that plans epochs serves. Every future ends: with the answer, with the reason why it
failed, or, when the job is over, with that.

One savepoint on its way: from the request, through the acknowledgements of an epoch, to its manifest.

A running job changes its parallelism: at the end of an epoch that is a checkpoint, with what that checkpoint holds.

What clients ask of epochs: accepted between two of them, or refused; and answered when it has come about, or has not.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeAlias

from penstock.checkpoint import layout, savepoint
from penstock.checkpoint.manifest import FileState, Manifest, TaskState
from penstock.checkpoint.storage import Storage, open_storage
from penstock.common.options import CheckpointingOptions
from penstock.driver.description import JobDescription
from penstock.engine.messages import TaskAck
from penstock.errors import CheckpointFailedError, ConfigurationError, JobDefinitionError, PenstockError, StorageError
from penstock.graph.execution_graph import ExecutionGraph
from penstock.graph.job_graph import adjustable_parallelism, rescaled
from penstock.protocol.checkpoint_messages import Asked, Purpose
from penstock.protocol.ids import TaskId


class JobEndedError(PenstockError):
    """The job ended before it could do what was asked."""


@dataclass(slots=True, kw_only=True)
class SavepointRequest:
    """Somebody wants a savepoint, and maybe the end of the job with it."""

    what: ClassVar = "savepoint"
    directory: str | None  # None: the configured one, or the job folder's
    stop: bool = False
    drain: bool = False
    answer: Future[str] = field(default_factory=Future)  # the savepoint's folder


@dataclass(slots=True, kw_only=True)
class CheckpointRequest:
    """Somebody wants a checkpoint now."""

    what: ClassVar = "checkpoint"
    full: bool = False  # of everything, not only of what changed since the last one
    answer: Future[int] = field(default_factory=Future)  # its number


@dataclass(frozen=True, slots=True, kw_only=True)
class RescaleResult:
    """What `JobClient.rescale` gives. `pause_ms` is the time between the ends of the last epoch before and the first one
    after: restoring and, on Spark, a new query are in it, and that epoch's own work as well."""

    before: int
    after: int
    checkpoint: int
    pause_ms: float


@dataclass(slots=True, kw_only=True)
class RescaleRequest:
    """Somebody wants another parallelism."""

    what: ClassVar = "rescaling"
    parallelism: int
    answer: Future[RescaleResult] = field(default_factory=Future)


Request: TypeAlias = SavepointRequest | RescaleRequest | CheckpointRequest


class Requests:
    """Requests of other threads that wait for the end of an epoch. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Request] = deque()
        self._closed: str | None = None
        # How many of so many slots the job may have; they are its own then. Whoever offers slots puts something else here.
        self.claim_slots: Callable[[int], int] = lambda slots: slots

    def savepoint(self, request: SavepointRequest) -> Future[str]:
        """Asks for a savepoint; the future gives its folder."""
        self._add(request)
        return request.answer

    def rescale(self, request: RescaleRequest) -> Future[RescaleResult]:
        """Asks for another parallelism; the future is done with the first epoch at it."""
        self._add(request)
        return request.answer

    def checkpoint(self, request: CheckpointRequest) -> Future[int]:
        """Asks for a checkpoint; the future gives its number."""
        self._add(request)
        return request.answer

    def _add(self, request: Request) -> None:
        with self._lock:
            if self._closed is None:
                self._waiting.append(request)
                return
        request.answer.set_exception(self._too_late(request))

    @property
    def waiting(self) -> bool:
        """Something is asked for."""
        with self._lock:
            return bool(self._waiting)

    def next(self) -> Request | None:
        """The oldest one that nobody has given up. From now on it cannot be cancelled."""
        while True:
            with self._lock:
                if not self._waiting:
                    return None
                request = self._waiting.popleft()
            if request.answer.set_running_or_notify_cancel():
                return request

    def close(self, reason: str) -> None:
        """The job is over: what nobody will serve any more fails, also what comes later."""
        with self._lock:
            self._closed = reason
            left = list(self._waiting)
            self._waiting.clear()
        for request in left:
            if request.answer.set_running_or_notify_cancel():
                request.answer.set_exception(self._too_late(request))

    def _too_late(self, request: Request) -> JobEndedError:
        return JobEndedError(f"the {request.what} that was asked for did not come about: {self._closed}")


class PendingSavepoint:
    """`folder` exists when the epoch starts: tasks write into it, and a host that does not see it says so."""

    def __init__(
        self, request: SavepointRequest, *, job_id: str, configured: str | None, job_folder: str | None
    ) -> None:
        directory = request.directory or configured
        if directory is None and job_folder is not None:
            directory = f"{job_folder.rstrip('/')}/{layout.SAVEPOINTS}"
        if directory is None:
            raise ConfigurationError(
                "a savepoint was asked for, but nothing says where to put it: give trigger_savepoint a directory, or set "
                f"{CheckpointingOptions.SAVEPOINT_DIR}"
            )
        self.request = request
        name = f"{savepoint.PREFIX}{job_id[:6]}-{uuid.uuid4().hex[:12]}"
        self._storage: Storage = open_storage(f"{directory.rstrip('/')}/{name}")
        self.folder = self._storage.url
        self._manifest: Manifest | None = None
        self.saved = False  # it is there
        self.problem: Exception | None = None  # why it is not

    def check(self, acks: Mapping[TaskId, TaskAck]) -> None:
        """Raises if a task could not store its part."""
        for task, ack in sorted(acks.items()):
            if ack.savepoint is None:
                raise StorageError(
                    f"savepoint {self.folder} was not taken: task {task} could not store its part: {ack.savepoint_error}"
                )

    def describe(self, manifest: Manifest, tasks: tuple[TaskState, ...], read: Callable[[FileState], bytes]) -> None:
        """What its manifest will say. At the end of its epoch: what Spark's sources keep beside their offsets goes on changing.
        `read` is of the job folder."""
        spark = savepoint.portable_position(self._storage, manifest.spark, read)
        self._manifest = replace(manifest, kind="savepoint", tasks=tasks, committables={}, spark=spark)

    def complete(self) -> None:
        """All output up to its epoch is committed: write the manifest, tell who asked. Of a stop only when the job has ended."""
        assert self._manifest is not None
        savepoint.complete(self._storage, self._manifest)
        self.saved = True
        if not self.request.stop:
            self.request.answer.set_result(self.folder)

    def stopped(self) -> None:
        """The job has ended, and nothing will be made again that a job resumed from here makes."""
        if not self.request.answer.done():
            self.request.answer.set_result(self.folder)

    def fail(self, error: Exception) -> None:
        """Nothing of it stays, unless the manifest was written: then it is whole, whatever happened after."""
        with contextlib.suppress(PenstockError):
            savepoint.abandon(self.folder)
        if self.saved:
            error = PenstockError(
                f"the job did not stop: {self.folder} is whole, but something failed before the job had ended, and it goes on from "
                "its last checkpoint. Stop it again, and resume from the savepoint of that stop"
            )
        if not self.request.answer.done():
            self.request.answer.set_exception(error)


class PendingRescale:
    """From the request to the first epoch at the new parallelism."""

    def __init__(self, request: RescaleRequest, graph: ExecutionGraph) -> None:
        before = adjustable_parallelism(graph.job)
        if before is None:
            raise JobDefinitionError(
                f"job {graph.job.job_name!r} cannot be rescaled: every operator has a parallelism of its own; leave "
                "set_parallelism away from those that may change"
            )
        self.request, self.before = request, before
        self.graph = ExecutionGraph(rescaled(graph.job, request.parallelism))
        self.checkpoint = 0
        self._stopped_at = 0.0

    @property
    def changes_nothing(self) -> bool:
        """True if the job has that parallelism already."""
        return self.before == self.request.parallelism

    def stopped(self, checkpoint: int) -> None:
        """The last epoch at the old parallelism is over: the pause begins."""
        self.checkpoint, self._stopped_at = checkpoint, time.perf_counter()

    def done(self) -> None:
        """Answers the request: an epoch has run at the new parallelism."""
        self.request.answer.set_result(
            RescaleResult(
                before=self.before,
                after=self.request.parallelism,
                checkpoint=self.checkpoint,
                pause_ms=(time.perf_counter() - self._stopped_at) * 1000 if self.checkpoint else 0.0,
            )
        )

    def fail(self, error: Exception) -> None:
        """Answers the request with an error, unless it is answered."""
        if not self.request.answer.done():
            self.request.answer.set_exception(error)


def next_asked(requests: Requests, job: JobDescription, storage: Storage | None) -> Asked | None:
    """The next request that needs an epoch. One that cannot be served is its asker's trouble, not the job's."""
    request = requests.next()
    if request is None:
        return None
    try:
        return _accept(request, job, storage)
    except PenstockError as error:
        request.answer.set_exception(error)
        return None


def _accept(request: Request, job: JobDescription, storage: Storage | None) -> Asked | None:
    match request:
        case RescaleRequest():
            rescale = _rescale(request, job, storage)
            return None if rescale is None else Asked(purpose=Purpose.RESCALE, request=rescale)
        case CheckpointRequest():
            if storage is None:
                raise JobDefinitionError(
                    "there is no place for a checkpoint: checkpointing is off; set execution.checkpointing.interval and a job "
                    "folder, or take a savepoint"
                )
            return Asked(purpose=Purpose.CHECKPOINT, request=request)
        case SavepointRequest():
            savepoint = PendingSavepoint(
                request,
                job_id=job.job_id,
                configured=job.settings.savepoint_dir,
                job_folder=None if storage is None else storage.url,
            )
            ends = Purpose.DRAIN if request.drain else Purpose.STOP
            return Asked(purpose=ends if request.stop else Purpose.SAVEPOINT, request=savepoint)


def _rescale(request: RescaleRequest, job: JobDescription, storage: Storage | None) -> PendingRescale | None:
    if storage is None:
        raise JobDefinitionError(
            "a running job is rescaled through a checkpoint, and checkpointing is off: set execution.checkpointing.interval "
            "and a job folder"
        )
    rescale = PendingRescale(request, job.graph)
    if rescale.changes_nothing:
        rescale.done()
        return None
    return rescale


def answer_checkpoint(asked: Asked, checkpoint: int) -> None:
    """Tells who asked for a checkpoint that it is complete."""
    request: CheckpointRequest = asked.request
    request.answer.set_result(checkpoint)


def refuse(asked: Asked, epoch: int, reason: str) -> None:
    """Tells who asked for something with `epoch` that it did not come about; the job goes on, and it can be asked
    for again.
    """
    match asked.request:
        case PendingSavepoint() as savepoint:
            again = f"savepoint {savepoint.folder} was not taken: {reason}. Ask for it again when the cause is gone"
            savepoint.fail(savepoint.problem or CheckpointFailedError(again))
        case PendingRescale() as rescale:
            rescale.fail(CheckpointFailedError(f"the rescaling did not come about: {reason}. Ask for it again"))
        case CheckpointRequest() as request if not request.answer.done():
            request.answer.set_exception(
                CheckpointFailedError(f"checkpoint {epoch} was not completed: {reason}. Ask for it again")
            )
