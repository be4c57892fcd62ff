"""Checkpoint storage in a folder: durable, atomic and exclusive by temporary files, fsync, rename and hard links."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import time
import uuid
from pathlib import Path
from typing import Any

from penstock.common.secrets import make_private
from penstock.common.storage import TEMPORARY_PREFIX, FileMissingError, Storage, checked_path, fsync_folder
from penstock.errors import StorageError

_FOLDER_RETRIES = 16


class LocalStorage(Storage):
    """A folder on a file system; for a job on several hosts, one that all of them mount at the same path.

    `create` makes the root when it is missing. Copies that arrive pickled never do: on a host where the shared folder
    is not mounted, an empty new folder would look like a job without checkpoints.

    A root that is made here is for this user alone. One that exists says by its own rights who else may see what is in it.
    """

    def __init__(self, root: str | os.PathLike[str], *, create: bool = True) -> None:
        self.root = Path(os.path.abspath(os.path.expanduser(root)))
        if create:
            try:
                make_private(self.root)
            except OSError as error:
                raise self._unusable("create", error) from error
        self._require_root()
        # What is in it has its rights, as far as the umask lets through: 0700 and 0600 if it was made here.
        self._rights = stat.S_IMODE(self.root.stat().st_mode) & 0o777 | 0o700

    @property
    def url(self) -> str:
        return self.root.as_uri()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen_local, (str(self.root),)

    def __repr__(self) -> str:
        return f"LocalStorage({str(self.root)!r})"

    def put(self, path: str, data: bytes) -> None:
        target = self.root / checked_path(path)
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
        target = self.root / checked_path(path)
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
        target = self.root / checked_path(path)
        try:
            return target.read_bytes()
        except (FileNotFoundError, NotADirectoryError) as error:
            self._require_root()
            raise FileMissingError(f"{path} does not exist in checkpoint storage {self.root}") from error
        except OSError as error:
            raise self._failed("read", path, error) from error

    def exists(self, path: str) -> bool:
        target = self.root / checked_path(path)
        try:
            os.stat(target)
        except (FileNotFoundError, NotADirectoryError):
            self._require_root()
            return False
        except OSError as error:
            raise self._failed("look for", path, error) from error
        return target.is_file()

    def list(self, prefix: str) -> list[str]:
        top = self.root / checked_path(prefix, folder=True)
        found: list[str] = []
        try:
            for folder, _, names in os.walk(top, onerror=_raise):
                relative = Path(folder).relative_to(self.root)
                found.extend((relative / n).as_posix() for n in names if not n.startswith(TEMPORARY_PREFIX))
        except (FileNotFoundError, NotADirectoryError):
            # Either nothing was ever written there, or a folder went away while we looked; or the whole root did.
            self._require_root()
            if top.is_dir():
                return self.list(prefix)
        except OSError as error:
            raise self._failed("list", prefix or ".", error) from error
        return sorted(found)

    def delete(self, path: str) -> None:
        target = self.root / checked_path(path)
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
                if name.startswith(TEMPORARY_PREFIX):
                    file = os.path.join(folder, name)
                    with contextlib.suppress(FileNotFoundError):
                        if os.stat(file).st_mtime <= limit:
                            os.unlink(file)
                            swept += 1
        return swept

    def _write_temporary(self, folder: Path, data: bytes) -> Path:
        temporary = folder / f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}"
        for attempt in range(_FOLDER_RETRIES):
            try:
                # While a folder is being removed stat() still shows it, although nothing can be created in it any more;
                # mkdir() waits for the removal. So only the first try, the common one, believes stat().
                if attempt or not folder.is_dir():
                    self._require_root()
                    self._make_folder(folder)
                descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, self._rights & 0o666)
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

    def _make_folder(self, folder: Path) -> None:
        if folder != self.root:
            self._make_folder(folder.parent)
            folder.mkdir(mode=self._rights, exist_ok=True)

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
    # It may have been emptied and removed by a concurrent deletion: then nothing of ours is in it.
    with contextlib.suppress(FileNotFoundError):
        fsync_folder(folder)
