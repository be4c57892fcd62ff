"""The committing half of `FileSink`: renames, and the list of what was committed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from penstock.common.storage import fsync_folder
from penstock.errors import FencedError, StorageError
from penstock.functions.connectors import Committer

_COMMITS = "_commits"
_STAGING = ".staging"
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A committable: a durable file that waits to be renamed. Paths are relative to the sink's folder."""

    job_id: str
    epoch: int
    staged: str
    final: str
    rows: int
    size: int


class FileCommitter(Committer):
    """Renames staged files into place, then writes `_commits/<epoch>.json`.

    May die anywhere and be called again: a rename that was done shows as a final file without a staged one. Neither
    of them means that output was lost, which is an error, unless the epoch's list shows that it had been committed
    (its reader may have moved the file on since).
    """

    def __init__(self, base: str, sink_id: str) -> None:
        self._base = base
        self._sink_id = sink_id
        self._staging = staging_folder(base, sink_id)

    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        staged: Sequence[StagedFile] = committables
        if not staged:
            return
        manifest = _read_manifest(self._manifest_path(epoch))
        self._check_owner(manifest, staged[0])
        listed = {entry["path"] for entry in manifest["files"]} if manifest else set()
        folders = {self._base}
        for file in staged:
            folder = os.path.dirname(os.path.join(self._base, file.final))
            os.makedirs(folder, exist_ok=True)
            self._publish(file, listed)
            while folder != self._base:  # a partition's folder may be as new as its file
                folders.add(folder)
                folder = os.path.dirname(folder)
        for folder in sorted(folders, reverse=True):
            fsync_folder(folder)
        self._write_manifest(epoch, staged)
        self._drop_failed_attempts({file.epoch for file in staged})

    def discard_after(self, epoch: int) -> None:
        behind = [path for staged_epoch, path in self._staged_files() if staged_epoch > epoch]
        if behind:
            self.still_mine()
        for path in behind:
            _unlink(path)

    def _publish(self, file: StagedFile, listed: set[str]) -> None:
        staged, final = os.path.join(self._base, file.staged), os.path.join(self._base, file.final)
        if os.path.exists(final) and os.path.exists(staged):
            for manifest in _manifests(self._base):
                if any(entry["path"] == file.final for entry in manifest["files"]):
                    self._check_owner(manifest, file)
        try:
            os.replace(staged, final)
        except FileNotFoundError as error:
            if not os.path.exists(final):
                if file.final in listed:
                    return
                raise StorageError(
                    f"FileSink {self._sink_id}: cannot commit epoch {file.epoch}: neither the staged file {staged} nor "
                    f"the committed file {final} exists, so {file.rows} records are lost. If they were removed by "
                    "hand, put one of them back; otherwise go back to a checkpoint before this epoch."
                ) from error
            if os.path.getsize(final) != file.size:
                raise StorageError(
                    f"FileSink {self._sink_id}: cannot commit epoch {file.epoch}: the staged file {staged} is gone and "
                    f"{final} has {os.path.getsize(final)} bytes instead of {file.size}. Something else wrote there; "
                    "go back to a checkpoint before this epoch, with a folder of the sink's own."
                ) from error

    def _check_owner(self, manifest: dict[str, Any] | None, file: StagedFile) -> None:
        if manifest is None:
            return
        owner, mine = (manifest["job_id"], manifest["sink_id"]), (file.job_id, self._sink_id)
        if owner != mine:
            raise FencedError(
                f"FileSink {self._sink_id} of job {file.job_id}: cannot commit epoch {file.epoch} into {self._base}: "
                f"epoch {manifest['epoch']} there was written by sink {owner[1]} of job {owner[0]} and would be "
                "overwritten. Give every sink of every job a folder of its own, or empty this one."
            )

    def _manifest_path(self, epoch: int) -> str:
        return os.path.join(self._base, _COMMITS, f"{epoch}.json")

    def _write_manifest(self, epoch: int, staged: Sequence[StagedFile]) -> None:
        manifest = {
            "version": _VERSION,
            "epoch": epoch,
            "job_id": staged[0].job_id,
            "sink_id": self._sink_id,
            "files": [{"path": file.final, "rows": file.rows, "size": file.size} for file in staged],
        }
        path = self._manifest_path(epoch)
        folder = os.path.dirname(path)
        os.makedirs(folder, exist_ok=True)
        temporary = os.path.join(folder, f".{epoch}.json.tmp")
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(manifest, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        fsync_folder(folder)
        fsync_folder(self._base)

    def _drop_failed_attempts(self, epochs: set[int]) -> None:
        """What is still staged for epochs that are now committed was left by attempts that failed."""
        for epoch, path in self._staged_files():
            if epoch in epochs:
                _unlink(path)

    def _staged_files(self) -> Iterator[tuple[int, str]]:
        if not os.path.isdir(self._staging):
            return
        for name in sorted(os.listdir(self._staging)):
            epoch, dash, _ = name.partition("-")
            if dash and epoch.isdigit():
                yield int(epoch), os.path.join(self._staging, name)


def committed_files(base: str | os.PathLike[str], *, after_epoch: int = 0) -> list[str]:
    """Full paths of the files of all whole epochs later than `after_epoch`, in the order they were committed."""
    folder = os.path.abspath(base)
    manifests = (manifest for manifest in _manifests(folder) if manifest["epoch"] > after_epoch)
    paths = (entry["path"] for manifest in manifests for entry in manifest["files"])
    return [os.path.join(folder, path) for path in dict.fromkeys(paths)]


def staging_folder(base: str, sink_id: str) -> str:
    """The folder inside `base` for what a sink has written and not yet committed."""
    # A name of dots only would leave the folder.
    return os.path.join(base, _STAGING, quote(sink_id, safe="").replace(".", "%2E"))


def _manifests(base: str) -> Iterator[dict[str, Any]]:
    folder = os.path.join(base, _COMMITS)
    if not os.path.isdir(folder):
        return
    epochs = sorted(int(name[:-5]) for name in os.listdir(folder) if name.endswith(".json") and name[:-5].isdigit())
    for epoch in epochs:
        manifest = _read_manifest(os.path.join(folder, f"{epoch}.json"))
        if manifest is not None:
            yield manifest


def _read_manifest(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            manifest: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StorageError(
            f"FileSink: {path} is not a list of committed files: {error}. Restore or remove it."
        ) from error
    if manifest.get("version") != _VERSION:
        raise StorageError(
            f"FileSink: {path} has version {manifest.get('version')}, this Penstock reads {_VERSION}. Use the Penstock "
            "that wrote it, or another folder."
        )
    return manifest


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return  # another clean-up was faster
