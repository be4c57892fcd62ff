"""Where a file source's files are: paths, folders, globs and URLs turned into a list of files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from penstock.errors import ConfigurationError, StorageError

_URL = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]+://")
_PASSWORD = re.compile(r"^[^/]+://[^/@]*:[^/]*@")
_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """`name` is the split's id: enough to open the file from any process."""

    name: str
    size: int
    modified_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Root:
    """One of the paths given by the user. A file's name is prefix + path in the filesystem + suffix."""

    filesystem: Any
    given: str
    prefix: str
    suffix: str
    base: str  # a file or folder, free of wildcards
    pattern: re.Pattern[str] | None


class Locations:
    """Lists and opens files through `pyarrow.fs`. Picklable: filesystems are opened where they are used.

    A folder stands for all files below it except those with a name, or below a folder with a name, that starts with
    `_` or `.` (what Spark, Flink and `FileSink` hide work in progress behind). `*`, `?`, `[…]` do not cross folders,
    `**` does; in URLs `?` starts the query. `filesystem` replaces the one that paths would choose themselves.
    """

    def __init__(self, paths: Sequence[str | os.PathLike[str]], filesystem: Any = None) -> None:
        if not paths:
            raise ConfigurationError("FileSource: no path was given; name at least one file, folder or glob")
        self._paths = tuple(os.fspath(path) for path in paths)
        self._filesystem = filesystem
        self._roots: tuple[_Root, ...] | None = None

    def __getstate__(self) -> tuple[Any, ...]:
        return self._paths, self._filesystem

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._paths, self._filesystem = state
        self._roots = None

    def list(self) -> list[FoundFile]:
        """All files now there, each once, by (modification time, name)."""
        found: dict[str, FoundFile] = {}
        for root in self._resolved():
            for info in _files(root):
                name = root.prefix + info.path + root.suffix
                found[name] = FoundFile(name=name, size=info.size, modified_ns=info.mtime_ns or 0)
        return sorted(found.values(), key=lambda file: (file.modified_ns, file.name))

    def open(self, name: str) -> pa.NativeFile:
        """Open for random access."""
        filesystem, path = self._locate(name)
        try:
            return filesystem.open_input_file(path)
        except FileNotFoundError as error:
            raise StorageError(
                f"FileSource: cannot read {name}: the file is gone. It was there when the epoch that reads it was "
                "planned; files must stay until the last checkpoint that may replay them is dropped."
            ) from error

    def _locate(self, name: str) -> tuple[Any, str]:
        for root in sorted(self._resolved(), key=lambda root: len(root.prefix), reverse=True):
            if name.startswith(root.prefix) and name.endswith(root.suffix):
                return root.filesystem, name[len(root.prefix) : len(name) - len(root.suffix)]
        raise StorageError(f"FileSource: {name} lies under none of the source's paths {list(self._paths)}")

    def _resolved(self) -> tuple[_Root, ...]:
        if self._roots is None:
            self._roots = tuple(_resolve(path, self._filesystem) for path in self._paths)
        return self._roots


def _resolve(given: str, filesystem: Any) -> _Root:
    is_url = filesystem is None and _URL.match(given) is not None
    location, mark, query = given.partition("?") if is_url else (given, "", "")
    suffix = mark + query
    fixed, wild = _split_glob(location)
    if filesystem is not None:
        prefix, base = "", fixed
    elif is_url:
        if _PASSWORD.match(given):  # names of splits are written to checkpoints and messages
            raise ConfigurationError(
                f"FileSource: the URL of {given.rpartition('@')[2]!r} holds a password. Pass it by the environment, or "
                "open the filesystem yourself and give it as filesystem="
            )
        try:
            filesystem, base = fs.FileSystem.from_uri(fixed + suffix)
        except (pa.ArrowInvalid, OSError) as error:
            raise ConfigurationError(f"FileSource: cannot use the path {given!r}: {error}") from error
        if isinstance(filesystem, fs.LocalFileSystem):
            prefix, suffix = "", ""
        elif unquote(fixed).rstrip("/").endswith(base.rstrip("/")):
            prefix = unquote(fixed).rstrip("/").removesuffix(base.rstrip("/"))
        else:
            prefix = fixed[: fixed.index("://") + 3]
    else:
        filesystem, prefix, base = fs.LocalFileSystem(), "", os.path.abspath(fixed)
    pattern = None if wild is None else re.compile(re.escape(base.rstrip("/")) + "/" + _glob_pattern(wild))
    return _Root(filesystem=filesystem, given=given, prefix=prefix, suffix=suffix, base=base, pattern=pattern)


def _files(root: _Root) -> list[Any]:
    info = root.filesystem.get_file_info(root.base)
    if info.type == fs.FileType.NotFound:
        if root.pattern is not None:
            return []
        raise ConfigurationError(f"FileSource: {root.given!r} does not exist; create it or correct the path")
    if info.type == fs.FileType.File:
        return [info] if root.pattern is None else []
    below = root.filesystem.get_file_info(fs.FileSelector(root.base, recursive=True))
    files = (entry for entry in below if entry.type == fs.FileType.File and not _hidden(entry.path, root.base))
    return [entry for entry in files if root.pattern is None or root.pattern.fullmatch(entry.path)]


def _hidden(path: str, base: str) -> bool:
    inner = path.removeprefix(base).strip("/")
    return any(part.startswith(("_", ".")) for part in inner.split("/"))


def _split_glob(location: str) -> tuple[str, str | None]:
    """The leading folders without wildcards, and the rest."""
    magic = _MAGIC.search(location)
    if magic is None:
        return location, None
    cut = location.rfind("/", 0, magic.start())
    return (location[:cut] or "/", location[cut + 1 :]) if cut >= 0 else (".", location)


def _glob_pattern(glob: str) -> str:
    parts = re.split(r"(\*\*/|\*\*|\*|\?|\[[^\]]+\])", glob)
    rules = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(
        rules.get(part) or ("[^" + part[2:] if part.startswith("[!") else part if part[:1] == "[" else re.escape(part))
        for part in parts
    )
