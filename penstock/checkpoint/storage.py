"""Checkpoint storage: a flat space of small immutable files under one root, local or in an object store.

Two write operations carry the whole protocol: `put` replaces a file atomically, `put_new` creates it exclusively. A
reader never sees part of a file, whatever dies when. Paths are relative, `/`-separated and name a file.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import MemoryStore, from_url

from penstock.errors import ConfigurationError, StorageError

_TEMPORARY_PREFIX = ".tmp-"
_FOLDER_RETRIES = 16
_T = TypeVar("_T")


class FileMissingError(StorageError):
    """The file that was asked for does not exist; the storage itself can be reached."""


class CheckpointStorage(Protocol):
    """Where checkpoints live. Safe to use from several threads; pickled, it is opened again from its url."""

    @property
    def url(self) -> str:
        """What `open_storage` takes to open the same place in another process."""
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

    def exists(self, path: str) -> bool: ...

    def list(self, prefix: str) -> list[str]:
        """Every file in the folder `prefix` and below (`""`: everything), sorted by path."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file, durably. A missing file is success, so a deletion can be repeated."""
        ...

    def sweep(self, *, older_than_s: float = 3600.0) -> int:
        """Remove what writers that died left behind, if older than this; how many files went."""
        ...


def open_storage(url_or_path: str, *, create: bool = True) -> CheckpointStorage:
    """Plain paths and file:// urls are LocalStorage; s3://, gs://, az://, memory:/// are ObjectStorage."""
    scheme, separator, _ = url_or_path.partition("://")
    if not separator:
        return LocalStorage(url_or_path, create=create)
    if scheme == "file":
        return LocalStorage(_path_of_file_url(url_or_path), create=create)
    return ObjectStorage(url_or_path)


def _path_of_file_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path:
        raise ConfigurationError(
            f"checkpoint storage {url!r} names a host or no folder; write file:///absolute/path with three slashes"
        )
    return unquote(parts.path)


def _checked(path: str, *, folder: bool = False) -> str:
    """Refuse paths that could leave the root: names in a path come from users' uids and from manifests."""
    if folder and path == "":
        return path
    segments = path.removesuffix("/").split("/") if folder else path.split("/")
    if any(s in ("", ".", "..") or "\0" in s or "\\" in s or s.startswith(_TEMPORARY_PREFIX) for s in segments):
        raise StorageError(
            f"{path!r} is not a path inside checkpoint storage: it must be relative, without empty, '.' or '..' parts "
            "and without backslashes"
        )
    return "/".join(segments)


