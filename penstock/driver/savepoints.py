"""One savepoint on its way: from the request, through the acknowledgements of an epoch, to its manifest."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace

from penstock.checkpoint import layout, savepoint
from penstock.checkpoint.manifest import FileState, Manifest, TaskState
from penstock.checkpoint.storage import CheckpointStorage, open_storage
from penstock.driver.requests import SavepointRequest
from penstock.engine.messages import TaskAck
from penstock.errors import ConfigurationError, PenstockError, StorageError
from penstock.protocol.ids import TaskId


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
                "execution.checkpointing.savepoint-dir"
            )
        self.request = request
        name = f"{savepoint.PREFIX}{job_id[:6]}-{uuid.uuid4().hex[:12]}"
        self._storage: CheckpointStorage = open_storage(f"{directory.rstrip('/')}/{name}")
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
        offsets = savepoint.portable_offsets(self._storage, manifest, read)
        self._manifest = replace(manifest, kind="savepoint", tasks=tasks, committables={}, spark_offsets=offsets)

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
