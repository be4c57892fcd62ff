"""Named points at which a test may kill the driver. In production nothing is configured and `reach` does nothing.

`PENSTOCK_FAULT=after-manifest:3` kills this process with SIGKILL when epoch 3 (or later) first reaches that point,
unless the file named in `PENSTOCK_FAULT_ONCE` exists already; it is created first, as proof that the fault fired.
"""

from __future__ import annotations

import os
import signal
from typing import Literal, TypeAlias

KillPoint: TypeAlias = Literal[
    "before-run",
    "before-manifest",
    "after-manifest",
    "during-sink-commit",
    "after-sink-commit",
    "before-savepoint",
    "after-savepoint",
    "before-spark-log",
]


def reach(point: KillPoint, epoch: int) -> None:
    """Kills this process if `PENSTOCK_FAULT` names this point and an epoch up to this one; for tests with real
    processes.
    """
    wanted = os.environ.get("PENSTOCK_FAULT")
    if not wanted:
        return
    name, _, at = wanted.partition(":")
    if name != point or epoch < int(at or 0):
        return
    once = os.environ.get("PENSTOCK_FAULT_ONCE")
    if once:
        try:
            with open(once, "x") as proof:
                proof.write(f"{point} {epoch} {os.getpid()}\n")
        except FileExistsError:
            return
    os.kill(os.getpid(), signal.SIGKILL)
