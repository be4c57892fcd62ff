"""What is run: a `Program` stays what it is for a whole run; a `Version` is how one driver runs it: at which parallelism, with its
inputs in which order, with an operator more or an input less.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.common.restart_strategy import RestartStrategies
from penstock.protocol.gate import BarrierMode
from penstock.testing.simulate.inputs import ODD, PLAIN, Input, uneven
from penstock.testing.simulate.oracle import REACH_MS, WINDOW_MS

OF_ONE_STREAM: Final = ("windows", "counts", "prefixes", "sessions", "loops")
OF_BOTH: Final = ("pairs", "rules")
BESIDE: Final = ("totals", "sums", "tenths", "untimed", "singles")  # never alone
WIDTHS: Final = (1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 5, 7)  # wide jobs cost time


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a run is about."""

    world: str
    inputs: tuple[Input, Input]
    branches: tuple[str, ...]
    idleness_ms: int | None
    lateness_ms: int
    bulky: int  # see OutsideSink
    backend: str
    on_disk: bool  # the job folder
    mode: BarrierMode
    settings: dict[str, Any]

    @property
    def fixed(self) -> bool:
        """What was on the way at an unaligned barrier goes on to the same operators: the graph stays as it is but for the number of
        subtasks, unless some of it is broadcast."""
        return self.mode is BarrierMode.UNALIGNED

    def describe(self) -> str:
        """The program as a line of the story."""
        state = f"{self.backend}, on disk" if self.on_disk else self.backend
        return (
            f"branches {', '.join(self.branches)}; {self.mode.value}, {state}; idle after {self.idleness_ms} ms, "
            f"{self.lateness_ms} ms late is in time"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """How one driver runs the program."""

    parallelism: int
    turned: bool = False  # b.union(a)
    chained: bool = True
    added: bool = False  # an operator that was not there, or is not there any more
    removed: bool = False  # the input b is gone
    max_records: int | None = None
    window_ms: int = WINDOW_MS
    reach_ms: int = REACH_MS
    mistyped: bool = False  # values are not of the type that the program declares

    def describe(self) -> str:
        """The version as a line of the story."""
        inputs = "a" if self.removed else "b.union(a)" if self.turned else "a.union(b)"
        return (
            f"parallelism {self.parallelism}, {inputs}{' and one operator more' if self.added else ''}, "
            f"{'' if self.chained else 'not '}chained, {self.max_records or 'any number of'} records an epoch"
        )


def any_program(world: str, rng: random.Random) -> Program:
    """A program drawn at random."""
    mode = rng.choice([BarrierMode.EXACTLY_ONCE] * 7 + [BarrierMode.UNALIGNED] * 2 + [BarrierMode.AT_LEAST_ONCE])
    labels = ODD if rng.random() < 0.1 else PLAIN
    branches = rng.sample(OF_ONE_STREAM, rng.choice([1, 1, 2]))
    if rng.random() < 0.25 and mode is not BarrierMode.AT_LEAST_ONCE:
        branches.append(rng.choice(OF_BOTH))
    if rng.random() < 0.2:
        branches.append(rng.choice(BESIDE))
    return Program(
        world=world,
        inputs=(uneven("a", rng, labels), uneven("b", rng, labels)),
        branches=tuple(branches),
        idleness_ms=rng.choice([None, None, 600]),
        lateness_ms=rng.choice([0, 0, 900]),
        bulky=rng.choice([0, 1, 3]),
        backend=rng.choices(["hashmap", "rocksdb"], [59, 1])[0],
        on_disk=rng.random() < 0.08,
        mode=mode,
        settings={
            "mode": "AT_LEAST_ONCE" if mode is BarrierMode.AT_LEAST_ONCE and rng.random() < 0.5 else "EXACTLY_ONCE",
            "checkpoint_interval_ms": rng.choice([0, 0, 500]),
            "block_size": rng.choice([1, 3, 50]),
            "inline_threshold": rng.choice([0, 0, 20 * 1024]),
            "compact_after": rng.choice([2, 10]),
            "retained": rng.choice([1, 2]),
            "tolerable_checkpoint_failures": rng.choice([0, 1, 3]),
            "max_concurrent_checkpoints": rng.choice([1, 1, 3]),
            "checkpoint_timeout_ms": 120_000,  # of real time, for which a sound job never waits, however busy the machine is
            "incremental": rng.choice([True, True, False]),
            "restart": RestartStrategies.fixed_delay_restart(20, 10),
            "alignment_bytes": 100
            if len(branches) == 2
            else 32 << 20,  # what waits behind a barrier is put away in some
            "latency_interval_ms": (len(branches) + 1) % 2,  # markers in half of the programs: they must not matter
        },
    )


def any_version(program: Program, rng: random.Random, before: Version | None) -> Version:
    """The next driver's. What it did not draw it does not have: each differs from the one before at random."""
    parallelism, max_records = rng.choice(WIDTHS), rng.choice([None, None, 4, 9])
    turned, chained, added, removed = (rng.random() < p for p in (0.5, 0.85, 0.2, 0.1))
    if program.fixed and before is not None:
        broadcast = "rules" in program.branches
        return replace(before, max_records=max_records, parallelism=before.parallelism if broadcast else parallelism)
    # A loop's operators are known by their place in the program, and two streams remain two.
    added = added and "loops" not in program.branches
    removable = program.mode is BarrierMode.EXACTLY_ONCE and not {"loops", *OF_BOTH} & set(program.branches)
    removed = before is not None and (before.removed or removed) and removable
    return Version(
        parallelism=parallelism,
        turned=turned,
        chained=chained,
        added=added,
        removed=removed,
        max_records=max_records,
    )
