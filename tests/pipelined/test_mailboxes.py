"""What waits in front of a host is bounded by the time it takes, because a barrier comes behind it."""

from __future__ import annotations

import threading

import pytest

from penstock.runtime.pipelined.mailboxes import FrameReceived, HostInbox, Pace


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def frame(size: int) -> FrameReceived:
    return FrameReceived(memoryview(bytes(size)))


def worked_off(inbox: HostInbox, clock: Clock, frames: int, size: int, seconds: float) -> None:
    """So many frames one after the other, each of which takes so long."""
    for _ in range(frames):
        inbox.put(frame(size), size)
        assert len(inbox.take(0.0)) == 1
        clock.now += seconds
        inbox.done()


def let_in(inbox: HostInbox, size: int) -> int:
    """How many frames of this size come in until one has to wait."""
    came = 0

    def put() -> None:
        nonlocal came
        for _ in range(1000):
            inbox.put(frame(size), size)
            came += 1

    thread = threading.Thread(target=put, daemon=True)
    thread.start()
    before = -1
    while thread.is_alive() and came != before:  # until nothing has come for a while
        before = came
        thread.join(0.2)
    return came


@pytest.mark.parametrize(
    ("bytes_per_second", "most_waiting"),
    [
        (100_000_000, 8 << 20),  # fast enough for the memory that there is
        (20_000_000, 2_000_000),
        (1_000, 256 << 10),  # slow: some frames come in all the same
    ],
)
def test_as_much_comes_in_as_is_worked_off_in_a_tenth_of_a_second(bytes_per_second: int, most_waiting: int) -> None:
    clock, size = Clock(), 50_000
    inbox = HostInbox(8 << 20, clock)
    worked_off(inbox, clock, 60, size, size / bytes_per_second)
    # The one that fills it may be as large as it likes.
    assert most_waiting / size <= let_in(inbox, size) <= most_waiting / size + 2


def test_a_host_that_becomes_slow_lets_less_in() -> None:
    clock, size = Clock(), 50_000
    inbox = HostInbox(8 << 20, clock)
    worked_off(inbox, clock, 60, size, size / 100e6)
    worked_off(inbox, clock, 400, size, size / 5e6)
    assert let_in(inbox, size) <= 5e6 * 0.1 / size + 2


def test_the_memory_that_was_set_is_the_most() -> None:
    inbox = HostInbox(64 << 10, Clock())
    assert let_in(inbox, 10_000) == 7, "six fit, and the one that fills it"


def test_a_barrier_that_overtakes_is_let_in_whatever_waits() -> None:
    inbox = HostInbox(64 << 10, Clock())
    inbox.let_all_in(True)
    assert let_in(inbox, 10_000) == 1000


def test_a_pace_is_of_the_last_second() -> None:
    pace = Pace()
    assert pace.bytes_in(1.0, 5, 10) == 5, "nothing is known"
    for _ in range(100):
        pace.went(1_000, 0.1)
    assert pace.bytes_in(0.5, 0, 1 << 20) == pytest.approx(5_000, rel=0.01)
    for _ in range(100):
        pace.went(1_000, 0.01)
    assert pace.bytes_in(0.5, 0, 1 << 20) == pytest.approx(50_000, rel=0.4)
    assert pace.bytes_in(float("inf"), 0, 1 << 20) == 1 << 20
