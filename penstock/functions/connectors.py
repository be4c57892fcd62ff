"""What a connector implements: a source is an enumerator on the driver and readers in the slots (as Flink's FLIP-27
splits it), a sink is a writer in the slots and a committer on the driver.

The driver decides the end of every split's range before an epoch runs and logs it, so a reader never decides how much
to read: the same range always yields the same records, which is what makes a retried epoch identical.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.common.time import now_ms
from penstock.protocol.events import MIN_WATERMARK
from penstock.records import Block

if TYPE_CHECKING:
    from penstock.common.storage import Storage
    from penstock.common.typeinfo import TypeInformation

__all__ = [
    "Committer",
    "DeliveryGuarantee",
    "Json",
    "Sink",
    "SinkWriter",
    "Source",
    "SourcePlan",
    "SplitEnumerator",
    "SplitRange",
    "SplitReader",
    "WriterContext",
]

Json: TypeAlias = Any  # what json.dumps accepts: positions and enumerator states live in manifests as JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRange:
    """One split's part of one epoch. `ordinal` never changes for a split: subtask = ordinal % parallelism."""

    split: str
    ordinal: int
    start: Json
    end: Json
    last: bool = False  # nothing will ever follow in this split: it no longer holds the watermark back
    paused: bool = False  # it has to wait for others (watermark alignment): empty, but not idle


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePlan:
    """The ranges that one source reads in one epoch, and the enumerator's state once that epoch is done."""

    ranges: tuple[SplitRange, ...]
    state: Json
    finished: bool  # bounded and exhausted with this epoch
    records: int | None = None  # how many records the ranges hold, when known (admission control, progress)


class SplitEnumerator(ABC):
    """Driver side. Discovers splits and decides ranges; called by one thread, never concurrently."""

    @abstractmethod
    def restore(self, state: Json) -> None:
        """Continue after the epoch whose plan carried `state`. Called at most once, before the first `plan`."""

    @abstractmethod
    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        """Decide the next epoch. Every newly found split is listed at least once, if need be with start == end,
        so that its watermark counts from then on. Must not block for long: it runs between two epochs."""

    def pause(self, splits: frozenset[str]) -> None:  # noqa: B027 - optional hook
        """Watermark alignment, before each `plan`: these splits are ahead of others and must not get records in it; all others
        may. A source that cannot hold back single splits ignores it: it waits only when all its splits are ahead."""

    def splits_found(self) -> int | None:
        """How many splits there have been so far, those that have ended included: the next one gets this as its `ordinal`. None:
        not said. Asked after each `plan`, so that a job can say which of its subtasks have no split."""
        return None

    def checkpoint_complete(self, state: Json) -> None:  # noqa: B027 - optional hook
        """A checkpoint that holds `state` is complete and its output committed. For telling others how far the job is;
        may be skipped by a crash, and must neither block nor raise."""

    def close(self) -> None:  # noqa: B027 - optional hook
        """Release clients and handles."""


class SplitReader(ABC):
    """Slot side. One reader serves all splits of a subtask and is kept open between epochs."""

    @abstractmethod
    def read(self, split: SplitRange, block_size: int) -> Iterator[Block]:
        """Yield exactly the records of `split` in a fixed order, in blocks of at most `block_size` records.
        Deterministic: any two calls with the same range yield the same records, whatever the block size. A block that is
        large in bytes is cut by the engine; a reader that gathers them by `penstock.records.sizes` need not hold it."""

    def close(self) -> None:  # noqa: B027 - optional hook
        """Release clients and handles."""


class Source(ABC):
    """A replayable source. Instances travel pickled to the slots."""

    @abstractmethod
    def create_enumerator(self) -> SplitEnumerator:
        """A new enumerator, which plans what each epoch reads. Called in the driver, once for each start of the job."""

    @abstractmethod
    def create_reader(self) -> SplitReader:
        """A new reader, which reads the planned ranges. Called in the slots, once for each subtask."""

    @property
    @abstractmethod
    def bounded(self) -> bool:
        """True if the source has an end. BATCH mode takes only bounded sources."""

    @property
    def produced_type(self) -> TypeInformation | None:
        """The type of the records, when the source knows it."""
        return None

    @property
    def has_timestamps(self) -> bool:
        """Whether records come with event time, before any timestamp assigner. True also when that is not known: False
        makes a job that needs timestamps from elsewhere fail while it is built."""
        return True

    def for_parallelism(self, parallelism: int) -> Source:
        """The source as a job with this many subtasks reads it. Asked when the job is built; one that can be cut into any number
        of splits makes as many here."""
        return self

    @property
    def gives_columns(self) -> bool | None:
        """Whether its readers yield `Columns` (True) or `Rows` (False); None when only reading will tell."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterContext:
    """Tells a sink's writer where it runs."""

    job_id: str
    sink_id: str  # stable across restarts: the operator's uid, or its generated id
    subtask: int
    parallelism: int
    storage: Storage | None = None  # the job folder; None: the job takes no checkpoints
    processing_time: Callable[[], int] = now_ms
    current_watermark: Callable[[], int] = lambda: MIN_WATERMARK


