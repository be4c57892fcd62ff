"""`make test`: what runs on Spark and all the rest, at the same time, so that both cores of a small machine have work.

Each half is a plain run of pytest with its tests in the usual order: whatever fails fails again by its name alone. The first
half is seen as it runs; the second one's output follows at the end.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO, Final

_NO_TESTS: Final = 5  # pytest's status when a selection leaves nothing in one of the halves
_ON_SPARK: Final = ("--part=spark",)
_OTHERS: Final = ("--part=quick", "--part=servers")


def main(arguments: Sequence[str]) -> int:
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        others = _start(_OTHERS, arguments, output)
        try:
            on_spark = _start(_ON_SPARK, arguments).wait()
            print(f"\nThe tests on Spark took {time.monotonic() - started:.0f} s. The others:\n", flush=True)
            return _worse(on_spark, others.wait())
        finally:
            if others.poll() is None:
                others.terminate()
                others.wait()
            output.seek(0)
            print(output.read(), flush=True)


def _worse(one: int, other: int) -> int:
    if {one, other} <= {0, _NO_TESTS}:
        return min(one, other)
    return 1  # also for a half that a signal has ended, whose status is negative


def _start(parts: Sequence[str], arguments: Sequence[str], output: IO[str] | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *parts, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
