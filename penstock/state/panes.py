"""State of kind "panes": immutable blocks of partial aggregates, each with rows of many keys.

Other tables have one entry a key, so that a rescale can deal entries out by key group. Here an entry is a whole block,
and a rescale cuts blocks: every new subtask keeps the rows of its own key groups. An entry's name must then say whose
part of the block it is, or the parts would collide when a later rescale brings them together again:

    (pane start, sequence, 0, 128)              written by a subtask that owns key groups [0, 128)
    (pane start, sequence, 0, 128, 64, 128)     what the owner of [64, 128) kept of it after a rescale

A subtask with unchanged key groups keeps the names, so that later deltas of its own still mean the same blocks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.records.codec import batch_to_bytes, bytes_to_batch
from penstock.state.column_keys import key_groups_of_columns
from penstock.state.overlay import TOMBSTONE, OverlayTable
from penstock.state.snapshot_file import TableDelta

PANES: Final = "panes"

# Columns of blocks whose rows have bounds of their own, as sessions have: their pane says nothing.
START: Final = "start"
END: Final = "end"

BlockName: TypeAlias = tuple[int, ...]  # (pane start, sequence, then (first, end) of key groups once or more)

_KEYS: Final = b"penstock.keys"


def block_name(pane: int, sequence: int, owned: range) -> BlockName:
    """The name under which a block of panes is kept."""
    return (pane, sequence, owned.start, owned.stop)


def with_keys(schema: pa.Schema, keys: Iterable[str]) -> pa.Schema:
    """The schema of a block says which columns are the key: a restore must be able to cut it."""
    return schema.with_metadata({_KEYS: json.dumps(list(keys)).encode()})


def encode_panes(operator: str, name: str, pairs: list[tuple[BlockName, Any]], full: bool) -> TableDelta:
    """Blocks of panes as a table of a snapshot."""
    deleted = [value is TOMBSTONE for _, value in pairs]
    return TableDelta(
        operator=operator,
        name=name,
        kind=PANES,
        full=full,
        key_groups=[key[-2] for key, _ in pairs],  # for people: the block spans [key[-2], key[-1])
        keys=[key for key, _ in pairs],
        namespaces=None,
        values=[b"" if value is TOMBSTONE else batch_to_bytes(value) for _, value in pairs],
        deleted=deleted if any(deleted) else None,
    )


def restore_panes(table: OverlayTable, delta: TableDelta, owned: range, max_parallelism: int) -> None:
    """Load the rows of `owned` key groups of every block."""
    deleted = delta.deleted or [False] * len(delta)
    for key, data, gone in zip(delta.keys, delta.values, deleted, strict=True):
        first, end = key[-2:]
        if end <= owned.start or owned.stop <= first:
            continue
        if (first, end) == (owned.start, owned.stop):
            table.load(key, TOMBSTONE if gone else bytes_to_batch(data))
            continue
        mine = (*key, owned.start, owned.stop)
        if gone:
            table.load(mine, TOMBSTONE)
            continue
        block = _rows_of(bytes_to_batch(data), owned, max_parallelism)
        if block.num_rows:
            table.load(mine, block)


def block_rows(data: bytes) -> Iterator[tuple[Any, dict[str, Any]]]:
    """(key, partial aggregates) of every row of a stored block; a tuple if the key has several columns."""
    block = bytes_to_batch(data)
    names = json.loads(block.schema.metadata[_KEYS])
    for row in block.to_pylist():
        key = tuple(row.pop(name) for name in names)
        yield key[0] if len(key) == 1 else key, row


def _rows_of(block: pa.RecordBatch, owned: range, max_parallelism: int) -> pa.RecordBatch:
    keys = [block.column(name) for name in json.loads(block.schema.metadata[_KEYS])]
    groups = key_groups_of_columns(keys, max_parallelism)
    return block.filter(pa.array(np.logical_and(groups >= owned.start, groups < owned.stop)))
