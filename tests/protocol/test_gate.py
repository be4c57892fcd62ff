"""The gate, event by event. The first tests are the textbook's picture: sources B and C feed D; barrier B is early, and
records 6 and 7 follow it on channel BD while barrier C is still on its way."""

from __future__ import annotations

import pytest

from penstock.errors import ProtocolError
from penstock.protocol.events import MAX_WATERMARK, Barrier, Data, EndOfData, IdleStatus, Watermark
from penstock.protocol.gate import AdvanceWatermark, Aligned, BarrierMode, FinishInput, InputGate
from penstock.protocol.valve import WatermarkValve
from tests.protocol.gates import Subject

B, C = 0, 1
MODES = list(BarrierMode)


def textbook(mode: BarrierMode) -> Subject:
    """Up to the moment before barrier C: 5 came before barrier B; 6 and 7 behind it."""
    subject = Subject(2, mode)
    subject.feed((B, Data(5)), (C, Data("c1")), (B, Barrier(1)), (B, Data(6)), (B, Data(7)))
    return subject


def test_records_6_and_7_wait_in_the_buffer_until_the_other_barrier_has_come() -> None:
    subject = textbook(BarrierMode.EXACTLY_ONCE)
    gate = subject.gate
    assert isinstance(gate, Aligned)
    assert subject.state == [5, "c1"]
    assert gate.buffered == 2
    assert gate.blocked(B)
    assert not gate.blocked(C)
    subject.receive(C, Data("c2"))
    assert subject.snapshots == {}

    subject.receive(C, Barrier(1))

    assert subject.snapshots == {1: [5, "c1", "c2"]}
    assert subject.state == [5, "c1", "c2", 6, 7]
    assert gate.buffered == 0
    assert not gate.blocked(B)


def test_under_alignment_a_recovery_counts_record_6_once() -> None:
    subject = textbook(BarrierMode.EXACTLY_ONCE)
    subject.receive(C, Barrier(1))
    recovered = Subject(2, BarrierMode.EXACTLY_ONCE, state=subject.snapshots[1])
    recovered.feed((B, Data(6)), (B, Data(7)))  # the source goes on from its position at barrier 1
    assert recovered.state.count(6) == 1


def test_at_least_once_does_not_wait_and_counts_record_6_twice_after_a_recovery() -> None:
    subject = textbook(BarrierMode.AT_LEAST_ONCE)
    assert subject.state == [5, "c1", 6, 7]
    subject.receive(C, Barrier(1))
    assert subject.snapshots == {1: [5, "c1", 6, 7]}

    recovered = Subject(2, BarrierMode.AT_LEAST_ONCE, state=subject.snapshots[1])
    recovered.feed((B, Data(6)), (B, Data(7)))
    assert recovered.state.count(6) == 2


def test_unaligned_snapshots_with_the_first_barrier_and_records_what_was_on_the_other_channel() -> None:
    subject = textbook(BarrierMode.UNALIGNED)
    assert subject.snapshots == {1: [5, "c1"]}
    assert subject.complete == []
    subject.feed((C, Data("c2")), (C, Watermark(9)), (C, EndOfData()), (C, Barrier(1)))

    assert subject.state == [5, "c1", 6, 7, "c2"], "nothing waits"
    assert subject.channel_state[1] == [(C, Data("c2")), (C, Watermark(9)), (C, EndOfData())]
    assert subject.complete == [1]


def test_unaligned_records_nothing_of_a_channel_whose_barrier_has_come() -> None:
    subject = textbook(BarrierMode.UNALIGNED)
    subject.receive(C, Barrier(1))
    assert subject.recorded(1) == []


def test_unaligned_records_one_event_for_every_epoch_under_way() -> None:
    subject = Subject(2, BarrierMode.UNALIGNED)
    subject.feed((B, Barrier(1)), (B, Data("b")), (B, Barrier(2)), (C, Data("c")))
    assert subject.gate.open_epochs == (1, 2)
    subject.feed((C, Barrier(1)), (C, Data("d")), (C, Barrier(2)))
    assert subject.snapshots == {1: [], 2: ["b"]}
    assert subject.recorded(1) == ["c"]
    assert subject.recorded(2) == ["c", "d"]
    assert subject.complete == [1, 2]


