"""Running a source to its end without an engine."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from penstock.connectors.base import Source, SplitRange, SplitReader
from penstock.records import Block, Columns

Record = tuple[Any, int | None]


def records_of(blocks: Iterable[Block], block_size: int) -> list[Record]:
    """Values with their timestamps; rows of columns as dicts."""
    records: list[Record] = []
    for block in blocks:
        assert 0 < len(block) <= block_size
        values = block.batch.to_pylist() if isinstance(block, Columns) else block.values
        stamps = [None] * len(block) if block.timestamps is None else [t and int(t) for t in block.timestamps]
        assert len(stamps) == len(values)
        records += zip(values, stamps, strict=True)
    return records


def read(reader: SplitReader, split: SplitRange, block_size: int = 10_000) -> list[Record]:
    return records_of(reader.read(split, block_size), block_size)


def drain(
    source: Source, *, max_records: int | None = None, block_size: int = 10_000, restore_each_epoch: bool = False
) -> dict[str, list[Record]]:
    """All records by split. `restore_each_epoch` replaces the enumerator after every plan by a restored one."""
    enumerator, reader = source.create_enumerator(), source.create_reader()
    records: dict[str, list[Record]] = {}
    ended: set[str] = set()
    for now_ms in range(100_000):
        plan = enumerator.plan(now_ms=now_ms, max_records=max_records)
        for split in plan.ranges:
            assert split.split not in ended, "a range follows one that was marked last"
            records.setdefault(split.split, []).extend(read(reader, split, block_size))
            if split.last:
                ended.add(split.split)
        if plan.finished:
            assert ended == set(records), "finished, but not every split was marked last"
            return records
        if restore_each_epoch:
            enumerator = source.create_enumerator()
            enumerator.restore(json.loads(json.dumps(plan.state)))
    raise AssertionError("the source did not finish")
