"""A real file system that is small, so that it can be full."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


class SmallDisk:
    """A mounted tmpfs. `fill` takes all that is left of it, to the last byte."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._ballast = root / "ballast"

    def fill(self, *, leave: int = 0) -> None:
        free = shutil.disk_usage(self.root).free - leave
        with contextlib.suppress(OSError), self._ballast.open("ab") as file:  # the last block may not be had whole
            os.posix_fallocate(file.fileno(), 0, free)
        assert shutil.disk_usage(self.root).free <= leave, "the disk is not full"

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    @property
    def is_full(self) -> bool:
        return self._ballast.exists()


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[SmallDisk]:
    """Skips where nothing can be mounted: that takes root, or sudo without a password."""
    folder.mkdir(parents=True)
    sudo = [] if os.getuid() == 0 else ["sudo", "-n"]
    options = f"size={size},mode=0700,uid={os.getuid()}"
    mount = [*sudo, "mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, timeout=30)
        problem = done.stderr if done.returncode else None
    except FileNotFoundError as error:
        problem = str(error)
    if problem is not None:
        pytest.skip(f"a small file system cannot be mounted here: {problem.strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run([*sudo, "umount", "-l", str(folder)], check=True, timeout=30)
