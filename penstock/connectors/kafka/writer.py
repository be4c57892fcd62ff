"""Slot side of the Kafka sink: messages are staged (exactly once) or sent at once (the other guarantees)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from penstock.connectors.base import SinkWriter, WriterContext
from penstock.connectors.kafka.client import Cluster
from penstock.connectors.kafka.producing import PRODUCER, Delivery, drain, send
from penstock.connectors.kafka.serialization import KafkaRecordSerializationSchema, MessageColumns
from penstock.connectors.staging import stage
from penstock.operators.convert import to_rows
from penstock.records import Block


class StagingWriter(SinkWriter):
    """Exactly once: nothing reaches a broker before the checkpoint is complete, so there is no transaction that could
    expire while a checkpoint, or a job that was stopped, takes its time."""

    def __init__(self, schema: KafkaRecordSerializationSchema, context: WriterContext) -> None:
        self._schema, self._context = schema, context
        self._epoch = 0
        self._blocks: list[pa.RecordBatch] = []

    def begin_epoch(self, epoch: int, attempt: str) -> None:
        self._epoch, self._blocks = epoch, []

    def write(self, block: Block) -> None:
        rows = to_rows(block)
        if len(rows):
            self._blocks.append(self._schema.serialize(rows.values, rows.timestamps).to_batch())

    def prepare_commit(self) -> list[Any]:
        if not self._blocks:
            return []
        data, self._blocks = encode(self._blocks), []
        context = self._context
        return [
            stage(
                data,
                context.storage,
                job_id=context.job_id,
                sink_id=context.sink_id,
                epoch=self._epoch,
                subtask=context.subtask,
            )
        ]


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


def encode(blocks: list[pa.RecordBatch]) -> bytes:
    """All blocks of a sink have the same columns: which ones there are depends on its schema only."""
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, blocks[0].schema) as writer:
        for block in blocks:
            writer.write_batch(block)
    data: bytes = stream.getvalue().to_pybytes()
    return data


def decode(data: bytes) -> Iterator[MessageColumns]:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        for batch in reader:
            yield MessageColumns.of_batch(batch.replace_schema_metadata(reader.schema.metadata))
