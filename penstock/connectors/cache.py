"""The records of a cached stream in storage: a sink that spills them and a source that reads them again.

    <folder>/parts/<epoch>-<subtask>-…     blocks, as they were: rows or columns, with timestamps
    <folder>/committed/<epoch>.json        which parts count, and how many records each has

A job that starts again from the beginning drops what its earlier attempt committed.
"""

from __future__ import annotations

import json
import struct
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.checkpoint.storage import Storage, open_storage
from penstock.functions.connectors import (
    Committer,
    Json,
    Sink,
    SinkWriter,
    Source,
    SourcePlan,
    SplitEnumerator,
    SplitRange,
    SplitReader,
    WriterContext,
)
from penstock.records import Block
from penstock.records.codec import decode_block, encode_block
from penstock.records.sizes import cut

if TYPE_CHECKING:
    from penstock.common.typeinfo import TypeInformation

_PART_BYTES = 8 << 20
_FRAME = struct.Struct("<Bq")  # kind of block, length of what follows
_COMMITTED = "committed"


class CacheSink(Sink):
    """Spills blocks below `url`, which driver and slots must reach."""

    def __init__(self, url: str) -> None:
        self._url = url

    def create_writer(self, context: WriterContext) -> SinkWriter:
        # The committer has made the folder: on a host that does not see it, an empty new one would swallow the records.
        return _Writer(open_storage(self._url, create=False), context.subtask)

    def create_committer(self, sink_id: str) -> Committer:
        return _Committer(open_storage(self._url))


class _Writer(SinkWriter):
    def __init__(self, storage: Storage, subtask: int) -> None:
        self._storage, self._subtask = storage, subtask
        self._epoch = 0
        self._frames: list[bytes] = []
        self._size = self._records = 0
        self._parts: list[tuple[str, int]] = []

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        self._epoch, self._frames, self._parts = epoch, [], []
        self._size = self._records = 0

    def write(self, block: Block) -> None:
        kind, payload = encode_block(block)
        self._frames += [_FRAME.pack(kind, len(payload)), payload]
        self._size += len(payload)
        self._records += len(block)
        if self._size >= _PART_BYTES:
            self._flush()

    def prepare_commit(self) -> list[Any]:
        if self._frames:
            self._flush()
        return list(self._parts)

    def _flush(self) -> None:
        name = f"parts/{self._epoch:010d}-{self._subtask:05d}-{len(self._parts):05d}-{uuid.uuid4().hex[:12]}"
        self._storage.put(name, b"".join(self._frames))
        self._parts.append((name, self._records))
        self._frames, self._size, self._records = [], 0, 0


class _Committer(Committer):
    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        if committables:
            self._storage.put(f"{_COMMITTED}/{epoch:010d}.json", json.dumps(committables).encode())

    def discard_after(self, epoch: int) -> None:
        for path in self._storage.list(_COMMITTED):
            if int(path.removeprefix(f"{_COMMITTED}/").removesuffix(".json")) > epoch:
                self._storage.delete(path)


class CacheSource(Source):
    """What a `CacheSink` has committed below `url`; every part is a split."""

    bounded = True

    def __init__(self, url: str, type_info: TypeInformation | None) -> None:
        self._url, self._type_info = url, type_info

    def create_enumerator(self) -> SplitEnumerator:
        storage = open_storage(self._url)
        return _Enumerator([tuple(p) for file in storage.list(_COMMITTED) for p in json.loads(storage.get(file))])

    def create_reader(self) -> SplitReader:
        return _Reader(open_storage(self._url, create=False))

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._type_info


class _Enumerator(SplitEnumerator):
    def __init__(self, parts: list[tuple[str, int]]) -> None:
        self._parts = parts
        self._next = 0

    def restore(self, state: Json) -> None:
        self._next = int(state)

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        ranges, records = [], 0
        while self._next < len(self._parts) and (max_records is None or records < max_records):
            name, count = self._parts[self._next]
            ranges.append(SplitRange(split=name, ordinal=self._next, start=0, end=count, last=True))
            records += count
            self._next += 1
        finished = self._next == len(self._parts)
        return SourcePlan(ranges=tuple(ranges), state=self._next, finished=finished, records=records)


class _Reader(SplitReader):
    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def read(self, split: SplitRange, block_size: int) -> Iterator[Block]:
        data = memoryview(self._storage.get(split.split))
        at = 0
        while at < len(data):
            kind, length = _FRAME.unpack_from(data, at)
            at += _FRAME.size
            yield from cut(decode_block(kind, bytes(data[at : at + length])), block_size)
            at += length
