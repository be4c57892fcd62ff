"""How long latency markers take from a source to an operator."""

from __future__ import annotations

from collections import deque
from typing import Final

HISTORY: Final = 128  # samples that quantiles are of; Flink's metrics.latency.history-size


class Latency:
    """The last markers of one source that have come to one operator."""

    __slots__ = ("_samples", "count")

    def __init__(self) -> None:
        self.count = 0
        self._samples: deque[float] = deque(maxlen=HISTORY)

    def add(self, ms: float) -> None:
        """A marker has come, so many milliseconds after it was sent."""
        self.count += 1
        self._samples.append(ms)

    def summary(self) -> dict[str, float]:
        """How many have come, and quantiles of the last ones, in milliseconds: values that were measured."""
        ordered = sorted(self._samples)

        def nearest(part: float) -> float:
            return round(ordered[min(len(ordered) - 1, int(part * len(ordered)))], 3)

        quantiles = {"p50": nearest(0.5), "p95": nearest(0.95), "p99": nearest(0.99)}
        return {"count": self.count, **quantiles, "max": round(ordered[-1], 3)}
