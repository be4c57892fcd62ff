"""Checkpoint storage: a flat space of small immutable files under one root, local or in an object store.

Two write operations carry the whole protocol: `put` replaces a file atomically, `put_new` creates it exclusively. A
reader never sees part of a file, whatever dies when. Paths are relative, `/`-separated and name a file.
"""

from __future__ import annotations

import os
from typing import Protocol

from penstock.errors import FileMissingError as FileMissingError
from penstock.errors import StorageError

TEMPORARY_PREFIX = ".tmp-"


class Storage(Protocol):
    """The place where checkpoints are kept. Safe to use from several threads; pickled, it is opened again from its
    url.
    """

    @property
    def url(self) -> str:
        """The address with which `open_storage` opens the same place in another process."""
        ...

    def put(self, path: str, data: bytes) -> None:
        """Create or replace a file, durably; readers see the old bytes or the new ones, nothing in between."""
        ...

    def put_new(self, path: str, data: bytes) -> bool:
        """Create a file, durably; False, with nothing changed, if it exists. Of any number of callers one gets True.

        A transport may repeat a request whose answer was lost, and so report False for a file this very call wrote:
        callers compare the bytes that are there before they conclude that they lost.
        """
        ...

    def get(self, path: str) -> bytes:
        """The whole file. FileMissingError if it is not there, StorageError if it cannot be read."""
        ...

    def exists(self, path: str) -> bool:
        """True if the file is there. StorageError if that cannot be told."""

    def list(self, prefix: str) -> list[str]:
        """Every file in the folder `prefix` and below (`""`: everything), sorted by path."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file, durably. A missing file is success, so a deletion can be repeated."""
        ...

    def sweep(self, *, older_than_s: float = 3600.0) -> int:
        """Remove what writers that died left behind, if older than this; how many files went."""
        ...


def fsync_folder(folder: str | os.PathLike[str]) -> None:
    """What was created, renamed or deleted in it outlives a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checked_path(path: str, *, folder: bool = False) -> str:
    """Refuse paths that could leave the root: names in a path come from users' uids and from manifests."""
    if folder and path == "":
        return path
    segments = path.removesuffix("/").split("/") if folder else path.split("/")
    if any(s in ("", ".", "..") or "\0" in s or "\\" in s or s.startswith(TEMPORARY_PREFIX) for s in segments):
        raise StorageError(
            f"{path!r} is not a path inside checkpoint storage: it must be relative, without empty, '.' or '..' parts "
            "and without backslashes"
        )
    return "/".join(segments)
