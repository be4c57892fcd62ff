"""KafkaSource against a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Duration, Row, Types, WatermarkStrategy
from penstock.common.serialization import ByteArraySchema
from penstock.common.time import Time
from penstock.connectors.base import Source
from penstock.connectors.kafka import (
    KafkaError,
    KafkaOffsetResetStrategy,
    KafkaOffsetsInitializer,
    KafkaRecord,
    KafkaRecordDeserializationSchema,
    KafkaSource,
    KafkaTopicPartition,
)
from penstock.datastream import OutputTag
from penstock.datastream.formats.json import JsonRowDeserializationSchema
from penstock.datastream.functions import ProcessWindowFunction
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.errors import ConfigurationError, JobFailedError
from penstock.records import Columns, SideRows
from penstock.testing import ListSink, SourceContract
from penstock.testing.contracts import drain
from tests.kafka.jobs import embedded, environment, sink, source
from tests.servers.kafka import KafkaServer
from tests.servers.topics import Topics

DISCOVERING = {"partition.discovery.interval.ms": "100"}
NO_RESTART = {"restart-strategy.type": "none"}


def texts(*numbers: int) -> list[bytes]:
    return [str(number).encode() for number in numbers]


def filled(topics: Topics, partitions: int = 3, per_partition: int = 20) -> str:
    topic = topics.create(partitions)
    for partition in range(partitions):
        topics.write(
            topic,
            [f"{partition}:{number}".encode() for number in range(per_partition)],
            partition=partition,
            timestamps=[1000 * (number + 1) for number in range(per_partition)],
        )
    return topic


# ---------------------------------------------------------------- the contract of every source


def test_every_record_of_every_partition_is_read_in_order_with_its_timestamp(topics: Topics) -> None:
    topic = filled(topics)
    records = drain(source(topics, topic).build(), max_records=7)
    assert records == {
        f"{topic}-{p}": [(f"{p}:{number}", 1000 * (number + 1)) for number in range(20)] for p in range(3)
    }


class TestContract(SourceContract):
    records = 60

    @pytest.fixture(autouse=True)
    def _filled(self, topics: Topics) -> None:
        self.topics, self.topic = topics, filled(topics)

    def source(self, folder: Path) -> Source:
        return source(self.topics, self.topic).build()


def test_aborted_transactions_and_markers_are_skipped_and_end_no_epoch_early(topics: Topics) -> None:
    topic = topics.create()
    topics.write_transaction(topic, texts(1, 2), commit=True)
    topics.write_transaction(topic, texts(3, 4), commit=False)
    topics.write_transaction(topic, texts(5), commit=True)
    # A commit returns when it is decided; its markers reach the partitions a moment later.
    topics._until(lambda: topics.ends(topic) == {0: 8}, "five records and three markers")
    built = source(topics, topic).build()
    (records,) = drain(built, max_records=1).values()  # every epoch ends at another of the eight offsets
    assert [value for value, _ in records] == ["1", "2", "5"]
    assert [value for value, _ in drain(built)[f"{topic}-0"]] == ["1", "2", "5"]


# ---------------------------------------------------------------- where reading starts and ends


def first_ranges(built: Source) -> dict[int, int]:
    return {split.ordinal: split.start for split in built.create_enumerator().plan(now_ms=0, max_records=None).ranges}


def test_starting_offsets_are_those_that_were_asked_for(topics: Topics) -> None:
    topic = filled(topics, 2, 10)
    topics.commit_group_offsets(f"group-{topic}", topic, {0: 4})

    def starting(initializer: KafkaOffsetsInitializer) -> dict[int, int]:
        return first_ranges(source(topics, topic, bounded=False).set_starting_offsets(initializer).build())

    partition = KafkaTopicPartition(topic, 1)
    assert starting(KafkaOffsetsInitializer.earliest()) == {0: 0, 1: 0}
    assert starting(KafkaOffsetsInitializer.latest()) == {0: 10, 1: 10}
    assert starting(KafkaOffsetsInitializer.timestamp(3500)) == {0: 3, 1: 3}
    assert starting(KafkaOffsetsInitializer.timestamp(99_000)) == {0: 10, 1: 10}
    assert starting(KafkaOffsetsInitializer.offsets({partition: 7})) == {0: 0, 1: 7}
    latest = KafkaOffsetResetStrategy.LATEST
    assert starting(KafkaOffsetsInitializer.offsets({partition: 7}, latest)) == {0: 10, 1: 7}
    assert starting(KafkaOffsetsInitializer.committed_offsets(latest)) == {0: 4, 1: 10}
    with pytest.raises(KafkaError, match=rf"no committed offset for {topic}-1"):
        starting(KafkaOffsetsInitializer.committed_offsets())


def test_a_bounded_source_ends_where_the_topic_ended_when_the_job_started(topics: Topics) -> None:
    topic = filled(topics, 2, 5)
    built = source(topics, topic).build()
    enumerator = built.create_enumerator()
    plan = enumerator.plan(now_ms=0, max_records=3)
    topics.write(topic, texts(1, 2, 3), partition=0)
    total = sum(split.end - split.start for split in plan.ranges)
    while not plan.finished:
        plan = enumerator.plan(now_ms=0, max_records=3)
        total += sum(split.end - split.start for split in plan.ranges)
    assert total == 10


def test_a_pattern_finds_topics_that_are_created_later(topics: Topics) -> None:
    name = topics.create(1, prefix="pat-a")
    stem = name.rpartition("-")[2]
    builder = KafkaSource.builder().set_bootstrap_servers(topics.servers).set_topic_pattern(f"pat-.*-{stem}")
    built = (
        builder.set_value_only_deserializer(ByteArraySchema())
        .set_property("partition.discovery.interval.ms", "1000")
        .build()
    )
    enumerator = built.create_enumerator()
    assert [split.split for split in enumerator.plan(now_ms=0, max_records=None).ranges] == [f"{name}-0"]
    later = topics.create(2, name=f"pat-b-{stem}")
    topics.write(later, texts(1, 2), partition=1)
    assert not enumerator.plan(now_ms=999, max_records=None).ranges
    found = enumerator.plan(now_ms=1000, max_records=None).ranges
    assert [(split.split, split.ordinal, split.start, split.end) for split in found] == [
        (f"{later}-0", 1, 0, 0),
        (f"{later}-1", 2, 0, 2),
    ]


def test_an_epoch_is_divided_in_proportion_to_what_waits(topics: Topics) -> None:
    topic = topics.create(3)
    topics.write(topic, texts(*range(90)), partition=0)
    topics.write(topic, texts(*range(10)), partition=1)
    plan = source(topics, topic).build().create_enumerator().plan(now_ms=0, max_records=50)
    assert {split.ordinal: split.end for split in plan.ranges} == {0: 45, 1: 5, 2: 0}


def test_a_topic_that_was_created_again_is_an_error_and_not_silence(topics: Topics) -> None:
    topic = filled(topics, 1, 5)
    built = source(topics, topic, bounded=False).build()
    enumerator = built.create_enumerator()
    enumerator.restore({"version": 1, "partitions": [[topic, 0, 50, None, False]]})
    with pytest.raises(KafkaError, match=rf"partition {topic}-0 ends at offset 5, but the job has read up to 50"):
        enumerator.plan(now_ms=0, max_records=None)


def test_a_missing_topic_is_named(topics: Topics) -> None:
    with pytest.raises(KafkaError, match=r"there is no topic .*no-such-topic"):
        source(topics, "no-such-topic").build().create_enumerator().plan(now_ms=0, max_records=None)


@pytest.mark.parametrize(
    ("leave_out", "message"),
    [
        ("servers", "set_bootstrap_servers"),
        ("topics", "set_topics or set_topic_pattern"),
        ("schema", "set_deserializer"),
    ],
)
def test_a_builder_says_what_is_missing(leave_out: str, message: str) -> None:
    builder = KafkaSource.builder()
    if leave_out != "servers":
        builder.set_bootstrap_servers("127.0.0.1:1")
    if leave_out != "topics":
        builder.set_topics("a")
    if leave_out != "schema":
        builder.set_value_only_deserializer(ByteArraySchema())
    with pytest.raises(ConfigurationError, match=message):
        builder.build()


# ---------------------------------------------------------------- records


def test_a_full_record_has_key_headers_and_position(topics: Topics) -> None:
    topic = topics.create()
    topics.write(topic, [b"v"], timestamps=[123], key=lambda value: b"k", headers=[("h", b"1")])
    built = source(topics, topic).set_deserializer(KafkaRecordDeserializationSchema.full_record()).build()
    assert drain(built)[f"{topic}-0"] == [
        (
            KafkaRecord(
                topic=topic, partition=0, offset=0, timestamp=123, key=b"k", value=b"v", headers=(("h", b"1"),)
            ),
            123,
        )
    ]


JSON_TYPE = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])


def json_source(topics: Topics, topic: str) -> Any:
    schema = JsonRowDeserializationSchema.builder().type_info(JSON_TYPE).build()
    return source(topics, topic).set_value_only_deserializer(schema)


def test_json_of_a_declared_type_is_read_as_columns(topics: Topics) -> None:
    topic = topics.create()
    topics.write(topic, [json.dumps({"id": n, "name": f"n{n}", "more": 1}).encode() for n in range(50)])
    built = json_source(topics, topic).build()
    (split,) = built.create_enumerator().plan(now_ms=0, max_records=None).ranges
    blocks = list(built.create_reader().read(split, 100))
    assert all(isinstance(block, Columns) for block in blocks)
    rows = [row for block in blocks for row in block.batch.to_pylist()]
    assert rows == [{"id": n, "name": f"n{n}"} for n in range(50)]


POISONED = [b'{"id": 1, "name": "a"}', b'{"id": "x", "name": "b"}', b"\xff", b'{"id": 2, "name": "c"}']


def test_a_poison_record_fails_the_job_and_is_named(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.write(topic, POISONED)

    def build(env: Any) -> None:
        stream = env.from_source(json_source(topics, topic).build(), WatermarkStrategy.no_watermarks(), "in")
        stream.sink_to(ListSink("poison-fails"))

    with pytest.raises(JobFailedError, match=rf"offset 1 of {topic}-0 cannot be read.*the field 'id' is 'x'"):
        embedded(tmp_path, build, NO_RESTART).run()


def test_poison_records_go_whole_to_a_side_output_when_asked(topics: Topics, tmp_path: Path) -> None:
    topic = topics.create()
    topics.write(topic, POISONED)
    bad = OutputTag("bad")

    def build(env: Any) -> None:
        built = json_source(topics, topic).set_poison_records(bad).build()
        stream = env.from_source(built, WatermarkStrategy.no_watermarks(), "in")
        stream.map(lambda row: (row[0], row[1])).sink_to(ListSink("poison-good"))
        stream.get_side_output(bad).map(lambda record: (record.offset, record.value)).sink_to(ListSink("poison-bad"))

    embedded(tmp_path, build).run()
    assert sorted(ListSink.results("poison-good")) == [(1, "a"), (2, "c")]
    assert sorted(ListSink.results("poison-bad")) == [(1, POISONED[1]), (2, POISONED[2])]


def test_poison_records_are_dropped_when_asked(topics: Topics) -> None:
    topic = topics.create()
    topics.write(topic, POISONED)
    records = drain(json_source(topics, topic).set_poison_records("drop").build())[f"{topic}-0"]
    assert [value for value, _ in records] == [Row(id=1, name="a"), Row(id=2, name="c")]


def test_a_reader_tells_poison_from_records(topics: Topics) -> None:
    topic = topics.create()
    topics.write(topic, POISONED)
    built = json_source(topics, topic).set_poison_records(OutputTag("bad")).build()
    (split,) = built.create_enumerator().plan(now_ms=0, max_records=None).ranges
    kinds = [(type(block), len(block)) for block in built.create_reader().read(split, 10)]
    assert (SideRows, 2) in kinds
    assert sum(size for _, size in kinds) == 4


# ---------------------------------------------------------------- a running job


class CountInWindow(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Iterator[str]:
        yield f"{key}:{context.window().start}:{len(list(elements))}"


def windowed(env: Any, topics: Topics, topic: str, out: str, strategy: WatermarkStrategy) -> None:
    built = source(topics, topic, bounded=False, properties=DISCOVERING).build()
    (
        env.from_source(built, strategy, "in")
        .key_by(lambda value: "all")
        .window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .process(CountInWindow())
        .sink_to(sink(topics, out))
    )


def test_a_partition_added_while_running_is_read_from_its_beginning(topics: Topics, tmp_path: Path) -> None:
    topic, out = filled(topics, 1, 10), topics.create()
    env = environment(tmp_path)
    built = source(topics, topic, bounded=False, properties=DISCOVERING).build()
    env.from_source(built, WatermarkStrategy.no_watermarks(), "in").sink_to(sink(topics, out))
    client = env.execute_async("partitions")
    try:
        assert len(topics.wait_for(out, 10)) == 10
        topics.add_partitions(topic, 2)
        topics.write(topic, [b"new:1", b"new:2"], partition=1)
        found = topics.wait_for(out, 12)
    finally:
        client.cancel().result()
    assert sorted(found) == sorted([*(f"0:{n}".encode() for n in range(10)), b"new:1", b"new:2"])


def test_a_lagging_partition_holds_the_watermark_back_until_it_has_caught_up(topics: Topics, tmp_path: Path) -> None:
    topic, out = topics.create(2), topics.create()
    topics.write(topic, texts(*range(35)), partition=0, timestamps=[1000 * n + 1 for n in range(35)])
    topics.write(topic, texts(*range(12)), partition=1, timestamps=[1000 * n + 1 for n in range(12)])
    env = environment(tmp_path)
    windowed(env, topics, topic, out, WatermarkStrategy.for_monotonous_timestamps())
    client = env.execute_async("lagging")
    try:
        assert topics.wait_for(out, 1) == [b"all:0:20"]
        topics.write(topic, texts(*range(12, 35)), partition=1, timestamps=[1000 * n + 1 for n in range(12, 35)])
        assert sorted(topics.wait_for(out, 3)) == [b"all:0:20", b"all:10000:20", b"all:20000:20"]
    finally:
        client.cancel().result()


def test_an_idle_partition_does_not_hold_the_watermark_back(topics: Topics, tmp_path: Path) -> None:
    topic, out = topics.create(2), topics.create()
    topics.write(topic, texts(*range(35)), partition=0, timestamps=[1000 * n + 1 for n in range(35)])
    env = environment(tmp_path, {"penstock.epoch.quiet-interval": "100 ms"})
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_millis(300))
    windowed(env, topics, topic, out, strategy)
    client = env.execute_async("idle")
    try:
        assert sorted(topics.wait_for(out, 3)) == [b"all:0:10", b"all:10000:10", b"all:20000:10"]
    finally:
        client.cancel().result()


def test_offsets_of_checkpoints_are_committed_to_the_group(topics: Topics, tmp_path: Path) -> None:
    topic = filled(topics, 2, 10)

    def build(env: Any) -> None:
        stream = env.from_source(source(topics, topic).build(), WatermarkStrategy.no_watermarks(), "in")
        stream.sink_to(ListSink("group-offsets"))

    embedded(tmp_path, build).run()
    topics._until(lambda: topics.group_offsets(f"group-{topic}", topic) == {0: 10, 1: 10}, "the group's offsets")


def test_a_broker_that_is_down_at_start_is_an_error_after_a_bounded_wait(topics: Topics, tmp_path: Path) -> None:
    nowhere = Topics("127.0.0.1:1")

    def build(env: Any) -> None:
        built = source(nowhere, "t", properties={"penstock.wait.ms": "500"}).build()
        env.from_source(built, WatermarkStrategy.no_watermarks(), "in").sink_to(ListSink("down"))

    with pytest.raises(
        JobFailedError, match=r"Kafka at 127.0.0.1:1: listing topics failed within 0.5 s.*restart strategy"
    ):
        embedded(tmp_path, build, NO_RESTART).run()


def test_a_job_started_without_its_broker_begins_by_itself_when_it_is_there(
    kafka_server: KafkaServer, topics: Topics, tmp_path: Path
) -> None:
    topic, out = filled(topics, 2, 10), topics.create()
    kafka_server.kill()
    env = environment(tmp_path, {"restart-strategy.fixed-delay.attempts": "1000"})
    built = source(topics, topic, properties={"penstock.wait.ms": "500"}).build()
    stream = env.from_source(built, WatermarkStrategy.no_watermarks(), "in")
    stream.sink_to(sink(topics, out, properties={"penstock.wait.ms": "3000"}))
    client = env.execute_async("waiting")
    topics._until(lambda: client.get_job_status().result().name == "RESTARTING", "a failed attempt")
    kafka_server.start()
    client.get_job_execution_result().result()
    assert len(topics.values(out)) == 20
