"""The folder that `FileSink` writes into: on a filesystem that renames atomically, or in an object store.

An object store has no rename. What has its place of rename there is a copy inside the store: objects appear whole, so a copy
that is repeated after a crash changes nothing. The staged object is deleted when the commit has its list.
"""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import IO, Any
from urllib.parse import unquote, urlsplit

import obstore

from penstock.checkpoint.object_storage import ObjectStorage
from penstock.common.storage import fsync_folder
from penstock.errors import ConfigurationError, FileMissingError


class Folder(ABC):
    """Paths are relative and have `/`. Instances travel pickled."""

    @abstractmethod
    def address(self, path: str) -> str:
        """The path or url with which others find a file."""

    @abstractmethod
    def create(self, path: str) -> IO[bytes]:
        """A new file to write. It is there, whole, after `seal`."""

    @abstractmethod
    def seal(self, path: str, file: IO[bytes]) -> int:
        """Closes the file and makes it durable; its size."""

    @abstractmethod
    def abandon(self, path: str, file: IO[bytes]) -> None:
        """Closes the file and removes it."""

    @abstractmethod
    def move(self, path: str, target: str) -> None:
        """Puts a sealed file in its place, replacing what is there. FileMissingError if there is no such file."""

    @abstractmethod
    def settle(self, paths: Iterable[str]) -> None:
        """Makes the moves to these paths durable."""

    @abstractmethod
    def size(self, path: str) -> int | None:
        """Bytes of a file; None if it is not there."""

    @abstractmethod
    def read(self, path: str) -> bytes | None:
        """The whole file; None if it is not there."""

    @abstractmethod
    def open(self, path: str) -> IO[bytes]:
        """A sealed file, to read."""

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Creates or replaces a small file, atomically and durably."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """The names of files directly in a folder, sorted; none if there is no such folder."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Removes a file. A missing one is success."""


class DiskFolder(Folder):
    """A folder on a disk or mount that the driver and all slots share."""

    def __init__(self, base: str) -> None:
        self._base = base

    def address(self, path: str) -> str:
        return os.path.join(self._base, path)

    def create(self, path: str) -> IO[bytes]:
        full = self.address(path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        return open(full, "wb")

    def seal(self, path: str, file: IO[bytes]) -> int:
        file.flush()
        os.fsync(file.fileno())
        file.close()
        full = self.address(path)
        fsync_folder(os.path.dirname(full))
        return os.path.getsize(full)

    def abandon(self, path: str, file: IO[bytes]) -> None:
        with contextlib.suppress(OSError):  # a full disk: the file goes anyway
            file.close()
        os.unlink(self.address(path))

    def move(self, path: str, target: str) -> None:
        full = self.address(target)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        try:
            os.replace(self.address(path), full)
        except FileNotFoundError as error:
            raise FileMissingError(path) from error

    def settle(self, paths: Iterable[str]) -> None:
        folders = {self._base}
        for path in paths:
            folder = os.path.dirname(self.address(path))
            while folder != self._base:  # a partition's folder may be as new as its file
                folders.add(folder)
                folder = os.path.dirname(folder)
        for folder in sorted(folders, reverse=True):
            fsync_folder(folder)

    def size(self, path: str) -> int | None:
        try:
            return os.path.getsize(self.address(path))
        except FileNotFoundError:
            return None

    def read(self, path: str) -> bytes | None:
        try:
            with open(self.address(path), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def open(self, path: str) -> IO[bytes]:
        return open(self.address(path), "rb")

    def write(self, path: str, data: bytes) -> None:
        full = self.address(path)
        folder, name = os.path.split(full)
        os.makedirs(folder, exist_ok=True)
        temporary = os.path.join(folder, f".{name}.tmp")
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, full)
        fsync_folder(folder)
        fsync_folder(self._base)

    def names(self, folder: str) -> list[str]:
        full = self.address(folder)
        return sorted(os.listdir(full)) if os.path.isdir(full) else []

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # another clean-up was faster
            os.unlink(self.address(path))


class ObjectFolder(ObjectStorage, Folder):
    """A prefix in an object store (s3://, gs://, az://, memory:///). A file is written on the host's disk first and uploaded whole
    when it is sealed, in parts if it is large."""

    kind = "the sink's folder"

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectFolder, (self.url,)

    def address(self, path: str) -> str:
        return f"{self.url.rstrip('/')}/{path}"

    def create(self, path: str) -> IO[bytes]:
        return tempfile.TemporaryFile()

    def seal(self, path: str, file: IO[bytes]) -> int:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        self._call("write", path, lambda: obstore.put(self._store, path, file))
        file.close()
        return size

    def abandon(self, path: str, file: IO[bytes]) -> None:
        file.close()

    def move(self, path: str, target: str) -> None:
        self._call("read", path, lambda: obstore.copy(self._store, path, target, overwrite=True))

    def settle(self, paths: Iterable[str]) -> None:
        pass

    def size(self, path: str) -> int | None:
        try:
            return int(self._call("look for", path, lambda: obstore.head(self._store, path))["size"])
        except FileMissingError:
            return None

    def read(self, path: str) -> bytes | None:
        try:
            return self.get(path)
        except FileMissingError:
            return None

    def open(self, path: str) -> IO[bytes]:
        return io.BytesIO(self.get(path))

    def write(self, path: str, data: bytes) -> None:
        self.put(path, data)

    def names(self, folder: str) -> list[str]:
        return [path.rpartition("/")[2] for path in self.list(folder) if path.rpartition("/")[0] == folder]

    def remove(self, path: str) -> None:
        self.delete(path)


def open_folder(path: str | os.PathLike[str]) -> Folder:
    """Plain paths and file:// urls are local; s3://, gs://, az:// and memory:/// are object stores."""
    text = os.fspath(path)
    if "://" not in text:
        return DiskFolder(os.path.abspath(text))
    url = urlsplit(text)
    if url.scheme != "file":
        return ObjectFolder(text)
    if url.netloc not in ("", "localhost"):
        raise ConfigurationError(f"FileSink: {text!r} names a host; write file:///absolute/path with three slashes")
    return DiskFolder(os.path.abspath(unquote(url.path)))
