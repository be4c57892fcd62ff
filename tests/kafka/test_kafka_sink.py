"""KafkaSink against a real broker: what a `read_committed` reader finds, whatever dies when."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.storage import LocalStorage
from penstock.common import WatermarkStrategy
from penstock.connectors.base import Sink, WriterContext
from penstock.connectors.kafka import DeliveryGuarantee, KafkaError
from penstock.connectors.kafka.committer import KafkaCommitter, Marker
from penstock.datastream import StreamExecutionEnvironment
from penstock.errors import ConfigurationError, CorruptSnapshotError, FencedError, StorageError
from penstock.records import Rows
from penstock.testing import CrashPlan, CrashPoint, SimulatedCrash, SinkContract
from tests.kafka.jobs import embedded, sink, source
from tests.servers.kafka import KafkaServer
from tests.servers.topics import Topics

EXPIRING = {"transaction.timeout.ms": "6000"}  # longer than a busy machine stands still
RECORDS = 300
MAX = {"penstock.epoch.max-records": "60"}


def filled(topics: Topics) -> str:
    """Records key:number of ten keys, each key in one partition of two."""
    topic = topics.create(2)
    for partition in range(2):
        topics.write(
            topic,
            [f"{number % 10}:{number}".encode() for number in range(RECORDS) if number % 2 == partition],
            partition=partition,
        )
    return topic


def copying(topics: Topics, topic: str, out: str, properties: Mapping[str, str] | None = None) -> Any:
    def build(env: StreamExecutionEnvironment) -> None:
        stream = env.from_source(source(topics, topic).build(), WatermarkStrategy.no_watermarks(), "in")
        stream.key_by(lambda value: value.partition(":")[0]).map(lambda value: value).sink_to(
            sink(topics, out, properties=properties)
        ).uid("out")

    return build


def assert_exact(topics: Topics, out: str) -> None:
    """Each record once, and those of a key in one partition and in order."""
    places: dict[bytes, set[int]] = defaultdict(set)
    numbers: dict[bytes, list[int]] = defaultdict(list)
    for partition, messages in topics.committed(out).items():
        for message in messages:
            key, value = message.key(), message.value()
            assert key is not None
            assert value is not None
            places[key].add(partition)
            numbers[key].append(int(value.partition(b":")[2]))
    assert all(len(found) == 1 for found in places.values()), "a key is in two partitions"
    assert numbers == {str(key).encode(): list(range(key, RECORDS, 10)) for key in range(10)}


class TestContract(SinkContract):
    @pytest.fixture(autouse=True)
    def _topic(self, topics: Topics) -> None:
        self.topics, self.topic = topics, topics.create(2)

    def sink(self, folder: Path) -> Sink:
        return sink(self.topics, self.topic)

    def visible(self, folder: Path) -> list[Any]:
        return [value.decode() for value in self.topics.values(self.topic)]


def test_every_guarantee_writes_every_record(topics: Topics, tmp_path: Path) -> None:
    topic = filled(topics)
    for guarantee in DeliveryGuarantee:
        out = topics.create(3)

        def build(env: Any, out: str = out, guarantee: DeliveryGuarantee = guarantee) -> None:
            stream = env.from_source(source(topics, topic).build(), WatermarkStrategy.no_watermarks(), "in")
            stream.key_by(lambda value: value.partition(":")[0]).map(lambda v: v).sink_to(sink(topics, out, guarantee))

        embedded(tmp_path / guarantee.value, build).run()
        topics.wait_for(out, RECORDS)  # without a guarantee the last ones may still be on their way
        assert_exact(topics, out)


@pytest.mark.parametrize(
    "point",
    ["before-manifest", "after-manifest", "during-sink-commit", "after-commit", "before-snapshot", "after-snapshot"],
)
def test_a_process_that_dies_at_a_named_point_leaves_every_record_exactly_once(
    point: CrashPoint, topics: Topics, tmp_path: Path
) -> None:
    topic, out = filled(topics), topics.create(2)
    crashes = CrashPlan([(point, 2), (point, 4)])
    embedded(tmp_path, copying(topics, topic, out), MAX, crashes).run()
    assert crashes.fired == [(point, 2), (point, 4)]
    assert_exact(topics, out)


class _Interrupted:
    """A producer of the committer whose transactions are interrupted once, at a step of the test's choice."""

    def __init__(self, producer: Any, step: str, error: BaseException, fired: list[str]) -> None:
        self._producer, self._step, self._error, self._fired = producer, step, error, fired

    def __len__(self) -> int:
        return len(self._producer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def commit_transaction(self, timeout: float) -> None:
        if self._fired:
            self._producer.commit_transaction(timeout)
            return
        self._fired.append(self._step)
        if self._step == "after":
            self._producer.commit_transaction(timeout)
        raise self._error


def interrupt(monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException) -> tuple[list[str], list[Any]]:
    """The committer's next commit_transaction raises before or after it has done its work."""
    fired: list[str] = []
    kept: list[Any] = []  # a process that dies does not say goodbye to its broker: nor does its producer here
    begin = KafkaCommitter._begin_life

    def begin_and_wrap(self: KafkaCommitter) -> None:
        begin(self)
        kept.append(self._producer)
        self._producer = _Interrupted(self._producer, step, error, fired)

    monkeypatch.setattr(KafkaCommitter, "_begin_life", begin_and_wrap)
    return fired, kept


@pytest.mark.parametrize("step", ["before", "after"])
def test_a_commit_whose_outcome_is_unknown_is_found_out_from_the_marker(
    step: str, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, out = filled(topics), topics.create(2)
    fired, _ = interrupt(monkeypatch, step, KafkaError("the answer was lost"))
    job = embedded(tmp_path, copying(topics, topic, out), MAX)
    job.run()
    assert fired == [step]
    assert job.failures == 1
    assert_exact(topics, out)


def test_a_job_resumed_after_its_transaction_expired_loses_and_repeats_nothing(
    topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, out = filled(topics), topics.create(2)
    fired, kept = interrupt(monkeypatch, "before", SimulatedCrash("dies in a transaction"))
    job = embedded(tmp_path, copying(topics, topic, out, EXPIRING), MAX)
    job._recover = _raise  # type: ignore[method-assign]  # the process is gone: nobody recovers
    with pytest.raises(SimulatedCrash):
        job.run()
    assert fired == ["before"]
    assert kept, "its producer is still there, as a connection of a dead host may be"
    dangling = topics.ends(out, committed=False)
    assert sum(dangling.values()) > sum(topics.ends(out).values()), "a transaction is open"
    topics._until(lambda: topics.ends(out) == topics.ends(out, committed=False), "the broker to expire the transaction")
    assert topics.ends(out) != dangling, "the broker wrote its abort markers"
    assert topics.values(out) == [], "nothing of it is visible"
    embedded(tmp_path, copying(topics, topic, out), MAX).run()
    assert_exact(topics, out)


def _raise(error: BaseException) -> None:
    raise error


def test_the_broker_killed_while_a_job_writes_changes_nothing(
    kafka_server: KafkaServer, topics: Topics, tmp_path: Path
) -> None:
    topic, out = filled(topics), topics.create(2)
    killed: list[int] = []
    job = embedded(tmp_path, copying(topics, topic, out, {"penstock.wait.ms": "20000"}), MAX)

    def kill_between_manifest_and_commit(point: str, epoch: int) -> None:
        if point == "after-manifest" and epoch == 2 and not killed:
            killed.append(kafka_server.kill())
            kafka_server.start(wait=False)

    job.master.reach = kill_between_manifest_and_commit
    job.run()
    assert killed
    kafka_server.wait_until_ready()
    assert_exact(topics, out)


# ---------------------------------------------------------------- the committer by itself


def staged(topics: Topics, out: str, folder: Path, epoch: int, size: int = 3) -> tuple[LocalStorage, Any, list[Any]]:
    storage = LocalStorage(folder)
    kafka_sink = sink(topics, out)
    context = WriterContext(job_id="job", sink_id="out", subtask=0, parallelism=1, storage=storage)
    writer = kafka_sink.create_writer(context)
    writer.begin_epoch(epoch, "a")
    writer.write(Rows([f"{epoch}:{number}" for number in range(size)]))
    committer_ = kafka_sink.create_committer("out")
    committer_.open(storage)
    return storage, committer_, writer.prepare_commit()


def test_a_repeated_commit_is_a_no_op_also_by_another_process_and_after_later_ones(
    topics: Topics, tmp_path: Path
) -> None:
    out = topics.create()
    _, first, one = staged(topics, out, tmp_path, 1)
    _, _, two = staged(topics, out, tmp_path, 2)
    first.commit(1, one)
    first.commit(1, one)
    first.commit(2, two)
    _, second, _ = staged(topics, out, tmp_path, 3)
    second.commit(1, one)
    second.commit(2, two)
    assert sorted(topics.values(out)) == [b"1:0", b"1:1", b"1:2", b"2:0", b"2:1", b"2:2"]


def test_an_epoch_that_was_run_again_is_committed_though_its_number_was_seen(topics: Topics, tmp_path: Path) -> None:
    """A job that went back to an older checkpoint makes other epochs of the same number: skipping them would lose data."""
    out = topics.create()
    _, committer_, one = staged(topics, out, tmp_path, 1)
    committer_.commit(1, one)
    _, _, again = staged(topics, out, tmp_path, 1, size=1)
    committer_.commit(1, again)
    assert len(topics.values(out)) == 4


def test_an_older_attempt_is_fenced_by_a_newer_one(topics: Topics, tmp_path: Path) -> None:
    out = topics.create()
    _, old, one = staged(topics, out, tmp_path, 1)
    _, new, two = staged(topics, out, tmp_path, 2)
    old.commit(1, one)
    new.commit(2, two)
    _, _, three = staged(topics, out, tmp_path, 3)
    with pytest.raises(FencedError, match="newer attempt of this job, or another job with the same transactional id"):
        old.commit(3, three)
    assert len(topics.values(out)) == 6


def test_of_two_sinks_neither_misses_its_marker_nor_waits_because_of_what_the_other_left_open(
    topics: Topics, tmp_path: Path
) -> None:
    """Their markers are in one partition, and nobody reads past an open transaction: the one sink's newest marker is behind what
    the other has left open, which only that other can end, or the broker, in ten minutes."""
    first, second = topics.create(), topics.create()
    patient = {"transaction.timeout.ms": "600000", "penstock.wait.ms": "4000"}
    sinks = {
        uid: sink(topics, out, properties=patient, prefix=f"both-{first}") for uid, out in (("a", first), ("b", second))
    }
    storage = LocalStorage(tmp_path)

    def stage(uid: str, epoch: int) -> list[Any]:
        context = WriterContext(job_id="job", sink_id=uid, subtask=0, parallelism=1, storage=storage)
        writer = sinks[uid].create_writer(context)
        writer.begin_epoch(epoch, "a")
        writer.write(Rows(["1:0", "1:1", "1:2"]))
        return writer.prepare_commit()

    def drivers() -> dict[str, Any]:
        made = {uid: one.create_committer(uid) for uid, one in sinks.items()}
        for committer_ in reversed(made.values()):
            committer_.open(storage)
            committer_.check()
        return made

    output, dying, fired = {uid: stage(uid, 2) for uid in sinks}, drivers(), list[str]()
    dying["b"].commit(1, stage("b", 1))
    left_open = dying["a"]._producer
    dying["a"]._producer = _Interrupted(left_open, "before", SimulatedCrash("the answer never came"), fired)
    with pytest.raises(SimulatedCrash):
        dying["a"].commit(2, output["a"])
    dying["b"].commit(2, output["b"])
    assert fired == ["before"]
    assert topics.ends(first) != topics.ends(first, committed=False), "a transaction is open"
    after = drivers()
    for uid in ("b", "a"):
        after[uid].commit(2, output[uid])
    assert len(topics.values(first)) == 3
    assert len(topics.values(second)) == 6


def test_large_output_is_a_file_that_goes_when_it_is_committed(topics: Topics, tmp_path: Path) -> None:
    out = topics.create()
    storage, committer_, large = staged(topics, out, tmp_path, 1, size=5000)
    assert large[0].data is None
    assert storage.list("staged") == [large[0].path]
    committer_.commit(1, large)
    assert storage.list("staged") == []
    _, another, _ = staged(topics, out, tmp_path, 2)
    another.commit(1, large)  # the marker is asked before the file, which is gone, is looked for
    assert len(topics.values(out)) == 5000


def test_an_epoch_that_fills_the_clients_queue_waits_for_the_broker(topics: Topics, tmp_path: Path) -> None:
    out = topics.create()
    storage, _, many = staged(topics, out, tmp_path, 1, size=600)
    committer_ = sink(topics, out, properties={"queue.buffering.max.messages": "100"}).create_committer("out")
    committer_.open(storage)
    committer_.commit(1, many)
    assert len(topics.values(out)) == 600


def test_output_of_epochs_that_are_in_no_checkpoint_is_discarded(topics: Topics, tmp_path: Path) -> None:
    storage, committer_, _ = staged(topics, topics.create(), tmp_path, 4, size=5000)
    committer_.discard_after(4)
    assert len(storage.list("staged")) == 1
    committer_.discard_after(3)
    assert storage.list("staged") == []


def test_lost_or_damaged_staged_output_is_an_error_and_nothing_is_written(topics: Topics, tmp_path: Path) -> None:
    out = topics.create()
    storage, committer_, large = staged(topics, out, tmp_path, 1, size=5000)
    data = storage.get(large[0].path)
    storage.put(large[0].path, data[:2000] + bytes([data[2000] ^ 1]) + data[2001:])
    with pytest.raises(CorruptSnapshotError, match="staged for epoch 1 by subtask 0"):
        committer_.commit(1, large)
    storage.delete(large[0].path)
    with pytest.raises(StorageError, match="is gone, and with it output that was promised"):
        committer_.commit(1, large)
    storage.put(large[0].path, data)
    committer_.commit(1, large)
    assert len(topics.values(out)) == 5000


def test_a_topic_that_does_not_exist_is_named_after_a_bounded_wait(topics: Topics, tmp_path: Path) -> None:
    kafka_sink = sink(topics, "no-such-output", DeliveryGuarantee.AT_LEAST_ONCE, {"message.timeout.ms": "2000"})
    writer = kafka_sink.create_writer(WriterContext(job_id="job", sink_id="out", subtask=0, parallelism=1))
    writer.begin_epoch(1, "a")
    started = time.monotonic()
    writer.write(Rows(["a:1"]))
    with pytest.raises(KafkaError, match="no-such-output"):
        writer.prepare_commit()
    assert time.monotonic() - started < 20


def test_exactly_once_needs_a_prefix() -> None:
    from penstock.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink
    from penstock.datastream.formats.json import JsonSchema

    serializer = (
        KafkaRecordSerializationSchema.builder().set_topic("t").set_value_serialization_schema(JsonSchema()).build()
    )
    builder = KafkaSink.builder().set_bootstrap_servers("127.0.0.1:1").set_record_serializer(serializer)
    with pytest.raises(ConfigurationError, match="set_transactional_id_prefix"):
        builder.set_delivery_guarantee(DeliveryGuarantee.EXACTLY_ONCE).build()


def test_markers_of_unknown_versions_are_refused() -> None:
    with pytest.raises(KafkaError, match="version 2"):
        Marker.from_bytes(b'{"version": 2, "epoch": 1, "commits": []}')
