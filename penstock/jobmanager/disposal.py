"""Deleting a savepoint, and nothing else."""

from __future__ import annotations

from pathlib import Path

from penstock.checkpoint.manifest import Manifest
from penstock.errors import StorageError

_MANIFEST = "manifest.json"


def dispose_savepoint(location: str) -> None:
    """Delete a savepoint's folder. StorageError, and nothing changed, if there is no whole savepoint: a folder is only
    touched if the manifest in it says that it is one. The manifest goes first, so that what is left of an interrupted
    deletion is not mistaken for a savepoint."""
    folder = Path(location.removeprefix("file://"))
    if "://" in location.removeprefix("file://") or "\x00" in location or not folder.is_absolute():
        raise StorageError(
            f"{location!r} is not the absolute path of a local folder: delete it with its store's own tools"
        )
    path = folder / _MANIFEST
    try:
        manifest = Manifest.from_bytes(path.read_bytes(), source=str(path))
    except OSError as error:
        raise StorageError(f"{location!r} is not a savepoint: {path} cannot be read ({error.strerror})") from error
    if manifest.kind != "savepoint":
        raise StorageError(
            f"{location!r} is a checkpoint of job {manifest.job_id}, not a savepoint: its job deletes it itself"
        )
    path.unlink()
    for state in folder.glob("*.state"):
        state.unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()
