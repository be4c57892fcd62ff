"""The rows that are kept of each key, in blocks of columns that never change; of a row that is written again the newest counts.

    cells       │ ann 0 │ ann 1 │ bob 0 │ bob 1 │      `width` for each key, by the number of the key (`KeyIndex`)
    positions   │   6   │   1   │   5   │   –   │      where the newest row of each is
    blocks      │ 0 1 2 3 4 │ 5 6 │                   0 is an older row of ann 0, and dead

Blocks are entries of kind "panes" (`state/panes.py`), so a checkpoint has those that are new, and a rescale cuts them by key group.
Everything else is derived from them. Dead rows go when blocks are made into one; there are no more of them than of others, and a
row is copied a logarithmic number of times.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import PenstockError
from penstock.records.exact_sums import as_type, common_type
from penstock.records.key_index import Growing, KeyIndex, Longs
from penstock.state.overlay import OverlayTable
from penstock.state.panes import BlockName, block_name, with_keys

_MOST_BLOCKS: Final = 16  # before some are made into one
_MOST_BYTES: Final = 1 << 29  # of a block that others are added to
_NOWHERE: Final = -1
PLACE: Final = "place"  # a column: which of its key's rows it is


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows by their keys: keys in the order of their first rows."""

    numbers: Longs  # of the key of each group
    firsts: Longs  # the first row of each
    of_row: Longs  # the group of each row


@dataclass(slots=True)
class _Block:
    name: BlockName
    rows: pa.RecordBatch
    cells: Longs  # of each row
    first: int  # the position of its first row
    dead: int = 0

    @property
    def living(self) -> int:
        return len(self.cells) - self.dead


