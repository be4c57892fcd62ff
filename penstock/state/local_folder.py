"""Folders of a process for what is of use to it alone: removed at its end, and if it was killed, by the next one that starts
here."""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import threading
from pathlib import Path

import psutil

from penstock.common.secrets import make_private

_NAME = re.compile(r"penstock-[a-z]+-(\d+)-(\d+)-.*")


class LocalFolder:
    """Made when it is first asked for. Its name says whose it is: process id and start time."""

    def __init__(self, parents: tuple[str, ...] = (), *, choose: int = 0, kind: str = "state") -> None:
        """One of `parents` (several disks: `choose` tells processes apart), else the system's temporary folder. `kind`, of
        small letters, says what it is for."""
        self._kind = kind
        self._parent = Path(parents[choose % len(parents)] if parents else tempfile.gettempdir())
        self._path: Path | None = None
        self._lock = threading.Lock()

    def path(self) -> Path:
        """The folder; the first call makes it and removes those of processes that are gone."""
        with self._lock:
            if self._path is None:
                make_private(self._parent)
                _sweep(self._parent)
                prefix = f"penstock-{self._kind}-{os.getpid()}-{_started(os.getpid())}-"
                self._path = Path(tempfile.mkdtemp(prefix=prefix, dir=self._parent))
            return self._path

    def remove(self) -> None:
        """Deletes the folder and what is in it; the next `path` makes another."""
        with self._lock:
            path, self._path = self._path, None
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)


def _started(pid: int) -> int | None:
    try:
        return int(psutil.Process(pid).create_time() * 1000)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None


def _sweep(parent: Path) -> None:
    """Folders of this user's processes that are gone, by the names above: nothing else is certainly ours."""
    for folder in parent.glob("penstock-*"):
        match = _NAME.fullmatch(folder.name)
        if match is not None and _is_mine(folder) and _started(int(match[1])) != int(match[2]):
            shutil.rmtree(folder, ignore_errors=True)


def _is_mine(folder: Path) -> bool:
    try:
        found = folder.lstat()
    except FileNotFoundError:  # another process sweeps, too
        return False
    return found.st_uid == os.getuid() and stat.S_ISDIR(found.st_mode)
