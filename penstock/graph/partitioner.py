"""How an edge spreads records over the subtasks of its target. Functions are opaque here; the runtime calls them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Forward:
    """Subtask i to subtask i; the only partitioner that allows chaining."""

    name = "FORWARD"


@dataclass(frozen=True, slots=True)
class Hash:
    """By key group of the key that `selector` gives."""

    selector: Any
    name = "HASH"


@dataclass(frozen=True, slots=True)
class Rebalance:
    """Round robin to all subtasks."""

    name = "REBALANCE"


@dataclass(frozen=True, slots=True)
class Rescale:
    """Round robin inside a group of neighbouring subtasks: not every pair is connected."""

    name = "RESCALE"


@dataclass(frozen=True, slots=True)
class Shuffle:
    """At random, seeded by epoch, channel and sequence, so that a replay chooses the same."""

    name = "SHUFFLE"


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Every record to every subtask."""

    name = "BROADCAST"


@dataclass(frozen=True, slots=True)
class Global:
    """Everything to subtask 0."""

    name = "GLOBAL"


@dataclass(frozen=True, slots=True)
class Custom:
    """Each record to the subtask that the user's function gives for its key."""

    partition: Any
    selector: Any
    name = "CUSTOM"


Partitioner: TypeAlias = Forward | Hash | Rebalance | Rescale | Shuffle | Broadcast | Global | Custom


def targets(partitioner: Partitioner, upstream: int, upstream_parallelism: int, parallelism: int) -> range:
    """The subtasks that upstream subtask `upstream` is connected to: those that get its barriers."""
    match partitioner:
        case Forward():
            return range(upstream, upstream + 1)
        case Rescale():
            if upstream_parallelism <= parallelism:
                return range(
                    -(-upstream * parallelism // upstream_parallelism),
                    -(-(upstream + 1) * parallelism // upstream_parallelism),
                )
            target = upstream * parallelism // upstream_parallelism
            return range(target, target + 1)
        case _:
            return range(parallelism)
