"""A job of any size on paper, from what its parts were measured to cost: the tables of docs/design/0012-a-thousand-cores.md.

Costs are seconds of CPU unless they say otherwise. The model adds them up: it knows nothing of queues, skew or slow disks, so what
it says is the least that a size costs, and which part is the first that does not fit.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.runtime.pipelined.frames import flush_gap_ms
from penstock.runtime.pipelined.grants import target_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Per piece, in seconds of CPU."""

    record: float = 2.0e-6  # all levels together: two cores do a million a second of per-event Python state
    record_columns: float = 0.6e-6  # the same for columnar windows
    row: float = 0.75e-3  # of an exchange, whatever is in it: 0.3 ms of the JVM's and its worker's threads, the rest is the host's
    grant: float = 105e-6  # on the driver, for each subtask of a source: told, and heard that it is read
    ack: float = 350e-6  # on the driver, for each task and barrier
    told: float = 15e-6  # on the driver, for each host and broadcast message
    manifest: float = 30e-6  # on the driver, for each task of a checkpoint
    launch: float = 1.2e-3  # on Spark's driver, for each task of an epoch; assumed, not measured here
    level: float = 48e-3  # of an epoch, wall clock, for each level


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A job and its cluster."""

    cores: int
    levels: int
    parallelism: int
    events: float  # a second
    columns: bool = False
    bytes_per_event: float = 50.0

    @property
    def tasks(self) -> int:
        return self.levels * self.parallelism


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelined:
    """What one second of a pipelined job takes."""

    gap_ms: float  # between two flushes of a host
    rows: float  # a second, through all exchanges
    frame_bytes: float
    record_cores: float
    row_cores: float
    row_cores_busy: float  # hosts with enough to do send four times as rarely
    grant_s: float  # what reading a grant should take
    driver_cores: float  # with a checkpoint each second
    latency_ms: float  # at least: half a grant interval and, at each exchange, half a gap


def pipelined(size: Size, costs: Costs, *, gap_ms: float | None = None) -> Pipelined:
    """In the pipelined runtime; `gap_ms` in place of what hosts choose."""
    gap = flush_gap_ms(size.levels, size.parallelism, size.cores) if gap_ms is None else gap_ms
    exchanges, targets = size.levels - 1, size.parallelism**2
    record = costs.record_columns if size.columns else costs.record
    # A row for each target and gap, if there is something for every target each time: no frame holds less than an event.
    rows = exchanges * min(targets * 1000 / gap, size.events)
    grant = target_s(size.parallelism)
    rounds = 1 / grant
    driver = rounds * size.parallelism * costs.grant + size.tasks * (costs.ack + costs.manifest + 2 * costs.told)
    return Pipelined(
        gap_ms=gap,
        rows=rows,
        frame_bytes=size.events * exchanges * size.bytes_per_event / rows,
        record_cores=size.events * record,
        row_cores=rows * costs.row,
        row_cores_busy=exchanges * min(targets * 250 / gap, size.events) * costs.row,
        grant_s=grant,
        driver_cores=driver,
        latency_ms=exchanges * gap / 2 + 0.75 * gap,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """An epoch, from its plan to its commit."""

    tasks: int
    launch_s: float  # Spark's driver starts one task after the other
    fixed_s: float
    work_s: float  # of records that came in a second, on all cores
    seconds: float  # how long an epoch is when each reads what came during the one before


def epochs(size: Size, costs: Costs) -> Epochs:
    """In epochs. An epoch of `s` seconds has s × events to work off: it keeps up if the work of a second takes less than one."""
    record = costs.record_columns if size.columns else costs.record
    launch, fixed = size.tasks * costs.launch, size.levels * costs.level
    work = size.events * record / size.cores
    acks = size.tasks * (costs.ack + costs.manifest)
    total = launch + fixed + acks
    return Epochs(
        tasks=size.tasks,
        launch_s=launch,
        fixed_s=fixed,
        work_s=work,
        seconds=total / (1 - work) if work < 1 else float("inf"),
    )
