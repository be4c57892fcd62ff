"""Driver side of the Kafka source: finds partitions and decides which offsets are read in an epoch."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.connectors.kafka.client import (
    COMMIT_PROPERTY,
    DISCOVERY_PROPERTY,
    MAX_RECORDS_PROPERTY,
    Cluster,
    KafkaError,
    KafkaSetupError,
    confluent_kafka,
)
from penstock.connectors.kafka.offsets import KafkaOffsetsInitializer, KafkaTopicPartition, list_offsets
from penstock.functions.connectors import Json, SourcePlan, SplitEnumerator, SplitRange

_STATE_VERSION = 1
_DISCOVERY_MS = 300_000  # Flink's default
# An epoch's size when the job does not bound it: a backlog of days must not become one epoch.
UNLIMITED_EPOCH_RECORDS = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Which topics: names, or a pattern that matches whole names."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None

    def matches(self, topic: str) -> bool:
        """True if the topic is to be read."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics


@dataclass(slots=True)
class _Partition:
    """`position` is the next offset to be planned; `stop` where reading ends for good."""

    id: KafkaTopicPartition
    position: int
    stop: int | None
    ended: bool = False


class KafkaEnumerator(SplitEnumerator):
    """Partitions are numbered in the order they are found, which never changes: the number decides the subtask.

    Those found by the first plan start where the job says; those that come later start at their beginning, so that
    nothing written between their creation and their discovery is missed (as in Flink).
    """

    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        *,
        start: KafkaOffsetsInitializer,
        stop: KafkaOffsetsInitializer | None,
        bounded: bool,
    ) -> None:
        self._cluster, self._subscription = cluster, subscription
        self._start, self._stop, self._bounded = start, stop, bounded
        self._interval_ms = cluster.number(DISCOVERY_PROPERTY, _DISCOVERY_MS)
        self._most = cluster.number(MAX_RECORDS_PROPERTY, UNLIMITED_EPOCH_RECORDS)
        self._partitions: list[_Partition] = []
        self._paused: frozenset[str] = frozenset()
        self._found_any = False
        self._looked_ms: int | None = None
        self._admin_client: Any = None
        self._committer: Any = None

    # ---------------------------------------------------------------- state

    def restore(self, state: Json) -> None:
        if state["version"] != _STATE_VERSION:
            raise KafkaError(f"the checkpoint's Kafka offsets have version {state['version']}, not {_STATE_VERSION}")
        self._partitions = [
            _Partition(KafkaTopicPartition(topic, number), position, stop, ended)
            for topic, number, position, stop, ended in state["partitions"]
        ]
        self._found_any = True
        self._looked_ms = None  # look again at once: the job may have been down for long

    def _state(self) -> Json:
        return {
            "version": _STATE_VERSION,
            "partitions": [[p.id.topic, p.id.partition, p.position, p.stop, p.ended] for p in self._partitions],
        }

    # ---------------------------------------------------------------- planning

    def pause(self, splits: frozenset[str]) -> None:
        self._paused = splits

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        known = len(self._partitions)
        self._discover(now_ms)
        open_ = [(ordinal, p) for ordinal, p in enumerate(self._partitions) if not p.ended]
        ends = self._ends([p for _, p in open_])
        # One that waits for others has nothing to be read, and leaves its part of the budget to them.
        backlog = [
            0 if str(p.id) in self._paused else max(0, end - p.position)
            for (_, p), end in zip(open_, ends, strict=True)
        ]
        shares = share(backlog, min(self._most, self._most if max_records is None else max_records))
        ranges = []
        for (ordinal, partition), admitted in zip(open_, shares, strict=True):
            start = partition.position
            partition.position += admitted
            partition.ended = partition.stop is not None and partition.position >= partition.stop
            if admitted or partition.ended or ordinal >= known:
                ranges.append(
                    SplitRange(
                        split=str(partition.id),
                        ordinal=ordinal,
                        start=start,
                        end=partition.position,
                        last=partition.ended,
                    )
                )
        finished = self._bounded and all(p.ended for p in self._partitions)
        return SourcePlan(ranges=tuple(ranges), state=self._state(), finished=finished, records=None)

    def _ends(self, partitions: Sequence[_Partition]) -> list[int]:
        """How far each may be read now."""
        specs = confluent_kafka().admin.OffsetSpec
        found = list_offsets(self._cluster, self._admin, [p.id for p in partitions], specs.latest())
        ends = []
        for partition, end in zip(partitions, found, strict=True):
            if end < partition.position and (partition.stop is None or partition.position < partition.stop):
                raise KafkaError(
                    f"Kafka at {self._cluster.servers}: partition {partition.id} ends at offset {end}, but the job has read "
                    f"up to {partition.position}: the topic was deleted and created again, or lost data. Start a new job, "
                    "or another uid for the source, to read it from its beginning"
                )
            ends.append(end if partition.stop is None else min(end, partition.stop))
        return ends

    def _discover(self, now_ms: int) -> None:
        first = not self._found_any
        if not first and (self._bounded or not self._due(now_ms)):
            return
        known = {p.id for p in self._partitions}
        new = sorted(found for found in self._listed() if found not in known)
        if first and not new:
            raise KafkaError(
                f"Kafka at {self._cluster.servers}: no topic matches {self._subscription.pattern!r}: create one, or correct "
                "set_topic_pattern"
            )
        starts = (self._start if first else KafkaOffsetsInitializer.earliest()).resolve(self._cluster, self._admin, new)
        stops: list[int | None] = [None] * len(new)
        if self._stop is not None:
            stops = list(self._stop.resolve(self._cluster, self._admin, new))
        self._partitions += [_Partition(id_, *at) for id_, *at in zip(new, starts, stops, strict=True)]  # type: ignore[arg-type]
        self._found_any = True
        self._looked_ms = now_ms

    def _due(self, now_ms: int) -> bool:
        if self._interval_ms <= 0:
            return False
        return self._looked_ms is None or not 0 <= now_ms - self._looked_ms < self._interval_ms

    def _listed(self) -> list[KafkaTopicPartition]:
        with self._cluster.attempt("listing topics"):
            metadata = self._admin.list_topics(timeout=self._cluster.wait_s)
        missing = [topic for topic in self._subscription.topics if topic not in metadata.topics]
        if missing and not self._found_any:
            raise KafkaSetupError(
                f"Kafka at {self._cluster.servers}: there is no topic {missing}: create it, or correct set_topics"
            )
        return [
            KafkaTopicPartition(topic, partition)
            for topic, description in metadata.topics.items()
            if self._subscription.matches(topic)
            for partition in description.partitions
        ]

    def splits_found(self) -> int:
        return len(self._partitions)

    # ---------------------------------------------------------------- offsets of the group, for monitoring

    def checkpoint_complete(self, state: Json) -> None:
        """Tell the group how far the job is. Nothing depends on it: it may be lost, and never waits for a broker."""
        if not self._cluster.properties.get("group.id") or not self._cluster.truth(COMMIT_PROPERTY, True):
            return
        library = confluent_kafka()
        with contextlib.suppress(library.KafkaException):
            if self._committer is None:
                self._committer = self._cluster.consumer(defaults={}, fixed={"enable.auto.commit": False})
            offsets = [library.TopicPartition(topic, number, at) for topic, number, at, *_ in state["partitions"]]
            self._committer.commit(offsets=offsets, asynchronous=True)
            self._committer.poll(0)

    @property
    def _admin(self) -> Any:
        if self._admin_client is None:
            self._admin_client = self._cluster.admin()
        return self._admin_client

    def close(self) -> None:
        if self._committer is not None:
            self._committer.close()
            self._committer = None
        self._admin_client = None


def share(backlog: Sequence[int], budget: int) -> list[int]:
    """Divide an epoch's budget in proportion to what waits, so that all partitions catch up at the same time and none holds
    the watermark back longer than it must. Whoever has something waiting gets at least one record, if the budget allows."""
    if sum(backlog) <= budget:
        return list(backlog)
    waiting = [index for index, size in enumerate(backlog) if size]
    first = 1 if len(waiting) <= budget else 0
    shares = [min(size, first) for size in backlog]
    rest, total = budget - sum(shares), sum(backlog) - sum(shares)
    shares = [share + (size - share) * rest // total for share, size in zip(shares, backlog, strict=True)]
    left = budget - sum(shares)  # what rounding left, for the longest backlogs
    for index in sorted(waiting, key=lambda i: -backlog[i])[:left]:
        shares[index] += 1
    return shares
