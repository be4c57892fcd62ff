"""What KafkaSource makes of messages, and what it reads of topics, against a real broker."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import fastavro
import pytest

from penstock.common import Row, Types, WatermarkStrategy
from penstock.common.serialization import ByteArraySchema, DeserializationSchema, SimpleStringSchema
from penstock.connectors.kafka import (
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaTopicPartition,
)
from penstock.datastream import OutputTag
from penstock.datastream.formats.avro import AvroRowDeserializationSchema
from penstock.datastream.formats.json import JsonRowDeserializationSchema, JsonSchema
from penstock.errors import JobFailedError
from penstock.testing import ListSink
from penstock.testing.contracts import drain
from tests.kafka.jobs import embedded, environment, source
from tests.servers.topics import Topics

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Sale",
        "fields": [{"name": "shop", "type": "string"}, {"name": "amount", "type": ["null", "long"]}],
    }
)
SALE = Types.ROW_NAMED(["shop", "amount"], [Types.STRING(), Types.LONG()])
NO_RESTART = {"restart-strategy.type": "none"}


def avro(record: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, json.loads(AVRO), record)
    return stream.getvalue()


class Upper(DeserializationSchema):
    def deserialize(self, message: bytes) -> Any:
        return message.decode().upper()


@pytest.mark.parametrize(
    ("schema", "message", "expected"),
    [
        (SimpleStringSchema(), "é".encode(), "é"),
        (ByteArraySchema(), b"\x00\xff", b"\x00\xff"),
        (JsonSchema(), b'{"a": [1, null]}', {"a": [1, None]}),
        (
            JsonRowDeserializationSchema.builder().type_info(SALE).build(),
            b'{"shop": "s", "amount": 3}',
            {"shop": "s", "amount": 3},
        ),
        (
            AvroRowDeserializationSchema(avro_schema_string=AVRO),
            avro({"shop": "s", "amount": 3}),
            Row(shop="s", amount=3),
        ),
        (Upper(), b"abc", "ABC"),
    ],
    ids=["string", "bytes", "json", "json rows", "avro", "the user's"],
)
def test_every_value_deserializer_reads_its_messages_and_drops_tombstones(
    schema: DeserializationSchema, message: bytes, expected: Any, topics: Topics
) -> None:
    topic = topics.create()
    topics.write(topic, [message, message], timestamps=[1, 2])
    topics.write_tombstone(topic, b"k")
    assert drain(source(topics, topic).set_value_only_deserializer(schema).build()) == {
        f"{topic}-0": [(expected, 1), (expected, 2)]
    }


def test_a_function_of_the_whole_message_sees_key_value_headers_and_tombstones(topics: Topics) -> None:
    topic = topics.create()
    topics.write(topic, [b"v"], key=lambda value: b"k1", headers=[("trace", b"1"), ("trace", b"2")])
    topics.write_tombstone(topic, b"k2")
    built = source(topics, topic).set_deserializer(
        KafkaRecordDeserializationSchema.of(lambda r: (r.key, r.value, r.headers, r.offset))
    )
    (records,) = drain(built.build()).values()
    assert [value for value, _ in records] == [
        (b"k1", b"v", (("trace", b"1"), ("trace", b"2")), 0),
        (b"k2", None, (), 1),
    ]


def test_messages_of_another_avro_schema_are_poison(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    good = avro({"shop": "s", "amount": 3})
    topics.write(topic, [good, good + b"\x00", b"\x80", b"", good])
    bad = OutputTag("bad")

    def build(env: Any) -> None:
        schema = AvroRowDeserializationSchema(avro_schema_string=AVRO)
        built = source(topics, topic).set_value_only_deserializer(schema).set_poison_records(bad).build()
        stream = env.from_source(built, WatermarkStrategy.no_watermarks(), "in")
        stream.map(lambda row: row["shop"]).sink_to(ListSink("avro-good"))
        stream.get_side_output(bad).map(lambda record: record.offset).sink_to(ListSink("avro-bad"))

    embedded(tmp_path, build).run()
    assert ListSink.results("avro-good") == ["s", "s"]
    assert ListSink.results("avro-bad") == [1, 2, 3]


def test_several_topics_are_read_together(topics: Topics) -> None:
    names = sorted(topics.create(2) for _ in range(2))
    for name in names:
        topics.write(name, [name.encode()], partition=1)
    records = drain(source(topics, names[0]).set_topics(*names).build())
    assert {split: [value for value, _ in found] for split, found in records.items() if found} == {
        f"{name}-1": [name] for name in names
    }


def test_an_epoch_is_bounded_by_the_sources_own_property_too(topics: Topics) -> None:
    topic = topics.create(2)
    for partition in range(2):
        topics.write(topic, [b"x"] * 20, partition=partition)
    built = source(topics, topic, properties={"penstock.max.records.per.epoch": "6"}).build()
    plan = built.create_enumerator().plan(now_ms=0, max_records=1000)
    assert sum(split.end - split.start for split in plan.ranges) == 6


def test_an_unbounded_source_with_an_end_stops_reading_there_and_goes_on_running(topics: Topics) -> None:
    topic = topics.create()
    topics.write(topic, [b"1", b"2", b"3"])
    builder = source(topics, topic, bounded=False)
    end = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, 0): 2})
    enumerator = builder.set_unbounded(end).build().create_enumerator()
    plan = enumerator.plan(now_ms=0, max_records=None)
    assert [(split.start, split.end, split.last) for split in plan.ranges] == [(0, 2, True)]
    assert not plan.finished
    plan = enumerator.plan(now_ms=0, max_records=None)
    assert (plan.ranges, plan.finished) == ((), False)


def test_records_that_retention_deleted_are_an_error_and_not_a_gap(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.write(topic, [str(number).encode() for number in range(10)])
    topics.delete_before(topic, 0, 5)

    def build(env: Any) -> None:
        start = KafkaOffsetsInitializer.offsets({KafkaTopicPartition(topic, 0): 2})
        built = source(topics, topic).set_starting_offsets(start).build()
        env.from_source(built, WatermarkStrategy.no_watermarks(), "in").sink_to(ListSink("deleted"))

    with pytest.raises(JobFailedError, match=rf"{topic}-0 no longer has the offset.*retention deleted records"):
        embedded(tmp_path, build, NO_RESTART).run()
    assert [value for value, _ in drain(source(topics, topic).build())[f"{topic}-0"]] == ["5", "6", "7", "8", "9"]


def test_a_password_is_in_no_message_log_plan_or_file(
    topics: Topics, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "hush-hush",
        "penstock.wait.ms": "1500",
    }
    env = environment(tmp_path, NO_RESTART)
    built = source(topics, topics.create(), properties=properties).build()
    env.from_source(built, WatermarkStrategy.no_watermarks(), "in").sink_to(ListSink("hush"))
    plan = env.get_execution_plan()
    with pytest.raises(JobFailedError, match=r"listing topics failed within 1.5 s") as caught:
        env.execute("hush")
    shown = [plan, str(caught.value), repr(built), repr(built.create_enumerator()), caplog.text]
    shown += [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert not [text for text in shown if "hush-hush" in text]
