"""A checkpoint is aborted while its barrier is on its way: tasks end the epoch where they are, and ignore the barrier."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.engine.messages import SourceRanges
from penstock.functions.connectors import SplitRange
from penstock.protocol.events import Barrier, Data
from penstock.protocol.gate import BarrierMode
from tests.engine.test_stream_run import Level, a_loop, end_of, rows, two_levels


def acks(level: Level) -> list[tuple[int, bool]]:
    return [(ack.epoch, ack.skipped) for ack in level.outside.acks if ack.task == level.task]


def barriers(level: Level) -> list[int]:
    return [event.epoch for event in level.outside.sent if isinstance(event, Barrier)]


def test_records_that_an_aborted_barrier_has_held_back_go_on_at_once() -> None:
    level = Level(two_levels(inputs=2), 1)
    level.trigger(1)
    level.offer(Barrier(1), rows(1), channel=0)
    level.run_on()
    assert level.outside.sent == []
    level.run.abort(1)
    assert acks(level) == [(1, True)]
    level.run_on()
    level.held.task.flush()
    assert level.outside.values() == [1]
    assert barriers(level) == [], "those behind are told by the driver"


@pytest.mark.parametrize("mode", list(BarrierMode))
def test_the_next_checkpoint_does_not_need_the_aborted_ones_barrier(mode: BarrierMode) -> None:
    level = Level(two_levels(inputs=2), 1, mode)
    level.trigger(1)
    level.run.abort(1)
    level.trigger(2)
    for channel in (0, 1):  # a sender that had sent it before it heard, and one that had not
        level.offer(*([Barrier(1)] if channel == 0 else []), rows(channel), Barrier(2), channel=channel)
    level.run_on()
    assert acks(level) == [(1, True), (2, False)]
    assert barriers(level) == [2]
    level.held.task.flush()
    assert sorted(level.outside.values()) == [0, 1]


def test_a_barrier_of_an_aborted_checkpoint_that_waits_in_a_queue_is_gone() -> None:
    level = Level(two_levels(inputs=2), 1)
    level.trigger(1)
    level.trigger(2)
    level.offer(rows(1), Barrier(1), rows(2), Barrier(2), channel=0)
    level.run.abort(1)
    level.offer(Barrier(1), Barrier(2), channel=1)
    level.run_on()
    assert acks(level) == [(1, True), (2, False)]


def test_a_task_that_has_not_come_to_the_epoch_skips_it_when_it_does() -> None:
    level = Level(two_levels(), 1)
    level.trigger(1)
    level.trigger(2)
    level.trigger(3)
    level.run.abort(2)
    assert acks(level) == []
    level.offer(rows(1), Barrier(1), rows(2), Barrier(2), rows(3), Barrier(3, False))
    level.run.run_through(level.task)
    assert acks(level) == [(1, False), (2, True), (3, False)]
    assert barriers(level) == [1, 3]


def test_what_a_sink_has_staged_goes_along_with_an_epoch_that_is_skipped() -> None:
    level = Level(two_levels(), 2)
    level.trigger(1)
    level.trigger(2)
    level.offer(rows(1, 2))
    level.run_on()
    level.run.abort(1)
    level.offer(rows(3), Barrier(2))
    level.run_on()
    assert acks(level) == [(1, True), (2, False)]
    staged = [made for ack in level.outside.acks for made in ack.committables.values()]
    assert [len(made) for made in staged] == [1, 1], "one of each epoch"


def test_a_task_that_has_taken_its_snapshot_keeps_it() -> None:
    level = Level(two_levels(), 1)
    level.trigger(1)
    level.offer(Barrier(1))
    level.run_on()
    level.run.abort(1)
    assert acks(level) == [(1, False)]
    assert barriers(level) == [1]


def test_an_unaligned_snapshot_is_not_waited_for_on_other_channels() -> None:
    level = Level(two_levels(inputs=2), 1, BarrierMode.UNALIGNED)
    level.trigger(1)
    level.offer(Barrier(1), channel=0)
    level.run_on()
    assert acks(level) == []
    level.run.abort(1)
    assert acks(level) == [(1, False)]
    level.offer(rows(1), Barrier(1), channel=1)
    level.run_on()
    level.held.task.flush()
    assert level.outside.values() == [1]


def test_a_source_reads_what_was_planned_before_the_aborted_barrier_and_sends_none() -> None:
    level = Level(two_levels(), 0)

    def part(start: int, end: int) -> dict[str, Any]:
        ranges = (SplitRange(split="0", ordinal=0, start=start, end=end, last=False),)
        return dict.fromkeys(level._sources, SourceRanges(ranges=ranges, finished=False))

    level.run.grant(part(0, 1))
    level.trigger(1)
    level.run.grant(part(1, 2))
    level.trigger(2)
    level.run.abort(1)
    assert acks(level) == [(1, True)], "it does not wait until it has read"
    level.run_on()
    level.held.task.flush()
    assert acks(level) == [(1, True), (2, False)]
    assert barriers(level) == [2]
    assert level.outside.values() == [1, 2]
    assert level.outside.grants == 2, "the driver hears of grants, and of nothing else"
    assert isinstance(level.outside.sent[0], Data)


def test_the_tail_of_a_loop_keeps_what_its_head_has_taken_until_a_barrier_that_counts() -> None:
    job = a_loop()
    (loop,) = job.graph.loops
    tail = end_of(job, loop.tail_vertex)
    tail.trigger(1)
    tail.offer(rows(2))
    tail.run_on()
    assert len(tail.outside.back) == 1
    tail.run.feedback_taken(loop, 1, 1)
    tail.run.abort(1)
    tail.run.feedback_taken(loop, 1, 1)  # the head had not heard yet
    tail.trigger(2)
    tail.offer(rows(1), Barrier(2))
    tail.run.feedback_taken(loop, 2, 1)
    tail.run_on()
    assert acks(tail) == [(1, True), (2, False)]
    assert len(tail.held.task.tail(loop.tail).kept) == len(tail.outside.back) - 1
    assert tail.run._taken == {}


def test_the_head_of_a_loop_says_nothing_of_a_barrier_it_has_skipped() -> None:
    job = a_loop()
    head = end_of(job, job.graph.loops[0].head_vertex)
    head.trigger(1)
    head.run.abort(1)
    assert acks(head) == [(1, True)]
    assert head.outside.taken == []
