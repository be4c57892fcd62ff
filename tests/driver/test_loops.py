"""When a loop is at rest, and what that means for the sources before it."""

from __future__ import annotations

from penstock.driver.planning import LoopTracker
from penstock.engine.messages import TaskAck
from penstock.graph.iterations import Loop
from penstock.protocol.ids import NodeId, TaskId, VertexId


def loop(head: int = 2, sources: tuple[str, ...] = ("s",), tails: tuple[str, ...] = ("tail",), wait: int = 0) -> Loop:
    return Loop(
        head=NodeId(head),
        head_vertex=VertexId(0),
        tail=tails[0],
        tail_vertex=VertexId(1),
        sources=frozenset(sources),
        tails=frozenset(tails),
        max_wait_ms=wait,
    )


def ack(epoch: int, *, overtaken: int = 0, **feedback: int) -> list[TaskAck]:
    return [
        TaskAck(task=TaskId(VertexId(1), 0), epoch=epoch, attempt="a", feedback=feedback, overtaken=overtaken),
        TaskAck(task=TaskId(VertexId(0), 0), epoch=epoch, attempt="a"),
    ]


def test_without_loops_nothing_is_held_and_nothing_is_due() -> None:
    tracker = LoopTracker([])
    assert tracker.plan(1, completed=0, exhausted={"s"}, now=0) == frozenset()
    tracker.completed(ack(1, overtaken=3), now=0)
    assert tracker.empty
    assert not tracker.due()


def test_an_exhausted_source_ends_only_when_a_later_barrier_has_found_its_loop_empty() -> None:
    tracker = LoopTracker([loop()])
    assert tracker.plan(1, completed=0, exhausted={"s"}, now=0) == {"s"}
    tracker.completed(ack(1, tail=2), now=0)
    assert tracker.due()
    assert tracker.plan(2, completed=1, exhausted={"s"}, now=10) == {"s"}
    tracker.completed(ack(2, tail=0), now=10)
    assert not tracker.due()
    assert tracker.plan(3, completed=2, exhausted={"s"}, now=20) == frozenset()
    assert tracker.due(), "the end must be told"


def test_a_source_before_a_loop_ends_at_once_while_another_one_still_feeds_the_loop() -> None:
    tracker = LoopTracker([loop(sources=("s", "t"))])
    assert tracker.plan(1, completed=0, exhausted={"s"}, now=0) == frozenset()
    tracker.completed(ack(1, tail=1), now=0)
    assert tracker.plan(2, completed=1, exhausted={"s", "t"}, now=0) == {"s", "t"}


def test_a_barrier_before_the_end_of_the_input_says_nothing_about_the_loop() -> None:
    tracker = LoopTracker([loop()])
    tracker.plan(1, completed=0, exhausted=set(), now=0)
    tracker.plan(2, completed=0, exhausted={"s"}, now=0)
    tracker.completed(ack(1), now=0)
    assert tracker.plan(3, completed=1, exhausted={"s"}, now=0) == {"s"}
    tracker.completed(ack(2), now=0)
    assert tracker.plan(4, completed=2, exhausted={"s"}, now=0) == frozenset()


def test_records_that_an_unaligned_barrier_overtook_may_be_in_the_loop() -> None:
    tracker = LoopTracker([loop()])
    tracker.plan(1, completed=0, exhausted={"s"}, now=0)
    tracker.completed(ack(1, overtaken=1), now=0)
    assert tracker.plan(2, completed=1, exhausted={"s"}, now=0) == {"s"}


def test_the_wait_counts_from_the_last_feedback() -> None:
    tracker = LoopTracker([loop(wait=100)])
    tracker.plan(1, completed=0, exhausted={"s"}, now=0)
    tracker.completed(ack(1, tail=1), now=50)
    tracker.plan(2, completed=1, exhausted={"s"}, now=60)
    tracker.completed(ack(2), now=60)
    assert tracker.plan(3, completed=2, exhausted={"s"}, now=149) == {"s"}
    assert not tracker.due(), "nothing to do but to wait"
    assert tracker.plan(4, completed=3, exhausted={"s"}, now=150) == frozenset()


def test_a_loop_waits_for_the_loops_before_it() -> None:
    tracker = LoopTracker([loop(2, tails=("a",)), loop(5, tails=("b", "a"))])
    tracker.plan(1, completed=0, exhausted={"s"}, now=0)
    tracker.completed(ack(1, a=1, b=0), now=0)
    assert tracker.plan(2, completed=1, exhausted={"s"}, now=0) == {"s"}
    tracker.completed(ack(2, a=0, b=0), now=0)
    assert tracker.plan(3, completed=2, exhausted={"s"}, now=0) == frozenset()


def test_after_a_restore_an_epoch_must_run_to_know_what_the_loop_holds() -> None:
    tracker = LoopTracker([loop()])
    tracker.restored()
    assert tracker.plan(8, completed=7, exhausted={"s"}, now=0) == {"s"}
    assert tracker.due()
    assert not tracker.empty
    tracker.completed(ack(8), now=0)
    assert tracker.plan(9, completed=8, exhausted={"s"}, now=0) == frozenset()
