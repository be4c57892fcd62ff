"""Jobs that have ended stay listed, but not for ever: the oldest beyond a number are forgotten.

Forgotten is what was told about the job, and the checkpoint of one that finished. Savepoints, and checkpoints from which a
failed or cancelled job could be resumed, are the user's: they stay where they are.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Final

from penstock.checkpoint import layout
from penstock.driver.control.home import JobFolder, JobHome, is_running, read_json, write_json
from penstock.service.known_job import TERMINAL, KnownJob

MAX_JOBS: Final = 100
_TOLD: Final = (
    "submission.json",
    "driver.log",
    "control.json",
    "facts.json",
)  # facts last: until then it can be repeated


def remember_limit(home: JobHome, most: int) -> None:
    """A dispatcher says how many are kept; whoever forgets jobs while none runs keeps to it."""
    write_json(home.root / "history.json", {"most": most})


def prune_unattended(home: JobHome) -> list[str]:
    """`prune` where no dispatcher does: a home in which jobs are only ever run by hand stays bounded, too."""
    dispatcher = read_json(home.root / "dispatcher.json")
    if dispatcher is not None and is_running(dispatcher):
        return []
    most = int((read_json(home.root / "history.json") or {}).get("most", MAX_JOBS))
    if len(home.all()) <= most:  # not one too many: nothing has to be read
        return []
    with contextlib.suppress(OSError):  # somebody else does the same just now
        return prune(home, most)
    return []


def prune(home: JobHome, most: int) -> list[str]:
    """Forget all but the `most` jobs of a home that ended last; the ids of those that are gone."""
    ended: list[tuple[int, JobFolder, str]] = []
    for folder in home.all():
        facts = KnownJob(folder).facts(live=False)
        if facts is not None and facts["state"] in TERMINAL and folder.control() is None:
            ended.append((int(facts["end_ms"] or 0), folder, str(facts["state"])))
    ended.sort(key=lambda job: (job[0], job[1].job_id))
    forgotten = []
    for _, folder, state in ended[: max(0, len(ended) - most)]:
        if state == "FINISHED" and not _has_savepoints(folder.path / "job"):
            shutil.rmtree(folder.path / "job", ignore_errors=True)
        for name in _TOLD:
            (folder.path / name).unlink(missing_ok=True)
        if not any(folder.path.iterdir()):
            folder.path.rmdir()
        forgotten.append(folder.job_id)
    return forgotten


def _has_savepoints(job: Path) -> bool:
    savepoints = job / layout.SAVEPOINTS
    return savepoints.is_dir() and any(savepoints.iterdir())
