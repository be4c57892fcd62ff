"""Tasks of one host in a stream: what is offered to them, what the driver says and when, and which step may be next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from penstock.common import Duration, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.description import JobDescription
from penstock.engine.host import HostJob, TaskHost
from penstock.engine.messages import EpochPlan, SourceRanges, Splits, TaskAck
from penstock.engine.stream_run import StreamRun
from penstock.engine.uploads import ImmediateUploads
from penstock.functions.connectors import SplitRange
from penstock.graph.iterations import Loop
from penstock.operators.iteration import Feedback
from penstock.protocol.events import Barrier, Data, Event, Watermark
from penstock.protocol.gate import BarrierMode
from penstock.protocol.ids import TaskId, VertexId
from penstock.records import Rows
from penstock.testing import Epoch, ListSink, ScriptedSource, Split, Stamped


@dataclass
class Outside:
    """An exchange that keeps what comes."""

    sent: list[Event] = field(default_factory=list)
    acks: list[TaskAck] = field(default_factory=list)
    back: list[Feedback] = field(default_factory=list)
    taken: list[tuple[int, int]] = field(default_factory=list)  # epoch, blocks
    grants: int = 0  # that were read

    def send(self, vertex: VertexId, target: int, channel: int, event: Event) -> None:
        self.sent.append(event)

    def acknowledge(self, ack: TaskAck) -> None:
        self.acks.append(ack)

    def feed_back(self, loop: Loop, subtask: int, feedback: Feedback) -> None:
        self.back.append(feedback)

    def feedback_taken(self, loop: Loop, subtask: int, epoch: int, taken: int) -> None:
        self.taken.append((epoch, taken))

    def grant_read(self, task: TaskId, seconds: float, splits: Splits) -> None:
        self.grants += 1

    def values(self) -> list[Any]:
        return [value for event in self.sent if isinstance(event, Data) for value in event.block.values]


class Level:
    """The tasks of one level of a job at parallelism 1, with nothing around them. One of them is looked at."""

    def __init__(
        self,
        job: JobDescription,
        level: int,
        mode: BarrierMode = BarrierMode.EXACTLY_ONCE,
        vertex: VertexId | None = None,
        kept: Sequence[Feedback] = (),
    ) -> None:
        """`kept`: what the tail of its only loop has from a checkpoint."""
        told = HostJob(job_id=job.job_id, graph=job.graph, settings=job.settings, storage_url=None, job_parameters={})
        host = TaskHost(told, None, ImmediateUploads(lambda report: None), name="host", mode=mode, by_clock=True)
        self.outside, self.loops = Outside(), job.graph.loops
        self._sources = list(job.sources)
        self.run = StreamRun(
            host, self.outside, version="1.0", checkpoint=None, epoch=1, job_attempt=0, levels=(level,)
        )
        (self.held,) = [held for held in self.run.tasks if vertex in (None, held.id.vertex)]
        self.task = self.held.id
        if kept:
            self.held.task.tail(self.loops[0].tail)._kept.extend(kept)
        self.run.start(1000)

    def offer(self, *events: Event, channel: int = 0) -> None:
        for event in events:
            self.run.offer(self.task, self.held.task.channels[channel].channel, event)

    def trigger(self, epoch: int, *, last: bool = False) -> None:
        """`last`: the job is to stop here, its sources have not ended."""
        self.run.trigger(
            EpochPlan(
                epoch=epoch,
                checkpoint=False,
                processing_time=1000 * epoch,
                sources={source: SourceRanges(ranges=(), finished=False) for source in self._sources},
                accepted={},
                chain_lengths={},
                base_checkpoint=None,
                restorable=False,
                last=last,
            )
        )

    def run_on(self) -> None:
        while steps := self.run.runnable(self.task):
            self.run.step(steps[0])


def rows(*values: Any) -> Data:
    return Data(Rows(list(values), None))


def two_levels(inputs: int = 1) -> JobDescription:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    streams = [
        env.from_source(ScriptedSource([1, 2, Epoch(), 3]), WatermarkStrategy.no_watermarks(), f"numbers {n}")
        for n in range(inputs)
    ]
    stream = streams[0].union(*streams[1:]) if inputs > 1 else streams[0]
    stream.rebalance().map(lambda value: value).rebalance().sink_to(ListSink("stream run"))
    return env._describe("stream run")


def a_loop() -> JobDescription:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    numbers = env.from_source(ScriptedSource([3]), WatermarkStrategy.no_watermarks(), "numbers")
    loop = numbers.rebalance().iterate()
    body = loop.map(lambda value: value - 1).rebalance()
    loop.close_with(body.filter(lambda value: value > 0))
    body.filter(lambda value: value <= 0).sink_to(ListSink("stream run"))
    return env._describe("stream run")


def end_of(job: JobDescription, vertex: VertexId, kept: Sequence[Feedback] = ()) -> Level:
    return Level(job, job.graph.job.vertices[vertex].level, vertex=vertex, kept=kept)


def test_a_barrier_waits_for_the_drivers_word_of_it() -> None:
    level = Level(two_levels(), 1)
    level.offer(rows(1), Barrier(1, False), rows(2))
    level.run_on()
    assert level.outside.acks == []
    assert level.run.waiting(level.task, 0) == 2, "what is behind the barrier waits with it"
    level.trigger(1)
    level.run_on()
    assert [ack.epoch for ack in level.outside.acks] == [1]
    level.held.task.flush()
    barrier = level.outside.sent.index(Barrier(1, False))
    assert [len(event.block) for event in level.outside.sent[:barrier] if isinstance(event, Data)] == [1]
    assert level.outside.values() == [1, 2]


def test_the_drivers_word_may_come_long_before_its_barrier() -> None:
    level = Level(two_levels(), 1)
    level.trigger(1)
    level.trigger(2)
    level.offer(Barrier(1, False), rows(1), Barrier(2, False))
    level.run.run_through(level.task)
    assert [(ack.epoch, ack.attempt) for ack in level.outside.acks] == [(1, "1-1.0"), (2, "2-1.0")]


def test_a_source_reads_each_grant_once_and_sends_the_barrier_behind_all_of_them() -> None:
    level = Level(two_levels(), 0)

    def grant(start: int, end: int) -> None:
        part = SourceRanges(
            ranges=(SplitRange(split="0", ordinal=0, start=start, end=end, last=False),), finished=False
        )
        level.run.grant(dict.fromkeys(level._sources, part))

    grant(0, 1)
    grant(1, 2)
    level.trigger(1)
    grant(2, 3)
    level.run_on()
    level.held.task.flush()
    assert level.outside.values() == [1, 2, 3]
    assert level.outside.grants == 3
    before = level.outside.sent[: level.outside.sent.index(Barrier(1, False))]
    assert sum(len(event.block) for event in before if isinstance(event, Data)) == 2


def test_a_split_whose_records_wait_behind_those_of_another_does_not_become_idle() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(Duration.of_millis(10))
    script = [Split("a"), Stamped(1, 100), Stamped(2, 200), Split("b"), Stamped(3, 5)]
    env.from_source(ScriptedSource(script), strategy, "numbers").rebalance().sink_to(ListSink("stream run"))
    job = env._describe("stream run")
    level = Level(replace(job, settings=replace(job.settings, block_size=1)), 0)
    ranges = [SplitRange(split=s, ordinal=n, start=0, end=2 - n, last=False) for n, s in enumerate("ab")]
    level.run.grant({source: SourceRanges(ranges=tuple(ranges), finished=False) for source in level._sources})
    for now in (2000, 3000, 4000):  # a slow reader, or one that others hold up
        level.run.step((level.task, None))
        level.run.advance(now)
        level.run.emit_watermarks()
        assert not any(isinstance(event, Watermark) and event.timestamp > 4 for event in level.outside.sent)
    level.run_on()
    level.held.task.flush()
    assert level.outside.values() == [1, 2, 3]


def test_a_tail_keeps_at_its_barrier_what_its_head_had_not_taken() -> None:
    job = a_loop()
    (loop,) = job.graph.loops
    tail = end_of(job, loop.tail_vertex)
    for number in (5, 6, 7):
        tail.offer(rows(number))
    tail.run_on()
    assert len(tail.outside.back) == 3, "each is sent back as soon as it comes"
    tail.trigger(1)
    tail.offer(Barrier(1, False), rows(8))
    tail.run_on()
    assert tail.outside.acks == [], "until it is known what the head had taken"
    tail.run.feedback_taken(loop, 1, 2)
    tail.run_on()
    assert [ack.feedback for ack in tail.outside.acks] == [{loop.tail: 1}]
    tail.run.feedback_taken(loop, 2, 3)  # all that is counted is counted from the start of the attempt
    tail.trigger(2)
    tail.offer(Barrier(2, False))
    tail.run_on()
    assert [ack.feedback for ack in tail.outside.acks] == [{loop.tail: 1}, {loop.tail: 1}], "6 and then 8"


def test_a_restored_tail_first_sends_back_what_its_checkpoint_has() -> None:
    job = a_loop()
    (loop,) = job.graph.loops
    before = end_of(job, loop.tail_vertex)
    before.offer(rows(5))
    before.offer(rows(6))
    before.run_on()
    tail = end_of(job, loop.tail_vertex, kept=before.outside.back)
    assert tail.outside.back == before.outside.back
    tail.run.feedback_taken(loop, 1, 1)
    tail.trigger(1)
    tail.offer(rows(7))
    tail.offer(Barrier(1, False))
    tail.run_on()
    assert [ack.feedback for ack in tail.outside.acks] == [{loop.tail: 2}], "of 5, 6 and 7 the head had one"


def test_a_head_says_at_each_barrier_how_much_it_has_taken_so_far() -> None:
    job = a_loop()
    (loop,) = job.graph.loops
    head = end_of(job, loop.head_vertex)
    tail = end_of(job, loop.tail_vertex)
    tail.offer(rows(5))
    tail.offer(rows(6))
    tail.run_on()
    head.trigger(1)
    head.run.offer_feedback(loop, tail.outside.back[0])
    head.run_on()
    head.offer(Barrier(1, False))
    head.run_on()
    head.run.offer_feedback(loop, tail.outside.back[1])
    head.trigger(2)
    head.run_on()
    head.offer(Barrier(2, False))
    head.run_on()
    assert head.outside.taken == [(1, 1), (2, 2)]


def test_unaligned_a_barrier_overtakes_records_but_the_last_one_does_not() -> None:
    level = Level(two_levels(inputs=2), 1, BarrierMode.UNALIGNED)
    level.trigger(1)
    level.trigger(2, last=True)
    level.offer(Barrier(1, False), Barrier(2, False))
    level.run_on()
    assert Barrier(1, False) in level.outside.sent
    assert Barrier(2, False) not in level.outside.sent, "there is no later epoch for what would come behind it"
    level.offer(rows(1), Barrier(1, False), rows(2), Barrier(2, False), channel=1)
    level.run_on()
    assert [(ack.epoch, ack.overtaken) for ack in level.outside.acks] == [(1, 1), (2, 0)]


def test_behind_the_last_barrier_no_watermark_comes_until_the_job_goes_on() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    env.from_source(ScriptedSource([Stamped(1, 100)]), strategy, "numbers").rebalance().sink_to(ListSink("stream run"))
    level = Level(env._describe("stream run"), 0)
    part = SourceRanges(ranges=(SplitRange(split="0", ordinal=0, start=0, end=1, last=False),), finished=False)
    level.run.grant(dict.fromkeys(level._sources, part))
    level.trigger(1, last=True)
    level.run_on()
    level.run.emit_watermarks()
    assert level.outside.sent[-1] == Barrier(1, False), "the job was to stop here: what follows is not part of it"
    level.trigger(2)  # its savepoint failed
    level.run.emit_watermarks()
    assert level.outside.sent.count(Watermark(99)) == 1


@pytest.mark.parametrize("mode", list(BarrierMode), ids=lambda mode: mode.value)
def test_a_channel_whose_barrier_has_come_is_read_on_or_not_as_barriers_are_treated(mode: BarrierMode) -> None:
    level = Level(two_levels(inputs=2), 1, mode)
    level.trigger(1)
    level.offer(Barrier(1), rows(1))
    level.run_on()
    level.held.task.flush()
    assert level.outside.values() == ([] if mode is BarrierMode.EXACTLY_ONCE else [1])
    level.offer(Barrier(1), channel=1)
    level.run_on()
    level.held.task.flush()
    assert level.outside.values() == [1]
    assert [ack.epoch for ack in level.outside.acks] == [1]


def test_no_record_waits_for_a_barrier_that_takes_no_checkpoint() -> None:
    """One channel may be held up for long, and such a barrier has no time-out."""
    level = Level(two_levels(inputs=2), 1)
    level.trigger(1)
    level.trigger(2)
    level.offer(rows(1), Barrier(1, False), rows(2), Barrier(2), rows(3))
    level.run_on()
    level.held.task.flush()
    assert level.outside.values() == [1, 2], "what is behind a checkpoint's barrier waits for it on the other channel"
    level.run.abort(2)
    level.run_on()
    level.held.task.flush()
    assert level.outside.values() == [1, 2, 3], "an epoch that has not ended held up what waited for the checkpoint"
    assert level.outside.acks == []
    level.offer(rows(4), Barrier(1, False), rows(5), channel=1)
    level.run_on()
    level.held.task.flush()
    assert level.outside.values() == [1, 2, 3, 4, 5]
    assert [ack.epoch for ack in level.outside.acks] == [1, 2]
