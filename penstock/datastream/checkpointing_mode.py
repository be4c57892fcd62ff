"""The guarantee of a job's state after a recovery."""

from __future__ import annotations

from enum import Enum


class CheckpointingMode(Enum):
    EXACTLY_ONCE = 0  # barriers are aligned: every record counts once
    AT_LEAST_ONCE = 1  # sinks emit at the end of every epoch: what a recovery reads again, they emit again
    AT_MOST_ONCE = 2  # not Flink's: after a failure nothing is read again, and state starts empty
