"""The range of a timestamp or watermark in milliseconds: Java's long, so that values mean the same as in Flink."""

from __future__ import annotations

from typing import Final

MAX_LONG_VALUE: Final = 2**63 - 1  # as a watermark: end of input
MIN_LONG_VALUE: Final = -(2**63)  # as a timestamp: none assigned; as a watermark: none seen yet
