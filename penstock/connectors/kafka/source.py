"""KafkaSource and its builder, under PyFlink's names."""

from __future__ import annotations

import re
from typing import Literal

from penstock.common.serialization import DeserializationSchema
from penstock.common.typeinfo import TypeInformation
from penstock.connectors.builder_arguments import instance
from penstock.connectors.kafka.client import TOPIC_RULE, BuilderWithProperties, Cluster, confluent_kafka, is_topic_name
from penstock.connectors.kafka.deserialization import Decoder, KafkaRecordDeserializationSchema
from penstock.connectors.kafka.enumerator import KafkaEnumerator, Subscription
from penstock.connectors.kafka.offsets import KafkaOffsetsInitializer
from penstock.connectors.kafka.reader import KafkaReader
from penstock.errors import ConfigurationError
from penstock.functions.connectors import Source, SplitEnumerator, SplitReader
from penstock.functions.process import OutputTag


class KafkaSource(Source):
    """Reads topics, exactly once: the offsets of every epoch are decided by the driver, logged, and part of the
    checkpoint. Record timestamps are Kafka's; watermarks are made per partition. Made by `KafkaSource.builder()`."""

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        *,
        start: KafkaOffsetsInitializer,
        stop: KafkaOffsetsInitializer | None,
        bounded: bool,
        schema: KafkaRecordDeserializationSchema,
        poison: OutputTag | Literal["fail", "drop"],
    ) -> None:
        self._cluster, self._subscription = cluster, subscription
        self._start, self._stop, self._bounded = start, stop, bounded
        self._schema = schema
        self._poison_tag = poison.tag_id if isinstance(poison, OutputTag) else None
        self._drop_poison = poison == "drop"

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """Starts a source; brokers, topics and a deserializer are required.

        Example:

            source = (
                KafkaSource.builder()
                .set_bootstrap_servers("broker:9092")
                .set_topics("orders")
                .set_starting_offsets(KafkaOffsetsInitializer.earliest())
                .set_value_only_deserializer(SimpleStringSchema())
                .build()
            )
            orders = env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "orders")
        """
        return KafkaSourceBuilder()

    def create_enumerator(self) -> SplitEnumerator:
        return KafkaEnumerator(
            self._cluster, self._subscription, start=self._start, stop=self._stop, bounded=self._bounded
        )

    def create_reader(self) -> SplitReader:
        return KafkaReader(self._cluster, Decoder(self._schema, self._poison_tag, self._drop_poison))

    @property
    def bounded(self) -> bool:
        return self._bounded

    @property
    def produced_type(self) -> TypeInformation:
        return self._schema.get_produced_type()


class KafkaSourceBuilder(BuilderWithProperties):
    """PyFlink's builder. `set_deserializer` (whole messages) and `set_poison_records` are ours."""

    _builds = "KafkaSource"
    _fixed = dict.fromkeys(
        ("enable.auto.commit", "enable.auto.offset.store", "enable.partition.eof", "auto.offset.reset"),
        "the source itself: offsets belong to its checkpoints, and where it starts is set_starting_offsets",
    )

    def __init__(self) -> None:
        super().__init__()
        self._topics: tuple[str, ...] = ()
        self._pattern: str | None = None
        self._start = KafkaOffsetsInitializer.earliest()
        self._stop: KafkaOffsetsInitializer | None = None
        self._bounded = False
        self._schema: KafkaRecordDeserializationSchema | None = None
        self._poison: OutputTag | Literal["fail", "drop"] = "fail"

    def set_group_id(self, group_id: str) -> KafkaSourceBuilder:
        """The consumer group whose committed offsets are read, and to which offsets are reported."""
        return self.set_property("group.id", group_id)

    def set_topics(self, *topics: str) -> KafkaSourceBuilder:
        """The topics to read, by name; or use `set_topic_pattern`."""
        for topic in topics:
            if not is_topic_name(topic):
                raise ConfigurationError(
                    f"KafkaSource.set_topics takes names, one by one ({TOPIC_RULE}), and {topic!r} is none"
                )
        self._topics = topics
        return self

    def set_topic_pattern(self, topic_pattern: str) -> KafkaSourceBuilder:
        """A regular expression that matches the whole name. New topics are found like new partitions."""
        try:
            re.compile(topic_pattern)
        except (re.error, TypeError) as error:
            raise ConfigurationError(f"KafkaSource: {topic_pattern!r} is not a regular expression: {error}") from error
        self._pattern = topic_pattern
        return self

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """For a job without a checkpoint; with one, its offsets are used."""
        self._start = instance(
            "KafkaSource.set_starting_offsets", starting_offsets_initializer, KafkaOffsetsInitializer
        )
        return self

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Read up to these offsets, as they are when the job starts, and end."""
        self._stop = instance("KafkaSource.set_bounded", stopping_offsets_initializer, KafkaOffsetsInitializer)
        self._bounded = True
        return self

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> KafkaSourceBuilder:
        """Read up to these offsets, but go on running."""
        self._stop = instance("KafkaSource.set_unbounded", stopping_offsets_initializer, KafkaOffsetsInitializer)
        self._bounded = False
        return self

    def set_value_only_deserializer(self, deserialization_schema: DeserializationSchema) -> KafkaSourceBuilder:
        """Makes records from the values of messages."""
        instance("KafkaSource.set_value_only_deserializer", deserialization_schema, DeserializationSchema)
        return self.set_deserializer(KafkaRecordDeserializationSchema.value_only(deserialization_schema))

    def set_deserializer(self, record_deserializer: KafkaRecordDeserializationSchema) -> KafkaSourceBuilder:
        """Makes records from whole messages: key, headers, topic and timestamp included."""
        self._schema = instance("KafkaSource.set_deserializer", record_deserializer, KafkaRecordDeserializationSchema)
        return self

    def set_poison_records(self, policy: OutputTag | Literal["fail", "drop"]) -> KafkaSourceBuilder:
        """What becomes of messages that the deserialiser refuses: "fail" (the default) fails the job and names the
        message, "drop" ignores it, a tag sends it as `KafkaRecord` to that side output of the source's stream."""
        if not isinstance(policy, OutputTag) and policy not in ("fail", "drop"):
            raise ConfigurationError(f"set_poison_records takes an OutputTag, 'fail' or 'drop', not {policy!r}")
        self._poison = policy
        return self

    def set_client_id_prefix(self, prefix: str) -> KafkaSourceBuilder:
        """The name under which brokers know the clients of this source."""
        return self.set_property("client.id", prefix)

    def build(self) -> KafkaSource:
        """The source; ConfigurationError says what is missing, also the extra `kafka`."""
        self._require_servers()
        if bool(self._topics) == (self._pattern is not None):
            raise ConfigurationError("KafkaSource: call either set_topics or set_topic_pattern")
        if self._schema is None:
            raise ConfigurationError("KafkaSource: call set_value_only_deserializer or set_deserializer")
        if self._start.needs_group and not self._properties.get("group.id"):
            raise ConfigurationError("KafkaSource: committed offsets are those of a group: call set_group_id")
        return KafkaSource(
            self._cluster(confluent_kafka().Consumer),
            Subscription(topics=self._topics, pattern=self._pattern),
            start=self._start,
            stop=self._stop,
            bounded=self._bounded,
            schema=self._schema,
            poison=self._poison,
        )
