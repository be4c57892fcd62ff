"""The output side of a subtask: which subtask of the next vertex gets which record.

Records are gathered per target and leave as blocks when `block_size` or `BLOCK_BYTES` is reached, and before every
watermark, status or barrier: control events never overtake data.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.common.typeinfo import TypeInformation
from penstock.errors import PenstockError
from penstock.graph.partitioner import (
    Broadcast,
    Custom,
    Forward,
    Global,
    Hash,
    Partitioner,
    Rebalance,
    Rescale,
    Shuffle,
)
from penstock.operators.lean_rows import Reader, are_few, lean_rows, shown
from penstock.operators.number_targets import NumberTargets
from penstock.operators.selectors import ColumnKeySelector, function_of
from penstock.protocol.events import Data, Event, LatencyMarker
from penstock.records import Block, Columns, Rows
from penstock.records.arrow_columns import take_rows
from penstock.records.convert import to_rows
from penstock.records.gathered_columns import GatheredColumns
from penstock.records.sizes import BLOCK_BYTES, about, cut
from penstock.state.bulk_keys import key_groups_in_bulk
from penstock.state.column_keys import key_groups_of_columns
from penstock.state.keys import key_group, subtask_of

Send: TypeAlias = Callable[[int, Event], None]  # (target subtask, event)

_CACHED_KEYS = 500_000
_COLUMN_BYTES: Final = 512 << 10  # of gathered columns that wait no longer; a frame is twice as large


class Router(ABC):
    """One exchange of one upstream subtask."""

    pack: Callable[[Block], Block] | None = None  # typed streams: rows become columns before they travel
    reads: tuple[str, ...] | None = None  # the only columns that are wanted; None: all
    timeout_ms: int | None = None  # how long records may wait for others; None: as all do; -1: until a block is full
    waits_since: float | None = None  # by the clock of who asks: when records were first seen to wait
    column_rows: int | None = None  # of a block of columns, where it may have more records than one of rows

    def __init__(self, targets: range, send: Send, block_size: int) -> None:
        self.targets = targets
        self._send = send
        self._block_size = block_size
        self._rows: dict[int, Rows] = {}
        self._bytes: dict[int, int] = {}  # of these, about
        self._columns: dict[int, GatheredColumns] = {}  # a target has rows, or columns, or nothing
        self._markers = 0  # so many have passed

    def route(self, block: Block) -> None:
        """Takes a block; its records leave when enough are gathered for their target."""
        if len(block):
            self._route(block)

    @abstractmethod
    def _route(self, block: Block) -> None: ...

    def begin_epoch(self, epoch: int) -> None:  # noqa: B027 - only some partitioners choose
        """Round robin and random choices start again with every epoch, so that a replay makes the same."""

    def broadcast(self, event: Event) -> None:
        """A control event for every connected subtask, behind everything sent so far."""
        self.flush()
        for target in self.targets:
            self._send(target, event)

    def mark(self, marker: LatencyMarker) -> None:
        """To one of the connected subtasks, behind what was sent to it; the next marker goes to the next one."""
        target = self.targets[self._markers % len(self.targets)]
        self._markers += 1
        self._flush(target)
        self._send(target, marker)

    @property
    def gathered(self) -> bool:
        """Something waits for more to leave with it."""
        return bool(self._rows or self._columns)

    @property
    def due(self) -> float | None:
        """When what waits should leave, in seconds; None: nothing waits, or not for the clock."""
        if self.waits_since is None or self.timeout_ms is None or self.timeout_ms < 0:
            return None
        return self.waits_since + self.timeout_ms / 1000

    def flush(self) -> None:
        """Sends everything that was gathered. Called before every watermark and barrier."""
        for target in sorted([*self._rows, *self._columns]):
            self._flush(target)

    def _flush(self, target: int) -> None:
        columns = self._columns.pop(target, None)
        if columns is not None:
            self._send_block(target, columns.joined())
            return
        size = self._bytes.pop(target, 0)
        rows = self._rows.pop(target, None)
        if rows is None or not rows.values:
            return
        if self.pack is None and size < BLOCK_BYTES and len(rows) <= self._block_size:
            self._send(target, Data(rows))  # there is nothing to cut
        else:
            self._send_block(target, rows)

    def _send_block(self, target: int, block: Block) -> None:
        if self.pack is not None:
            block = self.pack(block)
            if isinstance(block, Columns):
                block = self._wanted(block)
        for part in cut(block, self._most_rows(block)):
            self._send(target, Data(part))

    def _wanted(self, block: Columns) -> Columns:
        """Without columns that nobody reads. Where one is missing that somebody does, that one will say so."""
        reads, names = self.reads, block.batch.schema.names
        if reads is None or len(reads) >= len(names) or any(names.count(name) != 1 for name in reads):
            return block
        return Columns(block.batch.select(list(reads)), block.timestamps)

    def put(self, target: int, block: Block) -> None:
        """All of a block for one target."""
        if isinstance(block, Columns):
            self._gather(target, self._wanted(block))
            return
        if target in self._columns:
            self._flush(target)
        pending = self._rows.get(target)
        if pending is None:
            self._rows[target] = Rows(list(block.values), None if block.timestamps is None else list(block.timestamps))
        else:
            if (pending.timestamps is None) != (block.timestamps is None):
                self._flush(target)
                self._rows[target] = Rows(
                    list(block.values), None if block.timestamps is None else list(block.timestamps)
                )
            else:
                pending.values.extend(block.values)
                if pending.timestamps is not None and block.timestamps is not None:
                    pending.timestamps.extend(block.timestamps)
        self._bytes[target] = self._bytes.get(target, 0) + about(block.values)
        if len(self._rows[target]) >= self._block_size or self._bytes[target] >= BLOCK_BYTES:
            self._flush(target)

    def _gather(self, target: int, block: Columns) -> None:
        """What a block has for one target is little if there are many: it waits for more, until that is worth a frame."""
        columns = self._columns.get(target)
        if columns is None or not columns.takes(block) or columns.rows + len(block) > self._most_rows(block):
            self._flush(target)
            columns = self._columns[target] = GatheredColumns()
        columns.add(block)
        if columns.bytes >= _COLUMN_BYTES or columns.rows >= self._most_rows(block):
            self._flush(target)

    def _most_rows(self, block: Block) -> int:
        return self._block_size if self.column_rows is None or isinstance(block, Rows) else self.column_rows

    def scatter(self, rows: Rows, chosen: list[int]) -> None:
        """`chosen[i]` is the target of record i."""
        count = len(self.targets)
        if count == 1:
            self.put(self.targets.start, rows)
            return
        values: dict[int, list[Any]] = {t: [] for t in self.targets}
        if rows.timestamps is None:
            adders = {t: v.append for t, v in values.items()}
            for value, target in zip(rows.values, chosen, strict=True):
                adders[target](value)
            for target, part in values.items():
                if part:
                    self.put(target, Rows(part, None))
            return
        stamps: dict[int, list[int | None]] = {t: [] for t in self.targets}
        for value, stamp, target in zip(rows.values, rows.timestamps, chosen, strict=True):
            values[target].append(value)
            stamps[target].append(stamp)
        for target, part in values.items():
            if part:
                self.put(target, Rows(part, stamps[target]))

    def scatter_rows(self, rows: Rows, chosen: Any) -> None:
        """`scatter` with an array: without a step in Python for each record."""
        for target in self.targets:
            indices = np.flatnonzero(chosen == target).tolist()
            if len(indices) == len(rows):
                self.put(target, rows)
            elif indices:
                stamps = None if rows.timestamps is None else list(map(rows.timestamps.__getitem__, indices))
                self.put(target, Rows(list(map(rows.values.__getitem__, indices)), stamps))

    def scatter_columns(self, block: Columns, chosen: Any) -> None:
        """Sends each row of a columnar block to the target that `chosen` has for it."""
        for target in self.targets:
            indices = np.flatnonzero(chosen == target)
            if len(indices) == len(block):
                self.put(target, block)
            elif len(indices):
                stamps = None if block.timestamps is None else block.timestamps[indices]
                self.put(target, Columns(take_rows(block.batch, indices), stamps))


class SingleRouter(Router):
    """Forward and global: one target."""

    def __init__(self, target: int, targets: range, send: Send, block_size: int) -> None:
        super().__init__(targets, send, block_size)
        self._target = target

    def _route(self, block: Block) -> None:
        self.put(self._target, block)


class BroadcastRouter(Router):
    """Sends every block to every subtask."""

    def _route(self, block: Block) -> None:
        for target in self.targets:
            self.put(target, block)


class HashRouter(Router):
    """Sends each record to the subtask that owns its key group; columns stay columns, also where a function makes the key."""

    def __init__(
        self,
        selector: Any,
        parallelism: int,
        max_parallelism: int,
        input_type: TypeInformation | None,
        send: Send,
        block_size: int,
    ) -> None:
        super().__init__(range(parallelism), send, block_size)
        self._selector = selector
        self._max = max_parallelism
        self._type = input_type
        self._cache: dict[Any, int] = {}
        self._numbers = NumberTargets(lambda column: self._targets_of([column]), parallelism)

    def _targets_of(self, keys: list[pa.Array]) -> npt.NDArray[Any]:
        return self._targets_of_groups(key_groups_of_columns(keys, self._max))

    def _targets_of_groups(self, groups: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return groups.astype(np.int64) * len(self.targets) // self._max

    def _route(self, block: Block) -> None:
        selector = self._selector
        if (
            isinstance(block, Columns)
            and isinstance(selector, ColumnKeySelector)
            and selector.reads_columns(block.batch)
        ):
            keys = selector.columns_of(block.batch)
            chosen = self._numbers.of(keys[0]) if len(keys) == 1 else self._targets_of(keys)
            self.scatter_columns(self._wanted(block), chosen)
            return
        if isinstance(block, Columns) and not are_few(block):
            self._route_by_function(block)
            return
        rows = to_rows(block, self._type)
        keys = list(map(selector, rows.values))
        in_bulk = key_groups_in_bulk(keys, self._max)
        if in_bulk is None:
            self.scatter(rows, self._one_by_one(rows.values, keys))
        else:
            self.scatter_rows(rows, self._targets_of_groups(in_bulk))

    def _route_by_function(self, block: Columns) -> None:
        """Only the keys are Python's: what travels are columns, as they came."""
        lean = lean_rows(block, self._type, [Reader(function_of(self._selector))])
        rows = to_rows(block, self._type) if lean is None else lean.rows
        keys = list(map(self._selector, rows.values))
        in_bulk = key_groups_in_bulk(keys, self._max)
        if in_bulk is None:
            chosen = np.asarray(self._one_by_one(rows.values, keys, partial(shown, lean, block, self._type)))
        else:
            chosen = self._targets_of_groups(in_bulk)
        self.scatter_columns(self._wanted(block), chosen)

    def _one_by_one(
        self, values: list[Any], keys: list[Any], show: Callable[[Any], Any] = lambda value: value
    ) -> list[int]:
        cache, chosen = self._cache, []
        if len(cache) > _CACHED_KEYS:
            cache.clear()
        for value, key in zip(values, keys, strict=True):
            try:
                target = cache.get(key)
            except TypeError as error:
                raise PenstockError(
                    f"the key selector returned {key!r} ({type(key).__name__}) for {show(value)!r}: a key must be hashable, or a "
                    "list, dict or set of what is"
                ) from error
            if target is None:
                target = cache[key] = subtask_of(key_group(key, self._max), len(self.targets), self._max)
            chosen.append(target)
        return chosen


