"""Names of Flink 1.x, and names at the places where PyFlink has them, mean what they meant."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from penstock.common import Configuration
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.kafka import DeliveryGuarantee, KafkaOffsetsInitializer
from penstock.connectors.kafka.offsets import KafkaOffsetResetStrategy
from penstock.datastream import ExternalizedCheckpointRetention, StreamExecutionEnvironment
from penstock.errors import ConfigurationError, JobDefinitionError

pytestmark = pytest.mark.usefixtures("pyflink_aliases")


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("pyflink.datastream.functions", "KEY IN IN1 IN2 OUT W W2"),
        ("pyflink.datastream", "ExternalizedCheckpointCleanup TimeCharacteristic PredefinedOptions"),
        ("pyflink.datastream.checkpoint_config", "ExternalizedCheckpointCleanup CheckpointConfig"),
        ("pyflink.datastream", "async_retry_predicates async_retry_strategies"),
        ("pyflink.datastream.time_characteristic", "TimeCharacteristic"),
        ("pyflink.datastream.connectors", "NumberSequenceSource FlinkKafkaConsumer FlinkKafkaProducer Semantic"),
        (
            "pyflink.datastream.connectors",
            "KafkaSource FileSource FileSink StreamingFileSink StreamFormat FileSourceBuilder",
        ),
        ("pyflink.datastream.connectors.number_seq", "NumberSequenceSource"),
        ("pyflink.datastream.connectors.kafka", "FlinkKafkaConsumer FlinkKafkaProducer Semantic"),
        ("pyflink.datastream.formats.csv", "CsvRowDeserializationSchema CsvRowSerializationSchema CsvSchema"),
        ("pyflink.datastream.formats.csv", "CsvReaderFormat CsvBulkWriters"),
        ("pyflink.datastream.data_stream", "AllWindowedStream CachedDataStream"),
        ("pyflink.metrics.metricbase", "Counter Distribution Meter MetricGroup"),
        ("pyflink.datastream.formats.parquet", "ParquetBulkWriters ParquetColumnarRowInputFormat"),
    ],
)
def test_a_program_finds_the_name_where_pyflink_has_it(module: str, names: str) -> None:
    for name in names.split():
        assert getattr(import_module(module), name) is not None


@pytest.mark.parametrize(
    ("module", "name", "instead"),
    [
        ("pyflink.datastream.formats.avro", "AvroSchema", "Parquet"),
        ("pyflink.datastream.formats.parquet", "AvroParquetReaders", "ParquetColumnarRowInputFormat"),
        ("pyflink.datastream.connectors.file_system", "FileEnumeratorProvider", "FileSource"),
        ("pyflink.datastream.connectors", "JdbcSink", "penstock.connectors.postgres"),
        ("pyflink.common", "ExecutionMode", "set_runtime_mode"),
    ],
)
def test_a_name_that_is_not_here_says_what_is(module: str, name: str, instead: str) -> None:
    with pytest.raises(ImportError, match=f"Penstock has no {name}: .*{instead}"):
        exec(f"from {module} import {name}")


def environment(**settings: str) -> StreamExecutionEnvironment:
    configuration = Configuration.from_dict({"penstock.runtime": "embedded", **settings})
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def test_what_is_cleaned_up_on_cancellation_is_set_by_its_older_name() -> None:
    checkpoints = environment().get_checkpoint_config()
    cleanup: Any = import_module("pyflink.datastream").ExternalizedCheckpointCleanup
    checkpoints.enable_externalized_checkpoints(cleanup.DELETE_ON_CANCELLATION)
    assert checkpoints.get_externalized_checkpoint_retention() is ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION


def test_a_number_sequence_is_read_by_add_source_and_from_source() -> None:
    env = environment(**{"parallelism.default": "3"})
    source = import_module("pyflink.datastream.connectors").NumberSequenceSource
    assert sorted(env.add_source(source(3, 9), "numbers").execute_and_collect()) == list(range(3, 10))
    with pytest.raises(JobDefinitionError, match="above the end"):
        source(2, 1)
    with pytest.raises(JobDefinitionError, match="from_source"):
        env.add_source(object())  # type: ignore[arg-type]


def test_an_older_kafka_consumer_is_todays_source() -> None:
    kafka: Any = import_module("pyflink.datastream.connectors.kafka")
    properties = {"bootstrap.servers": "broker:9092", "group.id": "g", "auto.offset.reset": "earliest"}
    consumer = kafka.FlinkKafkaConsumer("orders", SimpleStringSchema(), properties)
    source = consumer._source
    assert source._start == KafkaOffsetsInitializer.committed_offsets(KafkaOffsetResetStrategy.EARLIEST)
    latest = kafka.FlinkKafkaConsumer(["a", "b"], SimpleStringSchema(), {"bootstrap.servers": "broker:9092"})
    assert latest._source._start == KafkaOffsetsInitializer.latest()
    assert latest.set_start_from_earliest()._start == KafkaOffsetsInitializer.earliest()
    with pytest.raises(ConfigurationError, match=r"no 'bootstrap\.servers'"):
        _ = kafka.FlinkKafkaConsumer("a", SimpleStringSchema(), {})._source


def test_an_older_kafka_producer_is_todays_sink() -> None:
    kafka: Any = import_module("pyflink.datastream.connectors.kafka")
    settings = {"bootstrap.servers": "broker:9092"}
    assert kafka.FlinkKafkaProducer("out", SimpleStringSchema(), settings)._sink._guarantee is (
        DeliveryGuarantee.AT_LEAST_ONCE
    )
    exact = kafka.FlinkKafkaProducer("out", SimpleStringSchema(), settings, semantic=kafka.Semantic.EXACTLY_ONCE)
    assert exact._sink._guarantee is DeliveryGuarantee.EXACTLY_ONCE
