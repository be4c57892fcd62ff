"""Puts an epoch's rows in order: vertex by vertex, channel by channel, in sequence.

A shuffle delivers the parts of one channel in order but mixes channels. Rows of the channel whose turn it is pass at once;
the others wait, in memory up to a bound and then in a temporary file, so that a large epoch costs disk and not memory.
A gap or a repetition in a channel's numbers is a protocol error: nothing can get lost or doubled unnoticed.
"""

from __future__ import annotations

import pickle
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from typing import IO, Any, TypeAlias

from penstock.errors import ProtocolError

ChannelKey: TypeAlias = tuple[int, int]  # (vertex, channel)
Deliver: TypeAlias = Callable[[ChannelKey, int, bytes], None]  # (channel, kind, payload)

SPILL_AFTER_BYTES = 128 << 20


class _Queue:
    __slots__ = ("expected", "memory", "spill", "spilled")

    def __init__(self) -> None:
        self.expected = 0
        self.memory: deque[tuple[int, int, bytes]] = deque()
        self.spill: IO[bytes] | None = None
        self.spilled = 0


class ChannelOrder:
    """Puts the events of one task into an order that is the same in every attempt: channel by channel, each by
    sequence number. What is missing, repeated or out of order is an error.
    """

    def __init__(self, channels: Sequence[ChannelKey], deliver: Deliver, spill_after: int = SPILL_AFTER_BYTES) -> None:
        self._order = list(channels)
        self._queues = {channel: _Queue() for channel in channels}
        self._deliver = deliver
        self._turn = 0
        self._done: set[ChannelKey] = set()
        self._spill_after = spill_after
        self._held = 0

    def add(self, channel: ChannelKey, seq: int, kind: int, payload: bytes) -> None:
        """Takes a row: delivers it if its channel's turn has come, else keeps it. ProtocolError for one that does not
        follow the row before.
        """
        queue = self._queues.get(channel)
        if queue is None:
            raise ProtocolError(f"a row for vertex {channel[0]}, channel {channel[1]} reached a subtask without it")
        if channel == self._order[self._turn] and not queue.memory and queue.spill is None:
            self._pass(channel, queue, seq, kind, payload)
            self._advance()
            return
        if queue.spill is not None or self._held > self._spill_after:
            if queue.spill is None:
                queue.spill = tempfile.TemporaryFile(prefix="penstock-spill-")  # noqa: SIM115 - closed in _drain
            pickle.dump((seq, kind, payload), queue.spill, protocol=5)
            queue.spilled += 1
        else:
            queue.memory.append((seq, kind, payload))
            self._held += len(payload)

    def channel_done(self, channel: ChannelKey) -> None:
        """Called by `deliver` with the channel's barrier: after it comes the next channel's turn."""
        self._done.add(channel)

    def _advance(self) -> None:
        while self._turn + 1 < len(self._order) and self._order[self._turn] in self._done:
            self._turn += 1
            self._drain(self._order[self._turn])

    def _drain(self, channel: ChannelKey) -> None:
        queue = self._queues[channel]
        while queue.memory:
            seq, kind, payload = queue.memory.popleft()
            self._held -= len(payload)
            self._pass(channel, queue, seq, kind, payload)
        if queue.spill is not None:
            queue.spill.seek(0)
            for _ in range(queue.spilled):
                row: tuple[int, int, Any] = pickle.load(queue.spill)
                self._pass(channel, queue, *row)
            queue.spill.close()
            queue.spill = None

    def _pass(self, channel: ChannelKey, queue: _Queue, seq: int, kind: int, payload: bytes) -> None:
        if seq != queue.expected:
            raise ProtocolError(
                f"vertex {channel[0]}, channel {channel[1]}: row {queue.expected} was expected and row {seq} came: "
                "an exchange lost, repeated or reordered rows"
            )
        queue.expected += 1
        self._deliver(channel, kind, payload)

    def finish(self) -> None:
        """All rows are in: every channel must have brought its barrier."""
        for channel in self._order:
            if channel not in self._done:
                raise ProtocolError(
                    f"the epoch's rows ended before the barrier of vertex {channel[0]}, channel {channel[1]} had come"
                )

    def close(self) -> None:
        """Deletes what was spilled."""
        for queue in self._queues.values():
            if queue.spill is not None:
                queue.spill.close()
                queue.spill = None
