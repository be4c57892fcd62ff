"""Driver side of the exactly-once Kafka sink: one transaction an epoch, with a marker of the epoch inside it.

A transaction is begun when the checkpoint that promised its content is complete, and holds a message in the marker topic
that names the epoch. Whatever dies when, the marker tells whether the epoch is in Kafka: it is visible exactly if the
epoch's messages are.

The marker topic: which epochs of a sink are in Kafka, written in the same transactions as their messages.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.connectors.kafka.client import Cluster, KafkaError, KafkaSetupError, confluent_kafka, refused_because
from penstock.connectors.kafka.offsets import KafkaTopicPartition, list_offsets
from penstock.connectors.kafka.serialization import MessageColumns
from penstock.connectors.kafka.writer import PRODUCER, Delivery, check_topic, decode, drain, send
from penstock.connectors.staging import StagedCommitter, StagedOutput, staged_data
from penstock.errors import CommitRefusedError, FencedError

_VERSION = 1
# Names of commits a marker remembers: more than checkpoints are retained, so that one that is fallen back to is known.
_REMEMBERED = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The newest commit of one sink, and the names of those before it."""

    epoch: int = 0
    commits: tuple[str, ...] = ()

    def after(self, epoch: int, name: str) -> Marker:
        """The marker once the commit `name` of this epoch is done."""
        return Marker(epoch=epoch, commits=(*self.commits, name)[-_REMEMBERED:])

    def to_bytes(self) -> bytes:
        """The value of a message of the marker topic."""
        return json.dumps({"version": _VERSION, "epoch": self.epoch, "commits": self.commits}).encode()

    @staticmethod
    def from_bytes(data: bytes) -> Marker:
        """Reads what `to_bytes` wrote; KafkaError for another version."""
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
        """The message that sets the marker of a sink."""
        return MessageColumns(topics=self.topic, values=[marker.to_bytes()], keys=[sink_id.encode()])

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


_log = logging.getLogger("penstock.kafka")


class KafkaCommitter(StagedCommitter):
    """Its transactional id is the same in every attempt, so that a newer attempt fences the older one, and ends what
    that left open, before it looks at the marker."""

    commits_beside_next_epoch = True  # half of an epoch's time would else be spent waiting for the brokers

    def __init__(self, cluster: Cluster, sink_id: str, prefix: str, topic: str | None) -> None:
        super().__init__(sink_id)
        self._cluster, self._topic = cluster, topic  # None: a function of the record
        self._transactional_id = f"{prefix}-{sink_id}"
        self._markers = MarkerTopic(cluster, prefix)
        self._producer: Any = None
        self._marker: Marker | None = None  # None: not read since the transactional id was taken over

    def check(self) -> None:
        """Brokers are there, the user may write to its topics, and older attempts are fenced."""
        try:
            self._begin_life()
            if self._topic is not None:
                check_topic(self._cluster, self._producer, self._topic, f"KafkaSink {self.sink_id}")
        except CommitRefusedError as error:
            raise KafkaSetupError(str(error)) from error
        except BaseException:
            self._producer = None
            raise

    def take_over(self) -> None:
        if self._producer is None:
            self._begin_life()

    def commit_staged(self, epoch: int, name: str, staged: Sequence[StagedOutput]) -> None:
        try:
            self.take_over()
            if self._marker is None:
                self._marker = self._markers.read(self.sink_id)
            if name in self._marker.commits:
                _log.info("sink %s: epoch %d is in Kafka already", self.sink_id, epoch)
            else:
                self._marker = self._transact(epoch, name, staged, self._marker.after(epoch, name))
        except BaseException:
            self._producer = (
                None  # its transaction is in an unknown state: the next attempt fences it and asks the marker
            )
            raise

    def close(self) -> None:
        self._producer = None

    def _begin_life(self) -> None:
        self._markers.create()
        producer = self._cluster.producer(
            # A driver that dies inside a transaction blocks read_committed readers until this has passed or its successor
            # is there, so it is short; it need only outlast one epoch's messages.
            defaults={**PRODUCER, "transaction.timeout.ms": 60_000},
            fixed={"transactional.id": self._transactional_id},
        )
        with self._transactional("taking over the transactional id"):
            producer.init_transactions(self._cluster.wait_s)
        # From now on nobody else can commit, and what was under way has been decided: the marker may be read. It is read when
        # it is needed, because what other sinks of the job have left open, which they end here, is in its way.
        self._producer, self._marker = producer, None

    def _transact(self, epoch: int, name: str, staged: Sequence[StagedOutput], marker: Marker) -> Marker:
        producer, delivery = self._producer, Delivery()
        topics: set[str] = set()
        with self._transactional(f"committing epoch {epoch}", topics):
            producer.begin_transaction()
            try:
                for output in staged:
                    for messages in decode(staged_data(output, self.storage, sink_id=self.sink_id)):
                        topics |= {messages.topics} if isinstance(messages.topics, str) else set(messages.topics)
                        send(self._cluster, producer, messages, delivery)
                send(self._cluster, producer, self._markers.message(self.sink_id, marker), delivery)
                drain(self._cluster, producer, delivery)
                producer.commit_transaction(self._cluster.wait_s)
            except (KafkaError, confluent_kafka().KafkaException):
                # The client may have failed the transaction because of a message: that one's error says more.
                producer.flush(1.0)
                delivery.check(self._cluster)
                raise
        return marker

    def _transactional(self, what: str, topics: set[str] | None = None) -> _Explaining:
        return _Explaining(
            self._cluster,
            f"{what} of sink {self.sink_id} ({self._transactional_id})",
            topics if topics is not None else set(),
        )


class _Explaining:
    """Errors of a transaction as ours: one that is fenced or refused must not be tried again, all others may be."""

    def __init__(self, cluster: Cluster, what: str, topics: set[str]) -> None:
        self._cluster, self._what, self._topics = cluster, what, topics

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        library = confluent_kafka()
        cause = error if isinstance(error, library.KafkaException) else getattr(error, "__cause__", None)
        if not isinstance(cause, library.KafkaException):
            if isinstance(error, KafkaError):  # messages that no broker takes: the client waits for a topic to appear
                self._look_for_topics(error)
            return
        code = cause.args[0].code()
        fenced = (
            library.KafkaError._FENCED,
            library.KafkaError.PRODUCER_FENCED,
            library.KafkaError.INVALID_PRODUCER_EPOCH,
        )
        if code in fenced:
            raise FencedError(
                f"Kafka at {self._cluster.servers}: {self._what} was refused: {cause.args[0].str()}. A newer attempt of this job, "
                "or another job with the same transactional id prefix, has taken over; this one stops and changes nothing"
            ) from error
        because = refused_because(code)
        if because is not None:
            raise self._refused(cause.args[0].str(), because) from error
        if error is cause:
            raise self._cluster.failure(self._what, error) from error

    def _look_for_topics(self, error: KafkaError) -> None:
        with self._cluster.attempt("listing topics"):
            there = self._cluster.admin().list_topics(timeout=self._cluster.wait_s).topics
        if missing := sorted(self._topics - set(there)):
            raise self._refused(f"there is no topic {', '.join(missing)}", "create it") from error

    def _refused(self, words: str, because: str) -> CommitRefusedError:
        return CommitRefusedError(
            f"Kafka at {self._cluster.servers}: {self._what} was refused: {words}. Nothing of the epoch can be seen by readers; a "
            f"checkpoint has it and commits it, once, when the brokers take it: {because}, and start the job again with the same "
            "job folder"
        )
