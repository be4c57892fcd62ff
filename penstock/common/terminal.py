"""One line on stderr says what is under way while a job starts. Whoever writes something else ends it first.

`PENSTOCK_PROGRESS` is 1 or 0: say it, or not; without it that is said to a terminal only.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Final

PROGRESS: Final = "PENSTOCK_PROGRESS"

_line_is_open = False


def progress(words: str, *, last: bool = False) -> None:
    """Says on one line of stderr what is under way, if somebody looks. `last` ends the line."""
    global _line_is_open
    wanted = os.environ.get(PROGRESS) or ("1" if sys.stderr.isatty() else "0")
    if wanted == "0" or (last and not _line_is_open):
        return
    sys.stderr.write(words if _line_is_open else f"penstock: {words}")
    sys.stderr.write("\n" if last else " ")
    sys.stderr.flush()
    _line_is_open = not last
    logging.getLogger("penstock").addFilter(_before_a_warning)  # of all the same one, however often


def end_line() -> None:
    """What is written next begins a line."""
    if _line_is_open:
        progress("", last=True)


def _before_a_warning(record: logging.LogRecord) -> bool:
    if record.levelno >= logging.WARNING:
        end_line()
    return True
