"""When a task with several inputs may start; kept so that programs which name it still import."""

from __future__ import annotations

from enum import Enum


class InputDependencyConstraint(Enum):
    """Flink 2 and Penstock both schedule without it: every level runs once all its inputs are there."""

    ANY = 0
    ALL = 1
