"""What becomes of the last checkpoint when a job ends."""

from __future__ import annotations

from enum import Enum


class ExternalizedCheckpointRetention(Enum):
    DELETE_ON_CANCELLATION = 0  # kept only if the job failed
    RETAIN_ON_CANCELLATION = 1  # kept if the job failed or was cancelled; the user removes it
    NO_EXTERNALIZED_CHECKPOINTS = 2  # never kept
