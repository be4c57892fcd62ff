"""The job of the Kafka chaos runs: a topic → running count per user, and windows → two topics and three tables.

Run as a process of its own: `python -m tests.chaos.kafka_job FOLDER servers=… input=… database=… key=value…`. It resumes
FOLDER/job by itself.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from penstock.common import Configuration, Time, Types, WatermarkStrategy
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
)
from penstock.connectors.postgres import PostgresSink
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import AggregateFunction, KeyedProcessFunction, ProcessWindowFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows

KEYS = 997
WINDOW_MS = 10_000
_START_MS = 100 * WINDOW_MS  # not 0, which the client library takes for "now"
TABLES = (
    "create table running (user_id int primary key, number bigint not null, last bigint not null)",
    "create table windows (user_id int, start bigint, count bigint, total bigint, primary key (user_id, start))",
    "create table window_log (user_id int, start bigint, count bigint, total bigint)",
)


def event(index: int) -> tuple[int, int]:
    """(user, event time): in order within each partition, so no record is ever late."""
    return index * 31 % KEYS, _START_MS + index


class Running(KeyedProcessFunction):
    """Numbers the records of a user: any loss, duplicate or reordering within a key shows."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        yield f"{value[0]}|{number}|{value[1]}"


class CountAndSum(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Any, accumulator: Any) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value[1]

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Describe(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        for count, total in elements:
            yield f"{key}|{context.window().start}|{count}|{total}"


class User(SimpleStringSchema):
    def serialize(self, element: Any) -> bytes:
        return super().serialize(element.partition("|")[0])


def parse(text: str) -> tuple[int, int]:
    user, _, index = text.partition("|")
    return int(user), int(index)


def kafka_sink(servers: str, topic: str) -> KafkaSink:
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(topic)
        .set_key_serialization_schema(User())
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    return (
        KafkaSink.builder()
        .set_bootstrap_servers(servers)
        .set_record_serializer(serializer)
        .set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE)
        .set_transactional_id_prefix("chaos")
        .build()
    )


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("|"))


def table_sink(database: str, table: str, columns: list[str], keys: list[str]) -> PostgresSink:
    """Upserts by `keys`; appends if there are none."""
    builder = PostgresSink.builder().set_connection(database).set_table(table).set_columns(columns)
    return builder.set_upsert_keys(keys).build()


def build(
    env: StreamExecutionEnvironment,
    servers: str,
    source_topic: str,
    running_topic: str,
    windows_topic: str,
    database: str,
) -> None:
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(servers)
        .set_topics(source_topic)
        .set_group_id("chaos")
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    clicks = env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "clicks").uid("clicks")
    by_user = clicks.map(parse, Types.TUPLE([Types.LONG(), Types.LONG()])).key_by(lambda e: e[0])
    running = by_user.process(Running(), Types.STRING()).uid("running")
    windows = (
        by_user.window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS)))
        .aggregate(CountAndSum(), Describe(), output_type=Types.STRING())
        .uid("windows")
    )
    running.sink_to(kafka_sink(servers, running_topic)).uid("running-sink")
    windows.sink_to(kafka_sink(servers, windows_topic)).uid("windows-sink")
    counted = running.map(numbers, Types.TUPLE([Types.LONG()] * 3))
    counted.sink_to(table_sink(database, "running", ["user_id", "number", "last"], ["user_id"])).uid("running-table")
    summed = windows.map(numbers, Types.TUPLE([Types.LONG()] * 4))
    columns = ["user_id", "start", "count", "total"]
    summed.sink_to(table_sink(database, "windows", columns, ["user_id", "start"])).uid("windows-table")
    summed.sink_to(table_sink(database, "window_log", columns, [])).uid("window-log-table")


def main(argv: list[str]) -> None:
    folder = Path(argv[0])
    options = dict(argument.split("=", 1) for argument in argv[1:])
    places = [options.pop(name) for name in ("servers", "input", "running", "windows", "database")]
    config = Configuration()
    config.set_string("penstock.job.dir", str(folder / "job"))
    config.set_string("execution.checkpointing.interval", "0 ms")
    for key, value in options.items():
        config.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(2)
    build(env, *places)
    print(env.execute("kafka chaos"), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
