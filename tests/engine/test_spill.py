"""What waits behind an aligned barrier, beyond what may wait in memory, waits in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.driver.description import JobDescription
from penstock.engine.spill import Spilled, SpillFile
from penstock.protocol.events import Barrier, Data, Watermark
from penstock.protocol.gate import BarrierMode
from penstock.records import Columns, Rows
from penstock.records.sizes import BLOCK_BYTES
from tests.engine.test_stream_run import Level, rows, two_levels


def bounded(most: int) -> JobDescription:
    job = two_levels(inputs=2)
    return replace(job, settings=replace(job.settings, alignment_bytes=most))


@pytest.fixture
def levels() -> Iterator[Callable[..., Level]]:
    made: list[Level] = []

    def level(most: int, mode: BarrierMode = BarrierMode.EXACTLY_ONCE) -> Level:
        made.append(Level(bounded(most), 1, mode))
        return made[-1]

    yield level
    for level_ in made:
        level_.run.host.release()


def offer(level: Level, channel: int, *numbers: int) -> None:
    number = level.held.task.channels[channel].channel
    for value in numbers:
        level.run.offer(level.task, number, rows(value), 10)


def waiting(level: Level, channel: int) -> list[type]:
    return [type(event) for event in level.run._flows[level.task].inputs[level.held.task.channels[channel].channel]]


def test_records_behind_a_barrier_wait_in_memory_up_to_the_bound_and_then_in_a_file(
    levels: Callable[..., Level],
) -> None:
    level = levels(30)
    level.trigger(1)
    level.offer(Barrier(1), channel=0)
    level.run_on()
    offer(level, 0, *range(8))
    level.offer(Watermark(5), channel=0)
    assert waiting(level, 0) == [Data] * 3 + [Spilled] * 5 + [Watermark]
    offer(level, 1, 100)
    assert waiting(level, 1) == [Data], "its barrier has not come"
    level.run_on()
    assert level.outside.values() == []
    level.held.task.flush()
    assert level.outside.values() == [100]
    level.offer(Barrier(1), channel=1)
    level.run_on()
    level.held.task.flush()
    assert level.outside.values() == [100, *range(8)], "in their order"
    assert level.outside.acks[0].alignment_buffered_bytes == 80


def test_several_barriers_may_be_under_way_and_the_file_is_emptied(levels: Callable[..., Level]) -> None:
    level = levels(0)
    for epoch in (1, 2, 3):
        level.trigger(epoch)
    for epoch in (1, 2, 3):
        offer(level, 0, epoch)
        level.offer(Barrier(epoch), channel=0)
    level.run_on()
    assert waiting(level, 0) == [Spilled, Barrier, Spilled, Barrier]
    for epoch in (1, 2, 3):
        offer(level, 1, 10 * epoch)
        level.offer(Barrier(epoch), channel=1)
        level.run_on()
        assert [ack.epoch for ack in level.outside.acks] == list(range(1, epoch + 1))
    level.held.task.flush()
    assert sorted(level.outside.values()) == [1, 2, 3, 10, 20, 30]
    assert (level.run.host.folder.path() / "waiting").stat().st_size == 0
    assert level.run.host.spill.written > 0


def test_what_is_in_the_file_goes_on_when_the_checkpoint_is_aborted(levels: Callable[..., Level]) -> None:
    level = levels(0)
    level.trigger(1)
    level.offer(Barrier(1), channel=0)
    level.run_on()
    offer(level, 0, 1, 2, 3)
    assert waiting(level, 0) == [Spilled] * 3
    level.run.abort(1)
    level.run_on()
    level.held.task.flush()
    assert level.outside.values() == [1, 2, 3]


def test_a_large_block_comes_out_of_the_file_in_its_place(levels: Callable[..., Level]) -> None:
    """It is in there in several parts."""
    level = levels(0)
    level.trigger(1)
    level.offer(Barrier(1), channel=0)
    level.run_on()
    large = [(n, bytes(BLOCK_BYTES // 2)) for n in range(4)]
    level.run.offer(level.task, level.held.task.channels[0].channel, rows(*large), 10)
    offer(level, 0, 4)
    level.offer(Barrier(1), channel=1)
    level.run_on()
    level.held.task.flush()
    assert [value[0] if isinstance(value, tuple) else value for value in level.outside.values()] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("mode", [BarrierMode.AT_LEAST_ONCE, BarrierMode.UNALIGNED])
def test_where_nothing_waits_for_a_barrier_nothing_is_put_away(levels: Callable[..., Level], mode: BarrierMode) -> None:
    level = levels(0, mode)
    level.trigger(1)
    level.offer(Barrier(1), channel=0)
    offer(level, 0, 1, 2)
    assert Spilled not in waiting(level, 0)


def test_blocks_come_back_as_they_were(tmp_path: Path) -> None:
    file = SpillFile(lambda: tmp_path)
    batch = pa.record_batch({"n": [1, 2]})
    blocks = [Rows(["a", ("b", 1)], [1, None]), Columns(batch, np.array([3, 4]))]
    places = [file.write(Data(block)) for block in blocks]
    (columns,) = file.read(places[1])
    (plain,) = file.read(places[0])
    assert isinstance(plain, Data)
    assert isinstance(columns, Data)
    assert (plain.block.values, plain.block.timestamps) == (["a", ("b", 1)], [1, None])
    assert columns.block.batch == batch
    assert (tmp_path / "waiting").stat().st_size == 0
    file.close()
