"""A harness for one operator or one user function: no graph, no Spark, no threads; every step is yours.

harness = OperatorHarness.for_function(MyProcessFunction(), key_selector=lambda v: v[0])

push(("a", 1), 5)   push(("b", 7), 8)   advance_watermark(10)   snapshot()   push(("a", 2), 12)   end_input()
────●───────────────────●───────────────────┼───────────────────────■────────────────●────────────────┼──────▶
  t = 5               t = 8          timers ≤ 10 fire        state of this moment   t = 12       all timers fire

harness.values()       what was emitted so far
snapshot()             bytes, as a checkpoint would hold them; restore() gives them to a new harness, which goes on
                       from the ■ — at another parallelism with the snapshots of all old subtasks
rollback()             back to the last ■ as after a failure: later output is forgotten, later input comes again
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import cloudpickle

from penstock.errors import PenstockError
from penstock.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    ReduceFunction,
)
from penstock.functions.process import OutputTag
from penstock.operators import checkpointing, selectors
from penstock.operators.base import Operator, OperatorContext, OperatorMetrics
from penstock.operators.keyed import KeyedReduceOperator, ProcessOperator
from penstock.operators.simple import FilterOperator, FlatMapOperator, MapOperator
from penstock.protocol.events import MAX_WATERMARK, MIN_WATERMARK, LatencyMarker
from penstock.records import Block, Rows
from penstock.records.convert import to_rows
from penstock.state import snapshot_file
from penstock.state.backend import OperatorState
from penstock.state.keys import key_group_range
from penstock.state.operator_lists import Dealer, newest_lists


class HarnessError(PenstockError):
    """The harness was used in an order in which no runtime would use an operator."""


class RecordedOutput:
    """Everything an operator sent, in order."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forgets everything."""
        self.blocks: list[Block] = []
        self.sides: dict[str, list[Block]] = {}
        self.watermarks: list[int] = []
        self.idleness: list[bool] = []
        self.markers: list[LatencyMarker] = []

    def block(self, block: Block) -> None:
        """Takes a block of records."""
        self.blocks.append(block)

    def side(self, tag: str, block: Block) -> None:
        """Takes a block for the side output `tag`."""
        self.sides.setdefault(tag, []).append(block)

    def watermark(self, timestamp: int) -> None:
        """Takes a watermark."""
        self.watermarks.append(timestamp)

    def idle(self, idle: bool) -> None:
        """Takes a change between idle and active."""
        self.idleness.append(idle)

    def marker(self, marker: LatencyMarker) -> None:
        """Takes a latency marker."""
        self.markers.append(marker)

    def copy(self) -> RecordedOutput:
        """A copy that does not change with the original."""
        other = RecordedOutput()
        other.blocks, other.watermarks, other.idleness = self.blocks[:], self.watermarks[:], self.idleness[:]
        other.sides = {tag: blocks[:] for tag, blocks in self.sides.items()}
        other.markers = self.markers[:]
        return other


