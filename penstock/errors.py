"""The error tree. A message says what was attempted, where, what was found and what to do next."""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from dataclasses import dataclass


class PenstockError(Exception):
    """Root of everything Penstock raises on purpose."""


class JobDefinitionError(PenstockError):
    """The program is wrong; raised while it is built or submitted, before anything runs."""


class ConfigurationError(JobDefinitionError):
    """A configuration key or value cannot be used."""


class NoResourceAvailableError(JobDefinitionError):
    """The job asks for more slots than are free."""


class UserFunctionError(PenstockError):
    """A user's function raised; names the operator, its uid, the subtask and the record."""


class ProtocolError(PenstockError):
    """The snapshot protocol was violated (a missing barrier, a gap in a channel): a bug or a fault, never a guess."""


class FencedError(PenstockError):
    """Another driver or attempt owns what this one tried to write."""


class StorageError(PenstockError):
    """Checkpoint storage failed or cannot be used."""


class FileMissingError(StorageError):
    """The file that was asked for does not exist; the storage itself can be reached."""


class CorruptSnapshotError(StorageError):
    """A checkpoint file is missing, truncated or does not match its checksum; names the file."""


class CheckpointFailedError(PenstockError):
    """A checkpoint could not be completed, and no more failures are tolerated: the job goes back to the last one."""


class NoCheckpointError(PenstockError):
    """State is asked for, and the job has no checkpoint (yet) that could tell."""


class StateLostError(PenstockError):
    """A slot was asked to go on from an epoch it does not have and no checkpoint holds: the job must go back."""


class SlotError(PenstockError):
    """A slot process could not be started, reached or authenticated."""


class BadRecordError(PenstockError):
    """A record does not fit its format or schema; names the file and position, or the value."""


class CommitRefusedError(PenstockError):
    """Another system refuses output that a checkpoint has promised, and would refuse it again: the job ends, and keeps the
    checkpoint. Started again when the cause is mended, it commits that output, once, and goes on."""


# Trying again does not mend these, so no restart strategy is asked.
FINAL_ERRORS = (FencedError, JobDefinitionError, CommitRefusedError)


class JobFailedError(PenstockError):
    """The job ended in state FAILED: its restart strategy allowed no further attempt."""


# Errors cross from process to process as the name of one of these and a text: never pickled, so what a peer says cannot make
# this process do more than raise one of them.
_CROSSING: dict[str, type[PenstockError]] = {
    kind.__name__: kind
    for kind in (
        PenstockError,
        JobDefinitionError,
        ConfigurationError,
        NoResourceAvailableError,
        UserFunctionError,
        ProtocolError,
        FencedError,
        StorageError,
        FileMissingError,
        CorruptSnapshotError,
        CheckpointFailedError,
        NoCheckpointError,
        StateLostError,
        SlotError,
        BadRecordError,
        CommitRefusedError,
        JobFailedError,
    )
}


def as_text(error: BaseException) -> dict[str, str]:
    """What of an error crosses to another process: the nearest class that has a name there, and its message."""
    for kind in type(error).__mro__:
        if _CROSSING.get(kind.__name__) is kind:
            return {"type": kind.__name__, "message": str(error) or repr(error)}
    return {"type": PenstockError.__name__, "message": f"{type(error).__name__}: {error}"}


def from_text(text: Mapping[str, str]) -> PenstockError:
    """The error that another process told with `as_text`; of a class nobody knows, a PenstockError."""
    return _CROSSING.get(text["type"], PenstockError)(text["message"])


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedTask:
    """Where an error came from: which subtask of which vertex, in which process (`host:port:pid`; empty: the driver's)."""

    vertex: str
    subtask: int
    parallelism: int
    process: str = ""

    def __str__(self) -> str:
        return f"{self.vertex} ({self.subtask + 1}/{self.parallelism})"


def blame(error: BaseException, task: FailedTask) -> None:
    """Remember with an error which task it came from. The first one to know is right."""
    if failed_task(error) is None:
        error.__dict__["failed_task"] = task


def failed_task(error: BaseException | None) -> FailedTask | None:
    """Of the error, or of what caused it."""
    while error is not None:
        found = error.__dict__.get("failed_task")
        if isinstance(found, FailedTask):
            return found
        error = error.__cause__
    return None


def shorten(value: object, limit: int = 300) -> str:
    """A value as an error shows it: not more of it than a person reads."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text)} characters)"


_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_FRAMES = 4


def in_words(error: BaseException) -> str:
    """The error as the last lines of a traceback, the other way round: what it is, then where in the user's own code."""
    name = type(error).__name__ if type(error).__module__ == "builtins" else _qualified(type(error))
    what = f"{name}: {error}" if str(error) else name
    return "\n".join([what, *user_frames(error)])


def user_frames(error: BaseException) -> list[str]:
    """Where in code that is not Penstock's an error was raised, the innermost place last, as tracebacks show it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_PACKAGE)]
    return [line.rstrip("\n") for line in traceback.format_list(frames[-_FRAMES:])]


def _qualified(kind: type[BaseException]) -> str:
    return kind.__qualname__ if kind.__module__ == "__main__" else f"{kind.__module__}.{kind.__qualname__}"
