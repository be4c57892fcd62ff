"""Jobs that have ended stay listed, but not for ever: the oldest beyond a number are forgotten.

Forgotten is what was told about the job, and the checkpoint of one that finished. Savepoints, and checkpoints from which a
failed or cancelled job could be resumed, are the user's: they stay where they are.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from penstock.checkpoint import layout
from penstock.jobmanager.home import JobFolder, JobHome
from penstock.jobmanager.known_job import TERMINAL, KnownJob

MAX_JOBS: Final = 100
_TOLD: Final = (
    "submission.json",
    "driver.log",
    "control.json",
    "facts.json",
)  # facts last: until then it can be repeated


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