class RoundRobinRouter(Router):
    """Rebalance and rescale."""

    def __init__(self, upstream: int, targets: range, send: Send, block_size: int) -> None:
        super().__init__(targets, send, block_size)
        self._upstream = upstream
        self._next = 0
        self.begin_epoch(0)

    def begin_epoch(self, epoch: int) -> None:
        self._next = (epoch + self._upstream) % len(self.targets)

    def _route(self, block: Block) -> None:
        count, start = len(self.targets), self.targets.start
        if isinstance(block, Columns):
            chosen = start + (self._next + np.arange(len(block))) % count
            self.scatter_columns(block, chosen)
        else:
            self.scatter(block, [start + (self._next + i) % count for i in range(len(block))])
        self._next = (self._next + len(block)) % count


class ShuffleRouter(Router):
    """Random but repeatable: a hash of epoch, upstream subtask and position."""

    def __init__(self, upstream: int, targets: range, send: Send, block_size: int) -> None:
        super().__init__(targets, send, block_size)
        self._upstream = upstream
        self._epoch = self._sequence = 0

    def begin_epoch(self, epoch: int) -> None:
        self._epoch, self._sequence = epoch, 0

    def _route(self, block: Block) -> None:
        chosen = []
        for _ in range(len(block)):
            seed = b"%d/%d/%d" % (self._epoch, self._upstream, self._sequence)
            chosen.append(self.targets[zlib.crc32(seed) % len(self.targets)])
            self._sequence += 1
        if isinstance(block, Columns):
            self.scatter_columns(block, np.asarray(chosen))
        else:
            self.scatter(block, chosen)


