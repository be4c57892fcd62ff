"""KafkaSink and its builder, under PyFlink's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.connectors.builder_arguments import text
from penstock.connectors.kafka.client import BuilderWithProperties, Cluster, confluent_kafka
from penstock.connectors.kafka.committer import KafkaCommitter
from penstock.connectors.kafka.serialization import KafkaRecordSerializationSchema
from penstock.connectors.kafka.writer import MessageWriter, SendingWriter, check_topic
from penstock.errors import ConfigurationError
from penstock.functions.connectors import Committer, DeliveryGuarantee, Sink, SinkWriter, WriterContext


class KafkaSink(Sink):
    """Made by `KafkaSink.builder()`."""

    accepts_columns = False

    def __init__(
        self,
        cluster: Cluster,
        serializer: KafkaRecordSerializationSchema,
        guarantee: DeliveryGuarantee,
        prefix: str | None,
    ) -> None:
        self._cluster, self._serializer, self._guarantee, self._prefix = cluster, serializer, guarantee, prefix
        self._topic = serializer.topic if isinstance(serializer.topic, str) else None

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """Starts a sink; brokers and a record serializer are required.

        Example:

            stream.sink_to(
                KafkaSink.builder()
                .set_bootstrap_servers("broker:9092")
                .set_record_serializer(serializer)
                .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .set_transactional_id_prefix("orders-job")
                .build()
            )
        """
        return KafkaSinkBuilder()

    def create_writer(self, context: WriterContext) -> SinkWriter:
        if self._guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            return MessageWriter(self._cluster, self._serializer, context)
        return SendingWriter(self._cluster, self._serializer, wait=self._guarantee is DeliveryGuarantee.AT_LEAST_ONCE)

    def create_committer(self, sink_id: str) -> Committer:
        if self._guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            assert self._prefix is not None
            return KafkaCommitter(self._cluster, sink_id, self._prefix, self._topic)
        return _NothingToCommit(self._cluster, self._topic, f"KafkaSink {sink_id}")


class _NothingToCommit(Committer):
    """The writers have sent everything themselves."""

    def __init__(self, cluster: Cluster, topic: str | None, sink: str) -> None:
        self._cluster, self._topic, self._sink = cluster, topic, sink

    def check(self) -> None:
        if self._topic is not None:
            check_topic(self._cluster, self._cluster.producer(defaults={}, fixed={}), self._topic, self._sink)

    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        return None


class KafkaSinkBuilder(BuilderWithProperties):
    """Builds a KafkaSink, with PyFlink's names; each setter returns the builder."""

    _builds = "KafkaSink"
    _fixed = {"transactional.id": "the sink itself; call set_transactional_id_prefix"}  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self._serializer: KafkaRecordSerializationSchema | None = None
        self._guarantee = DeliveryGuarantee.NONE
        self._prefix: str | None = None

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> KafkaSinkBuilder:
        """Sets how a record becomes a message; anything but a KafkaRecordSerializationSchema is refused."""
        if not isinstance(record_serializer, KafkaRecordSerializationSchema):
            raise ConfigurationError(
                "KafkaSink.set_record_serializer takes what KafkaRecordSerializationSchema.builder() builds, not "
                f"{record_serializer!r}"
            )
        self._serializer = record_serializer
        return self

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        """EXACTLY_ONCE (needs a transactional id prefix), AT_LEAST_ONCE or NONE, the default."""
        if not isinstance(delivery_guarantee, DeliveryGuarantee):
            raise ConfigurationError(
                f"KafkaSink.set_delivery_guarantee takes a DeliveryGuarantee, such as DeliveryGuarantee.EXACTLY_ONCE, not "
                f"{delivery_guarantee!r}"
            )
        self._guarantee = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Must be this job's own on the cluster and the same whenever it is started: it fences older attempts."""
        self._prefix = text("KafkaSink.set_transactional_id_prefix", transactional_id_prefix)
        return self

    def build(self) -> KafkaSink:
        """The sink; ConfigurationError says what is missing, also the extra `kafka`."""
        self._require_servers()
        if self._serializer is None:
            raise ConfigurationError("KafkaSink: call set_record_serializer")
        if self._guarantee is DeliveryGuarantee.EXACTLY_ONCE and not self._prefix:
            raise ConfigurationError(
                "KafkaSink: EXACTLY_ONCE needs set_transactional_id_prefix: a name of this job's own, the same at every start"
            )
        cluster = self._cluster(confluent_kafka().Producer)
        return KafkaSink(cluster, self._serializer, self._guarantee, self._prefix)
