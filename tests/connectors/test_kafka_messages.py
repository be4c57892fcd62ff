"""Messages of the Kafka sink on their way through a staged file, without a broker."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.base import DeliveryGuarantee, WriterContext
from penstock.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink, KafkaTopicSelector
from penstock.connectors.kafka.enumerator import share
from penstock.connectors.kafka.serialization import MessageColumns
from penstock.connectors.kafka.writer import decode, encode
from penstock.errors import BadRecordError, ConfigurationError, StorageError
from penstock.records import Rows


class ByLength(KafkaTopicSelector):
    def apply(self, data: str) -> str:
        return f"topic-{len(data)}"


def columns(messages: MessageColumns) -> tuple[object, ...]:
    return tuple(getattr(messages, name) for name in MessageColumns.__slots__)


def test_messages_come_back_from_a_staged_file_as_they_went_in() -> None:
    text = SimpleStringSchema()
    plain = KafkaRecordSerializationSchema.builder().set_topic("t").set_value_serialization_schema(text).build()
    full = (
        KafkaRecordSerializationSchema.builder()
        .set_topic_selector(ByLength())
        .set_value_serialization_schema(text)
        .set_key_serialization_schema(text)
        .set_header_provider(lambda value: [("h", value.encode()), ("h", b"")])
        .set_partitioner(len)
        .build()
    )
    for schema in (plain, full):
        blocks = [schema.serialize(["a", "bb"], None), schema.serialize(["c"], [7]), schema.serialize(["d"], [None])]
        found = list(decode(encode([block.to_batch() for block in blocks])))
        assert [columns(block) for block in found[:2]] == [columns(block) for block in blocks[:2]]
        assert found[2].timestamps is None
    assert list(full.serialize(["bb"], None).topics) == ["topic-2"]


def test_timestamps_that_kafka_cannot_have_are_left_to_the_client() -> None:
    schema = KafkaRecordSerializationSchema.builder().set_topic("t")
    built = schema.set_value_serialization_schema(SimpleStringSchema()).build()
    assert built.serialize(["a", "b", "c"], [-(2**63), 5, 2**63 - 1]).timestamps == [None, 5, None]


def test_staged_output_of_another_version_is_refused() -> None:
    schema = KafkaRecordSerializationSchema.builder().set_topic("t")
    batch = schema.set_value_serialization_schema(SimpleStringSchema()).build().serialize(["a"], None).to_batch()
    staged = encode([batch.replace_schema_metadata({"version": "2", "topic": "t"})])
    with pytest.raises(StorageError, match="has version b'2', this Penstock reads 1"):
        list(decode(staged))


def test_a_serializer_says_what_is_missing() -> None:
    with pytest.raises(ConfigurationError, match="set_topic or set_topic_selector"):
        KafkaRecordSerializationSchema.builder().set_value_serialization_schema(SimpleStringSchema()).build()
    with pytest.raises(ConfigurationError, match="set_value_serialization_schema"):
        KafkaRecordSerializationSchema.builder().set_topic("t").build()


@pytest.mark.parametrize("headers", [None, [("name", b"v" * 20), ("other", b"")]])
def test_a_message_too_large_for_the_client_fails_its_epoch_and_not_its_commit(
    headers: Any,
) -> None:
    limit = {"bootstrap.servers": "127.0.0.1:1", "message.max.bytes": "1000"}
    schema = KafkaRecordSerializationSchema.builder().set_topic("t").set_key_serialization_schema(SimpleStringSchema())
    schema.set_value_serialization_schema(SimpleStringSchema())
    if headers is not None:
        schema.set_header_provider(lambda value: headers)
    builder = KafkaSink.builder().set_properties(limit).set_record_serializer(schema.build())
    sink = builder.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_transactional_id_prefix("p").build()
    writer = sink.create_writer(WriterContext(job_id="job", sink_id="out", subtask=0, parallelism=1))
    writer.begin_epoch(1, "a")
    largest = 482 if headers is None else 465  # key and value are the same text
    writer.write(Rows(["small", "x" * (largest - 4)]))
    with pytest.raises(BadRecordError, match=r"KafkaSink out: a message has 9\d\d bytes, more than the client sends"):
        writer.write(Rows(["small", "x" * (largest + 1)]))
    producer = Producer({**limit, "log_level": 0})
    producer.produce("t", b"x" * (largest - 4), b"x" * (largest - 4), headers=headers)
    with pytest.raises(KafkaException, match="MSG_SIZE_TOO_LARGE"):
        producer.produce("t", b"x" * (largest + 1), b"x" * (largest + 1), headers=headers)
    producer.purge()


@pytest.mark.parametrize(
    ("backlog", "budget", "shares"),
    [
        ([10, 0, 5], 100, [10, 0, 5]),
        ([900, 100], 10, [9, 1]),
        ([1000, 1, 1], 10, [8, 1, 1]),
        ([5, 5, 5], 2, [1, 1, 0]),
        ([], 10, []),
    ],
)
def test_a_budget_is_shared_in_proportion_and_reaches_the_smallest(
    backlog: list[int], budget: int, shares: list[int]
) -> None:
    assert share(backlog, budget) == shares
