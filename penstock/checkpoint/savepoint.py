"""Savepoints: full, canonical, self-contained snapshots of a job, in a folder of their own.

    <folder>/manifest.json       exists = the savepoint is whole; created last, exclusively
    <folder>/<vertex>-<subtask>-<attempt>.state
    <folder>/spark/…             what Spark's own sources keep beside their offsets

Paths inside are relative to the folder, so it can be moved or copied as it is. Snapshot files are the same for every
state backend and both runtimes. Output of the savepoint's epoch has been committed before the manifest is written.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from penstock.checkpoint import manifest_file
from penstock.checkpoint.manifest import WHAT_TO_DO, FileState, InlineState, Manifest, SparkPosition, StateHandle
from penstock.checkpoint.storage import FileMissingError, LocalStorage, Storage, open_storage
from penstock.errors import CorruptSnapshotError, StorageError

MANIFEST: Final = "manifest.json"
PREFIX: Final = "savepoint-"
_CHECKPOINTS: Final = "/checkpoints/chk-"


def store_state(folder: str, name: str, data: bytes, inline_threshold: int) -> StateHandle:
    """One task's snapshot, in the manifest if it is small. The driver has made the folder: where it is not to be
    seen, the host does not share it, and the task must not make one of its own."""
    if len(data) <= inline_threshold:
        return InlineState(data=data)
    open_storage(folder, create=False).put(name, data)
    return FileState(path=name, size=len(data), crc32=zlib.crc32(data))


def savepoint_part(folder: str, name: str, data: bytes, inline_threshold: int) -> dict[str, Any]:
    """What a task's acknowledgement says of its part. That it could not be stored is no failure of the task: the job
    goes on without that savepoint."""
    try:
        return {"savepoint": store_state(folder, name, data, inline_threshold)}
    except StorageError as error:
        return {"savepoint_error": str(error)}


def portable_position(
    storage: Storage, position: SparkPosition | None, read: Callable[[FileState], bytes]
) -> SparkPosition | None:
    """Spark's position for a savepoint in `storage`. Spark's file sources keep a log of what they have listed: it comes along,
    the place it was in does not. `read` gives the content of a file that the position names."""
    if position is None:
        return None
    if position.location is None:
        found = {name: read(file) for name, file in position.files.items()}
    else:
        logs = Path(position.location) / "sources"
        found = {file.relative_to(logs).as_posix(): file.read_bytes() for file in logs.rglob("*") if file.is_file()}
    files = {}
    for name, data in sorted(found.items()):
        path = f"spark/{name}"
        storage.put(path, data)
        files[name] = FileState(path=path, size=len(data), crc32=zlib.crc32(data))
    return replace(position, files=files, location=None)


def complete(storage: Storage, manifest: Manifest) -> None:
    """The instant from which the savepoint exists."""
    data = manifest_file.encode(manifest)
    if not storage.put_new(MANIFEST, data) and storage.get(MANIFEST) != data:
        raise StorageError(f"{storage.url}: there is another savepoint in this folder already; give an empty one")


def abandon(folder: str) -> None:
    """Remove what a savepoint that failed left behind. Whole savepoints are not touched."""
    storage = open_storage(folder)
    if not storage.exists(MANIFEST):
        _remove_files(storage)


def load(path: str) -> Manifest:
    """A savepoint's manifest, or a checkpoint's when `path` is a job folder's `checkpoints/chk-<n>`, with every path
    in it made absolute. CorruptSnapshotError if there is none or it is damaged; files are verified when they are read."""
    try:
        storage = open_storage(path, create=False)
        data = storage.get(MANIFEST)
    except FileMissingError as error:
        raise CorruptSnapshotError(
            f"{path}: there is no {MANIFEST}: this is no savepoint, or one that was never completed. Give the folder that "
            "trigger_savepoint returned, or a job folder's checkpoints/chk-<n>"
        ) from error
    url = storage.url.rstrip("/")
    manifest = manifest_file.decode(data, source=f"{url}/{MANIFEST}")
    root = url
    if manifest.kind == "checkpoint":
        root, separator, _ = url.rpartition(_CHECKPOINTS)
        if not separator:
            raise CorruptSnapshotError(
                f"{url}: is a checkpoint outside of its job folder; its files are found from there, so resume from "
                "<job folder>/checkpoints/chk-<n>"
            )
    return _absolute(manifest, root)


def _absolute(manifest: Manifest, root: str) -> Manifest:
    def resolve(path: str) -> str:
        return path if "://" in path else f"{root}/{path}"

    def handle(state: StateHandle) -> StateHandle:
        return absolute(state) if isinstance(state, FileState) else state

    def absolute(file: FileState) -> FileState:
        return replace(file, path=resolve(file.path))

    spark = manifest.spark
    if spark is not None:
        spark = replace(spark, files={name: absolute(file) for name, file in spark.files.items()})
    return replace(
        manifest,
        spark=spark,
        tasks=tuple(replace(task, handles=tuple(map(handle, task.handles))) for task in manifest.tasks),
    )


def read_absolute(handle: StateHandle) -> bytes:
    """State of a manifest that `load` gave; CorruptSnapshotError, naming the file, if it is not what it was."""
    match handle:
        case InlineState(data=data):
            return data
        case FileState(path=path):
            folder, _, name = path.rpartition("/")
            try:
                data = open_storage(folder, create=False).get(name)
            except FileMissingError as error:
                raise CorruptSnapshotError(f"{path}: the file is missing: {WHAT_TO_DO}") from error
            handle.verify(data)
            return data


def is_external(handle: StateHandle) -> bool:
    """True if the file is outside of the job folder: part of a savepoint that the job does not own."""
    return isinstance(handle, FileState) and "://" in handle.path


def dispose(path: str) -> None:
    """Delete a savepoint. The manifest goes first, so that half a savepoint is never taken for a whole one; a savepoint
    that is gone already is success. Refuses anything that is not a savepoint."""
    try:
        storage = open_storage(path, create=False)
    except StorageError:
        return
    try:
        data = storage.get(MANIFEST)
    except FileMissingError:
        # Files of a checkpoint look the same, and other checkpoints may need them: only a name we gave is proof enough.
        named = storage.url.rstrip("/").rpartition("/")[2].startswith(PREFIX)
        if not named or any(not _ours(name) for name in storage.list("")):
            raise StorageError(f"{path}: is no savepoint (there is no {MANIFEST}) and was left as it is") from None
        _remove_files(storage)
        return
    manifest = manifest_file.decode(data, source=f"{storage.url}/{MANIFEST}")
    if manifest.kind != "savepoint":
        raise StorageError(
            f"{path}: is checkpoint {manifest.checkpoint_id} of job {manifest.job_id}, not a savepoint: its job's retention "
            "deletes it"
        )
    storage.delete(MANIFEST)
    _remove_files(storage)


def _ours(name: str) -> bool:
    return name.endswith(".state") or name.startswith("spark/")


def _remove_files(storage: Storage) -> None:
    for name in storage.list(""):
        if _ours(name):
            storage.delete(name)
    if isinstance(storage, LocalStorage):
        with contextlib.suppress(OSError):  # something of someone else's is in it
            storage.root.rmdir()
