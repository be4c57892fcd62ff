"""Folders for what a job knows: state, checkpoints, received records. Nobody else's business unless somebody says so."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, for this user alone. One that exists keeps its rights; if it is
    open to its group and closed to others, somebody has made it to be shared, and what is made in it is shared alike."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    if not missing:
        return
    above = stat.S_IMODE(missing[-1].parent.stat().st_mode)
    rights = 0o700 if above & 0o007 else above & 0o770 | 0o700
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process was quicker
            path.mkdir(mode=rights)
