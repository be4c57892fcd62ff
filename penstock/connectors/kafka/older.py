"""`FlinkKafkaConsumer` and `FlinkKafkaProducer`, which programs of Flink 1.x use: today's source and sink with their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cached_property

from penstock.common.serialization import DeserializationSchema, SerializationSchema
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.kafka.offsets import KafkaOffsetResetStrategy, KafkaOffsetsInitializer
from penstock.connectors.kafka.serialization import KafkaRecordSerializationSchema
from penstock.connectors.kafka.sink import KafkaSink
from penstock.connectors.kafka.source import KafkaSource
from penstock.errors import ConfigurationError
from penstock.functions.connectors import (
    Committer,
    DeliveryGuarantee,
    Sink,
    SinkWriter,
    Source,
    SplitEnumerator,
    SplitReader,
    WriterContext,
)


class Semantic(Enum):
    """What a FlinkKafkaProducer promises, each with today's word for it."""

    EXACTLY_ONCE = DeliveryGuarantee.EXACTLY_ONCE
    AT_LEAST_ONCE = DeliveryGuarantee.AT_LEAST_ONCE
    NONE = DeliveryGuarantee.NONE


class FlinkKafkaConsumer(Source):
    """A `KafkaSource` of these topics, for `env.add_source`. It starts at the offsets of its group, unless told otherwise."""

    def __init__(
        self, topics: str | Sequence[str], deserialization_schema: DeserializationSchema, properties: Mapping[str, str]
    ) -> None:
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        self._schema, self._properties = deserialization_schema, dict(properties)
        reset = self._properties.get("auto.offset.reset", "latest").upper()
        if reset not in KafkaOffsetResetStrategy.__members__:
            raise ConfigurationError(
                f"FlinkKafkaConsumer: auto.offset.reset is {reset.lower()!r}, not earliest, latest or none"
            )
        self._reset = KafkaOffsetResetStrategy[reset]
        self._start = (
            KafkaOffsetsInitializer.committed_offsets(self._reset)
            if "group.id" in self._properties
            else KafkaOffsetsInitializer.earliest()
            if self._reset is KafkaOffsetResetStrategy.EARLIEST
            else KafkaOffsetsInitializer.latest()
        )

    def set_start_from_earliest(self) -> FlinkKafkaConsumer:
        """Starts at the oldest message of each partition."""
        return self._from(KafkaOffsetsInitializer.earliest())

    def set_start_from_latest(self) -> FlinkKafkaConsumer:
        """Starts behind the newest message of each partition."""
        return self._from(KafkaOffsetsInitializer.latest())

    def set_start_from_timestamp(self, startup_offsets_timestamp: int) -> FlinkKafkaConsumer:
        """Starts at the first message at or after this time in milliseconds."""
        return self._from(KafkaOffsetsInitializer.timestamp(startup_offsets_timestamp))

    def set_start_from_group_offsets(self) -> FlinkKafkaConsumer:
        """Starts at the offsets that the group committed, or else as `auto.offset.reset` says."""
        return self._from(KafkaOffsetsInitializer.committed_offsets(self._reset))

    def _from(self, start: KafkaOffsetsInitializer) -> FlinkKafkaConsumer:
        self._start = start
        return self

    def set_commit_offsets_on_checkpoints(self, commit_on_checkpoints: bool) -> FlinkKafkaConsumer:
        """Accepted without effect: a source with a group tells it its offsets at every checkpoint."""
        return self

    def get_produced_type(self) -> TypeInformation | None:
        """The type of the schema's records."""
        return self.produced_type

    @cached_property
    def _source(self) -> KafkaSource:
        properties = {name: str(value) for name, value in self._properties.items()}
        servers = properties.pop("bootstrap.servers", None)
        if servers is None:
            raise ConfigurationError("FlinkKafkaConsumer: the properties have no 'bootstrap.servers'")
        group = properties.pop("group.id", None)
        properties.pop("auto.offset.reset", None)
        builder = KafkaSource.builder().set_bootstrap_servers(servers).set_topics(*self._topics)
        if group is not None:
            builder = builder.set_group_id(group)
        for name, value in properties.items():
            builder = builder.set_property(name, value)
        return builder.set_starting_offsets(self._start).set_value_only_deserializer(self._schema).build()

    def create_enumerator(self) -> SplitEnumerator:
        return self._source.create_enumerator()

    def create_reader(self) -> SplitReader:
        return self._source.create_reader()

    @property
    def bounded(self) -> bool:
        return False

    @property
    def produced_type(self) -> TypeInformation | None:
        return self._source.produced_type


class FlinkKafkaProducer(Sink):
    """A `KafkaSink` to one topic, for `add_sink`."""

    accepts_columns = False

    def __init__(
        self,
        topic: str,
        serialization_schema: SerializationSchema,
        producer_config: Mapping[str, str],
        kafka_producer_pool_size: int = 5,
        semantic: Semantic = Semantic.AT_LEAST_ONCE,
    ) -> None:
        """The pool of producers has no effect: a subtask has one."""
        self._topic, self._schema = topic, serialization_schema
        self._properties, self._semantic = dict(producer_config), semantic

    def set_log_failures_only(self, log_failures_only: bool) -> FlinkKafkaProducer:
        """True: nothing waits for the broker's answer, so that messages may be lost."""
        if log_failures_only:
            self._semantic = Semantic.NONE
        return self

    def set_flush_on_checkpoint(self, flush_on_checkpoint: bool) -> FlinkKafkaProducer:
        """False: a checkpoint does not wait for the broker's answers, so that messages may be lost."""
        if not flush_on_checkpoint:
            self._semantic = Semantic.NONE
        return self

    def set_write_timestamp_to_kafka(self, write_timestamp_to_kafka: bool) -> FlinkKafkaProducer:
        """Accepted without effect: records that have a timestamp are sent with it."""
        return self

    def ignore_failures_after_transaction_timeout(self) -> FlinkKafkaProducer:
        """Accepted without effect: output that was promised is sent again."""
        return self

    @cached_property
    def _sink(self) -> KafkaSink:
        properties = {name: str(value) for name, value in self._properties.items()}
        servers = properties.pop("bootstrap.servers", None)
        if servers is None:
            raise ConfigurationError("FlinkKafkaProducer: the producer_config has no 'bootstrap.servers'")
        serializer = (
            KafkaRecordSerializationSchema.builder()
            .set_topic(self._topic)
            .set_value_serialization_schema(self._schema)
            .build()
        )
        builder = KafkaSink.builder().set_bootstrap_servers(servers).set_record_serializer(serializer)
        for name, value in properties.items():
            builder = builder.set_property(name, value)
        guarantee: DeliveryGuarantee = self._semantic.value
        builder = builder.set_delivery_guarantee(guarantee)
        if guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            builder = builder.set_transactional_id_prefix(f"penstock-{self._topic}")
        return builder.build()

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return self._sink.create_writer(context)

    def create_committer(self, sink_id: str) -> Committer:
        return self._sink.create_committer(sink_id)
