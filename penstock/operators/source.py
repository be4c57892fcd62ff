"""The head of a source vertex: reads the ranges the driver planned, split by split, and makes watermarks per split."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.common.values import own_all
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.functions.connectors import Source, SplitRange, SplitReader
from penstock.operators.base import Operator
from penstock.operators.watermarks import SplitWatermarks, is_columnar
from penstock.protocol.events import MAX_WATERMARK
from penstock.protocol.valve import WatermarkValve
from penstock.records import Block, Columns, PunctuatedRows, Rows, SideRows
from penstock.records.sizes import cut


class SourceOperator(Operator):
    """`steps` is a generator so that the embedded runtime can interleave a source with everything else."""

    def __init__(self, source: Source | None, strategy: WatermarkStrategy) -> None:
        super().__init__()
        self.source = source  # None: blocks come from Spark, handed in by `ingest`
        self.strategy = strategy
        has_own = source is not None and source.has_timestamps
        self.gives_timestamps = has_own or strategy.timestamp_assigner is not None
        known = True if source is None else source.gives_columns
        self.columnar = known is True and is_columnar(strategy)
        self.gives = "rows" if known is False else "columns"
        self._reader: SplitReader | None = None
        self._splits: dict[str, SplitWatermarks] = {}
        self._valve: WatermarkValve[str] = WatermarkValve()
        self._ordinals: dict[str, int] = {}
        self._planned = False  # a plan of the source has been seen: of a bounded one it names all splits
        self._closed: set[str] = set()  # splits whose periodic watermark of this epoch is out
        self._at_work: set[str] = set()  # by the clock: splits that had records, or must wait, in this interval
        self._unread: set[str] = set()  # of what is being read, splits that are not done

    @property
    def produced_type(self) -> Any:
        """The declared type of the source's records; None if it has none."""
        return None if self.source is None else self.source.produced_type

    def restore_state(self) -> None:
        self._splits = {}
        self._valve = WatermarkValve()
        mine = [
            (split, ordinal, data, combined)
            for split, ordinal, data, combined in self.ctx.state.operator_list("splits", "operator-union")
            if ordinal % self.ctx.parallelism == self.ctx.subtask
        ]
        self._ordinals = {split: ordinal for split, ordinal, _, _ in mine}
        for split, _, data, _ in mine:
            self._splits[split] = SplitWatermarks(self.strategy, self.produced_type)
            self._splits[split].restore(data)
        # All at once: advancing one split after the other would let the first one's watermark pass the others by.
        self._valve.restore(
            {
                "watermark": min((combined for *_, combined in mine), default=self._valve.watermark),
                "channels": [[split, marks.emitted, marks.idle, False] for split, marks in self._splits.items()],
            }
        )
        self.current_watermark = self._valve.watermark
        self.idle = self._valve.idle

    def settle(self) -> None:
        """After a restore, before anything is read: without the splits that other subtasks now have, those that stayed may
        be further. If all are idle, event time stays where it was."""
        if not self._valve.idle:
            self._changed(self._valve.recompute())

    def snapshot_state(self) -> None:
        self.ctx.state.operator_list("splits", "operator-union")[:] = [
            (split, self._ordinals[split], watermarks.snapshot(), self._valve.watermark)
            for split, watermarks in self._splits.items()
        ]

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        super().close()

    def steps(self, ranges: Sequence[SplitRange], finished: bool) -> Iterator[None]:
        """Read this subtask's part of an epoch, or of a grant, yielding after every block. Ends before the barrier."""
        self._planned = self._planned or bool(ranges) or self.ctx.by_clock
        mine = [r for r in ranges if r.ordinal % self.ctx.parallelism == self.ctx.subtask]
        for split in mine:
            self._know(split.split, split.ordinal)
        self._unread = {r.split for r in mine if r.start != r.end}
        with_data = set()
        for split in sorted(mine, key=lambda r: r.ordinal):
            if split.start != split.end:
                for block in self._read(split):
                    if isinstance(block, SideRows):
                        self.ctx.metrics.records_in += len(block)
                        self.ctx.output.side(block.tag, Rows(own_all(block.values), block.timestamps))
                    elif len(block):
                        with_data.add(split.split)
                        self._emit(split.split, block)
                    if isinstance(block, PunctuatedRows):
                        self._punctuate(split.split, block.watermark)
                    yield
                self._unread.discard(split.split)
                if not self.ctx.by_clock or self.strategy.alignment is not None:  # others may have to wait for it
                    self.close_split(split.split)
        at_work = with_data | {r.split for r in mine if r.paused}
        ended = [r.split for r in mine if r.last]
        if self.ctx.by_clock:
            self._at_work |= at_work
            self._end_splits(ended, finished)
        else:
            self.finish_epoch(at_work, ended, finished)
        yield

    def on_interval(self) -> None:
        """A split whose records wait to be read is not idle, however long that takes."""
        at_work, self._at_work = self._at_work | self._unread, set()
        self.finish_epoch(at_work, [], False)

    def ingest(self, split: str, ordinal: int, block: Block) -> None:
        """A block that Spark read (`env.from_spark`)."""
        self._know(split, ordinal)
        self._emit(split, block)

    def close_split(self, split: str) -> None:
        """The end of a split's data in this epoch: periodic watermarks are due."""
        self._closed.add(split)
        self._splits[split].periodic(lambda timestamp: self._advance(split, timestamp), self.ctx.processing_time())

    def finish_epoch(self, at_work: set[str], ended: list[str], finished: bool) -> None:
        """`at_work` are the splits that had records, or would have had if they need not wait for others."""
        now = self.ctx.processing_time()
        none_to_come = self._planned and self.source is not None and self.source.bounded
        if (self.strategy.idle_timeout_ms is not None or none_to_come) and not self._ordinals and not self.idle:
            # A subtask that never had a split has no record to time out by, and nothing that others should wait for. A bounded
            # source has named all its splits in its first plan, so none will come either.
            self.idle = True
            self.ctx.output.idle(True)
        for split, watermarks in self._splits.items():
            before = watermarks.idle
            timed_out = watermarks.timed_out(now, split in at_work)
            if not timed_out and split not in self._closed:
                self.close_split(split)
            if watermarks.check_idle(timed_out) != before:
                self._changed(self._valve.set_idle(split, watermarks.idle))
        self._closed.clear()
        self._end_splits(ended, finished)

    def _end_splits(self, ended: list[str], finished: bool) -> None:
        for split in ended:
            if self.ctx.by_clock:
                self.close_split(split)
                self._closed.discard(split)
            self._valve.remove(split)
            self._splits.pop(split, None)
        if ended:
            self._changed(self._valve.recompute())
        if self.strategy.alignment is not None:
            self.ctx.metrics.splits = {split: (marks.emitted, marks.idle) for split, marks in self._splits.items()}
        if finished:
            self._forward(MAX_WATERMARK)

    def _punctuate(self, split: str, watermark: int) -> None:
        self._splits[split].punctuate(watermark, lambda timestamp: self._advance(split, timestamp))

    def _know(self, split: str, ordinal: int) -> None:
        if split not in self._splits:
            if self.idle and not self._ordinals:  # before its records, which must find the watermark waiting for them
                self.idle = False
                self.ctx.output.idle(False)
            self._ordinals[split] = ordinal
            self._splits[split] = SplitWatermarks(self.strategy, self.produced_type)
            self._valve.add(split)

    def _read(self, split: SplitRange) -> Iterator[Block]:
        if self._reader is None:
            assert self.source is not None
            self._reader = self.source.create_reader()
        try:
            for block in self._reader.read(split, self.ctx.block_size):
                if type(block) in (Rows, Columns):  # others say something about themselves as a whole
                    yield from cut(block, self.ctx.block_size)
                else:
                    yield block
        except Exception as error:
            self.fail(error, f"reading split {split.split!r} from {split.start!r} to {split.end!r}", None)

    def _emit(self, split: str, block: Block) -> None:
        self.ctx.metrics.records_in += len(block)
        if isinstance(block, Rows):  # a reader may use its objects again
            block = Rows(own_all(block.values), block.timestamps)
        watermarks = self._splits[split]
        if watermarks.idle:  # before its records: they must find the watermark waiting for them again
            watermarks.idle = False
            self._changed(self._valve.set_idle(split, False))
        try:
            stamped = watermarks.stamp(block, self.ctx.processing_time())
        except Exception as error:
            self.fail(error, "timestamp assigner", watermarks.stamping, has_record=True)
        watermarks.observe(stamped, self._send, lambda t: self._advance(split, t))

    def _send(self, block: Block) -> None:
        self.ctx.metrics.records_out += len(block)
        self.ctx.output.block(block)

    def _advance(self, split: str, timestamp: int) -> None:
        self._changed(self._valve.advance(split, timestamp))

    def _changed(self, combined: int | None) -> None:
        if combined is not None:
            self._forward(combined)
        if self._valve.channels and self._valve.idle != self.idle:
            self.idle = self._valve.idle
            self.ctx.output.idle(self._valve.idle)

    def _forward(self, timestamp: int) -> None:
        if timestamp > self.current_watermark:
            self.current_watermark = timestamp
            self.ctx.output.watermark(timestamp)
