"""Blocks as bytes: what moves between processes, and what a loop keeps in its state.

The numbers of `BlockKind` and both encodings are in stored checkpoints: new ones may be added, these stay.

One record batch as bytes: Arrow's IPC stream format, which carries the schema.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.pickling import dump_by_value
from penstock.records.blocks import Block, Columns, Rows
from penstock.records.sizes import BLOCK_BYTES, part_of

_END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"


def batch_to_bytes(batch: pa.RecordBatch) -> bytes:
    """A batch in Arrow's stream format, with its schema."""
    if all(map(_is_flat, batch.schema.types)):
        # The same bytes, for few rows in less than half the time, for many in two thirds of it.
        return b"".join((batch.schema.serialize(), batch.serialize(), _END_OF_STREAM))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _is_flat(kind: pa.DataType) -> bool:
    """Not a dictionary, which is a message of its own, and nothing that could hold one."""
    return not (kind.num_fields or pa.types.is_dictionary(kind) or isinstance(kind, pa.BaseExtensionType))


def bytes_to_batch(payload: bytes | memoryview) -> pa.RecordBatch:
    """Reads what `batch_to_bytes` wrote."""
    with pa.ipc.open_stream(payload) as reader:
        return reader.read_next_batch()


_TIMESTAMP = "__timestamp"


class BlockKind(IntEnum):
    """How a block is encoded."""

    ROWS = 0  # pickled values and timestamps
    COLUMNS = 1  # Arrow IPC, timestamps in a column of their own


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
    """The kind of a block and its bytes."""
    if isinstance(block, Rows):
        return BlockKind.ROWS, dump_by_value((block.values, block.timestamps))
    return BlockKind.COLUMNS, batch_to_bytes(with_timestamps(block))


def with_timestamps(block: Columns) -> pa.RecordBatch:
    """The batch with its timestamps, if there are any, as a column of their own."""
    if block.timestamps is None:
        return block.batch
    return block.batch.append_column(_TIMESTAMP, pa.array(block.timestamps))


def decode_block(kind: int, payload: bytes | memoryview) -> Block:
    """Reads what `encode_block` wrote."""
    if kind == BlockKind.ROWS:
        values, timestamps = pickle.loads(payload)
        return Rows(values, timestamps)
    return without_timestamps(bytes_to_batch(payload))


def without_timestamps(batch: pa.RecordBatch) -> Columns:
    """The block of which `with_timestamps` made the batch."""
    index = batch.schema.get_field_index(_TIMESTAMP)
    if index < 0:
        return Columns(batch, None)
    stamps: Any = np.asarray(batch.column(index))
    names = [name for name in batch.schema.names if name != _TIMESTAMP]
    return Columns(batch.select(names), stamps)
