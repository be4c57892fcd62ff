"""Handing messages to the client library, in blocks, with its queue as the bound."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import repeat
from typing import Any

from penstock.connectors.kafka.client import Cluster, KafkaSetupError, confluent_kafka, refused_because
from penstock.connectors.kafka.serialization import MessageColumns

# Callbacks are for errors only: one for every message would cost as much as the message.
PRODUCER = {
    # Bytes are the bound: an epoch of small messages should not wait for the brokers while it is handed over.
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 262_144,
    "delivery.report.only.error": True,
    "linger.ms": 5,
    "batch.size": 1_000_000,
}
_ANY_PARTITION = -1
_TOPIC_S = 3.0


class Delivery:
    """Remembers the first message a broker refused."""

    def __init__(self) -> None:
        self.error: Any = None

    def __call__(self, error: Any, message: Any) -> None:
        if error is not None and self.error is None:
            self.error = (error, message.topic(), message.partition())

    def check(self, cluster: Cluster) -> None:
        if self.error is not None:
            error, topic, partition = self.error
            where = topic if partition is None or partition < 0 else f"{topic}-{partition}"
            cause = confluent_kafka().KafkaException(error)
            raise cluster.failure(f"sending to {where}", cause) from cause


def check_topic(cluster: Cluster, producer: Any, topic: str, sink: str) -> None:
    """The topic is there, or the brokers create it now. They say so with some delay."""
    soon = time.monotonic() + min(_TOPIC_S, cluster.wait_s)
    while True:
        with cluster.attempt(f"looking up topic {topic} for {sink}"):
            error = producer.list_topics(topic, timeout=cluster.wait_s).topics[topic].error
        if error is None:
            return
        because = refused_because(error.code())
        if time.monotonic() > soon:
            if because is None:
                raise cluster.failure(f"looking up topic {topic} for {sink}", error.str())
            raise KafkaSetupError(f"{sink}: topic {topic} at {cluster.servers}: {error.str()}: {because}")
        time.sleep(0.1)


def send(cluster: Cluster, producer: Any, messages: MessageColumns, delivery: Delivery) -> None:
    """Queue a block in order. Waits for room in the queue, which is the back pressure of the brokers."""
    size = len(messages)
    topics = repeat(messages.topics, size) if isinstance(messages.topics, str) else messages.topics
    # The library's own values for "choose one by key" and "now".
    columns: list[Iterable[Any]] = [
        topics,
        messages.values,
        repeat(None, size) if messages.keys is None else messages.keys,
        repeat(_ANY_PARTITION, size) if messages.partitions is None else messages.partitions,
        repeat(delivery, size),
        repeat(0, size) if messages.timestamps is None else [stamp or 0 for stamp in messages.timestamps],
    ]
    if messages.headers is not None:
        columns.append(messages.headers)
    produce = producer.produce
    with cluster.attempt(f"sending to {messages.topics if isinstance(messages.topics, str) else 'several topics'}"):
        for message in zip(*columns, strict=True):
            try:
                produce(*message)
            except BufferError:
                _insist(cluster, producer, message, delivery)


def _insist(cluster: Cluster, producer: Any, message: tuple[Any, ...], delivery: Delivery) -> None:
    """The queue is full: wait for the brokers as long as they take anything."""
    waiting, deadline = len(producer), time.monotonic() + cluster.wait_s
    while True:
        producer.poll(0.05)
        delivery.check(cluster)
        try:
            producer.produce(*message)
            return
        except BufferError:
            now_waiting = len(producer)
            if now_waiting < waiting:
                waiting, deadline = now_waiting, time.monotonic() + cluster.wait_s
            elif time.monotonic() > deadline:
                raise cluster.failure(f"sending to {message[0]}", "the brokers take no messages") from None


def drain(cluster: Cluster, producer: Any, delivery: Delivery) -> None:
    """Wait until the brokers have everything. The bound is on standing still, not on the size of an epoch."""
    left, deadline = len(producer), time.monotonic() + cluster.wait_s
    while left:
        now_left = producer.flush(0.5)
        delivery.check(cluster)
        if now_left < left:
            left, deadline = now_left, time.monotonic() + cluster.wait_s
        elif time.monotonic() > deadline:
            raise cluster.failure(f"sending the last {left} messages of an epoch", "no broker took them")
    delivery.check(cluster)
