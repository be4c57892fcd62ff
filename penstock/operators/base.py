"""What runs inside a subtask: an operator takes blocks and watermarks and gives blocks and watermarks to its output.

An operator object is built by the API, travels pickled inside the job, is unpickled once per subtask, then `setup` and
`open` are called, and from then on it belongs to one thread.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

from penstock.errors import PenstockError, UserFunctionError, in_words, shorten
from penstock.operators import checkpointing
from penstock.operators.latency import Latency
from penstock.protocol.events import MIN_WATERMARK, LatencyMarker
from penstock.records import Block, Rows
from penstock.state.backend import OperatorState
from penstock.state.specification import Specification

if TYPE_CHECKING:
    from penstock.checkpoint.storage import Storage
    from penstock.operators.runtime_context import OperatorRuntimeContext


class Output(Protocol):
    """Where an operator's results go: the next operators of the chain and the exchanges behind it."""

    def block(self, block: Block) -> None:
        """Takes a block of the main output."""

    def side(self, tag: str, block: Block) -> None:
        """Takes a block of the side output `tag`."""

    def watermark(self, timestamp: int) -> None:
        """Passes a watermark on."""

    def idle(self, idle: bool) -> None:
        """Passes a change between idle and active on."""

    def marker(self, marker: LatencyMarker) -> None:
        """Passes a latency marker on."""


@dataclass(slots=True, kw_only=True)
class OperatorMetrics:
    """Counters of one operator in one subtask; reset when reported. Keys of `user` are the user's own metrics."""

    records_in: int = 0
    records_out: int = 0
    late_dropped: int = 0
    user: dict[str, float] = field(default_factory=dict)
    gauges: dict[str, Callable[[], float]] = field(default_factory=dict)
    # Of a source that is aligned with others: the watermark of each split, and whether it is idle.
    splits: dict[str, tuple[int, bool]] = field(default_factory=dict)
    latency: dict[str, Latency] = field(default_factory=dict)  # by source, of markers that have come here


@dataclass(slots=True, kw_only=True)
class OperatorContext:
    """The place of an operator in its subtask: state, output, metrics, clock."""

    operator_id: str
    name: str
    uid: str | None
    subtask: int
    parallelism: int
    max_parallelism: int
    attempt: int
    state: OperatorState
    output: Output
    metrics: OperatorMetrics
    job_parameters: dict[str, str]
    job_id: str
    block_size: int
    processing_time: Callable[[], int]
    restored_checkpoint: Callable[[], int | None] = lambda: None  # the epoch whose end the state in here is from
    clock_ms: Callable[[], float] = lambda: 0.0  # the machine's, for latency markers
    storage: Storage | None = None  # the job folder, where sinks may stage output
    by_clock: bool = False  # periodic watermarks and idleness follow the clock (`on_interval`), not the ends of epochs


