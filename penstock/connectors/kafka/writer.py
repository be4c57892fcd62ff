"""Slot side of the Kafka sink: messages are staged (exactly once) or sent at once (the other guarantees).

Handing messages to the client library, in blocks, with its queue as the bound.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.connectors.kafka.client import (
    TOPIC_RULE,
    Cluster,
    KafkaSetupError,
    confluent_kafka,
    is_topic_name,
    refused_because,
)
from penstock.connectors.kafka.serialization import KafkaRecordSerializationSchema, MessageColumns
from penstock.connectors.staging import StagingWriter
from penstock.errors import BadRecordError, shorten
from penstock.functions.connectors import SinkWriter, WriterContext
from penstock.records import Block, Rows
from penstock.records.convert import to_rows

# Callbacks are for errors only: one for every message would cost as much as the message.
PRODUCER = {
    # Bytes are the bound: an epoch of small messages should not wait for the brokers while it is handed over.
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 262_144,
    "delivery.report.only.error": True,
    "linger.ms": 5,
    "batch.size": 1_000_000,
}
_ANY_PARTITION = -1
_TOPIC_S = 3.0


class Delivery:
    """Remembers the first message a broker refused."""

    def __init__(self) -> None:
        self.error: Any = None

    def __call__(self, error: Any, message: Any) -> None:
        if error is not None and self.error is None:
            self.error = (error, message.topic(), message.partition())

    def check(self, cluster: Cluster) -> None:
        """Raises KafkaError if a broker has refused a message."""
        if self.error is not None:
            error, topic, partition = self.error
            where = topic if partition is None or partition < 0 else f"{topic}-{partition}"
            cause = confluent_kafka().KafkaException(error)
            raise cluster.failure(f"sending to {where}", cause) from cause


def check_topic(cluster: Cluster, producer: Any, topic: str, sink: str) -> None:
    """The topic is there, or the brokers create it now. They say so with some delay."""
    soon = time.monotonic() + min(_TOPIC_S, cluster.wait_s)
    while True:
        with cluster.attempt(f"looking up topic {topic} for {sink}"):
            error = producer.list_topics(topic, timeout=cluster.wait_s).topics[topic].error
        if error is None:
            return
        because = refused_because(error.code())
        if time.monotonic() > soon:
            if because is None:
                raise cluster.failure(f"looking up topic {topic} for {sink}", error.str())
            raise KafkaSetupError(f"{sink}: topic {topic} at {cluster.servers}: {error.str()}: {because}")
        time.sleep(0.1)


def send(cluster: Cluster, producer: Any, messages: MessageColumns, delivery: Delivery) -> None:
    """Queue a block in order. Waits for room in the queue, which is the back pressure of the brokers."""
    size = len(messages)
    topics = repeat(messages.topics, size) if isinstance(messages.topics, str) else messages.topics
    # The library's own values for "choose one by key" and "now".
    columns: list[Iterable[Any]] = [
        topics,
        messages.values,
        repeat(None, size) if messages.keys is None else messages.keys,
        repeat(_ANY_PARTITION, size) if messages.partitions is None else messages.partitions,
        repeat(delivery, size),
        repeat(0, size) if messages.timestamps is None else [stamp or 0 for stamp in messages.timestamps],
    ]
    if messages.headers is not None:
        columns.append(messages.headers)
    produce = producer.produce
    with cluster.attempt(f"sending to {messages.topics if isinstance(messages.topics, str) else 'several topics'}"):
        for message in zip(*columns, strict=True):
            try:
                produce(*message)
            except BufferError:
                _insist(cluster, producer, message, delivery)


def _insist(cluster: Cluster, producer: Any, message: tuple[Any, ...], delivery: Delivery) -> None:
    """The queue is full: wait for the brokers as long as they take anything."""
    waiting, deadline = len(producer), time.monotonic() + cluster.wait_s
    while True:
        producer.poll(0.05)
        delivery.check(cluster)
        try:
            producer.produce(*message)
            return
        except BufferError:
            now_waiting = len(producer)
            if now_waiting < waiting:
                waiting, deadline = now_waiting, time.monotonic() + cluster.wait_s
            elif time.monotonic() > deadline:
                raise cluster.failure(f"sending to {message[0]}", "the brokers take no messages") from None


def drain(cluster: Cluster, producer: Any, delivery: Delivery) -> None:
    """Wait until the brokers have everything. The bound is on standing still, not on the size of an epoch."""
    left, deadline = len(producer), time.monotonic() + cluster.wait_s
    while left:
        now_left = producer.flush(0.5)
        delivery.check(cluster)
        if now_left < left:
            left, deadline = now_left, time.monotonic() + cluster.wait_s
        elif time.monotonic() > deadline:
            raise cluster.failure(f"sending the last {left} messages of an epoch", "no broker took them")
    delivery.check(cluster)


_OVERHEAD = 36  # what librdkafka adds to a message's key, value and headers before it compares with message.max.bytes


class MessageWriter(StagingWriter[pa.RecordBatch]):
    """Exactly once: messages are serialized here and sent by the committer."""

    def __init__(self, cluster: Cluster, schema: KafkaRecordSerializationSchema, context: WriterContext) -> None:
        super().__init__(context)
        self._schema = schema
        self._largest = cluster.number("message.max.bytes", 1_000_000) - _OVERHEAD

    def encode(self, block: Block) -> pa.RecordBatch:
        rows = to_rows(block)
        batch = self._batch(rows)
        self._check_targets(batch, rows.values)
        self._check_sizes(batch, rows.values)
        return batch

    def _batch(self, rows: Rows) -> pa.RecordBatch:
        messages = self._schema.serialize(rows.values, rows.timestamps)
        try:
            return messages.to_batch()
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise BadRecordError(
                f"KafkaSink {self.context.sink_id}: what was made of the records is no message: {error}. Serialization schemas "
                "give bytes (or None, as a value: a tombstone), a topic selector a str, a partitioner an int, a header provider a "
                f"list of (str, bytes). The first record is {shorten(rows.values[0])}"
            ) from error

    def _check_targets(self, batch: pa.RecordBatch, values: Sequence[Any]) -> None:
        """No broker has a topic or partition of such a name: as with sizes, better said now than after the checkpoint."""
        for name, is_wrong, rule in (
            ("topic", lambda topic: not is_topic_name(topic), TOPIC_RULE),
            ("partition", lambda partition: partition is None or partition < -1, "from 0, or -1: the client chooses"),
        ):
            if name in batch.schema.names:
                column = batch.column(name)
                wrong = [found for found in column.unique().to_pylist() if is_wrong(found)]
                if wrong:
                    index = column.to_pylist().index(wrong[0])
                    raise BadRecordError(
                        f"KafkaSink {self.context.sink_id}: {wrong[0]!r} is no {name} ({rule}). The record is "
                        f"{shorten(values[index])}"
                    )

    def pack(self, parts: list[pa.RecordBatch]) -> bytes:
        return encode(parts)

    def _check_sizes(self, batch: pa.RecordBatch, values: Sequence[Any]) -> None:
        """What the client would not send is refused while the epoch runs: at commit a checkpoint has promised it, and every
        restart would end there."""
        parts = [batch.column(name) for name in ("value", "key") if name in batch.schema.names]
        if sum(part.nbytes for part in parts) <= self._largest and "headers" not in batch.schema.names:
            return
        sizes = [pc.fill_null(pc.binary_length(part), 0) for part in parts]
        if "headers" in batch.schema.names:
            sizes.append(pa.array([sum(map(_header_size, one)) for one in batch.column("headers").to_pylist()]))
        total = reduce(pc.add, sizes)
        if pc.max(total).as_py() > self._largest:
            index = pc.index(pc.greater(total, self._largest), True).as_py()
            raise BadRecordError(
                f"KafkaSink {self.context.sink_id}: a message has {total[index].as_py():,} bytes, more than the client sends "
                f"({self._largest:,}). Set the property message.max.bytes, and the broker's and the topic's limits too, or write "
                f"smaller records. The record is {shorten(values[index])}"
            )


class SendingWriter(SinkWriter):
    """At least once (`wait`: an epoch ends when the brokers have everything) or no guarantee at all."""

    def __init__(self, cluster: Cluster, schema: KafkaRecordSerializationSchema, *, wait: bool) -> None:
        self._cluster, self._schema, self._wait = cluster, schema, wait
        self._producer: Any = None
        self._delivery = Delivery()

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        # What an earlier attempt sent cannot be taken back: that is the meaning of at least once.
        self._delivery = Delivery()

    def write(self, block: Block) -> None:
        rows = to_rows(block)
        if not len(rows):
            return
        if self._producer is None:
            # Idempotence keeps the order of a key when a request is repeated, at no cost worth mentioning.
            defaults = {**PRODUCER, "enable.idempotence": self._wait}
            self._producer = self._cluster.producer(defaults=defaults, fixed={})
        send(self._cluster, self._producer, self._schema.serialize(rows.values, rows.timestamps), self._delivery)

    def prepare_commit(self) -> list[Any]:
        if self._producer is not None:
            self._producer.poll(0)
            if self._wait:
                drain(self._cluster, self._producer, self._delivery)
        return []

    def close(self) -> None:
        if self._producer is not None:
            self._producer.flush(self._cluster.wait_s)
            self._producer = None


def _header_size(header: dict[str, Any]) -> int:
    return len(header["name"].encode()) + len(header["value"] or b"") + 4  # and the two lengths


def encode(blocks: list[pa.RecordBatch]) -> bytes:
    """All blocks of a sink have the same columns: which ones there are depends on its schema only."""
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, blocks[0].schema) as writer:
        for block in blocks:
            writer.write_batch(block)
    data: bytes = stream.getvalue().to_pybytes()
    return data


def decode(data: bytes) -> Iterator[MessageColumns]:
    """The messages of one staged output."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        for batch in reader:
            yield MessageColumns.of_batch(batch.replace_schema_metadata(reader.schema.metadata))
