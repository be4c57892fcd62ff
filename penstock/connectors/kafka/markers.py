"""The marker topic: which epochs of a sink are in Kafka, written in the same transactions as their messages."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

from penstock.connectors.kafka.client import Cluster, KafkaError, confluent_kafka
from penstock.connectors.kafka.offsets import KafkaTopicPartition, list_offsets
from penstock.connectors.kafka.serialization import MessageColumns

_VERSION = 1
# Names of commits a marker remembers: more than checkpoints are retained, so that one that is fallen back to is known.
_REMEMBERED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The newest commit of one sink, and the names of those before it."""

    epoch: int = 0
    commits: tuple[str, ...] = ()

    def after(self, epoch: int, name: str) -> Marker:
        return Marker(epoch=epoch, commits=(*self.commits, name)[-_REMEMBERED:])

    def to_bytes(self) -> bytes:
        return json.dumps({"version": _VERSION, "epoch": self.epoch, "commits": self.commits}).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Marker:
        parsed = json.loads(data)
        if parsed["version"] != _VERSION:
            raise KafkaError(
                f"a marker has version {parsed['version']}, this Penstock reads {_VERSION}: use the one that wrote it"
            )
        return Marker(epoch=parsed["epoch"], commits=tuple(parsed["commits"]))


class MarkerTopic:
    """`__penstock_<prefix>`: compacted, so that it keeps the newest marker of every sink for ever. An offset committed to a
    group would do the same, but brokers forget the offsets of a group that nobody is in after a week."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self._cluster = cluster
        self.topic = "__penstock_" + "".join(c if c.isalnum() or c in "._-" else "_" for c in prefix)

    def create(self) -> None:
        """Unless it is there. Needs the right to create topics; or create it beforehand, compacted, with one partition."""
        library = confluent_kafka()
        admin = self._cluster.admin()
        with self._cluster.attempt("listing topics"):
            if self.topic in admin.list_topics(timeout=self._cluster.wait_s).topics:
                return
        settings = {"cleanup.policy": "compact", "segment.ms": "600000", "min.cleanable.dirty.ratio": "0.1"}
        topic = library.admin.NewTopic(self.topic, num_partitions=1, config=settings)
        try:
            self._cluster.each(
                admin.create_topics([topic], request_timeout=self._cluster.wait_s), f"creating {self.topic}"
            )
        except KafkaError as error:
            cause = error.__cause__
            already = library.KafkaError.TOPIC_ALREADY_EXISTS
            if not isinstance(cause, library.KafkaException) or cause.args[0].code() != already:
                raise

    def message(self, sink_id: str, marker: Marker) -> MessageColumns:
        return MessageColumns(
            topics=self.topic,
            values=[marker.to_bytes()],
            keys=[sink_id.encode()],
            headers=None,
            partitions=None,
            timestamps=None,
        )

    def read(self, sink_id: str) -> Marker:
        """The newest committed marker of a sink. The end is that of all messages: up to it nothing may be open, because a
        committed marker may be behind what another sink left open. That is waited for."""
        partition, specs = KafkaTopicPartition(self.topic, 0), confluent_kafka().admin.OffsetSpec
        admin = self._cluster.admin()
        (end,) = list_offsets(self._cluster, admin, [partition], specs.latest(), isolation="read_uncommitted")
        (start,) = list_offsets(self._cluster, admin, [partition], specs.earliest())
        marker = Marker()
        for message in self._messages(start, end):
            if message.key() == sink_id.encode():
                marker = Marker.from_bytes(message.value())
        return marker

    def _messages(self, start: int, end: int) -> list[Any]:
        if start >= end:
            return []
        library = confluent_kafka()
        consumer = self._cluster.consumer(
            defaults={},
            fixed={
                "group.id": "penstock-markers",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            },
        )
        found: list[Any] = []
        try:
            consumer.assign([library.TopicPartition(self.topic, 0, start)])
            deadline = time.monotonic() + self._cluster.wait_s
            while time.monotonic() < deadline:
                message = consumer.poll(0.2)
                if message is None:
                    continue
                deadline = time.monotonic() + self._cluster.wait_s
                error = message.error()
                if error is None:
                    found.append(message)
                if message.offset() is not None and message.offset() >= end - (error is None):
                    return found
            raise self._cluster.failure(
                f"reading {self.topic} up to offset {end}", "no data came, or a transaction is open"
            )
        finally:
            consumer.close()
