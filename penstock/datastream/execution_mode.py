"""Whether a job runs as a stream or as a batch."""

from __future__ import annotations

from enum import Enum


class RuntimeExecutionMode(Enum):
    STREAMING = 0  # results as they come about
    BATCH = 1  # final results only: all sources must be bounded, time stands still until the end of the input
    AUTOMATIC = 2  # batch if all sources are bounded, else streaming
