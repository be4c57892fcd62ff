"""The folder of a process for local state: removed at its end, and if it was killed, by the next one that starts here."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
from pathlib import Path

import psutil

from penstock.common.private_folders import make_private

_NAME = re.compile(r"penstock-state-(\d+)-(\d+)-.*")


class LocalFolder:
    """Made when it is first asked for. Its name says whose it is: process id and start time."""

    def __init__(self, parents: tuple[str, ...] = (), *, choose: int = 0) -> None:
        """One of `parents` (several disks: `choose` tells processes apart), else the system's temporary folder."""
        self._parent = Path(parents[choose % len(parents)] if parents else tempfile.gettempdir())
        self._path: Path | None = None
        self._lock = threading.Lock()

    def path(self) -> Path:
        with self._lock:
            if self._path is None:
                make_private(self._parent)
                _sweep(self._parent)
                prefix = f"penstock-state-{os.getpid()}-{_started(os.getpid())}-"
                self._path = Path(tempfile.mkdtemp(prefix=prefix, dir=self._parent))
            return self._path

    def remove(self) -> None:
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
    """Folders of processes that are gone. Another user's stay: removing them fails, silently."""
    for folder in parent.glob("penstock-state-*"):
        match = _NAME.fullmatch(folder.name)
        if match is not None and _started(int(match[1])) != int(match[2]):
            shutil.rmtree(folder, ignore_errors=True)
