"""The guarantee of a job's state after a recovery."""

from __future__ import annotations

from enum import Enum


class CheckpointingMode(Enum):
    EXACTLY_ONCE = 0  # barriers are aligned: every record counts once
    AT_LEAST_ONCE = 1  # no waiting for barriers: records may count twice after a recovery
