"""Driver side of the exactly-once Kafka sink: one transaction an epoch, with a marker of the epoch inside it.

A transaction is begun when the checkpoint that promised its content is complete, and holds a message in the marker topic
that names the epoch. Whatever dies when, the marker tells whether the epoch is in Kafka: it is visible exactly if the
epoch's messages are.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from penstock.connectors.kafka.client import Cluster, confluent_kafka
from penstock.connectors.kafka.markers import Marker, MarkerTopic
from penstock.connectors.kafka.producing import PRODUCER, drain, send
from penstock.connectors.kafka.writer import decode
from penstock.connectors.staged_sink import StagedCommitter
from penstock.connectors.staging import StagedOutput, staged_data
from penstock.errors import FencedError

_log = logging.getLogger("penstock.kafka")


class TransactionCommitter(StagedCommitter):
    """Its transactional id is the same in every attempt, so that a newer attempt fences the older one, and ends what
    that left open, before it looks at the marker."""

    commits_beside_next_epoch = True  # half of an epoch's time would else be spent waiting for the brokers

    def __init__(self, cluster: Cluster, sink_id: str, prefix: str) -> None:
        super().__init__(sink_id)
        self._cluster = cluster
        self._transactional_id = f"{prefix}-{sink_id}"
        self._markers = MarkerTopic(cluster, prefix)
        self._producer: Any = None
        self._marker = Marker()

    def commit_staged(self, epoch: int, name: str, staged: Sequence[StagedOutput]) -> None:
        try:
            if self._producer is None:
                self._begin_life()
            if name in self._marker.commits:
                _log.info("sink %s: epoch %d is in Kafka already", self.sink_id, epoch)
            else:
                self._transact(epoch, name, staged)
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
        # Only now: nobody else can commit any more, and what was under way has been decided.
        self._marker = self._markers.read(self.sink_id)
        self._producer = producer

    def _transact(self, epoch: int, name: str, staged: Sequence[StagedOutput]) -> None:
        producer, marker = self._producer, self._marker.after(epoch, name)
        with self._transactional(f"committing epoch {epoch}"):
            producer.begin_transaction()
            for output in staged:
                for messages in decode(staged_data(output, self.storage, sink_id=self.sink_id)):
                    send(self._cluster, producer, messages, None)
            send(self._cluster, producer, self._markers.message(self.sink_id, marker), None)
            drain(self._cluster, producer, None)
            producer.commit_transaction(self._cluster.wait_s)
        self._marker = marker

    def _transactional(self, what: str) -> _Explaining:
        return _Explaining(self._cluster, f"{what} of sink {self.sink_id} ({self._transactional_id})")


class _Explaining:
    """Errors of a transaction as ours: a fenced one must not be tried again, all others may be."""

    def __init__(self, cluster: Cluster, what: str) -> None:
        self._cluster, self._what = cluster, what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        library = confluent_kafka()
        cause = error if isinstance(error, library.KafkaException) else getattr(error, "__cause__", None)
        if not isinstance(cause, library.KafkaException):
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
        if error is cause:
            raise self._cluster.failure(self._what, error) from error
