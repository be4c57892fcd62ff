"""The blocks of every pane: a table of immutable entries, and an index that is derived from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from penstock.state.overlay import OverlayTable
from penstock.state.panes import BlockName, block_name

MAX_BLOCKS = 16  # per pane, before some are merged


class PaneBlocks:
    """Appends, reads and drops; never changes a block, so that an epoch's delta is what the epoch appended."""

    def __init__(self, table: OverlayTable, owned: range) -> None:
        self._table = table
        self._owned = owned
        self._index: dict[int, list[tuple[BlockName, int]]] = {}  # pane → (name, rows), in the order of sequence
        self._next = 0

    def rebuild(self) -> None:
        """The table was restored or rolled back."""
        self._index, self._next = {}, 0
        named: Iterable[tuple[Any, Any]] = self._table.items()
        for sequence, name, rows in sorted((name[1], name, block.num_rows) for name, block in named):
            self._index.setdefault(name[0], []).append((name, rows))
            self._next = sequence + 1

    def __contains__(self, pane: int) -> bool:
        return pane in self._index

    def __iter__(self) -> Iterator[int]:
        return iter(self._index)

    def append(self, pane: int, block: pa.RecordBatch) -> None:
        name = block_name(pane, self._next, self._owned)
        self._next += 1
        self._table.put(name, block)
        self._index.setdefault(pane, []).append((name, block.num_rows))

    def read(self, panes: Sequence[int]) -> list[pa.RecordBatch]:
        """All blocks of `panes`, which may be many more than there are."""
        if len(panes) > len(self._index):
            panes = sorted(pane for pane in self._index if pane in panes)
        return [self._table.peek(name) for pane in panes for name, _ in self._index.get(pane, ())]

    def drop(self, pane: int) -> None:
        for name, _ in self._index.pop(pane, ()):
            self._table.delete(name)

    def compact(self, pane: int, merge: Callable[[Sequence[pa.RecordBatch]], pa.RecordBatch]) -> None:
        """Merge the newest blocks once there are many. An old, large block is left alone until the newer ones together
        are at least half its size: then a row is merged a logarithmic number of times, whatever the number of keys."""
        entries = self._index[pane]
        if len(entries) < MAX_BLOCKS:
            return
        rows, cut = entries[-1][1], len(entries) - 1
        while cut > 0 and entries[cut - 1][1] <= 2 * rows:
            cut -= 1
            rows += entries[cut][1]
        cut = min(cut, len(entries) - 2)
        merged = merge([self._table.peek(name) for name, _ in entries[cut:]])
        for name, _ in entries[cut:]:
            self._table.delete(name)
        del entries[cut:]
        self.append(pane, merged)