class CustomRouter(Router):
    """Sends each record where the user's partitioner says."""

    def __init__(
        self,
        partition: Any,
        selector: Any,
        input_type: TypeInformation | None,
        targets: range,
        send: Send,
        block_size: int,
    ) -> None:
        super().__init__(targets, send, block_size)
        self._partition, self._selector, self._type = partition, selector, input_type

    def _route(self, block: Block) -> None:
        rows = to_rows(block, self._type)
        chosen = []
        for value in rows.values:
            target = self._partition(self._selector(value), len(self.targets))
            if not isinstance(target, int) or target not in self.targets:
                raise PenstockError(
                    f"the custom partitioner chose {target!r} for record {value!r}; it must return an int from 0 to "
                    f"{len(self.targets) - 1}"
                )
            chosen.append(target)
        self.scatter(rows, chosen)


def create_router(
    partitioner: Partitioner,
    *,
    upstream: int,
    targets: range,
    max_parallelism: int,
    input_type: TypeInformation | None,
    send: Send,
    block_size: int,
) -> Router:
    """The router for a partitioner, for one sender."""
    match partitioner:
        case Forward():
            return SingleRouter(upstream, targets, send, block_size)
        case Global():
            return SingleRouter(0, targets, send, block_size)
        case Hash(selector):
            return HashRouter(selector, len(targets), max_parallelism, input_type, send, block_size)
        case Broadcast():
            return BroadcastRouter(targets, send, block_size)
        case Rebalance() | Rescale():
            return RoundRobinRouter(upstream, targets, send, block_size)
        case Shuffle():
            return ShuffleRouter(upstream, targets, send, block_size)
        case Custom(partition, selector):
            return CustomRouter(partition, selector, input_type, targets, send, block_size)
    assert_never(partitioner)
