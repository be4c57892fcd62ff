"""The input side of one subtask: barrier alignment, buffering and the watermark minimum.

Pure: events in, instructions out; no clock, no sockets, no Spark. Three ways of treating a barrier, each one class:

* `Aligned` (exactly once): a channel whose barrier has come is held back, its events wait in a buffer, until the barrier
  has come on every channel; then the subtask takes its snapshot. No channel state is needed.
* `AtLeastOnce`: nothing waits. The snapshot is taken with the last barrier and so contains records that came
  after an early one: after a recovery they are counted twice.
* `Unaligned` (plain Chandy–Lamport): the snapshot is taken with the first barrier; what still arrives on the other
  channels before their barrier is processed at once and recorded as channel state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias, assert_never

from penstock.errors import ProtocolError
from penstock.protocol.events import Barrier, Data, EndOfData, Event, IdleStatus, LatencyMarker, Watermark
from penstock.protocol.valve import WatermarkValve


class BarrierMode(Enum):
    """The treatment of records behind a barrier while a gate waits for the others."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    UNALIGNED = "unaligned"


@dataclass(frozen=True, slots=True)
class Process:
    """Hand a block to the operator."""

    channel: int
    block: Any


@dataclass(frozen=True, slots=True)
class Record:
    """Unaligned: add an event to the channel state of these epochs. Not only records: a watermark or the end of the data
    that comes before the barrier is not sent again after a recovery either."""

    channel: int
    event: Event
    epochs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PassMarker:
    """Note how long the marker has taken, and send it on."""

    marker: LatencyMarker


@dataclass(frozen=True, slots=True)
class AdvanceWatermark:
    """The watermark of the inputs together has moved on."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class SetIdle:
    """All inputs have become idle, or one active again."""

    idle: bool


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Snapshot the operator's state and send the barrier on. The state of the channels may still grow until
    `ChannelsRecorded` (unaligned only)."""

    barrier: Barrier


@dataclass(frozen=True, slots=True)
class ChannelsRecorded:
    """Every barrier of the epoch has come: the snapshot, with its channel state, is whole and can be acknowledged."""

    barrier: Barrier


@dataclass(frozen=True, slots=True)
class FinishInput:
    """Every channel has ended."""


Instruction: TypeAlias = (
    Process | Record | PassMarker | AdvanceWatermark | SetIdle | TakeSnapshot | ChannelsRecorded | FinishInput
)


class InputGate(ABC):
    """Feed it what arrives, channel by channel; carry out the instructions in order."""

    def __init__(self, channels: Sequence[int]) -> None:
        if not channels:
            raise ProtocolError("an input gate needs at least one channel")
        self.channels = tuple(channels)
        self.valve: WatermarkValve[int] = WatermarkValve(channels)
        self._ended: set[int] = set()
        self._last_barrier: dict[int, int] = {}  # by channel, since this gate was made

    @staticmethod
    def create(channels: Sequence[int], mode: BarrierMode) -> InputGate:
        """The gate for these channels that treats barriers as `mode` says."""
        match mode:
            case BarrierMode.EXACTLY_ONCE:
                return Aligned(channels)
            case BarrierMode.AT_LEAST_ONCE:
                return AtLeastOnce(channels)
            case BarrierMode.UNALIGNED:
                return Unaligned(channels)
        assert_never(mode)

    @abstractmethod
    def receive(self, channel: int, event: Event) -> list[Instruction]:
        """Takes an event of a channel and gives what is to be done, in order."""

    @property
    @abstractmethod
    def open_epochs(self) -> tuple[int, ...]:
        """Epochs for which some but not all barriers have come."""

    @abstractmethod
    def abort(self, epoch: int) -> list[Instruction]:
        """The barriers of an epoch are awaited no more; those that come yet must not be given to the gate."""

    def blocked(self, channel: int) -> bool:
        """True while reading on from this channel would only fill the buffer."""
        return False

    def _accept(self, channel: int, barrier: Barrier, open_epochs: Mapping[int, set[int]]) -> None:
        """Refuse a barrier that is out of order. `open_epochs` names, for each, the channels still to come. Epochs may
        have gaps (nothing ran), so only order can be checked: every channel must bring the same ones."""
        epoch = barrier.epoch
        last = self._last_barrier.get(channel)
        if last is not None and last >= epoch:
            raise ProtocolError(
                f"channel {channel} brought barrier {epoch} after barrier {last}: it was sent twice or late"
            )
        for other, missing in sorted(open_epochs.items()):
            if other < epoch and channel in missing:
                raise ProtocolError(
                    f"channel {channel} brought barrier {epoch} while barrier {other} is being aligned and channels "
                    f"{sorted(missing)} have not sent it: a barrier was lost or overtaken"
                )
        if epoch not in open_epochs:
            ahead = sorted(c for c, passed in self._last_barrier.items() if passed >= epoch)
            if ahead:
                raise ProtocolError(
                    f"channel {channel} brought barrier {epoch}, which channels {ahead} never sent although they are past "
                    "it: a barrier was lost or overtaken"
                )
        self._last_barrier[channel] = epoch

    def _deliver(self, channel: int, event: Event) -> list[Instruction]:
        """What a non-barrier event means now."""
        match event:
            case Data(block):
                return [Process(channel, block)]
            case Watermark(timestamp):
                advanced = self.valve.advance(channel, timestamp)
                return [] if advanced is None else [AdvanceWatermark(advanced)]
            case IdleStatus(idle):
                before = self.valve.idle
                advanced = self.valve.set_idle(channel, idle)
                out: list[Instruction] = [] if advanced is None else [AdvanceWatermark(advanced)]
                return out if self.valve.idle == before else [*out, SetIdle(self.valve.idle)]
            case EndOfData():
                if channel in self._ended:  # at least once: replayed, though the snapshot knew of it already
                    return []
                self._ended.add(channel)
                return [FinishInput()] if len(self._ended) == len(self.channels) else []
            case LatencyMarker():
                return [PassMarker(event)]
            case Barrier():
                raise ProtocolError(f"barrier {event.epoch} reached the delivery path of channel {channel}")
        assert_never(event)

    def snapshot(self) -> dict[str, Any]:
        """By channel number: for this gate in this graph. In checkpoints channels are named by who sends on them."""
        return {"valve": self.valve.snapshot(), "ended": sorted(self._ended)}

    def restore(self, snapshot: dict[str, Any]) -> None:
        """The snapshot of a gate with the same channels. `settle` then carries out what follows from it."""
        self.valve.restore(snapshot["valve"])
        self._ended = set(snapshot["ended"])

    @property
    def ended(self) -> bool:
        """True if every channel has ended."""
        return len(self._ended) == len(self.channels)

    def settle(self) -> list[Instruction]:
        """Before anything else that a restored gate does. Usually nothing; but a channel that held the others back, or had
        not ended, may be gone from the graph. If all are idle, event time stays where it was."""
        advanced = None if self.valve.idle else self.valve.recompute()
        return [] if advanced is None else [AdvanceWatermark(advanced)]


