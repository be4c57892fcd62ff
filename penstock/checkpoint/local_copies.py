"""Copies of a job's state files on the machine that wrote them, so that a worker that starts there again need not fetch them.

A convenience and never a promise: what is missing, damaged or not ours is read from the checkpoint's storage. The folder outlives
the processes that fill it, so it is the user's alone: state is unpickled, and a checksum keeps no stranger out.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import stat
import tempfile
import time
import uuid
from pathlib import Path
from typing import Final

from penstock.checkpoint.manifest import FileState
from penstock.common.secrets import make_private
from penstock.errors import CorruptSnapshotError

_PREFIX: Final = "penstock-local-"
_FORGOTTEN_S: Final = 24 * 3600.0  # nothing was written for so long: its job has failed, or its machine
_log = logging.getLogger("penstock")


class LocalCopies:
    """Of one job on one machine; several processes may use it at once."""

    def __init__(self, job_id: str, *, parent: str | None, most_bytes: int) -> None:
        """`parent`: a folder, None: the system's temporary one. No more than `most_bytes` are kept."""
        self._parent = Path(parent or tempfile.gettempdir())
        self._root = self._parent / f"{_PREFIX}{job_id}"
        self._most = most_bytes
        self._usable = self._make()

    def _make(self) -> bool:
        try:
            make_private(self._parent)
            with contextlib.suppress(FileExistsError):
                self._root.mkdir(mode=0o700)
            if not _is_private(self._root):
                _log.warning("%s is not this user's alone: state is restored from its storage", self._root)
                return False
            for other in self._parent.glob(f"{_PREFIX}*"):
                with contextlib.suppress(OSError):
                    if _is_private(other) and time.time() - other.stat().st_mtime > _FORGOTTEN_S:
                        shutil.rmtree(other, ignore_errors=True)
            os.utime(self._root)
        except OSError as error:
            _log.warning("no local copies of state in %s: %s", self._root, error)
            return False
        return True

    def put(self, path: str, data: bytes) -> None:
        """Keeps a copy of what was written under this path of the job folder, if there is room."""
        if not self._usable:
            return
        try:
            if self.size() + len(data) > self._most:
                return
            copy = self._place(path)
            copy.parent.mkdir(mode=0o700, exist_ok=True)
            written = copy.with_name(f".{copy.name}.{uuid.uuid4().hex}")
            written.write_bytes(data)
            written.replace(copy)
        except OSError as error:
            self._usable = False
            _log.warning("no more local copies of state in %s: %s", self._root, error)

    def get(self, handle: FileState) -> bytes | None:
        """The very bytes that the handle names; None: they are not here."""
        if not self._usable:
            return None
        copy = self._place(handle.path)
        try:
            data = copy.read_bytes()
            handle.verify(data)
        except CorruptSnapshotError as error:
            _log.warning("a local copy of state is damaged, its storage is read instead: %s", error)
            copy.unlink(missing_ok=True)
            return None
        except OSError:
            return None
        return data

    def keep(self, oldest: int, newest: int | None = None) -> None:
        """Forgets what was written for checkpoints before `oldest`, and behind `newest`."""
        for folder in self._root.glob("chk-*") if self._usable else ():
            number = int(folder.name.removeprefix("chk-"))
            if number < oldest or (newest is not None and number > newest):
                shutil.rmtree(folder, ignore_errors=True)

    def size(self) -> int:
        """How many bytes are kept."""
        total = 0
        for file in self._root.glob("chk-*/*"):
            with contextlib.suppress(FileNotFoundError):  # another process forgets, too
                total += file.stat().st_size
        return total

    def remove(self) -> None:
        """The job is over."""
        if self._usable:
            shutil.rmtree(self._root, ignore_errors=True)

    def _place(self, path: str) -> Path:
        folder, name = path.split("/")[-2:]  # checkpoints/chk-7/name
        return self._root / folder / name


def _is_private(folder: Path) -> bool:
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
