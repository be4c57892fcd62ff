"""Slot side of the Kafka source: one consumer for all partitions of a subtask, kept open and fetching between epochs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from penstock.connectors.kafka.client import Cluster, KafkaError, confluent_kafka
from penstock.connectors.kafka.deserialization import Decoder
from penstock.connectors.kafka.offsets import KafkaTopicPartition
from penstock.functions.connectors import SplitRange, SplitReader
from penstock.records import Block
from penstock.records.sizes import within

_FETCH = 10_000  # messages taken from the client at once
_AHEAD = 100_000  # messages kept of a partition that is not being read; beyond, it is paused


class _Buffer:
    """What has come from one partition and was not read yet."""

    __slots__ = ("complete_to", "messages", "next", "paused", "size")

    def __init__(self, start: int) -> None:
        self.messages: deque[list[Any]] = deque()
        self.size = 0
        self.next = start  # where reading goes on
        self.complete_to = start  # everything below this offset has come
        self.paused = False


class KafkaReader(SplitReader):
    """Partitions are read one after the other, as the order of an epoch demands, while the client fetches all of them:
    what comes early waits here. A range may hold fewer records than offsets: transaction markers, aborted and compacted
    records take offsets too."""

    def __init__(self, cluster: Cluster, decoder: Decoder) -> None:
        self._cluster, self._decoder = cluster, decoder
        self._consumer: Any = None
        self._buffers: dict[tuple[str, int], _Buffer] = {}

    def read(self, split: SplitRange, block_size: int) -> Iterator[Block]:
        topic, _, number = split.split.rpartition("-")
        partition = KafkaTopicPartition(topic, int(number))
        buffer = self._at(partition, split.start)
        while buffer.next < split.end:
            messages = self._take(partition, buffer, split.end, block_size)
            if messages:
                yield from self._decoder.blocks(partition, messages)

    def _take(self, partition: KafkaTopicPartition, buffer: _Buffer, end: int, most: int) -> list[Any]:
        """The next messages below `end`, at most `most`; advances `buffer.next` to behind them, or to `end`."""
        deadline = time.monotonic() + self._cluster.wait_s
        while not buffer.messages and buffer.complete_to < end:
            if buffer.paused:
                self._resume(partition, buffer)
            if self._poll():
                deadline = time.monotonic() + self._cluster.wait_s
            elif time.monotonic() > deadline:
                raise self._cluster.failure(
                    f"reading {partition} from offset {buffer.complete_to} to {end}", "no data came"
                )
        if not buffer.messages:
            buffer.next = end
            return []
        chunk = buffer.messages.popleft()
        most = min(most, within(len(message) for message in chunk))
        if len(chunk) > most:
            buffer.messages.appendleft(chunk[most:])
            chunk = chunk[:most]
        if chunk[-1].offset() >= end:  # the rest belongs to later epochs
            inside = next(i for i, message in enumerate(chunk) if message.offset() >= end)
            buffer.messages.appendleft(chunk[inside:])
            chunk = chunk[:inside]
            buffer.next = end
        else:
            buffer.next = chunk[-1].offset() + 1
        buffer.size -= len(chunk)
        return chunk

    def _poll(self) -> bool:
        """Take what the client has; True if anything came."""
        # One with patience, then what is there: asked for many at once, the client waits until it has them all.
        first = self._consumer.poll(0.2)
        if first is None:
            return False
        messages = [first, *self._consumer.consume(_FETCH - 1, 0)]
        eof = confluent_kafka().KafkaError._PARTITION_EOF
        sorted_: dict[tuple[str, int], list[Any]] = {}
        for message in messages:
            error = message.error()
            key = (message.topic(), message.partition())
            if error is None:
                found = sorted_.get(key)
                if found is None:
                    sorted_[key] = [message]
                else:
                    found.append(message)
            elif error.code() == eof:
                self._add(sorted_, key)
                buffer = self._buffers.get(key)
                if buffer is not None:
                    buffer.complete_to = max(buffer.complete_to, message.offset())
            else:
                self._fail(error, message)
        for key in list(sorted_):
            self._add(sorted_, key)
        return True

    def _add(self, sorted_: dict[tuple[str, int], list[Any]], key: tuple[str, int]) -> None:
        messages, buffer = sorted_.pop(key, None), self._buffers.get(key)
        if not messages or buffer is None or messages[0].offset() < buffer.complete_to:
            return
        buffer.messages.append(messages)
        buffer.size += len(messages)
        buffer.complete_to = messages[-1].offset() + 1
        if buffer.size > _AHEAD and not buffer.paused:
            buffer.paused = True
            self._consumer.pause([confluent_kafka().TopicPartition(*key)])

    def _fail(self, error: Any, message: Any) -> None:
        library = confluent_kafka()
        if error.code() == library.KafkaError._AUTO_OFFSET_RESET:
            raise KafkaError(
                f"Kafka at {self._cluster.servers}: {message.topic()}-{message.partition()} no longer has the offset the job "
                f"is at ({error.str()}): retention deleted records that were not read yet. They cannot be had again; start a "
                "new job, or another uid for the source, from what is left"
            )
        if error.fatal() or not error.retriable():
            known = error.code() in (library.KafkaError._TRANSPORT, library.KafkaError._ALL_BROKERS_DOWN)
            if not known:  # brokers that are away are waited for, up to the deadline
                raise self._cluster.failure("reading", error.str())

    def _at(self, partition: KafkaTopicPartition, start: int) -> _Buffer:
        """The buffer of a partition, positioned at `start`: a new partition, or an epoch that is read again."""
        key = (partition.topic, partition.partition)
        buffer = self._buffers.get(key)
        if buffer is not None and buffer.next == start:
            return buffer
        library = confluent_kafka()
        if self._consumer is None:
            self._consumer = self._cluster.consumer(
                defaults={"isolation.level": "read_committed", "fetch.wait.max.ms": 50, "queued.min.messages": 200_000},
                fixed={
                    "group.id": self._cluster.properties.get("group.id", "penstock"),
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "error",
                },
            )
        with self._cluster.attempt(f"reading {partition} from offset {start}"):
            if buffer is not None:
                self._consumer.incremental_unassign([library.TopicPartition(*key)])
            self._consumer.incremental_assign([library.TopicPartition(*key, start)])
        self._buffers[key] = _Buffer(start)
        return self._buffers[key]

    def _resume(self, partition: KafkaTopicPartition, buffer: _Buffer) -> None:
        buffer.paused = False
        self._consumer.resume([confluent_kafka().TopicPartition(partition.topic, partition.partition)])

    def close(self) -> None:
        self._buffers.clear()
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