class OperatorHarness:
    """Runs one subtask of one operator. The operator given is a template: like a subtask, the harness works on a copy
    made by pickling, so that one operator can serve many harnesses and what cannot travel to a slot fails here too.

    The operator opens with the first use. `restore` must come before that.

    Example:

        with OperatorHarness.for_function(Count(), key_selector=lambda value: value) as harness:
            harness.push("a").push("b").push("a")
            assert harness.values() == [("a", 1), ("b", 1), ("a", 2)]
    """

    def __init__(
        self,
        operator: Operator,
        *,
        parallelism: int = 1,
        subtask: int = 0,
        max_parallelism: int = 128,
        uid: str = "operator-under-test",
        block_size: int = 10_000,
    ) -> None:
        if not 0 <= subtask < parallelism <= max_parallelism:
            raise HarnessError(
                f"subtask {subtask} of parallelism {parallelism} with maximum {max_parallelism} cannot be: "
                "0 <= subtask < parallelism <= max_parallelism"
            )
        self._template = cloudpickle.dumps(operator)
        self.uid = uid
        self.parallelism, self.subtask, self.max_parallelism = parallelism, subtask, max_parallelism
        self._block_size = block_size
        self.state = OperatorState(uid, max_parallelism)
        self.metrics = OperatorMetrics()
        self.output = RecordedOutput()
        self.processing_time = 0
        self.epoch = 1
        self.committables: list[Any] = []
        self._attempt = 0
        self._opened = False
        self._restored: int | None = None  # the epoch whose end the state is from
        self._input_watermark: int = MIN_WATERMARK
        self._confirmed = (MIN_WATERMARK, 0, self.output.copy())
        self.operator = self._load(MIN_WATERMARK)

    @classmethod
    def for_function(cls, function: Any, key_selector: Any = None, **options: Any) -> OperatorHarness:
        """A harness for a user function: map, flat map, filter or process, and with `key_selector` (a function, a
        KeySelector or a column name) keyed process or rolling reduce. `options` are those of the constructor."""
        selector = None if key_selector is None else selectors.key_selector(key_selector)
        operator: Operator
        match function:
            case KeyedProcessFunction() | ReduceFunction() if selector is None:
                raise HarnessError(f"{type(function).__name__} works on keys: pass a key_selector")
            case KeyedProcessFunction() | ProcessFunction():
                operator = ProcessOperator(function, selector)
            case ReduceFunction():
                assert selector is not None
                operator = KeyedReduceOperator(function, selector)
            case MapFunction():
                operator = MapOperator(function)
            case FilterFunction():
                operator = FilterOperator(function)
            case FlatMapFunction():
                operator = FlatMapOperator(function)
            case _:
                raise HarnessError(
                    f"cannot tell what operator {function!r} is for: pass a MapFunction, FlatMapFunction, "
                    "FilterFunction, ProcessFunction, KeyedProcessFunction or ReduceFunction, or build the operator "
                    "and use OperatorHarness(operator)"
                )
        return cls(operator, **options)

    # ---------------------------------------------------------------- input

    def push(self, value: Any, timestamp: int | None = None, *, input: int = 0) -> Self:
        """One element, as a block of its own."""
        return self.push_block(Rows([value], None if timestamp is None else [timestamp]), input=input)

    def push_all(self, elements: Iterable[tuple[Any, int | None]], *, input: int = 0) -> Self:
        """(value, timestamp) pairs as one block."""
        pairs = list(elements)
        return self.push_block(Rows([value for value, _ in pairs], [stamp for _, stamp in pairs]), input=input)

    def push_block(self, block: Block, *, input: int = 0) -> Self:
        """Hands the operator a block as it is."""
        self._open().process(input, block)
        return self

    def advance_watermark(self, timestamp: int) -> Self:
        """Event time reaches `timestamp`. Like an input gate, the harness drops a watermark that does not advance."""
        operator = self._open()
        if timestamp > self._input_watermark:
            self._input_watermark = timestamp
            operator.on_watermark(timestamp)
        return self

    def advance_processing_time(self, now: int) -> Self:
        """Processing time reaches `now`; it never goes back."""
        operator = self._open()
        self.processing_time = max(self.processing_time, now)
        operator.on_processing_time(self.processing_time)
        return self

    def idle(self, idle: bool = True) -> Self:
        """Tells the operator that its input is idle, or active again."""
        self._open().on_idle(idle)
        return self

    def end_input(self) -> Self:
        """A bounded input ends: the largest watermark, then the operator's own end."""
        self.advance_watermark(MAX_WATERMARK)
        self.operator.end_input()
        return self

    # ---------------------------------------------------------------- output

    def records(self) -> list[tuple[Any, int | None]]:
        """(value, timestamp) pairs of the main output; columns are given as Rows."""
        return _pairs(self.output.blocks)

    def values(self) -> list[Any]:
        """The values that were emitted so far."""
        return [value for value, _ in self.records()]

    def side_records(self, tag: OutputTag | str) -> list[tuple[Any, int | None]]:
        """The records that were emitted to a side output so far, with their timestamps."""
        return _pairs(self.output.sides.get(tag.tag_id if isinstance(tag, OutputTag) else tag, []))

    def side_values(self, tag: OutputTag | str) -> list[Any]:
        """The values that were emitted to a side output so far."""
        return [value for value, _ in self.side_records(tag)]

    @property
    def watermarks(self) -> list[int]:
        """The watermarks the operator sent on."""
        return self.output.watermarks

    def clear_output(self) -> Self:
        """Forget what was emitted so far; counters in `metrics` stay."""
        self.output.clear()
        return self

    # ---------------------------------------------------------------- snapshots

    def snapshot(self, *, full: bool = True) -> bytes:
        """The barrier: end the epoch and give the state as the bytes of a snapshot file; the next epoch begins. Without
        `full` only what changed since the snapshot before: restore it behind that one, as a chain."""
        operator = self._open()
        operator.end_epoch()
        self.committables.extend(operator.prepare_commit())
        checkpointing.snapshot_functions(operator, self.epoch)
        operator.snapshot_state()
        meta = {
            "watermark": self._input_watermark,
            "processing_time": self.processing_time,
            "epoch": self.epoch,
            "task": [self.subtask, self.parallelism],
        }
        data = snapshot_file.encode(self.state.snapshot(full=full), meta=meta)
        self.state.fold(checkpointed=True)
        self._restored = self.epoch
        self._confirmed = (self._input_watermark, self.processing_time, self.output.copy())
        self.epoch += 1
        self._begin_epoch()
        return data

    def restore(self, *snapshots: bytes | Sequence[bytes]) -> Self:
        """Go on from snapshots: one for each old subtask, all of them when the parallelism changed. A snapshot is its
        bytes, or the list of a full one and the ones after it that were taken with full=False."""
        if self._opened:
            raise HarnessError("restore() comes before anything else: make a new harness for it")
        owned = key_group_range(self.subtask, self.parallelism, self.max_parallelism)
        watermarks, times = [], []
        dealer = Dealer(self.subtask, self.parallelism)
        for snapshot in snapshots:
            chain = [snapshot] if isinstance(snapshot, bytes) else list(snapshot)
            decoded = [
                snapshot_file.decode(data, source=f"snapshot {index + 1} of {len(chain)}")
                for index, data in enumerate(chain)
            ]
            meta = decoded[-1][0]
            old_subtask = meta["task"][0]
            own = len(snapshots) == 1 and meta["task"] == [self.subtask, self.parallelism]
            for tables in newest_lists([tables for _, tables in decoded]):
                for table in tables if own else dealer.share(old_subtask, tables):
                    if table.operator == self.uid:
                        self.state.restore(table, owned)
            watermarks.append(int(meta["watermark"]))
            times.append(int(meta["processing_time"]))
            self._restored = int(meta["epoch"])
            self.epoch = self._restored + 1
        self.state.restored()
        self.processing_time = max(times, default=0)
        # Several old subtasks become one: event time goes on at the slowest of them.
        self._input_watermark = self.operator.current_watermark = min(watermarks, default=MIN_WATERMARK)
        self._confirmed = (self._input_watermark, self.processing_time, self.output.copy())
        return self

    def notify_checkpoint_complete(self, checkpoint_id: int | None = None) -> Self:
        """Tell a CheckpointListener that a checkpoint is complete: by default the one of the last snapshot."""
        completed = self.epoch - 1 if checkpoint_id is None else checkpoint_id
        checkpointing.notify_complete(self._open(), completed)
        return self

    def rollback(self) -> Self:
        """The epoch failed and will be run again: back to the last snapshot (or the beginning), with a fresh copy of
        the operator. Push the input since then once more."""
        watermark, self.processing_time, output = self._confirmed
        self.state.rollback()
        self.output = output.copy()
        self._attempt += 1
        self._opened = False
        self.operator = self._load(watermark)
        return self

    # ---------------------------------------------------------------- life cycle

    def close(self) -> None:
        """Closes the operator; closing twice does nothing."""
        if self._opened:
            self._opened = False
            self.operator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _load(self, watermark: int) -> Operator:
        operator: Operator = cloudpickle.loads(self._template)
        operator.setup(
            OperatorContext(
                operator_id=self.uid,
                name=type(operator).__name__,
                uid=self.uid,
                subtask=self.subtask,
                parallelism=self.parallelism,
                max_parallelism=self.max_parallelism,
                attempt=self._attempt,
                state=self.state,
                output=_Late(self),
                metrics=self.metrics,
                job_parameters={},
                job_id="harness",
                block_size=self._block_size,
                processing_time=lambda: self.processing_time,
                restored_checkpoint=lambda: self._restored,
            )
        )
        self._input_watermark = operator.current_watermark = watermark
        return operator

    def _open(self) -> Operator:
        if not self._opened:
            self._opened = True
            self.operator.restore_state()
            self.operator.open()
            self._begin_epoch()
        return self.operator

    def _begin_epoch(self) -> None:
        self.operator.begin_epoch(self.epoch, f"{self.epoch}-{self._attempt}")


class _Late:
    """Looks the recorder up at each call: `rollback` and `clear_output` may have replaced what is recorded."""

    def __init__(self, harness: OperatorHarness) -> None:
        self._harness = harness

    def block(self, block: Block) -> None:
        self._harness.output.block(block)

    def side(self, tag: str, block: Block) -> None:
        self._harness.output.side(tag, block)

    def watermark(self, timestamp: int) -> None:
        self._harness.output.watermark(timestamp)

    def idle(self, idle: bool) -> None:
        self._harness.output.idle(idle)

    def marker(self, marker: LatencyMarker) -> None:
        self._harness.output.marker(marker)


def _pairs(blocks: Iterable[Block]) -> list[tuple[Any, int | None]]:
    pairs: list[tuple[Any, int | None]] = []
    for block in blocks:
        rows = to_rows(block)
        pairs.extend(zip(rows.values, rows.timestamps or [None] * len(rows), strict=True))
    return pairs
