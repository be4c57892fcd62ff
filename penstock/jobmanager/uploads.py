"""Uploaded programs: files of one folder, by names that cannot lead out of it."""

from __future__ import annotations

import re
import uuid
from email.parser import BytesParser
from email.policy import HTTP
from pathlib import Path
from typing import Any, Final

from penstock.errors import PenstockError

_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}\.(?:py|zip)")
_ID: Final = re.compile(rf"[0-9a-f]{{32}}_{_NAME.pattern}")


class UploadError(PenstockError):
    """What was sent is not a program that can be kept."""


class Uploads:
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
        program_id = f"{uuid.uuid4().hex}_{name}"
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._folder / program_id
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(content)
        return program_id

    def find(self, program_id: str) -> Path | None:
        """Only what `add` could have made, and is there."""
        if not _ID.fullmatch(program_id):
            return None
        path = self._folder / program_id
        return path if path.is_file() and not path.is_symlink() else None

    def delete(self, program_id: str) -> bool:
        path = self.find(program_id)
        if path is not None:
            path.unlink(missing_ok=True)
        return path is not None

    def all(self) -> list[dict[str, Any]]:
        """The newest first, in Flink's shape of a jar."""
        paths = [p for p in self._folder.iterdir() if _ID.fullmatch(p.name)] if self._folder.is_dir() else []
        stamped = sorted(((int(path.stat().st_mtime * 1000), path.name) for path in paths), reverse=True)
        return [
            {"id": name, "name": name.partition("_")[2], "uploaded": at, "entry": [{"name": name.partition("_")[2]}]}
            for at, name in stamped
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
