"""What Kafka does not take: found while the epoch runs where that can be known, and never a job that restarts for ever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.storage import LocalStorage
from penstock.common import Types
from penstock.common.serialization import SerializationSchema, SimpleStringSchema
from penstock.connectors.base import DeliveryGuarantee, WriterContext
from penstock.connectors.kafka import KafkaOffsetsInitializer, KafkaRecordSerializationSchema, KafkaSink, KafkaSource
from penstock.connectors.staging import StagedCommitter
from penstock.datastream import StreamExecutionEnvironment
from penstock.errors import BadRecordError, CommitRefusedError, ConfigurationError
from penstock.records import Rows
from tests.kafka.jobs import embedded, sink
from tests.servers.topics import Topics

MAX = {"penstock.epoch.max-records": "60"}
QUICK = {"penstock.wait.ms": "3000"}
PATIENT = {"penstock.wait.ms": "10000"}  # a new topic of markers has no leader at once


def _numbers(out: KafkaSink, length: int) -> Callable[[StreamExecutionEnvironment], None]:
    """Texts of the numbers from 0 to 119, of `length` characters from 70 on."""

    def build(env: StreamExecutionEnvironment) -> None:
        texts = env.from_sequence(0, 119).map(lambda n: f"{n}:".ljust(length if n >= 70 else 1, "x"), Types.STRING())
        texts.sink_to(out).uid("numbers")

    return build


def test_a_refused_commit_ends_the_job_and_mended_it_writes_the_epoch_exactly_once(
    topics: Topics, tmp_path: Path
) -> None:
    out = topics.create(settings={"max.message.bytes": "2000"})
    job = embedded(tmp_path, _numbers(sink(topics, out), 300), MAX)
    with pytest.raises(
        CommitRefusedError, match=r"committing epoch 2 of sink numbers .*max.message.bytes.*same job folder"
    ):
        job.run()
    # Not the job's failures: a broker that is slow at its first transaction, on a busy machine, is one more of those.
    committer = job.master._sinks.committers["numbers"]
    assert isinstance(committer, StagedCommitter)
    assert committer._refused == 3, "tried three times in all, whatever the restart strategy allows"
    assert job.failures >= 2, "and each but the last was a failure of the job"
    assert len(topics.values(out)) == 60
    smaller = sink(topics, out, properties={**QUICK, "message.max.bytes": "1500", "batch.size": "1500"})
    embedded(tmp_path, _numbers(smaller, 300), MAX).run()
    numbers = [int(value.partition(b":")[0]) for value in topics.values(out)]
    assert sorted(numbers) == list(range(120))


def test_a_topic_that_was_deleted_ends_the_job_until_it_is_there_again(topics: Topics, tmp_path: Path) -> None:
    out = topics.create()
    kafka_sink = sink(topics, out, properties=PATIENT)
    storage = LocalStorage(tmp_path)
    writer = kafka_sink.create_writer(
        WriterContext(job_id="job", sink_id="out", subtask=0, parallelism=1, storage=storage)
    )
    writer.begin_epoch(1, "a")
    writer.write(Rows(["1:a"]))
    output, committer = writer.prepare_commit(), kafka_sink.create_committer("out")
    committer.open(storage)
    topics.delete(out)
    with pytest.raises(Exception, match=f"there is no topic {out}.*create it"):
        committer.commit(1, output)
    topics.create(name=out)
    committer.commit(1, output)
    committer.commit(1, output)
    assert topics.values(out) == [b"1:a"]


@pytest.mark.parametrize("guarantee", [DeliveryGuarantee.EXACTLY_ONCE, DeliveryGuarantee.AT_LEAST_ONCE])
def test_a_topic_that_is_not_there_ends_the_job_before_it_runs(
    guarantee: DeliveryGuarantee, topics: Topics, tmp_path: Path
) -> None:
    job = embedded(tmp_path, _numbers(sink(topics, "no-such-topic", guarantee), 1), MAX)
    with pytest.raises(ConfigurationError, match=r"KafkaSink numbers: topic no-such-topic .*create the topic"):
        job.run()
    assert (job.failures, job.master.epoch) == (0, 0)


class _Numbers(SerializationSchema):
    def serialize(self, element: Any) -> Any:
        return element


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"topic_selector": lambda value: None}, "None is no topic .*The record is 'a'"),
        ({"topic_selector": lambda value: "two words"}, "'two words' is no topic"),
        ({"partitioner": lambda value: -5}, "-5 is no partition"),
        ({"partitioner": lambda value: "first"}, "no message: .*a partitioner an int"),
        ({"header_provider": lambda value: [("name", 5)]}, r"no message: .*\(str, bytes\). The first record is 'a'"),
        ({"value_serialization_schema": _Numbers()}, None),
    ],
)
def test_what_is_no_message_is_an_error_in_the_slot(
    settings: dict[str, Any], message: str | None, tmp_path: Path
) -> None:
    builder = KafkaRecordSerializationSchema.builder().set_topic("out")
    builder = builder.set_value_serialization_schema(SimpleStringSchema())
    for name, value in settings.items():
        builder = getattr(builder, f"set_{name}")(value)
    made = KafkaSink.builder().set_bootstrap_servers("localhost:1").set_record_serializer(builder.build())
    made = made.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).set_transactional_id_prefix("p")
    context = WriterContext(job_id="job", sink_id="out", subtask=0, parallelism=1, storage=LocalStorage(tmp_path))
    writer = made.build().create_writer(context)
    writer.begin_epoch(1, "a")
    with pytest.raises(BadRecordError, match=f"KafkaSink out: .*{message or 'no message: .*bytes'}"):
        writer.write(Rows(["a" if message else 5]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KafkaSource.builder().set_topics("a", ""), "'' is none"),
        (lambda: KafkaSource.builder().set_topics(["a", "b"]), r"one by one .*\['a', 'b'\] is none"),  # type: ignore[arg-type]
        (lambda: KafkaSource.builder().set_bootstrap_servers(None), "bootstrap.servers is None"),  # type: ignore[arg-type]
        (lambda: KafkaSource.builder().set_starting_offsets("earliest"), "takes a KafkaOffsetsInitializer"),  # type: ignore[arg-type]
        (lambda: KafkaSource.builder().set_deserializer(SimpleStringSchema()), "takes a KafkaRecordDes"),  # type: ignore[arg-type]
        (lambda: KafkaSink.builder().set_delivery_guarantee("exactly-once"), "takes a DeliveryGuarantee"),  # type: ignore[arg-type]
        (lambda: KafkaSink.builder().set_transactional_id_prefix(""), "not empty"),
        (lambda: KafkaSink.builder().set_record_serializer(None), "KafkaRecordSerializationSchema.builder"),  # type: ignore[arg-type]
        (lambda: KafkaRecordSerializationSchema.builder().set_topic("a b"), "'a b' is none"),
        (lambda: KafkaRecordSerializationSchema.builder().set_partitioner(3), "takes a function"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_an_argument_that_cannot_work_is_refused_where_it_is_given(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("fetch.min.bites", "1", 'KafkaSource: No such configuration property: "fetch.min.bites"'),
        ("fetch.max.bytes", "-3", "outside allowed range"),
        ("penstock.wait.ms", "0", "must be above 0"),
        ("penstock.max.records.per.epoch", "-1", "must be above 0"),
        ("partition.discovery.interval.ms", "soon", "'soon' is not a whole number"),
    ],
)
def test_properties_are_checked_when_the_source_is_built(key: str, value: str, message: str) -> None:
    builder = KafkaSource.builder().set_bootstrap_servers("localhost:1").set_topics("a")
    builder = builder.set_starting_offsets(KafkaOffsetsInitializer.earliest())
    builder = builder.set_value_only_deserializer(SimpleStringSchema()).set_property(key, value)
    with pytest.raises(ConfigurationError, match=message):
        builder.build()
