"""An independent client: what tests put into Kafka and what a `read_committed` reader finds there."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewPartitions, NewTopic

_TIMEOUT_S = 90.0


class Topics:
    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._admin = AdminClient({"bootstrap.servers": servers})

    def create(
        self,
        partitions: int = 1,
        prefix: str = "t",
        name: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> str:
        """A topic of the test's own, whose records are kept whatever their timestamps say."""
        topic = name or f"{prefix}-{uuid.uuid4().hex[:12]}"
        new = NewTopic(topic, num_partitions=partitions, config={"retention.ms": "-1", **(settings or {})})
        for future in self._admin.create_topics([new]).values():
            future.result(_TIMEOUT_S)
        self._until(lambda: len(self.partitions(topic)) == partitions, f"{topic} with {partitions} partitions")
        return topic

    def delete(self, topic: str) -> None:
        for future in self._admin.delete_topics([topic]).values():
            future.result(_TIMEOUT_S)
        self._until(lambda: not self.partitions(topic), f"{topic} to be gone")

    def add_partitions(self, topic: str, total: int) -> None:
        for future in self._admin.create_partitions([NewPartitions(topic, total)]).values():
            future.result(_TIMEOUT_S)
        self._until(lambda: len(self.partitions(topic)) == total, f"{total} partitions of {topic}")

    def partitions(self, topic: str) -> list[int]:
        found = self._admin.list_topics(timeout=_TIMEOUT_S).topics.get(topic)
        return [] if found is None or found.error is not None else sorted(found.partitions)

    def write(
        self,
        topic: str,
        values: Iterable[bytes],
        *,
        partition: int | None = None,
        timestamps: Sequence[int] | None = None,
        key: Callable[[bytes], bytes] | None = None,
        headers: Sequence[tuple[str, bytes]] | None = None,
    ) -> None:
        # Idempotent: without it a repeated request (a new topic's leader, a slow broker) may overtake the one behind it.
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "queue.buffering.max.messages": 2_000_000,
            }
        )
        for index, value in enumerate(values):
            options: dict[str, Any] = {}
            if partition is not None:
                options["partition"] = partition
            if timestamps is not None:
                options["timestamp"] = timestamps[index]
            if key is not None:
                options["key"] = key(value)
            if headers is not None:
                options["headers"] = list(headers)
            producer.produce(topic, value, **options)
            if index % 10_000 == 0:
                producer.poll(0)
        assert producer.flush(_TIMEOUT_S) == 0, "the broker did not take all records"

    def write_tombstone(self, topic: str, key: bytes) -> None:
        producer = Producer({"bootstrap.servers": self.servers})
        producer.produce(topic, None, key)
        assert producer.flush(_TIMEOUT_S) == 0, "the broker did not take the tombstone"

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """What retention does in time."""
        for future in self._admin.delete_records([TopicPartition(topic, partition, offset)]).values():
            future.result(_TIMEOUT_S)

    def write_transaction(self, topic: str, values: Iterable[bytes], *, commit: bool, partition: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": uuid.uuid4().hex})
        producer.init_transactions(_TIMEOUT_S)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=partition)
        assert producer.flush(_TIMEOUT_S) == 0, "the broker did not take all records"
        if commit:
            producer.commit_transaction(_TIMEOUT_S)
        else:
            producer.abort_transaction(_TIMEOUT_S)
        self._until_decided(topic)

    def _until_decided(self, topic: str) -> None:
        """The end of a transaction returns when it is decided; its markers reach the partitions a moment later."""
        self._until(
            lambda: self.ends(topic) == self.ends(topic, committed=False), f"the end of transactions in {topic}"
        )

    def ends(self, topic: str, *, committed: bool = True) -> dict[int, int]:
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = {TopicPartition(topic, number): latest for number in self.partitions(topic)}
        found = self._admin.list_offsets(asked, isolation_level=level)
        return {asked.partition: future.result(_TIMEOUT_S).offset for asked, future in found.items()}

    def committed(self, topic: str) -> dict[int, list[Message]]:
        """All messages of committed transactions, by partition, in order."""
        self._until_decided(topic)
        ends = self.ends(topic)
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": f"independent-{uuid.uuid4().hex[:8]}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
            }
        )
        found: dict[int, list[Message]] = {number: [] for number in ends}
        open_ = {number for number, end in ends.items() if end > 0}
        try:
            consumer.assign([TopicPartition(topic, number, 0) for number in open_])
            deadline = time.monotonic() + _TIMEOUT_S
            while open_:
                for message in consumer.consume(10_000, 0.1):
                    number, offset = message.partition(), message.offset()
                    assert number is not None
                    assert offset is not None
                    if message.error() is None:
                        found[number].append(message)
                    if offset >= ends[number] - (message.error() is None):
                        open_.discard(number)
                    deadline = time.monotonic() + _TIMEOUT_S
                assert time.monotonic() < deadline, f"{topic} could not be read to its end"
        finally:
            consumer.close()
        return found

    def values(self, topic: str) -> list[bytes]:
        return [
            value for messages in self.committed(topic).values() for m in messages if (value := m.value()) is not None
        ]

    def wait_for(self, topic: str, count: int, timeout: float = 60.0) -> list[bytes]:
        """The values, once there are `count` of them."""
        found: list[bytes] = []

        def enough() -> bool:
            found[:] = self.values(topic)
            return len(found) >= count

        self._until(enough, f"{count} committed records in {topic} (there are {len(found)})", timeout)
        return found

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group})
        try:
            answers = consumer.committed([TopicPartition(topic, n) for n in self.partitions(topic)], _TIMEOUT_S)
        finally:
            consumer.close()
        return {answer.partition: answer.offset for answer in answers}

    def commit_group_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group, "enable.auto.commit": False})
        consumer.commit(offsets=[TopicPartition(topic, n, at) for n, at in offsets.items()], asynchronous=False)
        consumer.close()

    @staticmethod
    def _until(condition: Callable[[], bool], what: str, timeout: float = _TIMEOUT_S) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not appear within {timeout:.0f} s"
            time.sleep(0.05)
