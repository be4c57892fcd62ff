"""A disk that is really full, under checkpoints and under working state: nothing partial is visible, the last checkpoint
counts, and when there is room again the job is exact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint.storage import LocalStorage, open_storage
from penstock.checkpoint.store import CheckpointStore
from penstock.common.restart_strategy import RestartStrategies
from penstock.driver.description import JobDescription
from penstock.operators.base import Operator
from penstock.records import Block, Columns
from penstock.state.backends import StateSettings
from penstock.state.overlay import MISSING
from penstock.testing import EmbeddedJob, ListSink, ScriptedSource
from tests.embedded.jobs import Pipeline, Verdict, counting_job, master_of, numbered_script, settings
from tests.small_disk import SmallDisk, small_disk
from tests.state.backends import SMALL

SCRIPT = numbered_script(splits=2, per_split=60, epochs=6)
FULL_AFTER = 3
AGAIN = RestartStrategies.fixed_delay_restart(5, 0)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", "24m") as disk:
        yield disk


def temporary_files(folder: Path) -> list[Path]:
    return list(folder.rglob(".tmp-*"))


@pytest.mark.parametrize("left", [0, 8192], ids=["full at once", "full in the middle of a snapshot"])
def test_checkpoints_on_a_full_disk_are_whole_or_absent_and_the_job_goes_on_when_there_is_room(
    left: int, disk: SmallDisk
) -> None:
    ListSink.clear("full-disk")
    chosen = settings(restart=AGAIN, inline_threshold=0)
    job = counting_job(SCRIPT, "full-disk", parallelism=(1, 1, 2, 1), job=chosen)
    folder = disk.root / "job"
    storage = open_storage(str(folder))
    runtime = EmbeddedJob(job, master_of(job, storage))
    seen: list[str] = []

    def fill(report: Any) -> None:
        if report.epoch == FULL_AFTER and not seen:
            disk.fill(leave=left)

    def look_and_make_room(error: BaseException) -> None:
        seen.append(str(error))
        assert temporary_files(folder) == []
        store = CheckpointStore(LocalStorage(folder), 1)
        newest = store.latest()
        assert newest is not None
        assert newest.checkpoint_id == FULL_AFTER, "nothing was completed on a full disk"
        store.verify(newest)
        disk.free()

    runtime.master.on_report = fill
    runtime.on_failure = look_and_make_room
    runtime.run()
    assert seen, "the disk was not full"
    assert "No space left on device" in seen[0]
    assert runtime.master.finished
    assert Verdict(SCRIPT, ListSink.results("full-disk")).exact


class Heavy(Operator):
    """Counts records of a key, and keeps something large beside the count."""

    def process(self, input: int, block: Block) -> None:
        assert not isinstance(block, Columns)
        counts, ballast = self.ctx.state.table("count", "value"), self.ctx.state.table("large", "value")
        out = []
        for key, split, number in block.values:
            before = counts.get(key)
            counts.put(key, 1 if before is MISSING else before + 1)
            ballast.put((key, split, number), number.to_bytes(4, "big") * 20_000)
            out.append((key, counts.get(key), split, number))
        self.emit(out, block.timestamps)


def heavy_job(local: Path) -> JobDescription:
    rocksdb = replace(SMALL, local_dirs=(str(local),), compression="none")
    chosen = replace(settings(restart=AGAIN), state=StateSettings(backend="rocksdb", rocksdb=rocksdb))
    pipeline = Pipeline().source(ScriptedSource(SCRIPT), 1).operator(Heavy(), 1).sink(ListSink("full-state"), 1)
    return pipeline.build(chosen)


def test_working_state_on_a_full_disk_is_an_error_and_the_job_goes_back_and_is_exact(
    disk: SmallDisk, tmp_path: Path
) -> None:
    ListSink.clear("full-state")
    job = heavy_job(disk.root)
    runtime = EmbeddedJob(job, master_of(job, open_storage(str(tmp_path / "job"))))
    seen: list[str] = []

    def fill(report: Any) -> None:
        if report.epoch == 2 and not seen:  # the database is there, and the next epoch writes to it
            disk.fill()

    def make_room(error: BaseException) -> None:
        seen.append(str(error))
        disk.free()

    runtime.master.on_report = fill
    runtime.on_failure = make_room
    runtime.run()
    assert seen, "the disk was not full"
    assert "No space left on device" in seen[0]
    assert "of operator 'operator-1' cannot be written to RocksDB" in seen[0]
    assert runtime.master.finished
    assert Verdict(SCRIPT, ListSink.results("full-state")).exact