def test_what_an_unaligned_barrier_overtakes_is_recorded_and_processed_behind_it_without_being_recorded_again() -> None:
    subject = Subject(2, BarrierMode.UNALIGNED)
    subject.receive(C, Data("c1"))
    subject.overtake(B, Barrier(1), [Data(5), Watermark(7)])
    assert subject.snapshots == {1: ["c1"]}
    subject.feed((B, Data(5)), (B, Watermark(7)), (B, Data(6)))
    assert subject.channel_state[1] == [(B, Data(5)), (B, Watermark(7))]
    subject.overtake(C, Barrier(1), [Data("c2")])
    assert subject.channel_state[1] == [(B, Data(5)), (B, Watermark(7)), (C, Data("c2"))]
    assert subject.complete == [1]
    assert subject.state == ["c1", 5, 6]


def test_an_event_that_two_barriers_overtake_is_on_the_way_in_both() -> None:
    subject = Subject(1, BarrierMode.UNALIGNED)
    subject.overtake(B, Barrier(1), [Data(5)])
    subject.overtake(B, Barrier(2), [Data(5), Data(6)])
    assert (subject.recorded(1), subject.recorded(2)) == ([5], [5, 6])
    assert subject.complete == [1, 2]


def test_a_buffer_is_released_only_up_to_the_next_barrier_in_it() -> None:
    subject = Subject(2, BarrierMode.EXACTLY_ONCE)
    subject.feed((B, Barrier(1)), (B, Data(6)), (B, Barrier(2)), (B, Data(7)))
    subject.receive(C, Barrier(1))
    assert subject.state == [6]
    assert subject.gate.open_epochs == (2,)
    subject.receive(C, Barrier(2))
    assert subject.snapshots == {1: [], 2: [6]}
    assert subject.state == [6, 7]


def test_watermarks_behind_an_early_barrier_wait_as_records_do() -> None:
    subject = Subject(2, BarrierMode.EXACTLY_ONCE)
    subject.feed((C, Watermark(50)), (B, Barrier(1)), (B, Watermark(40)))
    assert subject.watermarks == []
    subject.receive(C, Barrier(1))
    assert subject.watermarks == [40]


@pytest.mark.parametrize("mode", MODES)
def test_with_one_channel_every_barrier_is_a_snapshot_at_once(mode: BarrierMode) -> None:
    subject = Subject(1, mode)
    subject.feed((0, Data("x")), (0, Barrier(1)), (0, Data("y")), (0, Barrier(4)))
    assert subject.snapshots == {1: ["x"], 4: ["x", "y"]}
    assert subject.complete == [1, 4]


@pytest.mark.parametrize("mode", MODES)
def test_a_barrier_that_overtook_another_is_a_protocol_error(mode: BarrierMode) -> None:
    subject = Subject(2, mode)
    subject.receive(B, Barrier(1))
    with pytest.raises(ProtocolError, match=r"channel 1 brought barrier 2 while barrier 1 .*\[1\] have not sent it"):
        subject.receive(C, Barrier(2))


@pytest.mark.parametrize("mode", [BarrierMode.AT_LEAST_ONCE, BarrierMode.UNALIGNED])
def test_a_barrier_that_one_channel_never_sent_is_a_protocol_error(mode: BarrierMode) -> None:
    subject = Subject(2, mode)
    subject.receive(B, Barrier(2))
    with pytest.raises(ProtocolError, match=r"barrier 1, which channels \[0\] never sent"):
        subject.receive(C, Barrier(1))


def test_under_alignment_an_older_barrier_during_an_alignment_is_a_protocol_error() -> None:
    subject = Subject(2, BarrierMode.EXACTLY_ONCE)
    subject.receive(B, Barrier(2))
    with pytest.raises(ProtocolError, match="barrier 1"):
        subject.receive(C, Barrier(1))


