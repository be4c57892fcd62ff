"""Frames: what a host sends to one partition of the next level in one row, the events of all vertices and channels.

A row costs the same however little is in it, so events are gathered, and a frame leaves when it is large or when nothing more
is to come for now.
"""

from __future__ import annotations

import itertools
import struct
from array import array
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

_HEADER: Final = struct.Struct("<HiiqBIx")  # level, vertex, channel, number on the channel, kind, size; 24 bytes
_PADDING: Final = tuple(bytes(-size % 8) for size in range(8))  # Arrow reads columns in place, and wants them aligned
_SCHEMA: Final = pa.schema([("target", pa.int32()), ("payload", pa.binary())])


_ROW_MS: Final = 0.3  # of CPU, in an exchange, whatever is in the row; measured, see docs/design/0008-pipelined.md
_SHARE: Final = 0.3  # of all cores, for that
_LEAST_GAP_MS, _MOST_GAP_MS = 2.0, 1000.0


def flush_gap_ms(levels: int, slots: int, cores: int) -> float:
    """How often hosts may send so that rows alone do not fill the cores: each of (levels - 1) × slots hosts sends a frame to each
    of `slots` targets."""
    rows = (levels - 1) * slots * slots
    return min(_MOST_GAP_MS, max(_LEAST_GAP_MS, rows * _ROW_MS / (_SHARE * max(1, cores))))


class FrameBuffer:
    """Gathers the events for each target. Not thread-safe."""

    def __init__(self, targets: int) -> None:
        self._frames: list[list[Any]] = [[] for _ in range(targets)]
        self.size = 0

    def add(self, target: int, level: int, vertex: int, channel: int, seq: int, kind: int, payload: Any) -> None:
        """An event for a subtask of the next level, or of one behind it."""
        frame, size = self._frames[target], len(payload)
        frame.append(_HEADER.pack(level, vertex, channel, seq, kind, size))
        frame.append(payload)
        frame.append(_PADDING[size % 8])
        self.size += size + _HEADER.size

    @property
    def waiting(self) -> bool:
        """Something is gathered."""
        return self.size > 0

    def take(self) -> pa.RecordBatch | None:
        """A row for each target that something is for. None: there is nothing to send."""
        if not self.size:
            return None
        targets = [target for target, frame in enumerate(self._frames) if frame]
        pieces = [piece for target in targets for piece in self._frames[target]]
        ends = [0, *itertools.accumulate(sum(map(len, self._frames[target])) for target in targets)]
        for target in targets:
            self._frames[target] = []
        self.size = 0
        payload = pa.Array.from_buffers(
            pa.binary(), len(targets), [None, pa.py_buffer(array("i", ends)), pa.py_buffer(b"".join(pieces))]
        )
        return pa.RecordBatch.from_arrays([pa.array(targets, pa.int32()), payload], schema=_SCHEMA)


def events_in(frame: memoryview) -> Iterator[tuple[int, int, int, int, int, memoryview]]:
    """(level, vertex, channel, number on the channel, kind, payload) of every event, in the order in which they were sent."""
    at, end = 0, len(frame)
    while at < end:
        level, vertex, channel, seq, kind, size = _HEADER.unpack_from(frame, at)
        at += _HEADER.size
        yield level, vertex, channel, seq, kind, frame[at : at + size]
        at += size + (-size % 8)