class LocalStorage:
    """A folder on a file system; for a job on several hosts, one that all of them mount at the same path.

    `create` makes the root when it is missing. Copies that arrive pickled never do: on a host where the shared folder
    is not mounted, an empty new folder would look like a job without checkpoints.
    """

    def __init__(self, root: str | os.PathLike[str], *, create: bool = True) -> None:
        self.root = Path(os.path.abspath(os.path.expanduser(root)))
        if create:
            try:
                self.root.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise self._unusable("create", error) from error
        self._require_root()

    @property
    def url(self) -> str:
        return self.root.as_uri()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen_local, (str(self.root),)

    def __repr__(self) -> str:
        return f"LocalStorage({str(self.root)!r})"

    def put(self, path: str, data: bytes) -> None:
        target = self.root / _checked(path)
        try:
            temporary = self._write_temporary(target.parent, data)
            try:
                os.replace(temporary, target)
            except BaseException:
                _unlink_quietly(temporary)
                raise
            self._sync_folders(target.parent)
        except OSError as error:
            raise self._failed("write", path, error) from error

    def put_new(self, path: str, data: bytes) -> bool:
        target = self.root / _checked(path)
        try:
            if target.exists():
                return False  # spares the write; the link below is what decides
            temporary = self._write_temporary(target.parent, data)
            try:
                # link() fails if the name exists and shows the whole file at once; rename() would overwrite, and
                # open(O_EXCL) would show a file that is still being written.
                os.link(temporary, target)
            except FileExistsError:
                return False
            finally:
                _unlink_quietly(temporary)
            self._sync_folders(target.parent)
            return True
        except OSError as error:
            raise self._failed("create", path, error) from error

    def get(self, path: str) -> bytes:
        target = self.root / _checked(path)
        try:
            return target.read_bytes()
        except (FileNotFoundError, NotADirectoryError) as error:
            self._require_root()
            raise FileMissingError(f"{path} does not exist in checkpoint storage {self.root}") from error
        except OSError as error:
            raise self._failed("read", path, error) from error

    def exists(self, path: str) -> bool:
        target = self.root / _checked(path)
        try:
            os.stat(target)
        except (FileNotFoundError, NotADirectoryError):
            self._require_root()
            return False
        except OSError as error:
            raise self._failed("look for", path, error) from error
        return target.is_file()

    def list(self, prefix: str) -> list[str]:
        top = self.root / _checked(prefix, folder=True)
        found: list[str] = []
        try:
            for folder, _, names in os.walk(top, onerror=_raise):
                relative = Path(folder).relative_to(self.root)
                found.extend((relative / n).as_posix() for n in names if not n.startswith(_TEMPORARY_PREFIX))
        except (FileNotFoundError, NotADirectoryError):
            # Either nothing was ever written there, or a folder went away while we looked; or the whole root did.
            self._require_root()
            if top.is_dir():
                return self.list(prefix)
        except OSError as error:
            raise self._failed("list", prefix or ".", error) from error
        return sorted(found)

    def delete(self, path: str) -> None:
        target = self.root / _checked(path)
        try:
            os.unlink(target)
        except (FileNotFoundError, NotADirectoryError):
            self._require_root()
            return
        except OSError as error:
            raise self._failed("delete", path, error) from error
        folder = target.parent
        with contextlib.suppress(OSError):  # empty checkpoint folders would pile up; a full one refuses to go
            while folder != self.root:
                folder.rmdir()
                folder = folder.parent
        try:
            # Retention deletes a manifest before the files it names: that order must survive a power cut.
            _fsync_folder(folder)
        except OSError as error:
            raise self._failed("delete", path, error) from error

    def sweep(self, *, older_than_s: float = 3600.0) -> int:
        limit = time.time() - older_than_s
        swept = 0
        for folder, _, names in os.walk(self.root):
            for name in names:
                if name.startswith(_TEMPORARY_PREFIX):
                    file = os.path.join(folder, name)
                    with contextlib.suppress(FileNotFoundError):
                        if os.stat(file).st_mtime <= limit:
                            os.unlink(file)
                            swept += 1
        return swept

    def _write_temporary(self, folder: Path, data: bytes) -> Path:
        temporary = folder / f"{_TEMPORARY_PREFIX}{uuid.uuid4().hex}"
        for attempt in range(_FOLDER_RETRIES):
            try:
                # While a folder is being removed stat() still shows it, although nothing can be created in it any more;
                # mkdir() waits for the removal. So only the first try, the common one, believes stat().
                if attempt or not folder.is_dir():
                    self._require_root()
                    folder.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
                break
            except (FileNotFoundError, FileExistsError):  # `delete` removed a folder that it had emptied, just now
                if attempt == _FOLDER_RETRIES - 1:
                    raise
        try:
            with open(descriptor, "wb", buffering=0) as file:
                view = memoryview(data)
                while view:
                    view = view[file.write(view) :]
                os.fsync(file.fileno())
        except BaseException:
            _unlink_quietly(temporary)
            raise
        return temporary

    def _sync_folders(self, folder: Path) -> None:
        """A new name is durable once every folder on its way is: the folder itself may be new too."""
        while True:
            _fsync_folder(folder)
            if folder == self.root:
                return
            folder = folder.parent

    def _require_root(self) -> None:
        if not self.root.is_dir():
            raise self._unusable("use", OSError(errno.ENOENT, os.strerror(errno.ENOENT)))

    def _unusable(self, verb: str, error: OSError) -> StorageError:
        return StorageError(
            f"cannot {verb} the checkpoint folder {self.root} on host {socket.gethostname()}: {error.strerror}. "
            "Give a folder that exists (or can be made) and is writable by this user on every host of the job, "
            "or an object store url"
        )

    def _failed(self, verb: str, path: str, error: OSError) -> StorageError:
        advice = {
            errno.ENOSPC: "free space there or give another folder",
            errno.EDQUOT: "free space there or give another folder",
            errno.EACCES: "make the folder writable by this user or give another one",
            errno.EROFS: "mount it writable or give another folder",
        }.get(error.errno or 0, "check that the file system is mounted and healthy")
        if verb == "create" and error.errno in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
            advice = (
                "this file system has no hard links, which exclusive creation needs: use another, or an object store"
            )
        return StorageError(f"cannot {verb} {path} in checkpoint folder {self.root}: {error.strerror}; {advice}")


