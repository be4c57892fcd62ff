"""The open sessions of a subtask: a table of immutable blocks of parts of sessions, and an index that is derived from it.

    block      ann [ 3 s, 17 s) n 4 │ bob [ 5 s, 15 s) n 1 │ cy [ 9 s, 21 s) n 2
    16 s         open                  has ended              open

A part is some records of one session of a key: where they begin, until when the session lasts at least, and their partial
results. It is open until its end and then nothing, so that no block has to be written anew because sessions fire: who needs what
ends takes it out before, and puts back what turns out to belong to a session that goes on.

Blocks most of whose parts have ended are cut, and many small ones merged, each row a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.protocol.events import MAX_WATERMARK
from penstock.records.dense_groups import Longs
from penstock.records.key_numbers import KeySet
from penstock.state.overlay import OverlayTable
from penstock.state.panes import END, START, BlockName, block_name

MAX_BLOCKS: Final = 16  # before some are merged
_PANE: Final = 0  # all blocks have the name of one pane


def ended_by(watermark: int) -> int:
    """The latest end of a window that is over at this watermark. What ends with time itself is over at the last one only."""
    return MAX_WATERMARK if watermark == MAX_WATERMARK else min(watermark + 1, MAX_WATERMARK - 1)


def column(block: pa.RecordBatch, name: str) -> Longs:
    """Starts or ends of the parts."""
    values: Longs = block.column(name).to_numpy()
    return values


@dataclass(slots=True)
class _Entry:
    name: BlockName
    rows: int
    open_rows: int
    next_end: int  # the earliest of those that are open


class SessionBlocks:
    """All times are ends of parts; `ended` is the latest end that is over."""

    def __init__(self, table: OverlayTable, owned: range, key_names: Sequence[str]) -> None:
        self._table, self._owned, self._key_names = table, owned, list(key_names)
        self._entries: list[_Entry] = []
        self._next = 0

    def rebuild(self, ended: int, ended_for: Callable[[BlockName], int]) -> None:
        """The table was restored or rolled back. Parts are gone that had ended for the subtask that held a block before, which
        may have been ahead of others whose blocks are here now."""
        self._entries, self._next = [], 0
        named: Iterable[tuple[Any, Any]] = list(self._table.items())
        for sequence, name, block in sorted(
            ((name[1], name, block) for name, block in named), key=lambda found: found[:2]
        ):
            self._next = sequence + 1
            before = ended_for(name)
            if before > ended:
                ends = column(block, END)
                if int(ends.min()) <= before:
                    block = block.filter(pa.array(ends > before))
                    self._table.put(name, block)
            if block.num_rows and (entry := self._entry(name, block, ended)).open_rows:
                self._entries.append(entry)
            else:
                self._table.delete(name)

    @property
    def next_end(self) -> int | None:
        """The earliest end of an open part."""
        return min((entry.next_end for entry in self._entries if entry.open_rows), default=None)

    def append(self, block: pa.RecordBatch, ended: int) -> None:
        """Adds parts, none of which has ended."""
        name = block_name(_PANE, self._next, self._owned)
        self._next += 1
        self._table.put(name, block)
        self._entries.append(self._entry(name, block, ended))

    def ending(self, ended: int, until: int) -> list[pa.RecordBatch]:
        """The open parts that end by `until`."""
        found = []
        for entry in self._entries:
            if entry.open_rows and entry.next_end <= until:
                block = self._table.peek(entry.name)
                ends = column(block, END)
                found.append(block.take(pa.array(np.flatnonzero((ends > ended) & (ends <= until)))))
        return found

    def open_of(self, keys: KeySet, ended: int) -> list[pa.RecordBatch]:
        """Keys, starts and ends of all open parts that may have one of the keys."""
        found = []
        for entry in self._entries:
            if entry.open_rows:
                block = self._table.peek(entry.name).select([*self._key_names, START, END])
                mask = keys.mask([block.column(name) for name in self._key_names])
                if entry.next_end <= ended or entry.open_rows < entry.rows:
                    mask &= column(block, END) > ended
                if len(rows := np.flatnonzero(mask)):
                    found.append(block.take(pa.array(rows)))
        return found

    def settle(self, ended: int, merge: Callable[[Sequence[pa.RecordBatch]], pa.RecordBatch]) -> None:
        """Parts may have ended, and blocks been added: drop, cut and merge blocks."""
        entries, self._entries = self._entries, []
        for entry in entries:
            if entry.next_end <= ended:
                block = self._table.peek(entry.name)
                entry = self._entry(entry.name, block, ended)
                if not entry.open_rows:
                    self._table.delete(entry.name)
                    continue
                if 2 * entry.open_rows < entry.rows:
                    self._table.delete(entry.name)
                    self.append(self._open(block, ended), ended)
                    continue
            self._entries.append(entry)
        if len(self._entries) >= MAX_BLOCKS:
            self._compact(ended, merge)

    def _compact(self, ended: int, merge: Callable[[Sequence[pa.RecordBatch]], pa.RecordBatch]) -> None:
        """Merges the smallest. A large block is left alone until the smaller ones together are at least half its size."""
        self._entries.sort(key=lambda entry: (entry.open_rows, entry.name))
        number, rows = 1, self._entries[0].open_rows
        while number < len(self._entries) and (number < 2 or self._entries[number].open_rows <= 2 * rows):
            rows += self._entries[number].open_rows
            number += 1
        small, self._entries = self._entries[:number], self._entries[number:]
        merged = merge([self._open(self._table.peek(entry.name), ended) for entry in small])
        for entry in small:
            self._table.delete(entry.name)
        self.append(merged, ended)

    def _entry(self, name: BlockName, block: pa.RecordBatch, ended: int) -> _Entry:
        ends = column(block, END)
        lowest = int(ends.min())
        if lowest > ended:
            return _Entry(name, len(ends), len(ends), lowest)
        left = ends[ends > ended]
        return _Entry(name, len(ends), len(left), int(left.min()) if len(left) else MAX_WATERMARK)

    @staticmethod
    def _open(block: pa.RecordBatch, ended: int) -> pa.RecordBatch:
        ends = column(block, END)
        return block if int(ends.min()) > ended else block.filter(pa.array(ends > ended))
