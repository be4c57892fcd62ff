"""Exchange rows: one schema for everything that moves between two levels.

`target` is the partition the row goes to, `level` the level that consumes it (ACK_LEVEL: the driver), then the
consuming vertex, its channel, the row's number on that channel, what it is, and the payload.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from penstock.common.options import JobOptions
from penstock.common.types import Row
from penstock.errors import BadRecordError, ProtocolError
from penstock.protocol.events import Barrier, Data, EndOfData, Event, IdleStatus, LatencyMarker, Watermark
from penstock.records import Block, Columns, Rows
from penstock.records.codec import (
    BlockKind,
    batch_to_bytes,
    bytes_to_batch,
    decode_block,
    encoded_blocks,
    with_timestamps,
    without_timestamps,
)
from penstock.records.narrow_columns import narrowed, widened
from penstock.records.sizes import BLOCK_BYTES, bytes_of, part_of

SCHEMA: Final = pa.schema(
    [
        ("target", pa.int32()),
        ("level", pa.int32()),
        ("vertex", pa.int32()),
        ("channel", pa.int32()),
        ("seq", pa.int64()),
        ("kind", pa.int32()),
        ("payload", pa.binary()),
    ]
)
SPARK_SCHEMA: Final = "target int, level int, vertex int, channel int, seq long, kind int, payload binary"
ACK_LEVEL: Final = 1 << 20


class EventKind(IntEnum):
    """The kind of a row. The numbers of blocks are those of `BlockKind`: they are in checkpoints too."""

    ROWS = BlockKind.ROWS
    COLUMNS = BlockKind.COLUMNS
    WATERMARK = 2
    IDLE = 3
    BARRIER = 4
    END = 5
    ACK = 6
    INGEST = 7  # a block Spark read: payload is (split, ordinal, Arrow IPC)
    HEARTBEAT = 8  # says nothing but that the epoch is on
    LATENCY = 9
    NARROW = 10  # columns whose numbers have as many bytes as they need


_LONG = struct.Struct("<q")
_BARRIER_STRUCT = struct.Struct("<q?")
_DOUBLE = struct.Struct("<d")


def encode_event(event: Event, largest: int | None = None) -> Iterator[tuple[int, bytes]]:
    """One row, or of a block that is larger than it may be, several. BadRecordError if a single record takes more than `largest`
    bytes."""
    if isinstance(event, Data):
        narrow = _narrowed(event.block)
        if narrow is not None:
            yield EventKind.NARROW, batch_to_bytes(narrow)
            return
        for kind, payload in encoded_blocks(event.block):
            if largest is not None and len(payload) > max(largest, BLOCK_BYTES):
                raise BadRecordError(_too_large(event.block, len(payload), largest))
            yield kind, payload
    else:
        yield _encode_control(event)


def _narrowed(block: Block) -> pa.RecordBatch | None:
    """None: it goes as it is. Neither a single record nor the whole is near a limit if it is not."""
    if isinstance(block, Rows) or block.batch.nbytes > BLOCK_BYTES // 2:
        return None
    return narrowed(with_timestamps(block))


def _too_large(block: Block, size: int, largest: int) -> str:
    sizes = [bytes_of(part_of(block, index, index + 1)) for index in range(len(block))]
    largest_one = sizes.index(max(sizes))
    if isinstance(block, Columns):
        shown = _outline(block.batch.slice(largest_one, 1).to_pylist()[0])
    else:
        shown = _outline(block.values[largest_one])
    return (
        f"a record of {size} bytes cannot go to another subtask, because {JobOptions.RECORD_SIZE} is {largest}: Spark's exchange "
        "copies a record several times in the heap of a JVM. Keep what is large in files or a store and send where it is; or set "
        "that option, and spark.driver.memory and spark.executor.memory to some ten times as much. It is "
        f"{shown}"
    )


def _outline(value: Any, deep: int = 2) -> str:
    """A large value, without making another one of it."""
    if isinstance(value, str | bytes | bytearray):
        return repr(value) if len(value) <= 40 else f"{value[:20]!r}… ({len(value)} long)"
    if isinstance(value, dict) and deep:
        return f"{{{', '.join(f'{name!r}: {_outline(value[name], deep - 1)}' for name in islice(value, 8))}}}"
    if isinstance(value, tuple | list | Row) and deep:
        return f"({', '.join(_outline(item, deep - 1) for item in islice(value, 8))})"
    if value is None or isinstance(value, int | float):
        return repr(value)
    return f"a {type(value).__qualname__}"


def _encode_control(event: Watermark | IdleStatus | Barrier | EndOfData | LatencyMarker) -> tuple[int, bytes]:
    match event:
        case Watermark(timestamp):
            return EventKind.WATERMARK, _LONG.pack(timestamp)
        case IdleStatus(idle):
            return EventKind.IDLE, b"\1" if idle else b"\0"
        case Barrier(epoch, checkpoint):
            return EventKind.BARRIER, _BARRIER_STRUCT.pack(epoch, checkpoint)
        case EndOfData():
            return EventKind.END, b""
        case LatencyMarker(source, at_ms):
            return EventKind.LATENCY, _DOUBLE.pack(at_ms) + source.encode()


def decode_event(kind: int, payload: bytes | memoryview) -> Event:
    """The event that a row of an exchange carries."""
    match kind:
        case EventKind.ROWS | EventKind.COLUMNS:
            return Data(decode_block(kind, payload))
        case EventKind.NARROW:
            return Data(without_timestamps(widened(bytes_to_batch(payload))))
        case EventKind.WATERMARK:
            return Watermark(_LONG.unpack(payload)[0])
        case EventKind.IDLE:
            return IdleStatus(payload == b"\1")
        case EventKind.BARRIER:
            epoch, checkpoint = _BARRIER_STRUCT.unpack(payload)
            return Barrier(epoch, checkpoint)
        case EventKind.END:
            return EndOfData()
        case EventKind.LATENCY:
            return LatencyMarker(bytes(payload[_DOUBLE.size :]).decode(), _DOUBLE.unpack_from(payload)[0])
    raise ProtocolError(f"an exchange row of unknown kind {kind} arrived: driver and slots run different versions?")


class RowBuffer:
    """Gathers outgoing rows and turns them into record batches of bounded size."""

    def __init__(self, max_rows: int = 256, max_bytes: int = 4 << 20) -> None:
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._columns: tuple[list[Any], ...] = ([], [], [], [], [], [], [])
        self._bytes = 0

    def add(self, target: int, level: int, vertex: int, channel: int, seq: int, kind: int, payload: bytes) -> bool:
        """True when it is time to take a batch."""
        for column, value in zip(self._columns, (target, level, vertex, channel, seq, kind, payload), strict=True):
            column.append(value)
        self._bytes += len(payload)
        return self._bytes >= self._max_bytes or len(self._columns[0]) >= self._max_rows

    def take(self) -> pa.RecordBatch | None:
        """The gathered rows as a batch; None if there are none."""
        if not self._columns[0]:
            return None
        arrays = [pa.array(column, field.type) for column, field in zip(self._columns, SCHEMA, strict=True)]
        self._columns = ([], [], [], [], [], [], [])
        self._bytes = 0
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
