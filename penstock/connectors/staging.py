"""Output that waits for its commit: durable in the job folder, or inside the checkpoint's manifest when it is small.

What sinks that stage their output have in common: Kafka's, PostgreSQL's, Spark's.

A writer gathers an epoch and stages it at pre-commit; nothing goes to the target before the checkpoint is complete, so no
transaction is open while a checkpoint, or a job that was stopped, takes its time. The committer carries it over afterwards.
"""

from __future__ import annotations

import hashlib
import json
import uuid
import zlib
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.checkpoint.layout import file_name_part
from penstock.checkpoint.storage import FileMissingError, Storage, open_storage
from penstock.errors import CommitRefusedError, CorruptSnapshotError, PenstockError, StorageError
from penstock.functions.connectors import Committer, SinkWriter, WriterContext
from penstock.records import Block

_FOLDER = "staged"
_DONE = "-done-"
# Commits whose notes are kept: more than checkpoints are retained, so that one that is fallen back to is known.
_REMEMBERED = 64
INLINE_BYTES = 16 * 1024  # as with small snapshots: one file less to sync for every subtask and epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedOutput:
    """A committable: what one subtask wrote in one epoch. `token` is unique: a repeated attempt has another one."""

    job_id: str
    epoch: int
    subtask: int
    token: str
    size: int
    checksum: int
    data: bytes | None  # None: it is in the file `path` of the job folder `folder`
    path: str | None
    folder: str | None


def stage(data: bytes, storage: Storage | None, *, job_id: str, sink_id: str, epoch: int, subtask: int) -> StagedOutput:
    """Make output durable before the checkpoint that will promise it. Without storage it stays in memory, as all of a job
    without checkpoints does."""
    token = uuid.uuid4().hex
    path = None
    if storage is not None and len(data) > INLINE_BYTES:
        path = f"{_folder(sink_id)}/{epoch}-{subtask}-{token[:12]}"
        storage.put(path, data)
    return StagedOutput(
        job_id=job_id,
        epoch=epoch,
        subtask=subtask,
        token=token,
        size=len(data),
        checksum=zlib.crc32(data),
        data=data if path is None else None,
        path=path,
        folder=None if storage is None or path is None else storage.url,
    )


def staged_data(output: StagedOutput, storage: Storage | None, *, sink_id: str) -> bytes:
    """The bytes of a staged output, checked against its checksum."""
    if output.path is None:
        assert output.data is not None
        data = output.data
    else:
        assert output.folder is not None
        if storage is None or storage.url != output.folder:  # a job that starts from another one's checkpoint
            storage = open_storage(output.folder, create=False)
        try:
            data = storage.get(output.path)
        except FileMissingError as error:
            raise StorageError(
                f"sink {sink_id}: cannot commit epoch {output.epoch}: {output.path} in the job folder {storage.url} is gone, "
                "and with it output that was promised. Put it back, or go back to a checkpoint before this epoch"
            ) from error
    if len(data) != output.size or zlib.crc32(data) != output.checksum:
        raise CorruptSnapshotError(
            f"sink {sink_id}: the output staged for epoch {output.epoch} by subtask {output.subtask} "
            f"({output.path or 'in the manifest'}) has {len(data)} bytes instead of {output.size}, or another checksum: it "
            "was damaged after it was written. Restore it, or go back to a checkpoint before this epoch"
        )
    return data


def commit_name(staged: Sequence[StagedOutput]) -> str:
    """The name of a commit: of these very outputs, so that an epoch that was run again is another one."""
    tokens = [[output.job_id, output.epoch, output.subtask, output.token] for output in staged]
    return hashlib.sha256(json.dumps(tokens).encode()).hexdigest()[:20]


def note_done(storage: Storage | None, staged: Sequence[StagedOutput], *, sink_id: str) -> None:
    """For a target that cannot tell: these very outputs are there. Comes before `discard`, so that a commit whose files are
    gone has its note."""
    if storage is not None:
        storage.put(_note(staged, sink_id), b"")