class Operator(ABC):
    """Base of all operators. Subclasses override what they need; the defaults forward."""

    needs_timestamps = False  # it cannot do its work on records without event time
    gives_timestamps = False  # what it emits has event time, whatever comes in

    ctx: OperatorContext
    runtime_context: OperatorRuntimeContext

    gathers = False  # it may hold records back, for more to be worked on together: `flush` lets them go
    gathered = False  # it does

    waits = False  # it asks others and goes on before they answer: `poll` takes the answers that have come

    # For the plan. `columnar`: given columns, it makes no Python object of a record. `gives`: what leaves it.
    columnar: bool = False
    reads: tuple[str, ...] | None = None  # the only columns it looks at, or hands on; None: any
    gives: Literal["rows", "columns", "what it gets"] = "rows"

    def __init__(self) -> None:
        self.current_watermark = MIN_WATERMARK
        self.idle = False  # what it has told those behind it, as is the watermark

    # ---------------------------------------------------------------- life cycle

    def setup(self, ctx: OperatorContext) -> None:
        """Gives the operator its place: state, output, metrics. Called once, before `open`."""
        from penstock.operators.runtime_context import OperatorRuntimeContext

        self.ctx = ctx
        self.current_watermark = MIN_WATERMARK
        self.idle = False
        self.runtime_context = OperatorRuntimeContext(ctx)

    def user_functions(self) -> Iterable[Any]:
        """Functions with open() and close()."""
        return ()

    def checkpointed_functions(self) -> Iterable[Any]:
        """The functions that may be a CheckpointedFunction or a CheckpointListener."""
        return self.user_functions()

    def open(self) -> None:
        """Opens the user's functions, after their state was restored and before the first record."""
        checkpointing.initialize_functions(self)
        for function in self.user_functions():
            if hasattr(function, "open"):
                try:
                    function.open(self.runtime_context)
                except Exception as error:
                    self.fail(error, "open()", None)

    def close(self) -> None:
        """Closes the user's functions. An error there names the operator."""
        for function in self.user_functions():
            if hasattr(function, "close"):
                try:
                    function.close()
                except Exception as error:
                    self.fail(error, "close()", None)

    def specification(self) -> Specification | None:
        """What the entries of its state mean, where that depends on how it was built; None: they speak for themselves."""
        return None

    def formerly(self) -> Specification | None:
        """What another operator that did its work in older releases said of its state; None: there was none. Such state is
        migrated, too."""
        return None

    def migrate_state(self, before: Specification) -> None:  # noqa: B027 - only for those that can
        """Called before `restore_state`: what was restored is of another specification, which can be restored from."""

    def restore_state(self) -> None:  # noqa: B027 - most operators keep all their state in tables
        """Called before open and again after a rollback: read operator (non-keyed) state from `ctx.state`."""

    def resume_at(self, watermark: int, idle: bool) -> None:
        """Called after `restore_state`: where event time stood in front of this operator."""
        self.current_watermark, self.idle = watermark, idle

    def snapshot_state(self) -> None:  # noqa: B027 - optional hook
        """Called at the barrier: write operator (non-keyed) state to `ctx.state`."""

    def begin_epoch(self, epoch: int, attempt: str) -> None:  # noqa: B027 - optional hook
        """A new epoch (or a new attempt at one) starts."""

    def end_epoch(self) -> None:  # noqa: B027 - optional hook
        """The barrier has come on every channel; called along the chain before the snapshot. Last chance to emit."""

    def prepare_commit(self) -> list[Any]:
        """Sinks: pre-commit the epoch and return its committables."""
        return []

    # ---------------------------------------------------------------- data

    def process(self, input: int, block: Block) -> None:
        """Takes a block of records of input 0 or 1."""
        raise PenstockError(f"operator {self.ctx.name!r} takes no input")

    def on_watermark(self, timestamp: int) -> None:
        """Event time has come to `timestamp`; passed on by default."""
        self.current_watermark = timestamp
        self.ctx.output.watermark(timestamp)

    def on_processing_time(self, now: int) -> None:  # noqa: B027 - optional hook
        """The epoch's processing time moved to `now`: fire what is due."""

    def on_interval(self) -> None:  # noqa: B027 - optional hook
        """The interval of periodic watermarks is over (`ctx.by_clock` only)."""

    def flush(self) -> None:  # noqa: B027 - only for those that gather
        """The host sends on what is gathered: works on it and emits the results, or leaves it for a later call."""

    def poll(self) -> None:  # noqa: B027 - only for those that wait
        """Send on what has been answered meanwhile."""

    def on_idle(self, idle: bool) -> None:
        """The inputs have all become idle, or one is active again; passed on by default."""
        self.idle = idle
        self.ctx.output.idle(idle)

    def on_marker(self, marker: LatencyMarker) -> None:
        """A latency marker has come, behind the records before it; passed on by default."""
        self.note_marker(marker)
        self.ctx.output.marker(marker)

    def end_input(self) -> None:  # noqa: B027 - optional hook
        """All input has ended (after the final watermark): emit what is left."""

    def next_processing_timer(self) -> int | None:
        """The time of the earliest processing-time timer; None if there is none."""
        return None

    # ---------------------------------------------------------------- helpers

    def reads_of(self, input: int) -> tuple[str, ...] | None:
        """`reads`, for an operator that has two inputs of each of them."""
        return self.reads

    def note_marker(self, marker: LatencyMarker) -> None:
        """The marker has been so long on its way here."""
        latency = self.ctx.metrics.latency
        if marker.source not in latency:
            latency[marker.source] = Latency()
        latency[marker.source].add(max(0.0, self.ctx.clock_ms() - marker.at_ms))

    def emit(self, values: list[Any], timestamps: list[int | None] | None) -> None:
        """Sends records on as a block; an empty list sends nothing."""
        if values:
            self.ctx.metrics.records_out += len(values)
            self.ctx.output.block(Rows(values, timestamps))

    def fail(self, error: Exception, what: str, record: Any, *, has_record: bool = False) -> NoReturn:
        """Raise with the operator, its uid, the subtask and the record."""
        if isinstance(error, PenstockError):
            raise error
        on_record = f" on record {shorten(record)}" if has_record else ""
        raise UserFunctionError(
            f"{in_words(error)}\nraised in {what} of operator {self.ctx.name!r} (uid {self.ctx.uid or self.ctx.operator_id!r}, "
            f"subtask {self.ctx.subtask + 1}/{self.ctx.parallelism}){on_record}"
        ) from error