class SinkWriter(ABC):
    """Slot side. Each epoch is written as `begin_epoch`, any number of `write`, then `prepare_commit`.

    An epoch may be started again with another `attempt` after a failure: whatever the earlier attempt staged is not
    committed and must not show up in the output.
    """

    function: Any = None  # a user's function behind the writer: opened before the first epoch, closed after the writer

    @abstractmethod
    def begin_epoch(self, epoch: int, attempt: str) -> None:
        """Starts an epoch: what is written from now on belongs to it. `attempt` is unique to this try, so that
        leftovers of another can be told apart.
        """

    @abstractmethod
    def write(self, block: Block) -> None:
        """Takes a block of records of the current epoch; may be called any number of times, also never. Nothing
        written may be visible outside before the commit.
        """

    def end_input(self) -> None:  # noqa: B027 - optional hook
        """No record will come any more. Called in an epoch, before its `prepare_commit`; again if that epoch is tried again."""

    @abstractmethod
    def prepare_commit(self) -> list[Any]:
        """Pre-commit: make the epoch's output durable but invisible; return picklable committables (maybe none)."""

    def close(self) -> None:  # noqa: B027 - optional hook
        """Release handles; an unfinished epoch is dropped."""


class Committer(ABC):
    """Driver side. Makes pre-committed output visible once the checkpoint that contains it is complete."""

    # True: `commit` may run in a thread of its own while the next epoch does, if it was promised by a checkpoint. Calls still
    # come one at a time, in order, and each is over before the next checkpoint completes, a savepoint, or the end of the job.
    commits_beside_next_epoch = False

    job_id = ""  # set by the driver before `open`: the same over restarts, another for a job that starts anew or from a savepoint

    def open(self, storage: Storage | None) -> None:  # noqa: B027 - optional hook
        """Called once, before anything else, with the job folder (None: the job takes no checkpoints)."""

    def check(self) -> None:  # noqa: B027 - optional hook
        """Called before a driver runs the job, until it does not raise. ConfigurationError for what cannot work however often
        it is tried (a table that is not there) ends the job; for other errors the restart strategy is asked."""

    def take_over(self) -> None:  # noqa: B027 - optional hook
        """Called at (re)start for all sinks before any of them commits: end what earlier attempts have left open, where others
        may wait for it. What it raises is not looked at; `commit` meets it again."""

    def adopt(self, job_id: str) -> None:  # noqa: B027 - optional hook
        """Called when the job starts from a savepoint or checkpoint of another job: what that one has let wait goes on here."""

    @abstractmethod
    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        """Idempotent: called again with the same arguments after a crash whose moment is unknown. `committables`
        is in a fixed order: by epoch written, then subtask, then the order `prepare_commit` gave. CommitRefusedError
        when trying again is of no use: the job ends, and commits this when it is started again."""

    def discard_after(self, epoch: int) -> None:  # noqa: B027 - optional hook
        """Called at (re)start: output staged by epochs later than `epoch` belongs to no checkpoint. Look for it, call `still_mine`,
        discard what was found: a newer driver may have come before the look, and what it stages is its own."""

    def still_mine(self) -> None:  # noqa: B027 - set by the driver
        """FencedError if another driver has the job by now. Without a driver nobody has."""

    def close(self) -> None:  # noqa: B027 - optional hook
        """Release clients and handles."""


class DeliveryGuarantee(Enum):
    """The promise of a sink for when something dies. Each connector says which it has."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    NONE = "none"


class Sink(ABC):
    """Instances travel pickled to the slots."""

    accepts_columns = True  # False: the writer only ever sees Rows, of the stream's declared type
    commits_on_spark = False  # True: its commit is a Spark job, for which a pipelined job has to leave a task slot

    @abstractmethod
    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A new writer, for one subtask. Called in the slots."""

    @abstractmethod
    def create_committer(self, sink_id: str) -> Committer:
        """The committer of this sink. Called in the driver; `sink_id` is unique within the job and stays the same over
        restarts.
        """
