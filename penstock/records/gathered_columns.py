"""Blocks of columns that are to leave as one: what a router has for one target while it is less than a frame is worth."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.records.blocks import Columns
from penstock.records.sizes import bytes_of

_t = pa.types


class GatheredColumns:
    """Blocks of one schema, in order."""

    def __init__(self) -> None:
        self._blocks: list[Columns] = []
        self.rows = self.bytes = 0

    def takes(self, block: Columns) -> bool:
        """Whether the block can be one with those that are here."""
        if not self._blocks:
            return True
        first, schema = self._blocks[0], block.batch.schema
        return (
            schema.equals(first.batch.schema, check_metadata=True)
            and (block.timestamps is None) == (first.timestamps is None)
            and all(map(_can_be_joined, schema.types))
        )

    def add(self, block: Columns) -> None:
        """A block that `takes` allows."""
        self._blocks.append(block)
        self.rows += len(block)
        self.bytes += bytes_of(block) + (0 if block.timestamps is None else block.timestamps.nbytes)

    def joined(self) -> Columns:
        """All of them."""
        if len(self._blocks) == 1:
            return self._blocks[0]
        batch = pa.concat_batches([block.batch for block in self._blocks])
        stamps = [block.timestamps for block in self._blocks if block.timestamps is not None]
        return Columns(batch, np.concatenate(stamps) if stamps else None)


def _can_be_joined(kind: pa.DataType) -> bool:
    """Of dictionaries those of two blocks may differ, and not all layouts are known to the kernel."""
    return any(test(kind) for test in (_t.is_primitive, _t.is_string, _t.is_binary, _t.is_decimal128, _t.is_null))