class KeyedRows:
    """Rows of keys, `width` at most for each. If more than one, the column `place` of a row is which of them it is."""

    def __init__(self, table: OverlayTable, owned: range, keys: Sequence[str], width: int = 1) -> None:
        self._table, self._owned, self._keys, self._width = table, owned, list(keys), width
        self._clear()

    def _clear(self) -> None:
        self._index = KeyIndex()
        self._positions = Growing(np.int64)  # by cell
        self._marks = Growing(np.int64)  # by number; means nothing between two calls
        self._blocks: list[_Block] = []
        self._schema: pa.Schema | None = None
        self._joined: pa.Table | None = None
        self._next = self._settled = 0  # numbers of blocks: the next one's, and of the first one of this epoch

    def rebuild(self) -> None:
        """The table was restored or rolled back."""
        self._clear()
        named: Iterable[tuple[Any, Any]] = self._table.items()
        for name, rows in sorted(named, key=lambda entry: (entry[0][1], entry[0])):
            rows = self._fitted(rows)
            numbers = self._number([rows.column(key) for key in self._keys])
            self._point(_Block(name, rows, self._cells(numbers, rows), self._end()))
            self._next = name[1] + 1
        self._settled = self._next

    def groups(self, keys: Sequence[pa.Array]) -> Groups:
        """Rows by these columns of theirs. Keys that are new have nothing kept."""
        numbers = self._number(keys)
        rows = np.arange(len(numbers))
        marks = self._marks.values
        marks[numbers[::-1]] = rows[::-1]  # of several for one place the last one stays
        first = marks[numbers]
        is_first = first == rows
        groups = np.cumsum(is_first) - 1
        firsts = np.flatnonzero(is_first)
        return Groups(numbers[firsts], firsts, groups[first])

    def _number(self, keys: Sequence[pa.Array]) -> Longs:
        numbers = self._index.number(keys)
        new = len(self._index) - len(self._marks)
        if new:
            self._marks.extend(np.zeros(new, np.int64))
            self._positions.extend(np.full(new * self._width, _NOWHERE, np.int64))
        return numbers

    def positions(self, cells: Longs) -> Longs:
        """Where the rows of cells are; -1 for cells without one."""
        positions: Longs = self._positions.values[cells]
        return positions

    def take(self, positions: Longs, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows by their positions, and of those some columns."""
        if self._joined is None:
            self._joined = pa.Table.from_batches([block.rows for block in self._blocks], self._schema)
        table = self._joined if columns is None else self._joined.select(list(columns))
        return table.take(pa.array(positions))

    def largest(self, column: str) -> int:
        """The largest number in a column, also of rows that are dead; -1 if there is none."""
        return max((pc.max(block.rows.column(column)).as_py() for block in self._blocks), default=-1)

    def put(self, numbers: Longs, rows: pa.RecordBatch) -> None:
        """A row for the key of each number, in the place of what was in its cell. No cell comes twice."""
        if not rows.num_rows:
            return
        rows = self._fitted(rows.replace_schema_metadata(with_keys(rows.schema, self._keys).metadata))
        self._append(rows, self._cells(numbers, rows))
        if len(self._blocks) > _MOST_BLOCKS:
            self._compact(0)

    def settle(self) -> None:
        """The epoch ends: what it has written becomes few blocks, with only the newest row of each."""
        mine = next((at for at, block in enumerate(self._blocks) if block.name[1] >= self._settled), None)
        if mine is not None:
            self._compact(mine)
        self._settled = self._next

    # ---------------------------------------------------------------- blocks

    def _cells(self, numbers: Longs, rows: pa.RecordBatch) -> Longs:
        if self._width == 1:
            return numbers
        place: Longs = rows.column(PLACE).to_numpy()
        return numbers * self._width + place

    def _end(self) -> int:
        return self._blocks[-1].first + len(self._blocks[-1].cells) if self._blocks else 0

    def _append(self, rows: pa.RecordBatch, cells: Longs) -> None:
        name = block_name(0, self._next, self._owned)
        self._next += 1
        self._table.put(name, rows)
        self._point(_Block(name, rows, cells, self._end()))

    def _point(self, block: _Block) -> None:
        """Its rows are the newest of their cells."""
        positions = self._positions.values
        before = positions[block.cells]
        before = before[before != _NOWHERE]
        if len(before) and self._blocks:
            firsts = np.array([other.first for other in self._blocks])
            dead = np.bincount(np.searchsorted(firsts, before, side="right") - 1, minlength=len(firsts))
            for other, died in zip(self._blocks, dead.tolist(), strict=True):
                other.dead += died
        positions[block.cells] = np.arange(block.first, block.first + len(block.cells))
        self._blocks.append(block)
        self._joined = None

    def _compact(self, begin: int) -> None:
        """The newest blocks become one, and those of which most is dead. An old one stays as it is until the newer ones together
        are at least half of it."""
        last = len(self._blocks) - 1
        rows, size, cut = 0, 0, len(self._blocks)
        while cut > begin and (cut == last + 1 or self._blocks[cut - 1].living <= 2 * rows):
            size += self._blocks[cut - 1].rows.nbytes
            if size > _MOST_BYTES and cut <= last:
                break
            cut -= 1
            rows += self._blocks[cut].living
        chosen = [
            at
            for at, block in enumerate(self._blocks)
            if at >= cut or (at >= begin and 2 * block.dead > len(block.cells))
        ]
        if len(chosen) == 1 and not self._blocks[chosen[0]].dead:
            return
        # Before any position changes: which rows of those that will be elsewhere live.
        living = {at: self._living(self._blocks[at]) for at in range(chosen[0], len(self._blocks))}
        blocks, self._blocks, self._joined = self._blocks, [], None
        positions, parts, cells = self._positions.values, [], []
        for at, block in enumerate(blocks):
            if at in chosen:
                self._table.delete(block.name)
                parts.append(block.rows.filter(pa.array(living[at])) if block.dead else block.rows)
                cells.append(block.cells[living[at]])
                continue
            if block.first != (first := self._end()):
                block.first = first
                positions[block.cells[living[at]]] = first + np.flatnonzero(living[at])
            self._blocks.append(block)
        moved = np.concatenate(cells)
        if len(moved):
            positions[moved] = _NOWHERE  # the blocks they were in are gone
            self._append(pa.concat_batches(parts), moved)

    def _living(self, block: _Block) -> npt.NDArray[np.bool_]:
        positions = self._positions.values[block.cells]
        living: npt.NDArray[np.bool_] = positions == np.arange(block.first, block.first + len(block.cells))
        return living

    # ---------------------------------------------------------------- types

    def _fitted(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """With the columns of all other rows: partial sums of some blocks are wider, and a column of nulls may have no type yet."""
        if self._schema is None:
            self._schema = rows.schema
        if rows.schema.equals(self._schema):
            return rows
        if rows.schema.names != self._schema.names:
            raise PenstockError(
                f"the rows that are kept of each key have the columns {', '.join(self._schema.names)}, but those that came have "
                f"{', '.join(rows.schema.names)}: select the same columns everywhere before key_by"
            )
        common = pa.schema(
            [
                pa.field(mine.name, self._common(mine, other.type))
                for mine, other in zip(self._schema, rows.schema, strict=True)
            ],
            self._schema.metadata,
        )
        if not common.equals(self._schema):
            for block in self._blocks:
                block.rows = _cast(block.rows, common)
            self._schema, self._joined = common, None
        return _cast(rows, common)

    def _common(self, mine: pa.Field, other: pa.DataType) -> pa.DataType:
        common = common_type(mine.type, other)
        if common is None:
            raise PenstockError(
                f"column {mine.name!r} of the rows that are kept of each key is of {mine.type}, and now of {other}: cast it to one "
                "type before key_by"
            )
        return common


def _cast(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [as_type(column, field.type) for column, field in zip(rows.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
