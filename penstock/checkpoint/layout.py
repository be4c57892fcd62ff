"""Where everything is inside a job folder: the only place that knows a path.

job.json
checkpoint-statistics.json                            counts and the newest checkpoints, for people
generations/<g>.json                                  one per driver that took the folder over
generations/<g>-from-<n>-plans-<m>.json               it went on behind checkpoint n (0: from nothing), with plans up to m
epochs/<n>.json                                       the plan of epoch n
checkpoints/chk-<n>/manifest.json                     exists = checkpoint n is complete
checkpoints/chk-<n>/<vertex>-<subtask>-<attempt>.state
savepoints/<name>/manifest.json, savepoints/<name>/<vertex>-<subtask>-<attempt>.state
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.protocol.ids import CheckpointId, Generation

JOB = "job.json"
STATISTICS = "checkpoint-statistics.json"
CHECKPOINTS = "checkpoints"
EPOCHS = "epochs"
GENERATIONS = "generations"
SAVEPOINTS = "savepoints"

_MANIFEST = "manifest.json"
_STATE_SUFFIX = ".state"
_SAFE = re.compile(r"[A-Za-z0-9_.]{1,80}")
# Leading zeros are refused, so that one number has one path.
_CHECKPOINT_MANIFEST = re.compile(rf"{CHECKPOINTS}/chk-([1-9][0-9]*|0)/manifest\.json")
_CHECKPOINT_STATE = re.compile(rf"{CHECKPOINTS}/chk-([1-9][0-9]*|0)/[^/]+\.state")
_EPOCH = re.compile(rf"{EPOCHS}/([1-9][0-9]*|0)\.json")
_GENERATION = re.compile(rf"{GENERATIONS}/([1-9][0-9]*|0)\.json")
_GENERATION_START = re.compile(rf"{GENERATIONS}/([1-9][0-9]*)-from-([1-9][0-9]*|0)-plans-([1-9][0-9]*|0)\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationStart:
    """What a driver found when it took the folder over: of older ones nothing that appears later counts."""

    checkpoint: CheckpointId  # it goes on behind this one; 0: from nothing
    planned: int  # plans up to this epoch may be run again


def file_name_part(text: str) -> str:
    """A uid as part of a file name: unchanged when plain, else cleaned and made unique by a hash of the original.

    Never contains '-', so that the parts of a state file's name can be told apart.
    """
    if _SAFE.fullmatch(text) and not text.startswith("."):
        return text
    cleaned = re.sub(r"[^A-Za-z0-9_]", "_", text)[:60]
    return f"{cleaned}~{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def state_name(vertex: str, subtask: int, attempt: str) -> str:
    """The attempt is in the name: a zombie's late upload lands beside its successor's file, never over it."""
    return f"{file_name_part(vertex)}-{subtask}-{file_name_part(attempt)}{_STATE_SUFFIX}"


def checkpoint_folder(checkpoint: CheckpointId | int) -> str:
    """The folder of a checkpoint, relative to the job folder."""
    return f"{CHECKPOINTS}/chk-{int(checkpoint)}"


def checkpoint_manifest(checkpoint: CheckpointId | int) -> str:
    """The manifest of a checkpoint, relative to the job folder. Its creation is the commit."""
    return f"{checkpoint_folder(checkpoint)}/{_MANIFEST}"


def checkpoint_state(checkpoint: CheckpointId | int, name: str) -> str:
    """A file of a checkpoint, relative to the job folder."""
    return f"{checkpoint_folder(checkpoint)}/{name}"


def epoch_plan(epoch: int) -> str:
    """The file that holds the plan of an epoch, relative to the job folder."""
    return f"{EPOCHS}/{int(epoch)}.json"


def generation(number: Generation | int) -> str:
    """The file whose exclusive creation makes a driver the owner of the job folder."""
    return f"{GENERATIONS}/{int(number)}.json"


def generation_start(number: Generation | int, start: GenerationStart) -> str:
    """All it says is in its name, so that a list is enough to know the starts of all generations."""
    return f"{GENERATIONS}/{int(number)}-from-{int(start.checkpoint)}-plans-{int(start.planned)}.json"


def completed_checkpoints(paths: Iterable[str]) -> list[CheckpointId]:
    """The ids whose manifest is among `paths`, ascending by number: chk-10 is newer than chk-9."""
    return [CheckpointId(n) for n in _numbers(_CHECKPOINT_MANIFEST, paths)]


def planned_epochs(paths: Iterable[str]) -> list[int]:
    """The epochs whose plans are among these paths."""
    return list(_numbers(_EPOCH, paths))


def generations(paths: Iterable[str]) -> list[Generation]:
    """The drivers whose files are among these paths, by number."""
    return [Generation(n) for n in _numbers(_GENERATION, paths)]


def generation_starts(paths: Iterable[str]) -> dict[Generation, GenerationStart]:
    """Where each driver whose file is among these paths began."""
    found = [match for match in map(_GENERATION_START.fullmatch, paths) if match]
    return {
        Generation(int(match[1])): GenerationStart(checkpoint=CheckpointId(int(match[2])), planned=int(match[3]))
        for match in found
    }


def checkpoint_of_state(path: str) -> CheckpointId | None:
    """The checkpoint a state file was written for; None for anything that is no checkpoint's state file."""
    match = _CHECKPOINT_STATE.fullmatch(path)
    return CheckpointId(int(match[1])) if match else None


def _numbers(pattern: re.Pattern[str], paths: Iterable[str]) -> list[int]:
    return sorted(int(match[1]) for match in map(pattern.fullmatch, paths) if match)
