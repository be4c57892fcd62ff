"""A host's tasks across epochs and retries: which state a function finds, and that the one before it lets go."""

from __future__ import annotations

import threading
from typing import Any, ClassVar

import pytest

from penstock.checkpoint.store import CheckpointStore
from penstock.common import WatermarkStrategy
from penstock.common.time import Time
from penstock.connectors.program import CollectionSource
from penstock.datastream import AsyncDataStream, AsyncFunction, CheckpointedFunction, StreamExecutionEnvironment
from penstock.datastream.functions import CheckpointListener
from penstock.datastream.state import ListStateDescriptor
from penstock.driver.description import JobDescription
from penstock.engine.host import HeldTask, HostJob, TaskHost
from penstock.engine.messages import EpochPlan, TaskAck
from penstock.engine.uploads import ImmediateUploads
from penstock.errors import StateLostError
from penstock.protocol.events import Barrier, Data, Event, IdleStatus, Watermark
from penstock.protocol.ids import TaskId, VertexId
from penstock.records import Rows
from penstock.testing import EmbeddedJob, Epoch, ListSink, ScriptedSource, Stamped
from tests.embedded.jobs import CountOperator, Pipeline, master_of, memory_storage, settings


class Outputs:
    """An exchange that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.acks: list[TaskAck] = []

    def send(self, vertex: VertexId, target: int, channel: int, event: Event) -> None:
        self.sent.append(event)

    def acknowledge(self, ack: TaskAck) -> None:
        self.acks.append(ack)


def host_of(job: JobDescription, store: CheckpointStore | None) -> TaskHost:
    host_job = HostJob(job_id=job.job_id, graph=job.graph, settings=job.settings, storage_url=None, job_parameters={})
    host = TaskHost(host_job, store, ImmediateUploads(lambda report: None), name="host")
    host.exchange = Outputs()
    return host


class Keeper(AsyncFunction, CheckpointedFunction, CheckpointListener):
    log: ClassVar[list[Any]] = []

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("kept"))
        self.log.append(("start", list(self.state), context.get_restored_checkpoint_id()))

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_int_counter("seen")

    def snapshot_state(self, context: Any) -> None:
        self.log.append(("snapshot", context.get_checkpoint_id(), context.get_checkpoint_timestamp()))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.log.append(("complete", checkpoint_id))

    async def async_invoke(self, value: int) -> list[Any]:
        self.seen.add(1)
        self.state.add(value)
        return [value]

    def close(self) -> None:
        self.log.append("close")


class Slot:
    """One task of a job, driven as a LevelRun does."""

    def __init__(self) -> None:
        env = StreamExecutionEnvironment.get_execution_environment()
        numbers = env.from_source(CollectionSource([1]), WatermarkStrategy.no_watermarks(), "numbers")
        asked = AsyncDataStream.ordered_wait(numbers.rebalance(), Keeper(), Time.seconds(10)).uid("keeper")
        asked.sink_to(ListSink("tasks"))
        self.job = env._describe("tasks")
        vertex = next(v for v in self.job.graph.job.vertices.values() if v.head.uid == "keeper")
        self.task = TaskId(vertex.id, 0)
        self.host = host_of(self.job, None)

    def begin(self, epoch: int, version: str, *, restorable: bool = False, completed: int | None = None) -> HeldTask:
        plan = EpochPlan(
            epoch=epoch,
            checkpoint=False,
            processing_time=epoch * 1000,
            sources={},
            accepted={self.task: version},
            chain_lengths={},
            base_checkpoint=completed,
            restorable=restorable,
        )
        return self.host.begin(self.task, plan, f"{epoch}-a")

    @staticmethod
    def feed(held: HeldTask, *values: int) -> None:
        held.task.receive(held.task.channels[0].channel, Data(Rows(list(values), None)))

    def end(self, held: HeldTask, epoch: int) -> None:
        self.host.receive(held, held.task.channels[0].channel, Barrier(epoch, False))
        assert self.host.acknowledge(held) == 1


@pytest.fixture
def log() -> list[Any]:
    Keeper.log.clear()
    return Keeper.log


def loops() -> int:
    return sum(1 for thread in threading.enumerate() if thread.name.startswith("penstock-async-keeper"))


def test_a_retry_finds_the_confirmed_state_and_the_attempt_before_it_is_closed(log: list[Any]) -> None:
    slot, before = Slot(), loops()
    held = slot.begin(1, "v0", restorable=True)
    slot.feed(held, 1, 2)
    slot.end(held, 1)
    held = slot.begin(2, "1-a", completed=1)
    slot.feed(held, 3)
    held = slot.begin(2, "1-a", completed=1)  # Spark tries the epoch again
    assert held.recovered == "replayed"
    assert loops() == before + 1
    slot.feed(held, 4)
    slot.end(held, 2)
    assert held.task.accumulators()["seen"].get_local_value() == 3
    slot.host.finish(2)
    assert loops() == before
    assert log == [
        ("start", [], None),
        ("snapshot", 1, 1000),
        ("complete", 1),
        "close",
        ("start", [1, 2], 1),
        ("complete", 1),
        ("snapshot", 2, 2000),
        ("complete", 2),
        "close",
    ]


def test_a_first_epoch_that_is_tried_again_starts_from_nothing(log: list[Any]) -> None:
    slot = Slot()
    slot.feed(slot.begin(1, "v0", restorable=True), 1)
    held = slot.begin(1, "v0", restorable=True)
    assert held.recovered == "replayed"
    slot.host.finish(None)
    assert log == [("start", [], None), "close", ("start", [], None), "close"]


def test_a_task_that_is_lost_closes_nothing_until_the_job_goes_back(log: list[Any]) -> None:
    slot = Slot()
    slot.begin(1, "v0", restorable=True)
    with pytest.raises(StateLostError, match="not in this slot at version a9"):
        slot.begin(2, "a9")
    assert log == [("start", [], None)]
    slot.begin(1, "v1", restorable=True)
    slot.host.finish(None)
    assert log[1:] == ["close", ("start", [], None), "close"]


def test_a_restored_task_says_where_event_time_is_and_again_if_its_first_epoch_is_repeated() -> None:
    """Those behind it may know of other senders only: the job was rescaled."""
    script = [Stamped(("a", n), n) for n in range(10)]
    storage = memory_storage()

    def job() -> JobDescription:
        pipeline = Pipeline().source(
            ScriptedSource([*script, Epoch(), *script]), 1, WatermarkStrategy.for_monotonous_timestamps()
        )
        return pipeline.operator(CountOperator()).sink(ListSink("announced")).build(settings())

    first = EmbeddedJob(job(), master_of(job(), storage))
    first.master.on_report = lambda report: first.cancel()
    first.run()
    master = master_of(job(), storage)
    master.start()
    assert master.restored is not None
    graph = master.job.graph
    (task,) = [TaskId(v.id, 0) for v in graph.job.vertices.values() if v.head.uid == "operator-1"]
    host = host_of(master.job, master.store)

    def begin(epoch: int, version: str) -> tuple[HeldTask, list[Any]]:
        plan = EpochPlan(
            epoch=epoch,
            checkpoint=False,
            processing_time=0,
            sources={},
            accepted={task: version},
            chain_lengths={},
            base_checkpoint=int(master.restored.checkpoint_id) if master.restored else None,
            restorable=True,
        )
        outputs = host.exchange = Outputs()
        return host.begin(task, plan, f"{epoch}-a"), outputs.sent

    said = [Watermark(8), IdleStatus(False)]
    assert begin(2, "v0")[1] == said
    held, sent = begin(2, "v0")
    assert (held.recovered, sent) == ("replayed", said)
    host.receive(held, held.task.channels[0].channel, Barrier(2, False))
    host.acknowledge(held)
    held, sent = begin(3, "2-a")
    assert sent == []
    host.close()
    master.close()
