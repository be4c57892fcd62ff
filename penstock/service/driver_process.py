"""The driver process of a submitted job: `python -m penstock.service.driver_process HOME JOB_ID`.

Started again after its death it resumes: same id, same job folder, same program.

What a driver prints, bounded: of a log that has become too long its end is kept.

A driver and all it starts (Spark's JVM, workers) write to one file that was opened to append. Nobody can give them
another, so the file is shortened where it is: whoever appends next does so at its new end. What is printed at the very
moment may be lost; the end of a log is for people.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import Final

from penstock.common.configuration import GlobalConfiguration
from penstock.common.options import ControlOptions
from penstock.common.secrets import hide_in_text
from penstock.common.time import now_ms
from penstock.driver.control.home import JobHome
from penstock.driver.life_cycle import Failure
from penstock.errors import JobDefinitionError, PenstockError
from penstock.service.program import ProgramError, run_program
from penstock.service.submission import Submission, end_facts

_LOOK_EVERY_S: Final = 2.0


def shorten(path: Path, most: int) -> bool:
    """If the file is larger than `most` bytes, keep its last quarter of that, from the beginning of a line on."""
    with path.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= most:
            return False
        file.seek(size - most // 4)
        kept = file.read()
        kept = kept[kept.find(b"\n") + 1 :]  # all of it if it is one endless line; maybe a whole line less
        file.truncate(0)
    with path.open("ab") as file:  # appended: somebody may have printed since
        file.write(
            b"--- %d bytes that were printed before are gone: the log was too long\n" % (size - len(kept)) + kept
        )
    return True


def keep_short(path: Path, most: int) -> threading.Thread:
    """Look at it now and then, as long as this process lives."""

    def look() -> None:
        forever = threading.Event()
        while not forever.wait(_LOOK_EVERY_S):
            with contextlib.suppress(OSError):  # it was deleted, or the disk is full: look again
                shorten(path, most)

    thread = threading.Thread(target=look, name="penstock-log", daemon=True)
    thread.start()
    return thread


def main(root: str, job_id: str) -> int:
    """Runs the submitted program of a job in this process; the exit code says how it ended."""
    home = JobHome(Path(root))
    folder = home.job(job_id)
    submission = Submission.load(folder)
    if submission is None:
        print(f"there is no submission of job {job_id} in {home.jobs}", file=sys.stderr)
        return 2
    configuration = {**submission.configuration, ControlOptions.HOME.key: root, ControlOptions.JOB_ID.key: job_id}
    os.environ.update(GlobalConfiguration.to_environment(configuration))
    if submission.runtime is not None:
        os.environ["PENSTOCK_EXECUTION_MODE"] = submission.runtime
    error: BaseException | None = None
    try:
        keep_short(folder.log, ControlOptions.LOG_MAX_SIZE.get(configuration))
        run_program(submission.program)
    except ProgramError as failed:
        error = failed.error
        _print(error)
    except PenstockError as refused:
        error = refused
        _print(refused)
    except SystemExit as left:
        if left.code not in (None, 0):
            error = JobDefinitionError(f"the program ended itself with status {left.code!r} before its job had ended")
            print(error, file=sys.stderr)
    facts = folder.facts()
    if facts is None or facts["state"] not in ("FINISHED", "FAILED", "CANCELED"):
        if error is None:
            error = JobDefinitionError(
                f"the program {submission.name!r} ended without starting a job: does it call env.execute()?"
            )
            print(error, file=sys.stderr)
        now = now_ms()
        end_facts(folder, submission, "FAILED", Failure.of(error, now), now)
    return 0 if error is None else 1


def _print(error: BaseException) -> None:
    """All of it: a log is read by those who look for the cause. Without secrets: it is shown to others, too."""
    print(hide_in_text("".join(traceback.format_exception(error))), end="", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
