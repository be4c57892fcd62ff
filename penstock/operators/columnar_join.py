"""Joins of two streams of columns: no Python object per record, no look-up per key.

    block of one side ─▶ put in the order of its keys ─▶ meets what the other side has kept ─▶ pairs, as columns
                                     └─▶ kept, for what the other side has yet to bring

What is kept are blocks in tables of panes, one table for each side: the key columns, the columns that the result has, and the
records' times. Their orders (`KeyRun`) are derived from them. Pairs are made and sent in parts, however many there are.

Here: the join over all time, whose records all have one pane and are kept for good, and what all joins have in common. The
interval join and the join by windows are in modules of their own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation
from penstock.errors import PenstockError
from penstock.operators.base import Operator, OperatorContext
from penstock.operators.key_runs import KeyRun, Numbers, Pairs, all_pairs
from penstock.operators.panes import PaneBlocks
from penstock.protocol.events import MIN_WATERMARK
from penstock.records import Block, Columns, TimestampArray
from penstock.records.arrow_columns import plain
from penstock.records.convert import column_of, require_columns
from penstock.records.gathered_columns import GatheredColumns
from penstock.records.sizes import BLOCK_BYTES, bytes_of_rows
from penstock.state.backend import OperatorState
from penstock.state.key_codes import kind_of_key
from penstock.state.keys import key_group_range
from penstock.state.panes import PANES, with_keys
from penstock.state.specification import Specification

LEFT, RIGHT = 0, 1
SIDES: Final = ("left", "right")
LARGE: Final = 32 << 20  # bytes of a block that is not merged with others any more
_TIME: Final = "t"

Both: TypeAlias = tuple[Sequence[str], Sequence[str]]  # of the left side, of the right one
Types: TypeAlias = tuple[TypeInformation | None, TypeInformation | None]


class Piece:
    """Rows of one side, as they are kept."""

    def __init__(self, batch: pa.RecordBatch, keys: int) -> None:
        """The first `keys` columns are the key, the last one is the time."""
        self.batch = batch
        self._keys = keys

    @cached_property
    def times(self) -> TimestampArray:
        """When each row was; the smallest number of all for a record without a time."""
        times: TimestampArray = self.batch.column(self.batch.num_columns - 1).to_numpy()
        return times

    @property
    def keys(self) -> list[pa.Array]:
        """The key columns."""
        return [self.batch.column(place) for place in range(self._keys)]

    @cached_property
    def run(self) -> KeyRun:
        """The rows in the order of their keys."""
        return KeyRun(self.keys)

    @cached_property
    def timed_run(self) -> KeyRun:
        """The rows in the order of their keys and times."""
        return KeyRun(self.keys, self.times)

    @cached_property
    def sizes(self) -> npt.NDArray[np.int64]:
        """About how many bytes each row takes."""
        return bytes_of_rows(self.batch)

    def take(self, rows: Any) -> Piece:
        """Some of the rows."""
        return self.with_batch(self.batch.take(pa.array(rows)))

    def split(self, panes: TimestampArray) -> Iterator[tuple[int, Piece]]:
        """The rows by the pane that each is in."""
        if np.all(panes == panes[0]):
            yield int(panes[0]), self
            return
        order = np.argsort(panes, kind="stable")
        ordered, batch = panes[order], self.batch.take(pa.array(order))
        bounds = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(ordered)]
        for begin, end in pairwise(bounds):
            yield int(ordered[begin]), self.with_batch(batch.slice(begin, end - begin))

    def with_batch(self, batch: pa.RecordBatch) -> Piece:
        """Other rows with the same columns."""
        return Piece(batch, self._keys)


class JoinSide:
    """What one side has kept, by panes."""

    def __init__(self, state: OperatorState, side: int, owned: range, keys: int) -> None:
        self._table = state.table(f"join-{SIDES[side]}", PANES)
        self._blocks = PaneBlocks(self._table, owned)
        self._keys = keys
        self._pieces: dict[int, dict[Any, Piece]] = {}  # what is derived from blocks, by their names
        self.times: dict[int, tuple[int, int]] = {}  # of each pane the first and the last
        self.schema: pa.Schema | None = None

    def rebuild(self) -> None:
        """The table was restored or rolled back."""
        self._blocks.rebuild()
        self._pieces, self.times, self.schema = {}, {}, None
        for pane in self._blocks:
            for piece in self.pieces(pane):
                self._note(pane, piece)

    def _note(self, pane: int, piece: Piece) -> None:
        self.schema = piece.batch.schema
        first, last = int(piece.times.min()), int(piece.times.max())
        known = self.times.get(pane, (first, last))
        self.times[pane] = (min(first, known[0]), max(last, known[1]))

    def add(self, pane: int, piece: Piece) -> None:
        """Keeps a piece in a pane."""
        name = self._blocks.append(pane, piece.batch)
        self._pieces.setdefault(pane, {})[name] = piece
        self._note(pane, piece)
        self._blocks.compact(pane, pa.concat_batches, LARGE)
        if len(self._blocks.names(pane)) < len(self._pieces[pane]):
            self.pieces(pane)  # lets go of those that are one now

    def pieces(self, pane: int) -> Iterable[Piece]:
        """All that is in a pane."""
        known, names = self._pieces.get(pane, {}), self._blocks.names(pane)
        self._pieces[pane] = {
            name: known[name] if name in known else Piece(self._blocks.block(name), self._keys) for name in names
        }
        return self._pieces[pane].values()

    def drop(self, pane: int) -> None:
        """Forgets a pane; nothing happens if it is not there."""
        self._blocks.drop(pane)
        self._pieces.pop(pane, None)
        self.times.pop(pane, None)


class ColumnarJoinOperator(Operator):
    """What joins of columns have in common. The result has columns of both sides; which ones, `chosen` says."""

    columnar = True
    gives = "columns"
    holds: str

    def __init__(
        self, keys: Both, chosen: tuple[Mapping[str, str], Mapping[str, str]], input_types: Types = (None, None)
    ) -> None:
        """`keys` are names of columns; `chosen` the columns of the result by name, and the columns they are of."""
        super().__init__()
        self.keys = (tuple(keys[LEFT]), tuple(keys[RIGHT]))
        self.chosen = (dict(chosen[LEFT]), dict(chosen[RIGHT]))
        self.input_types = input_types
        # The columns that are kept of each side, the key first.
        self._kept = tuple(
            (*self.keys[side], *dict.fromkeys(c for c in self.chosen[side].values() if c not in self.keys[side]))
            for side in (LEFT, RIGHT)
        )

    def reads_of(self, input: int) -> tuple[str, ...] | None:
        return tuple(dict.fromkeys(self._kept[input]))

    def setup(self, ctx: OperatorContext) -> None:
        super().setup(ctx)
        self._owned = key_group_range(ctx.subtask, ctx.parallelism, ctx.max_parallelism)
        self._sides = [JoinSide(ctx.state, side, self._owned, len(self.keys[side])) for side in (LEFT, RIGHT)]
        self._gathered = GatheredColumns()

    def specification(self) -> Specification:
        """Blocks are of no use to a program that keeps other columns."""
        kept = (f"{', '.join(map(repr, self._kept[side]))} of the {SIDES[side]}" for side in (LEFT, RIGHT))
        columns = {
            f"{SIDES[side]} {name}": kind
            for side in (LEFT, RIGHT)
            for name, kind in self._declared(side).items()
            if name in self._kept[side]
        }
        keys = (*self.keys[LEFT], *self.keys[RIGHT])
        return Specification(holds=self.holds, keys=keys, values=f"columns {' and '.join(kept)}", columns=columns)

    def _declared(self, side: int) -> dict[str, str]:
        kind = self.input_types[side]
        if not isinstance(kind, (RowTypeInfo, TupleTypeInfo)):
            return {}
        return dict(zip(kind.get_field_names(), map(str, kind.get_field_types()), strict=True))

    def restore_state(self) -> None:
        for side in self._sides:
            side.rebuild()
        self._gathered = GatheredColumns()

    # ---------------------------------------------------------------- records

    def process(self, input: int, block: Block) -> None:
        columns = require_columns(block, self.input_types[input], self._where(input))
        self.ctx.metrics.records_in += len(columns)
        if len(columns):
            self.take_in(input, columns)
            self._send()

    def _where(self, side: int) -> str:
        return f"operator {self.ctx.name!r}, {SIDES[side]} side"

    @abstractmethod
    def take_in(self, side: int, columns: Columns) -> None:
        """At least one record has come."""

    def piece(self, side: int, columns: Columns, rows: Any = None) -> Piece:
        """What is kept of records, or of some of them."""
        where, stamps = self._where(side), columns.timestamps
        if stamps is None:
            stamps = np.full(len(columns), MIN_WATERMARK)
        arrays = [plain(column_of(columns.batch, name, where)) for name in self._kept[side]]
        keys = range(len(self.keys[side]))
        names = [f"k{place}" if place in keys else f"v{place - len(keys)}" for place in range(len(arrays))]
        schema = pa.schema([*((n, array.type) for n, array in zip(names, arrays, strict=True)), (_TIME, pa.int64())])
        known = self._sides[side].schema
        if known is None or not known.equals(schema):
            self._check(side, schema, known)
        schema = with_keys(schema, [names[place] for place in keys])
        self._sides[side].schema = schema
        batch = pa.RecordBatch.from_arrays([*arrays, pa.array(stamps)], schema=schema)
        return Piece(batch if rows is None else batch.take(pa.array(rows)), len(keys))

    def _check(self, side: int, schema: pa.Schema, known: pa.Schema | None) -> None:
        """Keys of both sides must be comparable, and columns stay what they were."""
        for place, name in enumerate(self._kept[side]):
            kind = schema.field(place).type
            if known is not None and known.field(place).type != kind:
                raise PenstockError(
                    f"{self._where(side)}: column {name!r} was of {known.field(place).type} and is now of {kind}: cast it to "
                    "one type before the join"
                )
            if place < len(self.keys[side]) and pa.types.is_nested(kind):
                raise PenstockError(
                    f"{self._where(side)}: column {name!r} is a {kind}, which cannot be a key of columns: join by columns made "
                    "of its parts"
                )
        other = self._sides[1 - side].schema
        for mine, theirs in zip(self.keys[side], self.keys[1 - side], strict=True):
            here = schema.field(self.keys[side].index(mine)).type
            there = None if other is None else other.field(self.keys[1 - side].index(theirs)).type
            check_kinds(self._where(side), (mine, here), (theirs, there))

    # ---------------------------------------------------------------- pairs

    def join(self, side: int, piece: Piece, other: Piece, pairs: Pairs, at: int | None = None) -> None:
        """Pairs of rows of a piece of one side and a piece of the other become results, at their later time or at the one
        that is given."""
        for rows, other_rows in pairs:
            for mine, theirs in _within_bytes(piece, rows, other, other_rows):
                both = ((piece, mine), (other, theirs))
                self._result(both if side == LEFT else both[::-1], at)

    def _result(self, both: Sequence[tuple[Piece, Numbers]], at: int | None) -> None:
        names, arrays = [], []
        for side, (piece, rows) in enumerate(both):
            taken = pa.array(rows)
            for name, column in self.chosen[side].items():
                names.append(name)
                arrays.append(piece.batch.column(self._kept[side].index(column)).take(taken))
        stamps: TimestampArray | None
        if at is not None:
            stamps = np.full(len(both[LEFT][1]), at)
        else:
            stamps = np.maximum(*(piece.times[rows] for piece, rows in both))
            stamps = None if stamps.min() == MIN_WATERMARK else stamps
        result = Columns(pa.RecordBatch.from_arrays(arrays, names), stamps)
        gathered = self._gathered
        full = (
            gathered.rows + len(result) > self.ctx.block_size
            or gathered.bytes + result.batch.nbytes > BLOCK_BYTES
            or not gathered.takes(result)
        )
        if full:
            self._send()
        self._gathered.add(result)

    def _send(self) -> None:
        if self._gathered.rows:
            self.ctx.metrics.records_out += self._gathered.rows
            gathered, self._gathered = self._gathered, GatheredColumns()
            self.ctx.output.block(gathered.joined())


class ColumnarJoinOverAllTime(ColumnarJoinOperator):
    """Every record meets all of its key that the other side has had or will have, so both sides are kept for good. Results
    carry the later time of both; records without a time may be joined too."""

    holds = "columns of a join over all time"

    def take_in(self, side: int, columns: Columns) -> None:
        piece = self.piece(side, columns)
        for other in self._sides[1 - side].pieces(0):
            self.join(side, piece, other, all_pairs(piece.run, other.run, self.ctx.block_size))
        self._sides[side].add(0, piece)


def check_kinds(where: str, mine: tuple[str, pa.DataType], theirs: tuple[str, pa.DataType | None]) -> None:
    """PenstockError if values of these key columns cannot be compared."""
    kinds = [None if kind is None else kind_of_key(kind) for _, kind in (mine, theirs)]
    if None in kinds or "any" in kinds or kinds[0] == kinds[1]:
        return
    raise PenstockError(
        f"{where}: the key {mine[0]!r} is of {mine[1]}, and {theirs[0]!r}, which it is compared with, of {theirs[1]}: cast one "
        "of them before the join"
    )


def _within_bytes(piece: Piece, rows: Numbers, other: Piece, other_rows: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
    """The pairs, a part at a time that is no larger than a block may be: one large row may be in many pairs."""
    ends = np.cumsum(piece.sizes[rows] + other.sizes[other_rows])
    if ends[-1] <= BLOCK_BYTES:
        yield rows, other_rows
        return
    cuts = np.flatnonzero(np.diff(ends // BLOCK_BYTES)) + 1
    yield from zip(np.split(rows, cuts), np.split(other_rows, cuts), strict=True)
