"""Watermark alignment of partitions, against a real broker: one that is far ahead in event time waits for the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.common import Duration, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import ListSink
from tests.kafka.jobs import embedded, environment, source
from tests.servers.topics import Topics

RECORDS, LEADER_MS, LAGGARD_MS, DRIFT_MS = 200, 1000, 10, 5000
PER_EPOCH = {"penstock.epoch.max-records": "10", "penstock.epoch.quiet-interval": "10 ms"}
ALIGNED = WatermarkStrategy.for_monotonous_timestamps().with_watermark_alignment(
    "partitions", Duration.of_millis(DRIFT_MS), Duration.of_millis(1)
)


def fill(topics: Topics, topic: str, name: str, partition: int, numbers: range, step_ms: int) -> None:
    topics.write(
        topic,
        [f"{name}:{number}".encode() for number in numbers],
        partition=partition,
        timestamps=[number * step_ms + 1 for number in numbers],
    )


def building(topics: Topics, topic: str, sink: str, *, bounded: bool) -> Any:
    def build(env: StreamExecutionEnvironment) -> None:
        env.from_source(source(topics, topic, bounded=bounded).build(), ALIGNED, "in").sink_to(ListSink(sink))

    return build


def numbers(sink: str, name: str) -> list[int]:
    return [int(value.partition(":")[2]) for value in ListSink.results(sink) if value.startswith(name)]


def test_a_paused_partition_gets_no_records_and_leaves_its_part_of_the_budget_to_the_others(topics: Topics) -> None:
    topic = topics.create(2)
    fill(topics, topic, "a", 0, range(30), 1)
    fill(topics, topic, "b", 1, range(30), 1)
    enumerator = source(topics, topic).build().create_enumerator()
    enumerator.pause(frozenset({f"{topic}-0"}))
    plan = enumerator.plan(now_ms=0, max_records=20)
    assert {r.ordinal: (r.start, r.end) for r in plan.ranges} == {0: (0, 0), 1: (0, 20)}
    plan = enumerator.plan(now_ms=0, max_records=20)
    assert {r.ordinal: (r.start, r.end, r.last) for r in plan.ranges} == {1: (20, 30, True)}
    assert not plan.finished, "the one that waits has records left"
    enumerator.pause(frozenset())
    assert {r.ordinal: (r.start, r.end) for r in enumerator.plan(now_ms=0, max_records=20).ranges} == {0: (0, 20)}
    assert enumerator.plan(now_ms=0, max_records=20).finished


def test_the_leading_partition_waits_while_the_lagging_one_stands_still_and_nothing_is_lost(
    topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(2)
    fill(topics, topic, "leader", 0, range(RECORDS), LEADER_MS)
    fill(topics, topic, "laggard", 1, range(100), LAGGARD_MS)
    env = environment(tmp_path, PER_EPOCH)
    building(topics, topic, "waiting", bounded=False)(env)
    client = env.execute_async("alignment")
    try:
        topics._until(lambda: len(numbers("waiting", "laggard")) == 100, "the laggard's records")
        seen = len(client.epoch_reports())
        topics._until(lambda: len(client.epoch_reports()) > seen + 5, "further epochs")
        # The limit is 990 + 5000 ms; one epoch of at most ten records is planned before its watermark is known.
        waited = numbers("waiting", "leader")
        assert waited == list(range(len(waited)))
        assert 6 <= len(waited) <= 17
        fill(topics, topic, "laggard", 1, range(100, RECORDS), LEADER_MS)
        topics._until(lambda: len(numbers("waiting", "leader")) == RECORDS, "the leader's records")
    finally:
        client.cancel().result()
    assert numbers("waiting", "leader") == list(range(RECORDS))


def test_a_job_that_aligns_partitions_and_goes_back_to_a_checkpoint_reads_every_record_once(
    topics: Topics, tmp_path: Path
) -> None:
    topic = topics.create(3)
    for partition, step_ms in enumerate((LEADER_MS, 100, LAGGARD_MS)):
        fill(topics, topic, f"p{partition}", partition, range(60), step_ms)
    job = embedded(tmp_path, building(topics, topic, "aligned", bounded=True), PER_EPOCH)
    failed: list[int] = []

    def fail_once(point: str, epoch: int) -> None:
        if point == "before-manifest" and epoch == 6 and not failed:
            failed.append(epoch)
            raise OSError("once")

    job.master.reach = fail_once
    job.run()
    assert failed == [6]
    assert job.failures == 1
    assert [numbers("aligned", f"p{partition}") for partition in range(3)] == [list(range(60))] * 3
