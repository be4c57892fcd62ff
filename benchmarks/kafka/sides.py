"""The competitors between two topics."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from benchmarks.sides import environment, main, steady


def change(value: bytes) -> bytes:
    """The map: the same for everyone."""
    return value.upper()


def plain(spec: dict[str, Any]) -> dict[str, Any]:
    """What one would write by hand: consume a batch, map, produce. With `transactional`, each batch of consumed messages is
    one transaction with the consumer's offsets in it: exactly once, as far as the two topics go."""
    partitions = [TopicPartition(spec["input"], n, OFFSET_BEGINNING) for n in spec["partitions"]]
    consumer = Consumer(
        {
            "bootstrap.servers": spec["servers"],
            "group.id": f"plain-{spec['output']}-{spec['partitions'][0]}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    config: dict[str, Any] = {
        "bootstrap.servers": spec["servers"],
        "enable.idempotence": True,
        "linger.ms": 5,
        "batch.size": 1_000_000,
        "queue.buffering.max.messages": 1_000_000,
    }
    if spec["transactional"]:
        config["transactional.id"] = f"plain-{spec['output']}-{spec['partitions'][0]}"
    producer = Producer(config)
    if spec["transactional"]:
        producer.init_transactions(30)
    consumer.assign(partitions)
    first = consumer.poll(30)
    assert first is not None
    started, cpu = time.perf_counter(), time.process_time()
    batch, done, output = [first], 0, spec["output"]
    while True:
        if spec["transactional"]:
            producer.begin_transaction()
        in_transaction = 0
        while batch and in_transaction < spec["batch"]:
            for message in batch:
                while True:
                    try:
                        producer.produce(output, change(message.value() or b""), message.key())
                        break
                    except BufferError:
                        producer.poll(0.05)
            producer.poll(0)
            in_transaction += len(batch)
            done += len(batch)
            batch = consumer.consume(min(10_000, spec["records"] - done), 1.0) if done < spec["records"] else []
        if spec["transactional"]:
            producer.send_offsets_to_transaction(consumer.position(partitions), consumer.consumer_group_metadata(), 30)
            producer.commit_transaction(60)
        if done >= spec["records"]:
            break
    producer.flush(60)
    return {"records": done, "seconds": time.perf_counter() - started, "cpu_s": time.process_time() - cpu}


def penstock(spec: dict[str, Any]) -> dict[str, Any]:
    from penstock.common import WatermarkStrategy
    from penstock.common.serialization import ByteArraySchema
    from penstock.connectors.kafka import (
        DeliveryGuarantee,
        KafkaOffsetsInitializer,
        KafkaRecordDeserializationSchema,
        KafkaRecordSerializationSchema,
        KafkaSink,
        KafkaSource,
    )

    class Part(ByteArraySchema):
        def __init__(self, index: int) -> None:
            self._index = index

        def serialize(self, element: Any) -> bytes:
            part: bytes = element[self._index]
            return part

    env = environment(spec)
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers(spec["servers"])
        .set_topics(spec["input"])
        .set_group_id("penstock-bench")
        .set_bounded(KafkaOffsetsInitializer.latest())
        .set_deserializer(KafkaRecordDeserializationSchema.key_value())
        .build()
    )
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(spec["output"])
        .set_key_serialization_schema(Part(0))
        .set_value_serialization_schema(Part(1))
        .build()
    )
    builder = KafkaSink.builder().set_bootstrap_servers(spec["servers"]).set_record_serializer(serializer)
    builder.set_delivery_guarantee(DeliveryGuarantee(spec["guarantee"])).set_transactional_id_prefix(spec["output"])
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "in")
    stream.map(lambda pair: (pair[0], change(pair[1]))).sink_to(builder.build())
    client = env.execute_async("kafka")
    client.get_job_execution_result().result()
    return steady(client.epoch_reports(), 2)


def spark(spec: dict[str, Any]) -> dict[str, Any]:
    """Spark's connector from Maven; the map runs in the JVM, without Python. At least once: it has no other sink."""
    from pyspark.sql import SparkSession

    from tests.servers.jars import cache_folder, fetch

    jars = fetch(Path(__file__).with_name("spark.lock"), cache_folder("spark-kafka"))
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(str(jar) for jar in jars))
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    frame = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", spec["servers"])
        .option("subscribe", spec["input"])
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", spec["batch"])
        .load()
        .selectExpr("key", "cast(upper(cast(value as string)) as binary) as value")
    )
    query = (
        frame.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", spec["servers"])
        .option("topic", spec["output"])
        .option("checkpointLocation", tempfile.mkdtemp(prefix="spark-kafka-bench-"))
        .start()
    )
    query.processAllAvailable()
    progress = [p for p in query.recentProgress if p["numInputRows"]]
    query.stop()
    session.stop()
    steady = progress[1:] or progress
    return {
        "records": sum(p["numInputRows"] for p in steady),
        "seconds": sum(p["durationMs"]["triggerExecution"] for p in steady) / 1000,
        "epochs": len(steady),
    }


SIDES = {"plain": plain, "penstock": penstock, "spark": spark}

if __name__ == "__main__":
    main(SIDES)
