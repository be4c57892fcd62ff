"""Where reading starts and ends: Flink's offsets initializers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from penstock.connectors.kafka.client import Cluster, KafkaError, confluent_kafka


@dataclass(frozen=True, slots=True, order=True)
class KafkaTopicPartition:
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class KafkaOffsetResetStrategy(Enum):
    """The start of a partition for which there is no offset."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


class _Kind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"
    TIMESTAMP = "timestamp"
    OFFSETS = "offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOffsetsInitializer:
    """Made by its static methods; asked by the enumerator on the driver."""

    kind: _Kind
    timestamp_ms: int = 0
    given: Mapping[KafkaTopicPartition, int] = field(default_factory=dict)
    reset: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST

    @staticmethod
    def earliest() -> KafkaOffsetsInitializer:
        """Starts with the oldest message that each partition still has."""
        return KafkaOffsetsInitializer(kind=_Kind.EARLIEST)

    @staticmethod
    def latest() -> KafkaOffsetsInitializer:
        """Starts behind the newest message that each partition has when the job starts."""
        return KafkaOffsetsInitializer(kind=_Kind.LATEST)

    @staticmethod
    def committed_offsets(
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.NONE,
    ) -> KafkaOffsetsInitializer:
        """Offsets of the consumer group; `offset_reset_strategy` for partitions the group has none for."""
        return KafkaOffsetsInitializer(kind=_Kind.COMMITTED, reset=offset_reset_strategy)

    @staticmethod
    def timestamp(timestamp: int) -> KafkaOffsetsInitializer:
        """The first record at or after a time in ms; the end of partitions that have none."""
        return KafkaOffsetsInitializer(kind=_Kind.TIMESTAMP, timestamp_ms=timestamp)

    @staticmethod
    def offsets(
        offsets: Mapping[KafkaTopicPartition, int],
        offset_reset_strategy: KafkaOffsetResetStrategy = KafkaOffsetResetStrategy.EARLIEST,
    ) -> KafkaOffsetsInitializer:
        """Given offsets; `offset_reset_strategy` for partitions that are not among them."""
        return KafkaOffsetsInitializer(kind=_Kind.OFFSETS, given=dict(offsets), reset=offset_reset_strategy)

    @property
    def needs_group(self) -> bool:
        """True if it asks for offsets that a consumer group committed."""
        return self.kind is _Kind.COMMITTED

    def resolve(self, cluster: Cluster, admin: Any, partitions: Sequence[KafkaTopicPartition]) -> list[int]:
        """One offset for each partition."""
        specs = confluent_kafka().admin.OffsetSpec
        match self.kind:
            case _Kind.EARLIEST:
                return list_offsets(cluster, admin, partitions, specs.earliest())
            case _Kind.LATEST:
                return list_offsets(cluster, admin, partitions, specs.latest())
            case _Kind.TIMESTAMP:
                found = list_offsets(cluster, admin, partitions, specs.for_timestamp(self.timestamp_ms))
                ends = list_offsets(cluster, admin, partitions, specs.latest())
                return [end if offset < 0 else offset for offset, end in zip(found, ends, strict=True)]
            case _Kind.OFFSETS:
                return self._or_reset(cluster, admin, partitions, [self.given.get(p) for p in partitions])
            case _Kind.COMMITTED:
                committed = committed_offsets(cluster, partitions)
                return self._or_reset(cluster, admin, partitions, committed)

    def _or_reset(
        self, cluster: Cluster, admin: Any, partitions: Sequence[KafkaTopicPartition], found: Sequence[int | None]
    ) -> list[int]:
        missing = [p for p, offset in zip(partitions, found, strict=True) if offset is None]
        if missing and self.reset is KafkaOffsetResetStrategy.NONE:
            raise KafkaError(
                f"Kafka at {cluster.servers}: no {self.kind.value} offset for {', '.join(map(str, missing[:5]))}"
                f"{' …' if len(missing) > 5 else ''} and KafkaOffsetResetStrategy.NONE forbids to choose one: commit "
                "offsets for the group, or give the initializer EARLIEST or LATEST"
            )
        specs = confluent_kafka().admin.OffsetSpec
        spec = specs.latest() if self.reset is KafkaOffsetResetStrategy.LATEST else specs.earliest()
        instead = dict(zip(missing, list_offsets(cluster, admin, missing, spec), strict=True))
        return [instead[p] if offset is None else offset for p, offset in zip(partitions, found, strict=True)]


def list_offsets(
    cluster: Cluster, admin: Any, partitions: Sequence[KafkaTopicPartition], spec: Any, *, isolation: str | None = None
) -> list[int]:
    """One request for all partitions. `latest` is the end that a reader of this isolation level can reach (None: the user's)."""
    if not partitions:
        return []
    library = confluent_kafka()
    level = isolation or cluster.properties.get("isolation.level", "read_committed")
    asked = {library.TopicPartition(p.topic, p.partition): spec for p in partitions}
    what = f"asking for offsets of {len(partitions)} partitions of {sorted({p.topic for p in partitions})}"
    with cluster.attempt(what):
        futures = admin.list_offsets(
            asked, isolation_level=getattr(library.IsolationLevel, level.upper()), request_timeout=cluster.wait_s
        )
    found = {(tp.topic, tp.partition): result.offset for tp, result in cluster.each(futures, what).items()}
    return [found[p.topic, p.partition] for p in partitions]


def committed_offsets(cluster: Cluster, partitions: Sequence[KafkaTopicPartition]) -> list[int | None]:
    """The offsets that the group of the properties has committed; None where it has none."""
    library = confluent_kafka()
    consumer = cluster.consumer(defaults={}, fixed={"enable.auto.commit": False})
    try:
        group = cluster.properties.get("group.id")
        with cluster.attempt(f"asking for the committed offsets of group {group!r}"):
            answers = consumer.committed(
                [library.TopicPartition(p.topic, p.partition) for p in partitions], timeout=cluster.wait_s
            )
    finally:
        consumer.close()
    return [answer.offset if answer.offset >= 0 else None for answer in answers]
