"""From the moments at which epochs ended to events per second, in all and in the steady state."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

LEAST_EPOCHS = 3
_MARKER = 0.01  # an epoch with at most this share of the largest one's events is the marker's


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """One epoch (Spark: micro-batch): when it was committed, in seconds, and how many events it read."""

    at: float
    records: int
    checkpoint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one competitor's process reports. `details` depend on the measurement."""

    started: float
    epochs: list[EpochEnd]
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def events(self) -> int:
        return sum(epoch.records for epoch in self.epochs)

    @property
    def total_rate(self) -> float:
        """Events per second from the start of the query, with starting processes and warming up."""
        return self.events / (self.epochs[-1].at - self.started)

    @property
    def steady_rate(self) -> float:
        """Events per second in the second half of the epochs. The first half warms up: the JVM compiles, processes start,
        state grows to its size. The epoch of the marker, which is there to close the last windows and holds one event,
        is not counted, nor is its time."""
        most = max((epoch.records for epoch in self.epochs), default=0)
        whole = [epoch for epoch in self.epochs if epoch.records > _MARKER * most]
        if len(whole) < LEAST_EPOCHS:
            raise ValueError(
                f"{len(whole)} epochs with events are too few for a steady state: {LEAST_EPOCHS} are needed"
            )
        warm_up = len(whole) // 2
        measured = whole[warm_up:]
        return sum(epoch.records for epoch in measured) / (measured[-1].at - whole[warm_up - 1].at)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> Run:
        epochs = [EpochEnd(**epoch) for epoch in data["epochs"]]
        return Run(started=data["started"], epochs=epochs, details=data["details"])


def percentile(values: Sequence[float], percent: int) -> float:
    """By linear interpolation; one value is every percentile of itself."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
