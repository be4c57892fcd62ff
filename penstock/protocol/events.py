"""What travels on a channel between two subtasks. Blocks are opaque here: the protocol never looks inside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

MIN_WATERMARK: Final = -(2**63)
MAX_WATERMARK: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Data:
    """A block of records."""

    block: Any


@dataclass(frozen=True, slots=True)
class Watermark:
    """No record with a timestamp at or below `timestamp` is expected on this channel any more."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class IdleStatus:
    """An idle channel does not hold the watermark back until it is active again."""

    idle: bool


@dataclass(frozen=True, slots=True)
class Barrier:
    """Chandy and Lamport's marker: ends epoch `epoch`. With `checkpoint` the subtask's snapshot is kept durably."""

    epoch: int
    checkpoint: bool = True


@dataclass(frozen=True, slots=True)
class EndOfData:
    """No more records will come on this channel; barriers still do."""


@dataclass(frozen=True, slots=True)
class LatencyMarker:
    """Sent by a source at a time of the clock, in ms. It passes tasks behind the records that were sent before it, on one channel
    of each exchange, and reaches no function. It is never part of a snapshot."""

    source: str  # the source's operator id
    at_ms: float


Event: TypeAlias = Data | Watermark | IdleStatus | Barrier | EndOfData | LatencyMarker
