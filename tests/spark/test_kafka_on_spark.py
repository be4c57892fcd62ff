"""Kafka to Kafka on Spark, and Kafka read by plain PySpark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.spark.data_source import read_stream
from tests.kafka.jobs import sink, source
from tests.servers.topics import Topics
from tests.spark.test_data_source import collect

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_a_keyed_job_between_topics_is_exactly_once(configuration: Configuration, topics: Topics) -> None:
    topic, out = topics.create(3), topics.create(2)

    def write(numbers: range) -> None:
        for partition in range(3):
            mine = [f"{n % 7}:{n}".encode() for n in numbers if n % 3 == partition]
            topics.write(topic, mine, partition=partition)

    def run() -> None:
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        env.set_parallelism(2)
        (
            env.from_source(source(topics, topic).build(), WatermarkStrategy.no_watermarks(), "in")
            .uid("in")
            .map(lambda text: (text.partition(":")[0], 1), Types.TUPLE([Types.STRING(), Types.LONG()]))
            .key_by(lambda pair: pair[0])
            .sum(1)
            .uid("sum")
            .map(lambda pair: f"{pair[0]}:{pair[1]}", Types.STRING())
            .sink_to(sink(topics, out))
            .uid("out")
        )
        env.execute("kafka")

    write(range(2100))
    configuration.set_string("penstock.epoch.max-records", "800")
    run()
    found = Counter(value.decode() for value in topics.values(out))
    assert found == Counter(f"{key}:{count}" for key in range(7) for count in range(1, 301))


def test_plain_pyspark_reads_a_topic(spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    topic = topics.create(2)
    for partition in range(2):
        topics.write(topic, [f"{partition}:{n}".encode() for n in range(10)], partition=partition)
    frame = read_stream(spark, source(topics, topic).build(), "value string")
    assert sorted(collect(frame, tmp_path)) == sorted((f"{p}:{n}",) for p in range(2) for n in range(10))
