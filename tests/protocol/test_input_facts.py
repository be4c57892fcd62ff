"""Facts about channels are stored by who sends: the same senders go on exactly, others start at the slowest."""

from __future__ import annotations

from typing import Any

from penstock.protocol.events import MAX_WATERMARK, MIN_WATERMARK, EndOfData, IdleStatus, Watermark
from penstock.protocol.gate import AdvanceWatermark, BarrierMode, InputGate
from penstock.protocol.input_facts import Edge, Lineage, Sender, is_of, joined, renumbered, reopened, restore, store

AB = Lineage(fingerprint="a and b", sources=frozenset("ab"))
OTHER = Lineage(fingerprint="rescaled", sources=frozenset("ab"))


def sender(name: str, subtask: int, copy: int = 0) -> Sender:
    return Sender(edge=Edge(sender=name, input=0, tag=None, copy=copy), subtask=subtask)


def senders(*named: tuple[str, int]) -> dict[int, Sender]:
    return {channel: sender(*of) for channel, of in enumerate(named)}


A_THEN_B = senders(("a", 0), ("a", 1), ("b", 0))
B_THEN_A = senders(("b", 0), ("a", 0), ("a", 1))


def gate_of(of: dict[int, Sender], events: list[tuple[str, int, Any]]) -> dict[str, Any]:
    """What is stored of a gate after these events, each of a sender."""
    gate = InputGate.create(list(of), BarrierMode.EXACTLY_ONCE)
    channels = {(s.edge.sender, s.subtask): channel for channel, s in of.items()}
    for name, subtask, event in events:
        gate.receive(channels[(name, subtask)], event)
    return store(gate.snapshot(), of, AB)


EVENTS: list[tuple[str, int, Any]] = [
    ("a", 0, Watermark(MAX_WATERMARK)),
    ("a", 0, EndOfData()),
    ("a", 1, Watermark(700)),
    ("a", 1, IdleStatus(True)),
    ("b", 0, Watermark(10)),
]


def restored(stored: list[dict[str, Any]], of: dict[int, Sender], lineage: Lineage) -> InputGate:
    gate = InputGate.create(list(of), BarrierMode.EXACTLY_ONCE)
    gate.restore(restore(stored, of, lineage))
    return gate


def facts(gate: InputGate) -> tuple[int, list[Any], list[int]]:
    snapshot = gate.snapshot()
    return snapshot["valve"]["watermark"], snapshot["valve"]["channels"], snapshot["ended"]


def test_the_same_senders_go_on_where_each_stood_whatever_their_numbers() -> None:
    stored = gate_of(A_THEN_B, EVENTS)
    assert is_of(stored, AB)
    gate = restored([stored], B_THEN_A, AB)
    assert facts(gate) == (10, [[0, 10, False, False], [1, MAX_WATERMARK, False, False], [2, 700, True, False]], [1])
    assert gate.settle() == []
    assert renumbered(stored, B_THEN_A) == {0: 1, 1: 2, 2: 0}


def test_other_senders_start_at_the_slowest_of_their_edge_and_are_idle_or_ended_only_if_all_were() -> None:
    stored = gate_of(A_THEN_B, EVENTS)
    gate = restored([stored, stored], senders(("a", 0), ("b", 0), ("b", 1)), OTHER)
    assert facts(gate) == (10, [[0, 700, False, False], [1, 10, False, False], [2, 10, False, False]], [])
    all_idle = gate_of(A_THEN_B, [*EVENTS, ("b", 0, IdleStatus(True))])
    gate = restored([all_idle], senders(("b", 0), ("b", 1)), OTHER)
    assert facts(gate)[1:] == ([[0, 10, True, False], [1, 10, True, False]], [])
    ended = gate_of(A_THEN_B, [("a", n, e) for n in (0, 1) for e in (Watermark(MAX_WATERMARK), EndOfData())])
    gate = restored([ended], senders(("a", 0), ("b", 0)), OTHER)
    assert facts(gate) == (MIN_WATERMARK, [[0, MAX_WATERMARK, False, False], [1, MIN_WATERMARK, False, False]], [0])


def test_the_slowest_of_all_old_subtasks_counts() -> None:
    one = gate_of(senders(("a", 0)), [("a", 0, Watermark(1000))])
    other = gate_of(senders(("a", 1)), [("a", 1, Watermark(20))])
    for order in ([one, other], [other, one], [joined(one, other)], [joined(other, one)]):
        assert facts(restored(order, senders(("a", 0)), OTHER)) == (20, [[0, 20, False, False]], [])


def test_two_edges_of_the_same_sender_are_told_apart() -> None:
    twice = {0: sender("a", 0, copy=0), 1: sender("a", 0, copy=1)}
    gate = InputGate.create([0, 1], BarrierMode.UNALIGNED)
    gate.receive(0, Watermark(5))
    stored = store(gate.snapshot(), twice, AB)
    assert facts(restored([stored], twice, AB))[1] == [[0, 5, False, False], [1, MIN_WATERMARK, False, False]]


def test_a_sender_that_held_event_time_back_and_is_gone_does_so_no_longer_but_not_in_silence() -> None:
    stored = gate_of(A_THEN_B, [("a", 0, Watermark(500)), ("a", 1, Watermark(700)), ("b", 0, Watermark(10))])
    gate = restored([stored], senders(("a", 0), ("a", 1)), OTHER)
    assert gate.valve.watermark == 10
    assert gate.settle() == [AdvanceWatermark(500)]


def test_where_all_are_idle_event_time_stays_where_it_was() -> None:
    stored = gate_of(A_THEN_B, [("a", 0, Watermark(500)), ("a", 0, IdleStatus(True)), ("a", 1, IdleStatus(True))])
    gate = restored([stored], senders(("a", 0), ("a", 1)), OTHER)
    assert gate.valve.idle
    assert gate.settle() == []


def test_a_new_source_opens_what_had_ended() -> None:
    ended = gate_of(senders(("a", 0)), [("a", 0, Watermark(MAX_WATERMARK)), ("a", 0, EndOfData())])
    more = Lineage(fingerprint="and c", sources=frozenset("abc"))
    assert reopened([ended], more)
    assert not reopened([ended], OTHER)
    gate = restored([ended], senders(("a", 0), ("c", 0)), more)
    assert facts(gate) == (MIN_WATERMARK, [[0, MIN_WATERMARK, False, False], [1, MIN_WATERMARK, False, False]], [])


def test_a_checkpoint_that_named_no_senders_gives_everyone_the_slowest() -> None:
    old = {
        "valve": {
            "watermark": 10,
            "channels": [[0, MAX_WATERMARK, False, False], [1, 700, True, False], [2, 10, False, False]],
        },
        "ended": [0],
    }
    gate = restored([old], B_THEN_A, AB)
    assert facts(gate) == (10, [[channel, 10, False, False] for channel in range(3)], [])
    assert renumbered(old, B_THEN_A) is None
    assert joined(old, old) == old