def is_done(storage: Storage | None, staged: Sequence[StagedOutput], *, sink_id: str) -> bool:
    """Whether `note_done` was called for these outputs: in this job folder, or in the one they are in, if the job started from
    another one's checkpoint."""
    if storage is None:
        return False
    note = _note(staged, sink_id)
    elsewhere = {output.folder for output in staged} - {None, storage.url}
    return storage.exists(note) or any(open_storage(str(url), create=False).exists(note) for url in elsewhere)


def discard(
    storage: Storage | None,
    sink_id: str,
    *,
    up_to: int | None = None,
    after: int | None = None,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Remove files staged by epochs up to one that is committed (leftovers of failed attempts among them), or by epochs
    after the one a job goes back to. Of notes that a commit is done, the newest stay. `check` comes between look and removal."""
    if storage is None:
        return
    notes, unneeded = [], []
    for path in storage.list(_folder(sink_id)):
        epoch = int(path.rpartition("/")[2].partition("-")[0])
        if _DONE in path.rpartition("/")[2]:
            notes.append((epoch, path))
        elif (up_to is not None and epoch <= up_to) or (after is not None and epoch > after):
            unneeded.append(path)
    unneeded += [path for _, path in sorted(notes)[:-_REMEMBERED]]
    if unneeded:
        check()
    for path in unneeded:
        storage.delete(path)


def _note(staged: Sequence[StagedOutput], sink_id: str) -> str:
    newest = max(output.epoch for output in staged)
    return f"{_folder(sink_id)}/{newest}{_DONE}{commit_name(staged)}"


def _folder(sink_id: str) -> str:
    return f"{_FOLDER}/{file_name_part(sink_id)}"


Part = TypeVar("Part")
_REFUSALS = 3


class StagingWriter(SinkWriter, Generic[Part]):
    """A block becomes a part when it is written, so that what cannot be written fails its own epoch."""

    def __init__(self, context: WriterContext) -> None:
        self.context = context
        self._epoch = 0
        self._parts: list[Part] = []

    @abstractmethod
    def encode(self, block: Block) -> Part | None:
        """The part of the staged output that a block becomes; None if nothing of it is to be written."""

    @abstractmethod
    def pack(self, parts: list[Part]) -> bytes:
        """All parts of an epoch, at least one, as they are staged."""

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        self._epoch, self._parts = epoch, []

    def write(self, block: Block) -> None:
        part = self.encode(block) if len(block) else None
        if part is not None:
            self._parts.append(part)

    def prepare_commit(self) -> list[Any]:
        if not self._parts:
            return []
        data, self._parts = self.pack(self._parts), []
        context = self.context
        return [
            stage(
                data,
                context.storage,
                job_id=context.job_id,
                sink_id=context.sink_id,
                epoch=self._epoch,
                subtask=context.subtask,
            )
        ]


class StagedCommitter(Committer):
    """Commits what a `StagingWriter` wrote to the checkpoint storage. An output that the target refuses three times
    ends the job.
    """

    def __init__(self, sink_id: str) -> None:
        self.sink_id = sink_id
        self.storage: Storage | None = None
        self._refused = 0  # times in a row

    @abstractmethod
    def commit_staged(self, epoch: int, name: str, staged: Sequence[StagedOutput]) -> None:
        """Carry an epoch's output, at least one part, over to the target. `name` is that of these very outputs: an epoch that
        was run again has another one. Called again with the same after a crash whose moment is unknown. CommitRefusedError if
        the target would refuse the same again: after the third the job ends."""

    def open(self, storage: Storage | None) -> None:
        self.storage = storage

    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        if committables:
            self._insist(epoch, commit_name(committables), committables)
            discard(self.storage, self.sink_id, up_to=epoch)

    def _insist(self, epoch: int, name: str, staged: Sequence[StagedOutput]) -> None:
        """A refusal ends the job, but not the first: it may be because of what another sink of the job has yet to commit."""
        try:
            self.commit_staged(epoch, name, staged)
            self._refused = 0
        except CommitRefusedError as error:
            self._refused += 1
            if self._refused < _REFUSALS:
                raise PenstockError(f"{error} (try {self._refused} of {_REFUSALS})") from error
            raise

    def discard_after(self, epoch: int) -> None:
        discard(self.storage, self.sink_id, after=epoch, check=self.still_mine)