class _Overlapping(InputGate):
    """Barriers of several epochs may be on their way."""

    def __init__(self, channels: Sequence[int]) -> None:
        super().__init__(channels)
        self._missing: dict[int, set[int]] = {}  # by epoch: the channels that have not brought its barrier

    @property
    def open_epochs(self) -> tuple[int, ...]:
        return tuple(sorted(self._missing))

    def _count(self, channel: int, barrier: Barrier) -> list[Instruction]:
        """The snapshot is taken with the last barrier."""
        self._accept(channel, barrier, self._missing)
        missing = self._missing.setdefault(barrier.epoch, set(self.channels))
        missing.discard(channel)
        if missing:
            return []
        del self._missing[barrier.epoch]
        return [TakeSnapshot(barrier), ChannelsRecorded(barrier)]


class Aligned(_Overlapping):
    """Exactly once. A barrier without a checkpoint only ends an epoch: nothing goes back to it, so nothing waits for it."""

    def __init__(self, channels: Sequence[int]) -> None:
        super().__init__(channels)
        self._aligning: int | None = None  # the epoch whose checkpoint is waited for
        self._buffers: dict[int, deque[Event]] = {channel: deque() for channel in channels}

    def blocked(self, channel: int) -> bool:
        return self._aligning is not None and channel not in self._missing[self._aligning]

    @property
    def buffered(self) -> int:
        """How many events wait behind a barrier."""
        return sum(len(buffer) for buffer in self._buffers.values())

    def receive(self, channel: int, event: Event) -> list[Instruction]:
        if self.blocked(channel):
            self._buffers[channel].append(event)
            return []
        if not isinstance(event, Barrier):
            return self._deliver(channel, event)
        out = self._count(channel, event)
        if not event.checkpoint:
            return out
        self._aligning = None if out else event.epoch
        return [*out, *self._release()] if out else []

    def abort(self, epoch: int) -> list[Instruction]:
        self._missing.pop(epoch, None)
        if self._aligning != epoch:
            return []
        self._aligning = None
        return self._release()

    def _release(self) -> list[Instruction]:
        """Replay what waited, channel by channel, up to the next barrier of each."""
        out: list[Instruction] = []
        for channel in self.channels:
            buffer = self._buffers[channel]
            while buffer and not self.blocked(channel):
                out.extend(self.receive(channel, buffer.popleft()))
        return out


class AtLeastOnce(_Overlapping):
    """No waiting: barriers are only counted."""

    def receive(self, channel: int, event: Event) -> list[Instruction]:
        return self._count(channel, event) if isinstance(event, Barrier) else self._deliver(channel, event)

    def abort(self, epoch: int) -> list[Instruction]:
        self._missing.pop(epoch, None)
        return []


class Unaligned(_Overlapping):
    """Plain Chandy–Lamport: first barrier → snapshot; what then comes on the other channels is channel state, and so is what a
    barrier has overtaken on its own."""

    def receive(self, channel: int, event: Event) -> list[Instruction]:
        if not isinstance(event, Barrier):
            epochs = tuple(epoch for epoch, missing in sorted(self._missing.items()) if channel in missing)
            record = [Record(channel, event, epochs)] if epochs and not isinstance(event, LatencyMarker) else []
            return [*record, *self._deliver(channel, event)]
        return self.overtake(channel, event, ())

    def overtake(self, channel: int, barrier: Barrier, overtaken: Iterable[Event]) -> list[Instruction]:
        """The barrier has come, and goes before these events of its channel, which are received after it."""
        self._accept(channel, barrier, self._missing)
        out: list[Instruction] = []
        if barrier.epoch not in self._missing:
            self._missing[barrier.epoch] = set(self.channels)
            out.append(TakeSnapshot(barrier))
        kept = (event for event in overtaken if not isinstance(event, LatencyMarker))
        out.extend(Record(channel, event, (barrier.epoch,)) for event in kept)
        missing = self._missing[barrier.epoch]
        missing.discard(channel)
        if not missing:
            del self._missing[barrier.epoch]
            out.append(ChannelsRecorded(barrier))
        return out

    def abort(self, epoch: int) -> list[Instruction]:
        """The snapshot is taken; nothing more is recorded for it."""
        return [] if self._missing.pop(epoch, None) is None else [ChannelsRecorded(Barrier(epoch))]
