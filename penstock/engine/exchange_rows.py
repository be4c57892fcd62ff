"""Exchange rows: one schema for everything that moves between two levels.

`target` is the partition the row goes to, `level` the level that consumes it (ACK_LEVEL: the driver), then the
consuming vertex, its channel, the row's number on that channel, what it is, and the payload.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.errors import ProtocolError
from penstock.pickling import dump_by_value
from penstock.protocol.events import Barrier, Data, EndOfData, Event, IdleStatus, Watermark
from penstock.records import Block, Columns, Rows
from penstock.records.arrow_ipc import batch_to_bytes, bytes_to_batch
from penstock.records.sizes import BLOCK_BYTES, part_of

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

_ROWS, _COLUMNS, _WATERMARK, _IDLE, _BARRIER, _END, ACK = range(7)
INGEST: Final = 7  # a block Spark read: payload is (split, ordinal, Arrow IPC)
HEARTBEAT: Final = 8  # says nothing but that the epoch is on
_LONG = struct.Struct("<q")
_BARRIER_STRUCT = struct.Struct("<q?")
_TIMESTAMP = "__timestamp"


def encode_event(event: Event) -> Iterator[tuple[int, bytes]]:
    """One row, or of a block that is larger than it may be, several."""
    if isinstance(event, Data):
        yield from encoded_blocks(event.block)
    else:
        yield _encode_control(event)


def _encode_control(event: Watermark | IdleStatus | Barrier | EndOfData) -> tuple[int, bytes]:
    match event:
        case Watermark(timestamp):
            return _WATERMARK, _LONG.pack(timestamp)
        case IdleStatus(idle):
            return _IDLE, b"\1" if idle else b"\0"
        case Barrier(epoch, checkpoint):
            return _BARRIER, _BARRIER_STRUCT.pack(epoch, checkpoint)
        case EndOfData():
            return _END, b""


def decode_event(kind: int, payload: bytes) -> Event:
    match kind:
        case 0 | 1:
            return Data(decode_block(kind, payload))
        case 2:
            return Watermark(_LONG.unpack(payload)[0])
        case 3:
            return IdleStatus(payload == b"\1")
        case 4:
            epoch, checkpoint = _BARRIER_STRUCT.unpack(payload)
            return Barrier(epoch, checkpoint)
        case 5:
            return EndOfData()
    raise ProtocolError(f"an exchange row of unknown kind {kind} arrived: driver and slots run different versions?")


def encoded_blocks(block: Block, limit: int = BLOCK_BYTES) -> Iterator[tuple[int, bytes]]:
    """In parts of at most `limit` bytes, if a record is not larger by itself."""
    kind, payload = encode_block(block)
    if len(payload) <= limit or len(block) <= 1:
        yield kind, payload
        return
    del payload  # twice the block is enough to hold
    middle = len(block) // 2
    yield from encoded_blocks(part_of(block, 0, middle), limit)
    yield from encoded_blocks(part_of(block, middle, len(block)), limit)


def encode_block(block: Block) -> tuple[int, bytes]:
    if isinstance(block, Rows):
        return _ROWS, dump_by_value((block.values, block.timestamps))
    batch = block.batch
    if block.timestamps is not None:
        batch = batch.append_column(_TIMESTAMP, pa.array(block.timestamps))
    return _COLUMNS, batch_to_bytes(batch)


def decode_block(kind: int, payload: bytes) -> Block:
    if kind == _ROWS:
        values, timestamps = pickle.loads(payload)
        return Rows(values, timestamps)
    batch = bytes_to_batch(payload)
    index = batch.schema.get_field_index(_TIMESTAMP)
    if index < 0:
        return Columns(batch, None)
    stamps: Any = np.asarray(batch.column(index))
    names = [name for name in batch.schema.names if name != _TIMESTAMP]
    return Columns(batch.select(names), stamps)


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
        if not self._columns[0]:
            return None
        arrays = [pa.array(column, field.type) for column, field in zip(self._columns, SCHEMA, strict=True)]
        self._columns = ([], [], [], [], [], [], [])
        self._bytes = 0
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
