"""What a driver prints, bounded: of a log that has become too long its end is kept.

A driver and all it starts (Spark's JVM, workers) write to one file that was opened to append. Nobody can give them
another, so the file is shortened where it is: whoever appends next does so at its new end. What is printed at the very
moment may be lost; the end of a log is for people.
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import Final

MAX_SIZE: Final = "penstock.driver.log.max-size"
DEFAULT_MAX_BYTES: Final = 64 << 20
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