@pytest.mark.parametrize("mode", MODES)
def test_a_repeated_barrier_is_a_protocol_error(mode: BarrierMode) -> None:
    subject = Subject(2, mode)
    with pytest.raises(ProtocolError, match="channel 0 brought barrier 1 after barrier 1"):
        subject.feed((B, Barrier(1)), (B, Barrier(1)), (C, Barrier(1)))


def test_a_gate_without_channels_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="at least one channel"):
        InputGate.create([], BarrierMode.EXACTLY_ONCE)


@pytest.mark.parametrize("mode", MODES)
def test_input_is_finished_once_when_every_channel_has_ended_and_barriers_still_pass(mode: BarrierMode) -> None:
    subject = Subject(2, mode)
    subject.receive(B, EndOfData())
    assert subject.finished == 0
    subject.feed((C, EndOfData()), (C, EndOfData()), (B, Barrier(1)), (C, Barrier(1)))
    assert subject.finished == 1
    assert subject.complete == [1]


def test_the_watermark_is_the_minimum_of_the_channels() -> None:
    subject = Subject(3, BarrierMode.EXACTLY_ONCE)
    subject.feed((0, Watermark(10)), (1, Watermark(7)))
    assert subject.watermarks == []
    subject.feed((2, Watermark(20)), (1, Watermark(15)))
    assert subject.watermarks == [7, 10]


def test_a_watermark_that_goes_back_is_ignored() -> None:
    subject = Subject(1, BarrierMode.EXACTLY_ONCE)
    subject.feed((0, Watermark(10)), (0, Watermark(5)), (0, Watermark(10)))
    assert subject.watermarks == [10]


def test_an_idle_channel_does_not_hold_the_watermark_back() -> None:
    subject = Subject(2, BarrierMode.EXACTLY_ONCE)
    subject.feed((0, Watermark(10)), (1, IdleStatus(True)))
    assert subject.watermarks == [10]
    assert subject.idle == []


def test_a_channel_that_comes_back_behind_the_watermark_is_left_out_until_it_has_caught_up() -> None:
    subject = Subject(2, BarrierMode.EXACTLY_ONCE)
    subject.feed((0, Watermark(10)), (1, IdleStatus(True)), (1, IdleStatus(False)), (0, Watermark(20)))
    assert subject.watermarks == [10, 20]
    subject.feed((1, Watermark(25)), (0, Watermark(30)))
    assert subject.watermarks == [10, 20, 25], "channel 1 has caught up and counts again"


def test_when_the_last_active_channel_turns_idle_the_largest_watermark_is_released() -> None:
    subject = Subject(2, BarrierMode.EXACTLY_ONCE)
    subject.feed((0, Watermark(5)), (1, Watermark(9)), (0, IdleStatus(True)), (1, IdleStatus(True)))
    assert subject.watermarks == [5, 9]
    assert subject.idle == [True]
    subject.receive(0, IdleStatus(False))
    assert subject.idle == [True, False]


def test_a_restored_gate_goes_on_at_its_event_time() -> None:
    old = InputGate.create([0, 1], BarrierMode.EXACTLY_ONCE)
    old.receive(0, Watermark(10))
    old.receive(1, Watermark(30))
    old.receive(0, EndOfData())
    new = InputGate.create([0, 1], BarrierMode.EXACTLY_ONCE)
    new.restore(old.snapshot())
    assert new.settle() == []
    assert new.valve.watermark == 10
    assert [new.valve.watermark_of(channel) for channel in (0, 1)] == [10, 30]
    assert new.receive(0, Watermark(MAX_WATERMARK)) == [AdvanceWatermark(30)]
    assert new.receive(1, EndOfData()) == [FinishInput()]


def test_a_valve_without_channels_says_nothing() -> None:
    valve: WatermarkValve[str] = WatermarkValve()
    assert valve.recompute() is None
    valve.add("a")
    assert valve.advance("a", 3) == 3
    valve.remove("a")
    assert valve.recompute() is None
    assert valve.watermark == 3
