"""Simulated death of the whole process at a named point. The embedded runtime throws everything in memory away and goes
on as a new process would: with what is in storage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal, TypeAlias, get_args

from penstock.driver import faults

CrashPoint: TypeAlias = Literal[
    "source-block",  # before a source reads its next block
    "process",  # before a subtask takes a block from a channel
    "barrier",  # before a subtask takes a barrier from a channel, so also in the middle of an alignment
    "before-snapshot",  # a subtask's snapshot is taken, but nothing of it is stored
    "after-snapshot",  # it is encoded, and stored unless that happens in the background; not acknowledged
    "before-upload",  # the snapshot waits to be stored, acknowledged long since ("random" only)
    "after-upload",  # it is stored, and the driver has been told
    "before-run",  # an epoch is planned and its plan logged
    "before-manifest",  # every subtask has acknowledged
    "after-manifest",  # the checkpoint is complete, its output not visible
    "during-sink-commit",  # some sinks have committed, or the only one is about to
    "after-sink-commit",  # all have, and the driver has not noted anything since the manifest
    "before-savepoint",  # its parts are stored and output is committed, but its manifest is not written
    "after-savepoint",  # it is whole, and the driver dies before it goes on
    "after-commit",  # everything is done, but the driver has not gone on
    "during-restore",  # some subtasks are restored
]
_ALL: tuple[CrashPoint, ...] = get_args(CrashPoint)
# Those that every job comes to, also one that nobody asks for a savepoint.
POINTS = tuple(point for point in _ALL if not point.endswith("-savepoint"))


class SimulatedCrash(BaseException):
    """Not an Exception: user code and operators that catch errors must not be able to survive a kill."""


class CrashPlan:
    """Dies when a point is reached for the n-th time (from 1, counted over all restarts). `fired` is the proof."""

    def __init__(self, crashes: Iterable[tuple[CrashPoint, int]]) -> None:
        self.planned = tuple(crashes)
        for point, occurrence in self.planned:
            if point not in _ALL or occurrence < 1:
                raise ValueError(
                    f"no crash can be planned at ({point!r}, {occurrence}); the points are {', '.join(_ALL)}"
                )
        self.fired: list[tuple[CrashPoint, int]] = []
        self.reached: Counter[CrashPoint] = Counter()

    def reach(self, point: CrashPoint) -> None:
        """Called at a named point; raises SimulatedCrash if a crash is planned for this occurrence."""
        self.reached[point] += 1
        here = (point, self.reached[point])
        if here in self.planned:
            self.fired.append(here)
            raise SimulatedCrash(f"simulated crash at {point!r}, occurrence {here[1]}")

    def reach_driver(self, point: faults.KillPoint, epoch: int) -> None:
        """For a JobMaster's `reach`. There is no Spark here: before its log is after the commit."""
        self.reach("after-commit" if point == "before-spark-log" else point)
