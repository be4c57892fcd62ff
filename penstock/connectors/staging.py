"""Output that waits for its commit: durable in the job folder, or inside the checkpoint's manifest when it is small."""

from __future__ import annotations

import hashlib
import json
import uuid
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.checkpoint.layout import file_name_part
from penstock.checkpoint.storage import CheckpointStorage, FileMissingError, open_storage
from penstock.errors import CorruptSnapshotError, StorageError

_FOLDER = "staged"
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


def stage(
    data: bytes, storage: CheckpointStorage | None, *, job_id: str, sink_id: str, epoch: int, subtask: int
) -> StagedOutput:
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


def staged_data(output: StagedOutput, storage: CheckpointStorage | None, *, sink_id: str) -> bytes:
    """What was staged, checked."""
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


def discard(
    storage: CheckpointStorage | None, sink_id: str, *, up_to: int | None = None, after: int | None = None
) -> None:
    """Remove files staged by epochs up to one that is committed (leftovers of failed attempts among them), or by epochs
    after the one a job goes back to."""
    if storage is None:
        return
    for path in storage.list(_folder(sink_id)):
        epoch = int(path.rpartition("/")[2].partition("-")[0])
        if (up_to is not None and epoch <= up_to) or (after is not None and epoch > after):
            storage.delete(path)


def _folder(sink_id: str) -> str:
    return f"{_FOLDER}/{file_name_part(sink_id)}"
