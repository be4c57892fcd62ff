"""Blocks are bounded in bytes as well as in records: 10,000 records of 150 kB are more than a frame, or memory, takes.

Of columns the bytes are known. Of Python objects they are estimated from a few, evenly spaced: a guess that costs next to
nothing keeps memory bounded, and the exchange, which has the bytes in hand, cuts exactly (`encoded_blocks`). Both
follow from the records alone, so a replay cuts alike. A single record is never cut.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records import Block, Columns, Rows

BLOCK_BYTES: Final = 16 << 20

FIRST_LOOK: Final = 64  # few, until it is known how large they are
_SAMPLE: Final = 8  # values looked at
_STEP: Final = 2048  # values gathered between two looks
_DEEP: Final = 3  # containers in containers

_FLAT: Final = frozenset({int, float, bool, str, bytes, type(None)})

_TEXTS: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)

T = TypeVar("T")


def about(values: Sequence[Any]) -> int:
    """Estimated bytes of so many values."""
    count = len(values)
    if count <= _SAMPLE:
        return sum(_size(value, _DEEP) for value in values)
    sampled = sum(_size(values[i * count // _SAMPLE], _DEEP) for i in range(_SAMPLE))
    return sampled * count // _SAMPLE


def _size(value: Any, deep: int) -> int:
    kind = type(value)
    if kind is int or kind is float or value is None:
        return 8
    if kind is str or kind is bytes:
        return len(value)
    if kind is tuple and _FLAT.issuperset(map(type, value)):  # most records: without a step in Python for each field
        return sum(map(sys.getsizeof, value))
    if not deep:
        return sys.getsizeof(value, 64)
    if isinstance(value, tuple | list):
        return _sizes(value, deep - 1)
    if isinstance(value, dict):
        return _sizes(list(value.values()), deep - 1) + 16 * len(value)
    nbytes = getattr(value, "nbytes", None)  # arrays, tables
    if isinstance(nbytes, int):
        return nbytes
    inside = getattr(value, "__dict__", None)
    held = 0 if inside is None else _sizes(list(inside.values()), deep - 1)
    return held + sys.getsizeof(value, 64)


def _sizes(values: Sequence[Any], deep: int) -> int:
    count = len(values)
    if count <= 32:
        return sum(_size(value, deep) for value in values)
    return sum(_size(values[i * count // _SAMPLE], deep) for i in range(_SAMPLE)) * count // _SAMPLE


def bytes_of(block: Block) -> int:
    """About how many bytes a block takes in memory."""
    return int(block.batch.nbytes) if isinstance(block, Columns) else about(block.values)


def bytes_of_rows(batch: pa.RecordBatch) -> npt.NDArray[np.int64]:
    """About how many bytes each row takes: of text and bytes exactly, of what has parts on the average."""
    sizes = np.zeros(batch.num_rows, np.int64)
    for column in batch.columns:
        if any(test(column.type) for test in _TEXTS):
            sizes += 4 + pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        else:
            sizes += -(-column.nbytes // max(1, len(column)))
    return sizes


def part_of(block: Block, start: int, stop: int) -> Block:
    """The records of a block from `start` to `stop`."""
    if isinstance(block, Columns):
        stamps = None if block.timestamps is None else block.timestamps[start:stop]
        return Columns(block.batch.slice(start, stop - start), stamps)
    return Rows(block.values[start:stop], None if block.timestamps is None else block.timestamps[start:stop])


def cut(block: Block, records: int, limit: int = BLOCK_BYTES) -> Iterator[Block]:
    """The block in parts, in order: at most `records` records each and about `limit` bytes."""
    if len(block) > records:
        for start in range(0, len(block), records):
            yield from cut(part_of(block, start, min(start + records, len(block))), records, limit)
    elif len(block) > 1 and bytes_of(block) > limit:
        middle = len(block) // 2
        yield from cut(part_of(block, 0, middle), records, limit)
        yield from cut(part_of(block, middle, len(block)), records, limit)
    else:
        yield block


def gathered(values: Iterable[T], records: int, limit: int = BLOCK_BYTES) -> Iterator[list[T]]:
    """What comes, in lists of at most `records` values and about `limit` bytes, without looking far ahead."""
    coming = iter(values)
    part: list[T] = []
    size, step = 0, _SAMPLE  # few, until it is known how large they are
    while chunk := list(islice(coming, min(step, records - len(part)))):
        part += chunk
        found = about(chunk)
        size += found
        fitting = (limit - size) * len(chunk) // max(found, 1)
        if len(part) >= records or fitting < 1:
            yield part
            part, size, fitting = [], 0, limit * len(chunk) // max(found, 1)
        step = max(1, min(_STEP, fitting))
    if part:
        yield part


def next_look(values: Sequence[Any], records: int, limit: int = BLOCK_BYTES) -> int:
    """For who gathers a block one by one: at how many values to look again; 0 if it is full. The first look is due at
    `FIRST_LOOK` values."""
    count = len(values)
    fitting = limit * count // max(about(values), 1)
    return 0 if count >= min(records, fitting) else min(count + _STEP, records, fitting)


def within(sizes: Iterable[int], limit: int = BLOCK_BYTES) -> int:
    """How many of the first values, at least one, fit in `limit` bytes together."""
    count = total = 0
    for size in sizes:
        total += size
        if count and total > limit:
            break
        count += 1
    return count
