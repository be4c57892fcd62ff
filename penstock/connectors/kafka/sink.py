"""KafkaSink and its builder, under PyFlink's names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.connectors.base import Committer, DeliveryGuarantee, Sink, SinkWriter, WriterContext
from penstock.connectors.kafka.client import Cluster, confluent_kafka
from penstock.connectors.kafka.committer import TransactionCommitter
from penstock.connectors.kafka.serialization import KafkaRecordSerializationSchema
from penstock.connectors.kafka.writer import MessageWriter, SendingWriter
from penstock.errors import ConfigurationError

_FIXED = {"transactional.id": "set_transactional_id_prefix"}


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

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        return KafkaSinkBuilder()

    def create_writer(self, context: WriterContext) -> SinkWriter:
        if self._guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            return MessageWriter(self._cluster, self._serializer, context)
        return SendingWriter(self._cluster, self._serializer, wait=self._guarantee is DeliveryGuarantee.AT_LEAST_ONCE)

    def create_committer(self, sink_id: str) -> Committer:
        if self._guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            assert self._prefix is not None
            return TransactionCommitter(self._cluster, sink_id, self._prefix)
        return _NothingToCommit()


class _NothingToCommit(Committer):
    """The writers have sent everything themselves."""

    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        return None


class KafkaSinkBuilder:
    """PyFlink's builder."""

    def __init__(self) -> None:
        self._properties: dict[str, str] = {}
        self._serializer: KafkaRecordSerializationSchema | None = None
        self._guarantee = DeliveryGuarantee.NONE
        self._prefix: str | None = None

    def set_bootstrap_servers(self, bootstrap_servers: str) -> KafkaSinkBuilder:
        return self.set_property("bootstrap.servers", bootstrap_servers)

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> KafkaSinkBuilder:
        self._serializer = record_serializer
        return self

    def set_delivery_guarantee(self, delivery_guarantee: DeliveryGuarantee) -> KafkaSinkBuilder:
        self._guarantee = delivery_guarantee
        return self

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> KafkaSinkBuilder:
        """Must be this job's own on the cluster and the same whenever it is started: it fences older attempts."""
        self._prefix = transactional_id_prefix
        return self

    def set_property(self, key: str, value: str) -> KafkaSinkBuilder:
        """A property of librdkafka or of the connector (docs/howto/kafka.md)."""
        if key in _FIXED:
            raise ConfigurationError(f"KafkaSink: {key} is set by the sink itself; call {_FIXED[key]}")
        self._properties[key] = str(value)
        return self

    def set_properties(self, props: Mapping[str, str]) -> KafkaSinkBuilder:
        for key, value in props.items():
            self.set_property(key, value)
        return self

    def build(self) -> KafkaSink:
        confluent_kafka()  # says at once which extra is missing
        if not self._properties.get("bootstrap.servers"):
            raise ConfigurationError("KafkaSink: no brokers are named: call set_bootstrap_servers")
        if self._serializer is None:
            raise ConfigurationError("KafkaSink: call set_record_serializer")
        if self._guarantee is DeliveryGuarantee.EXACTLY_ONCE and not self._prefix:
            raise ConfigurationError(
                "KafkaSink: EXACTLY_ONCE needs set_transactional_id_prefix: a name of this job's own, the same at every start"
            )
        return KafkaSink(Cluster(self._properties), self._serializer, self._guarantee, self._prefix)
