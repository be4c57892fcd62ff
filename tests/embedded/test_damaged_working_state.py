"""One byte of a file of RocksDB's working state changes between two checkpoints, under windows, timers and maps: the job goes
back to its checkpoint and is exact. It never ends, and never completes a checkpoint, with fewer keys."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoint import state_data
from penstock.checkpoint.storage import open_storage
from penstock.common import Time, Types, WatermarkStrategy
from penstock.common.restart_strategy import RestartStrategies
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import MapStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.driver.description import JobDescription
from penstock.errors import CheckpointFailedError, StorageError
from penstock.state import rocksdb
from penstock.state.backends import StateSettings
from penstock.testing import EmbeddedJob, Epoch, ListSink, ScriptedSource, Split
from tests.embedded.jobs import master_of, settings
from tests.state.backends import SMALL

KEYS, PER_EPOCH, EPOCHS, SPAN = 3000, 4000, 5, 100_000
DAMAGED_AFTER = 3

# Key, timestamp, number. Once the damage is done only three keys are seen: nothing stumbles over it by chance.
RECORDS = [
    (number * 7919 % (KEYS if number < PER_EPOCH * DAMAGED_AFTER else 3), number * 4, number)
    for number in range(PER_EPOCH * EPOCHS)
]


def script() -> Iterator[Any]:
    """One split has a tenth of the records."""
    for epoch in range(EPOCHS):
        records = RECORDS[epoch * PER_EPOCH : (epoch + 1) * PER_EPOCH]
        for split, mine in (("few", records[::10]), ("many", [r for i, r in enumerate(records) if i % 10])):
            yield Split(split)
            yield from mine
        if epoch < EPOCHS - 1:
            yield Epoch()


class Second(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class Remembers(KeyedProcessFunction):
    """Numbers by remainder in a map; one timer at the end of time tells them."""

    def open(self, runtime_context: Any) -> None:
        self.seen = runtime_context.get_map_state(MapStateDescriptor("seen", Types.INT(), Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        remainder = value[2] % 7
        self.seen.put(remainder, (self.seen.get(remainder) or 0) + 1)
        ctx.timer_service().register_event_time_timer(SPAN - 1 - value[0] % 5)
        return iter(())

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield ctx.get_current_key(), timestamp, tuple(self.seen.items())


def describe(sink: str, local: Path) -> JobDescription:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_max_parallelism(8)
    env.set_parallelism(1)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Second())
    keyed = env.from_source(ScriptedSource(list(script())), strategy, "source").key_by(lambda value: value[0])
    windows = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(SPAN)))
    windows.reduce(lambda a, b: (a[0], max(a[1], b[1]), a[2] + b[2])).uid("windows").sink_to(
        ListSink(f"{sink}-windows")
    )
    keyed.process(Remembers()).uid("remembers").sink_to(ListSink(f"{sink}-timers"))
    job = env._describe(sink)
    chosen = replace(
        settings(restart=RestartStrategies.fixed_delay_restart(2, 0), inline_threshold=0, block_size=1000),
        compact_after=1,
        state=StateSettings(backend="rocksdb", rocksdb=replace(SMALL, local_dirs=(str(local),))),
    )
    return replace(job, settings=chosen)


def expected() -> tuple[list[Any], list[Any]]:
    sums: Counter[int] = Counter()
    latest: dict[int, int] = defaultdict(int)
    maps: dict[int, Counter[int]] = defaultdict(Counter)
    for key, timestamp, number in RECORDS:
        sums[key] += number
        latest[key] = max(latest[key], timestamp)
        maps[key][number % 7] += 1
    windows = [(key, latest[key], total) for key, total in sums.items()]
    timers = [(key, SPAN - 1 - key % 5, tuple(sorted(seen.items()))) for key, seen in maps.items()]
    return sorted(windows), sorted(timers)


@pytest.mark.parametrize("where", [0.25, 0.5, 0.75])
def test_a_job_whose_working_state_is_damaged_goes_back_and_is_exact(
    where: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = f"damaged-{where}"
    for name in ("windows", "timers"):
        ListSink.clear(f"{sink}-{name}")
    job = describe(sink, tmp_path / "local")
    databases: list[tuple[Path, Any]] = []
    opening = rocksdb._open

    def remembered(folder: Path, settings: Any) -> Any:
        databases.append((folder, opening(folder, settings)))
        return databases[-1][1]

    monkeypatch.setattr(rocksdb, "_open", remembered)
    runtime = EmbeddedJob(job, master_of(job, open_storage(str(tmp_path / "job"))))
    damaged: list[str] = []

    def damage(report: Any) -> None:
        if report.epoch == DAMAGED_AFTER and not damaged:
            for folder, database in databases:
                database.flush()
                for file in folder.glob("*.sst"):
                    with file.open("r+b") as opened:
                        opened.seek(int(file.stat().st_size * where))
                        byte = opened.read(1)
                        opened.seek(-1, 1)
                        opened.write(bytes([byte[0] ^ 1]))
                    damaged.append(str(file))

    runtime.master.on_report = damage
    failures: list[BaseException] = []
    runtime.on_failure = failures.append
    runtime.run()
    assert damaged, "nothing was damaged"
    assert runtime.master.finished
    windows, timers = expected()
    assert sorted(ListSink.results(f"{sink}-windows")) == windows
    assert sorted(ListSink.results(f"{sink}-timers")) == timers
    assert len(failures) == 1
    assert isinstance(failures[0], StorageError | CheckpointFailedError)
    assert any(file in str(failures[0]) for file in damaged), str(failures[0])
    newest = runtime.master.restored
    assert newest is not None
    checkpoint = tmp_path / "job" / "checkpoints" / f"chk-{newest.checkpoint_id}"
    kept = {
        entry.key: tuple(sorted(entry.value.items())) for entry in state_data.read(str(checkpoint), "remembers", "seen")
    }
    assert kept == {key: seen for key, _, seen in timers}
