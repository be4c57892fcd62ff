"""`make quick` and `make test`: two runs of pytest at the same time, so that both cores of a small machine have work.

Each half is a plain run with its tests in the usual order: what fails in it fails again by its name alone. The first half is
seen as it runs; the output of the second follows at the end.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO, Final

HALVES: Final = {
    "quick": (("embedded",), ("plain",)),
    "test": (("spark",), ("plain", "embedded", "long", "servers")),
}
_NO_TESTS: Final = 5  # pytest's status when a selection leaves nothing in one of the halves


def main(name: str, arguments: Sequence[str]) -> int:
    first_half, second_half = HALVES[name]
    started = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        second = _start(second_half, arguments, output)
        try:
            first = _start(first_half, arguments).wait()
            print(
                f"\n{' '.join(first_half)}: {time.monotonic() - started:.0f} s. {' '.join(second_half)}:\n", flush=True
            )
            return _worse(first, second.wait())
        finally:
            if second.poll() is None:
                second.terminate()
                second.wait()
            output.seek(0)
            print(output.read(), flush=True)


def _worse(one: int, other: int) -> int:
    if {one, other} <= {0, _NO_TESTS}:
        return min(one, other)
    return 1  # also for a half that a signal has ended, whose status is negative


def _start(parts: Sequence[str], arguments: Sequence[str], output: IO[str] | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *(f"--part={part}" for part in parts), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
