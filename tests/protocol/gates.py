"""A subtask reduced to what a gate can see: it remembers the records it processed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

from penstock.protocol.events import Barrier, Data, Event, LatencyMarker
from penstock.protocol.gate import (
    AdvanceWatermark,
    BarrierMode,
    ChannelsRecorded,
    FinishInput,
    InputGate,
    Instruction,
    PassMarker,
    Process,
    Record,
    SetIdle,
    TakeSnapshot,
    Unaligned,
)


class Subject:
    """Carries instructions out. `state` is what the operator would know."""

    def __init__(self, channels: int, mode: BarrierMode, state: Iterable[Any] = ()) -> None:
        self.gate = InputGate.create(range(channels), mode)
        self.state: list[Any] = list(state)
        self.watermarks: list[int] = []
        self.markers: list[LatencyMarker] = []
        self.idle: list[bool] = []
        self.finished = 0
        self.snapshots: dict[int, list[Any]] = {}
        self.channel_state: dict[int, list[tuple[int, Event]]] = {}
        self.complete: list[int] = []

    def receive(self, channel: int, event: Event) -> list[Instruction]:
        instructions = self.gate.receive(channel, event)
        for instruction in instructions:
            self._carry_out(instruction)
        return instructions

    def overtake(self, channel: int, barrier: Barrier, overtaken: Iterable[Event]) -> None:
        assert isinstance(self.gate, Unaligned)
        for instruction in self.gate.overtake(channel, barrier, overtaken):
            self._carry_out(instruction)

    def feed(self, *arrivals: tuple[int, Event]) -> None:
        for channel, event in arrivals:
            self.receive(channel, event)

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Process(_, block):
                self.state.append(block)
            case Record(channel, event, epochs):
                for epoch in epochs:
                    self.channel_state[epoch].append((channel, event))
            case PassMarker(marker):
                self.markers.append(marker)
            case AdvanceWatermark(timestamp):
                self.watermarks.append(timestamp)
            case SetIdle(idle):
                self.idle.append(idle)
            case FinishInput():
                self.finished += 1
            case TakeSnapshot(barrier):
                self.snapshots[barrier.epoch] = list(self.state)
                self.channel_state[barrier.epoch] = []
            case ChannelsRecorded(barrier):
                self.complete.append(barrier.epoch)
            case _:
                assert_never(instruction)

    def recorded(self, epoch: int) -> list[Any]:
        """The records of an epoch's channel state."""
        return [event.block for _, event in self.channel_state[epoch] if isinstance(event, Data)]
