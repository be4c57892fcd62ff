"""Jobs between Kafka topics on the embedded runtime."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.checkpoint.storage import LocalStorage
from penstock.common import Configuration
from penstock.common.serialization import SimpleStringSchema
from penstock.connectors.kafka import (
    DeliveryGuarantee,
    KafkaOffsetsInitializer,
    KafkaRecordSerializationSchema,
    KafkaSink,
    KafkaSource,
    KafkaSourceBuilder,
)
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.job_master import JobMaster
from penstock.testing import CrashPlan, EmbeddedJob
from tests.servers.topics import Topics


def source(
    topics: Topics, topic: str, *, bounded: bool = True, properties: Mapping[str, str] | None = None
) -> KafkaSourceBuilder:
    builder = (
        KafkaSource.builder()
        .set_bootstrap_servers(topics.servers)
        .set_topics(topic)
        .set_group_id(f"group-{topic}")
        .set_starting_offsets(KafkaOffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema())
        .set_properties(properties or {})
    )
    return builder.set_bounded(KafkaOffsetsInitializer.latest()) if bounded else builder


class KeyOfText(SimpleStringSchema):
    """The part before the first colon."""

    def serialize(self, element: Any) -> bytes:
        return super().serialize(element.partition(":")[0])


def sink(
    topics: Topics,
    topic: str,
    guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE,
    properties: Mapping[str, str] | None = None,
    prefix: str | None = None,
) -> KafkaSink:
    serializer = (
        KafkaRecordSerializationSchema.builder()
        .set_topic(topic)
        .set_key_serialization_schema(KeyOfText())
        .set_value_serialization_schema(SimpleStringSchema())
        .build()
    )
    return (
        KafkaSink.builder()
        .set_bootstrap_servers(topics.servers)
        .set_record_serializer(serializer)
        .set_delivery_guarantee(guarantee)
        .set_transactional_id_prefix(prefix or f"job-{topic}")
        .set_properties(properties or {})
        .build()
    )


def configuration(folder: Path, options: Mapping[str, str] | None = None) -> Configuration:
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    config.set_string("penstock.job.dir", str(folder / "job"))
    config.set_string("execution.checkpointing.interval", "0 ms")
    config.set_string("penstock.epoch.interval", "20 ms")
    config.set_string("restart-strategy.type", "fixed-delay")
    config.set_string("restart-strategy.fixed-delay.attempts", "20")
    config.set_string("restart-strategy.fixed-delay.delay", "50 ms")
    for key, value in (options or {}).items():
        config.set_string(key, value)
    return config


def environment(folder: Path, options: Mapping[str, str] | None = None) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment(configuration(folder, options))
    env.set_parallelism(2)
    return env


def embedded(
    folder: Path,
    build: Callable[[StreamExecutionEnvironment], Any],
    options: Mapping[str, str] | None = None,
    crashes: CrashPlan | None = None,
) -> EmbeddedJob:
    """A job that was described but not started, with a job folder and an id that stay the same."""
    env = environment(folder, options)
    build(env)
    job = replace(env._describe("kafka"), job_id=uuid.uuid5(uuid.NAMESPACE_URL, str(folder)).hex)
    return EmbeddedJob(job, JobMaster(job, LocalStorage(folder / "job")), crashes=crashes)