def _reopen_local(root: str) -> LocalStorage:
    return LocalStorage(root, create=False)


def _raise(error: OSError) -> None:
    raise error


def _unlink_quietly(path: Path) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _fsync_folder(folder: Path) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:  # emptied and removed by a concurrent deletion: nothing of ours is in it
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# Memory stores of this process by url, so that opening the same url twice gives the same files.
_memory_stores: dict[str, MemoryStore] = {}


class ObjectStorage:
    """Any store that obstore reaches by url. Credentials and endpoints come from the usual environment variables
    (AWS_*, GOOGLE_*, AZURE_*), on every host. memory:/// lives in one process: for tests."""

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            if url.startswith("memory://"):
                self._store: Any = _memory_stores.setdefault(url, MemoryStore())
            elif url.startswith("file://"):
                self._store = from_url(url, mkdir=True)
            else:
                self._store = from_url(url)
        except (BaseError, OSError, ValueError) as error:
            raise StorageError(
                f"cannot open checkpoint storage {url}: {_first_line(error)}. Check the url (s3://bucket/folder, "
                "gs://bucket/folder, az://container/folder) and the environment variables with its account and region"
            ) from error

    @property
    def url(self) -> str:
        return self._url

    def __reduce__(self) -> tuple[Any, ...]:
        return ObjectStorage, (self._url,)

    def __repr__(self) -> str:
        return f"ObjectStorage({self._url!r})"

    def put(self, path: str, data: bytes) -> None:
        self._call("write", path, lambda: obstore.put(self._store, _checked(path), data))

    def put_new(self, path: str, data: bytes) -> bool:
        checked = _checked(path)
        try:
            self._call("create", path, lambda: obstore.put(self._store, checked, data, mode="create"))
        except FileExistsError:
            return False
        return True

    def get(self, path: str) -> bytes:
        return self._call("read", path, lambda: bytes(obstore.get(self._store, _checked(path)).bytes()))

    def exists(self, path: str) -> bool:
        try:
            self._call("look for", path, lambda: obstore.head(self._store, _checked(path)))
        except FileMissingError:
            return False
        return True

    def list(self, prefix: str) -> list[str]:
        folder = _checked(prefix, folder=True)

        def collect() -> list[str]:
            chunks = obstore.list(self._store, prefix=folder or None)
            return sorted(meta["path"] for chunk in chunks for meta in chunk if _below(folder, meta["path"]))

        try:
            return self._call("list", prefix, collect)
        except FileMissingError:
            return []

    def delete(self, path: str) -> None:
        with contextlib.suppress(FileMissingError):
            self._call("delete", path, lambda: obstore.delete(self._store, _checked(path)))

    def sweep(self, *, older_than_s: float = 3600.0) -> int:
        return 0  # the store shows whole objects only; parts of broken uploads are for its own lifecycle rules

    def _call(self, verb: str, path: str, request: Callable[[], _T]) -> _T:
        try:
            return request()
        except AlreadyExistsError as error:
            raise FileExistsError(path) from error
        except FileNotFoundError as error:
            raise FileMissingError(f"{path} does not exist in checkpoint storage {self._url}") from error
        except (BaseError, OSError) as error:
            raise StorageError(
                f"cannot {verb} {path} in checkpoint storage {self._url}: {_first_line(error)}; check that the store "
                "can be reached from this host and that the credentials allow reading, writing, listing and deleting"
            ) from error


def _below(folder: str, path: str) -> bool:
    return not folder or path.startswith(folder + "/")


def _first_line(error: BaseException) -> str:
    """obstore appends a debug dump that may hold request headers; the first line is the message."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
