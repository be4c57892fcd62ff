"""Rows of an epoch reach the operators channel by channel, in sequence, or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.channel_order import ChannelKey, ChannelOrder
from penstock.errors import ProtocolError

BARRIER = 4
CHANNELS: list[ChannelKey] = [(1, 0), (1, 1), (2, 0)]


class Receiver:
    def __init__(self, spill_after: int = 1 << 20) -> None:
        self.got: list[tuple[ChannelKey, bytes]] = []
        self.order = ChannelOrder(CHANNELS, self.deliver, spill_after)

    def deliver(self, channel: ChannelKey, kind: int, payload: bytes) -> None:
        if kind == BARRIER:
            self.order.channel_done(channel)
        else:
            self.got.append((channel, payload))


def rows(per_channel: int) -> dict[ChannelKey, list[tuple[int, int, bytes]]]:
    return {
        channel: [(seq, 0, b"%d" % seq) for seq in range(per_channel)] + [(per_channel, BARRIER, b"")]
        for channel in CHANNELS
    }


@given(st.randoms(use_true_random=False), st.integers(0, 5), st.sampled_from([0, 3, 1 << 20]))
def test_any_mixing_of_channels_is_undone_also_when_rows_are_spilled(rng: object, count: int, spill_after: int) -> None:
    receiver = Receiver(spill_after)
    waiting = rows(count)
    while any(waiting.values()):
        channel = rng.choice([c for c, queue in waiting.items() if queue])  # type: ignore[attr-defined]
        seq, kind, payload = waiting[channel].pop(0)
        receiver.order.add(channel, seq, kind, payload)
    receiver.order.finish()
    assert receiver.got == [(channel, b"%d" % seq) for channel in CHANNELS for seq in range(count)]


def test_a_gap_in_a_channel_is_an_error() -> None:
    receiver = Receiver()
    receiver.order.add((1, 0), 0, 0, b"")
    with pytest.raises(ProtocolError, match="row 1 was expected and row 2 came"):
        receiver.order.add((1, 0), 2, 0, b"")


def test_a_missing_barrier_is_an_error() -> None:
    receiver = Receiver()
    receiver.order.add((1, 0), 0, BARRIER, b"")
    with pytest.raises(ProtocolError, match="before the barrier of vertex 1, channel 1"):
        receiver.order.finish()


def test_a_row_for_a_channel_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="vertex 9"):
        Receiver().order.add((9, 0), 0, 0, b"")
