"""From the moments at which epochs ended to events per second, in all and in the steady state."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

WARM_UP_EPOCHS = 2


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
        """Events per second between the end of the second epoch and the end of the last."""
        if len(self.epochs) <= WARM_UP_EPOCHS:
            raise ValueError(f"{len(self.epochs)} epochs are too few for a steady state: {WARM_UP_EPOCHS} warm up")
        after = self.epochs[WARM_UP_EPOCHS:]
        return sum(epoch.records for epoch in after) / (after[-1].at - self.epochs[WARM_UP_EPOCHS - 1].at)

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
