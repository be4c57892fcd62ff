"""Records of some blocks are worked on together: what a step costs is a matter of steps as much as of records.

block ─▶ block ─▶ block ─▶ │ one step │ ─▶ results      when there are many, or before a watermark, a barrier, the end, and
                                                        whenever the host sends on what its routers have gathered
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation
from penstock.operators.base import Operator
from penstock.protocol.events import LatencyMarker
from penstock.records import Block, Columns, TimestampArray
from penstock.records.arrow_columns import plain
from penstock.records.convert import column_of, require_columns
from penstock.records.sizes import BLOCK_BYTES, bytes_of, cut

MOST_ROWS: Final = 1 << 16
_REST: Final = 3  # times as long as the last step
_LONGEST_REST_S: Final = 0.05


class GatheringOperator(Operator):
    """Subclasses work on several blocks of columns of one schema at once."""

    columnar = True
    gives = "columns"
    gathers = True
    most_rows = MOST_ROWS  # of a step

    def __init__(self, input_type: TypeInformation | None) -> None:
        """`input_type` lets rows of that type in; without it only columns are taken."""
        super().__init__()
        self.input_type = input_type
        self._blocks: list[Columns] = []
        self._rows = self._bytes = 0
        self._rests_until = 0.0

    @abstractmethod
    def step(self, blocks: Sequence[Columns]) -> None:
        """Works on blocks of one schema, and either all or none of them with timestamps."""

    def process(self, input: int, block: Block) -> None:
        columns = require_columns(block, self.input_type, self.where)
        self.ctx.metrics.records_in += len(columns)
        if not len(columns):
            return
        if self._blocks and not _alike(self._blocks[0], columns):
            self.work_off()
        for part in cut(columns, self.most_rows):
            assert isinstance(part, Columns)
            self._blocks.append(part)
            self.gathered = True
            self._rows += len(part)
            self._bytes += bytes_of(part)
            if self._rows >= self.most_rows or self._bytes >= BLOCK_BYTES:
                self.work_off()

    def flush(self) -> None:
        if time.perf_counter() >= self._rests_until:
            self.work_off()

    def work_off(self) -> None:
        """Works on all that is gathered, now."""
        blocks, self._blocks = self._blocks, []
        self._rows = self._bytes = 0
        self.gathered = False
        if blocks:
            began = time.perf_counter()
            self.step(blocks)
            ended = time.perf_counter()
            self._rests_until = ended + min(_REST * (ended - began), _LONGEST_REST_S)

    def on_watermark(self, timestamp: int) -> None:
        self.work_off()
        super().on_watermark(timestamp)

    def on_idle(self, idle: bool) -> None:
        self.work_off()
        super().on_idle(idle)

    def on_marker(self, marker: LatencyMarker) -> None:
        self.work_off()
        super().on_marker(marker)

    def end_epoch(self) -> None:
        self.work_off()

    def end_input(self) -> None:
        self.work_off()

    @property
    def where(self) -> str:
        """For errors."""
        return f"operator {self.ctx.name!r}"

    def column(self, blocks: Sequence[Columns], name: str) -> pa.Array:
        """A column of all blocks, in a layout that kernels know."""
        parts = [plain(column_of(block.batch, name, self.where)) for block in blocks]
        return parts[0] if len(parts) == 1 else pa.chunked_array(parts).combine_chunks()

    def give(self, batch: pa.RecordBatch, timestamps: TimestampArray | None) -> None:
        """Emits rows, in blocks that are not too large."""
        for part in cut(Columns(batch, timestamps), self.ctx.block_size):
            self.ctx.metrics.records_out += len(part)
            self.ctx.output.block(part)


def declared_types(type_info: TypeInformation | None, names: Sequence[str]) -> dict[str, str] | None:
    """The types of columns, where the program declares them."""
    if not isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        return None
    types = dict(zip(type_info.get_field_names(), type_info.get_field_types(), strict=True))
    return {name: str(types[name]) for name in names}


def stamps_of(blocks: Sequence[Columns]) -> TimestampArray | None:
    """The timestamps of all blocks."""
    stamps = [block.timestamps for block in blocks if block.timestamps is not None]
    return np.concatenate(stamps) if stamps else None


def _alike(one: Columns, other: Columns) -> bool:
    return one.batch.schema.equals(other.batch.schema) and (one.timestamps is None) == (other.timestamps is None)
