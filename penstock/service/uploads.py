"""Uploaded programs: files below one folder, by names that cannot lead out of it.

Each has a folder of its own, `<id>/<name>`: there it is imported by its own name, and sees no other upload beside it. The id
is made from the content: the same program sent again is the same upload, so a folder does not fill up with copies.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from email.parser import BytesParser
from email.policy import HTTP
from pathlib import Path
from typing import Any, Final

from penstock.errors import PenstockError

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\.(?:py|zip)")
_ID: Final = re.compile(rf"[0-9a-f]{{32}}_{_NAME.pattern}")


class UploadError(PenstockError):
    """An upload is not a program that can be kept."""


class UploadedPrograms:
    """The programs that were uploaded, each in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, name: str, content: bytes) -> str:
        """Keep a program; its id. The name is refused, not mended: whoever sends `../x` means no good."""
        if not _NAME.fullmatch(name):
            raise UploadError(
                f"{name!r} cannot be a program's name: letters, digits, '_', '-', '.', ending in .py or .zip"
            )
        if not content:
            raise UploadError(f"{name} is empty")
        program_id = f"{hashlib.sha256(content).hexdigest()[:32]}_{name}"
        folder = self._folder / program_id
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(dir=folder)  # whole or absent: a job may be starting from it just now
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            os.replace(temporary, folder / name)
        except BaseException:
            os.unlink(temporary)
            raise
        return program_id

    def find(self, program_id: str) -> Path | None:
        """Only what `add` could have made, and is there."""
        if not _ID.fullmatch(program_id):
            return None
        path = self._folder / program_id / program_id.partition("_")[2]
        return path if path.is_file() and not path.is_symlink() else None

    def id_of(self, path: str) -> str | None:
        """The upload that a file is, if it is one."""
        program_id = Path(path).parent.name
        return program_id if self.find(program_id) == Path(path) else None

    def delete(self, program_id: str) -> bool:
        """Deletes a program; False if there is none with this id."""
        path = self.find(program_id)
        if path is not None:
            shutil.rmtree(path.parent, ignore_errors=True)
        return path is not None

    def all(self) -> list[dict[str, Any]]:
        """The newest first, in Flink's shape of a jar."""
        folders = self._folder.iterdir() if self._folder.is_dir() else ()
        paths = [path for folder in folders if (path := self.find(folder.name)) is not None]
        stamped = sorted(((int(path.stat().st_mtime * 1000), path) for path in paths), reverse=True)
        return [
            {"id": path.parent.name, "name": path.name, "uploaded": at, "entry": [{"name": path.name}]}
            for at, path in stamped
        ]


def from_form(content_type: str, body: bytes) -> tuple[str, bytes]:
    """Name and content of the first file of a `multipart/form-data` body, as browsers and Flink's clients send it."""
    try:
        head = b"Content-Type: " + content_type.encode("latin-1") + b"\r\n\r\n"
        message = BytesParser(policy=HTTP).parsebytes(head + body)
        for part in message.iter_parts():
            name = part.get_filename()
            if name is not None:
                content = part.get_payload(decode=True)
                return str(name), content if isinstance(content, bytes) else b""
    except Exception as error:  # the parser raises whatever a malformed header makes it stumble over
        raise UploadError(f"the form cannot be read: {type(error).__name__}: {error}") from error
    raise UploadError("the form has no file: send one part with a filename")
