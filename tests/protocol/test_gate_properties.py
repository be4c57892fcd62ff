"""Random interleavings of records, watermarks and barriers over 1 to 4 channels."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol.events import MIN_WATERMARK, Barrier, Data, EndOfData, Event, IdleStatus, Watermark
from penstock.protocol.gate import BarrierMode
from tests.protocol.gates import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    channels: int
    epochs: int
    arrivals: list[tuple[int, Event]]  # in the order they reach the gate

    def before_barrier(self, epoch: int) -> Counter[str]:
        """The records that belong to a consistent cut at `epoch`: those before its barrier on each channel."""
        past: set[int] = set()
        records: Counter[str] = Counter()
        for channel, event in self.arrivals:
            if isinstance(event, Barrier) and event.epoch == epoch:
                past.add(channel)
            elif isinstance(event, Data) and channel not in past:
                records[event.block] += 1
        return records


@st.composite
def runs(draw: st.DrawFn) -> Run:
    channels, epochs = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    scripts: list[list[Event]] = []
    for channel in range(channels):
        script: list[Event] = []
        for epoch in range(1, epochs + 1):
            for kind in draw(st.lists(st.sampled_from(["data", "watermark", "idle", "active"]), max_size=4)):
                match kind:
                    case "data":
                        script.append(Data(f"{channel}:{len(script)}"))
                    case "watermark":
                        script.append(Watermark(draw(st.integers(0, 100))))
                    case _:
                        script.append(IdleStatus(kind == "idle"))
            if epoch == epochs:
                script.append(EndOfData())
            script.append(Barrier(epoch))
        scripts.append(script)
    order = draw(st.permutations([channel for channel, script in enumerate(scripts) for _ in script]))
    rest = [iter(script) for script in scripts]
    return Run(channels=channels, epochs=epochs, arrivals=[(channel, next(rest[channel])) for channel in order])


def feed(run: Run, mode: BarrierMode) -> Subject:
    subject = Subject(run.channels, mode)
    subject.feed(*run.arrivals)
    assert subject.complete == list(range(1, run.epochs + 1))
    assert subject.gate.open_epochs == ()
    assert subject.finished == 1
    return subject


@given(runs())
def test_an_aligned_snapshot_contains_exactly_the_records_before_the_barrier_of_each_channel(run: Run) -> None:
    subject = feed(run, BarrierMode.EXACTLY_ONCE)
    for epoch, state in subject.snapshots.items():
        assert Counter(state) == run.before_barrier(epoch)
        assert subject.channel_state[epoch] == []


@given(runs())
def test_an_at_least_once_snapshot_contains_at_least_the_records_before_the_barriers(run: Run) -> None:
    subject = feed(run, BarrierMode.AT_LEAST_ONCE)
    for epoch, state in subject.snapshots.items():
        assert run.before_barrier(epoch) <= Counter(state)


@given(runs())
def test_an_unaligned_snapshot_and_its_channel_state_are_exactly_the_records_before_the_barriers(run: Run) -> None:
    subject = feed(run, BarrierMode.UNALIGNED)
    for epoch, state in subject.snapshots.items():
        assert Counter(state) + Counter(subject.recorded(epoch)) == run.before_barrier(epoch)


@given(runs(), st.sampled_from(BarrierMode))
def test_every_record_is_processed_once_and_in_the_order_of_its_channel(run: Run, mode: BarrierMode) -> None:
    subject = feed(run, mode)
    for channel in range(run.channels):
        sent = [event.block for c, event in run.arrivals if c == channel and isinstance(event, Data)]
        assert [record for record in subject.state if record.startswith(f"{channel}:")] == sent


@given(runs(), st.sampled_from(BarrierMode))
def test_the_watermark_only_advances(run: Run, mode: BarrierMode) -> None:
    watermarks = [MIN_WATERMARK, *feed(run, mode).watermarks]
    assert all(earlier < later for earlier, later in pairwise(watermarks))


@given(runs())
def test_without_idleness_the_watermark_is_the_minimum_over_the_channels(run: Run) -> None:
    highest = dict.fromkeys(range(run.channels), MIN_WATERMARK)
    subject = Subject(run.channels, BarrierMode.AT_LEAST_ONCE)
    for channel, event in run.arrivals:
        if isinstance(event, IdleStatus):
            continue
        subject.receive(channel, event)
        if isinstance(event, Watermark):
            highest[channel] = max(highest[channel], event.timestamp)
        assert subject.gate.valve.watermark == min(highest.values())
