"""Event time in a pipelined job follows the clock: idle splits, and groups of splits that wait for each other."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.common import Duration, Time, WatermarkStrategy
from penstock.connectors.files import FileSink
from penstock.datastream.functions import MapFunction, ProcessWindowFunction
from penstock.datastream.window import TumblingEventTimeWindows
from tests.pipelined.controlled import ControlledSource
from tests.pipelined.jobs import Note, environment, wait_until

pytestmark = pytest.mark.spark

IN_ORDER = WatermarkStrategy.for_monotonous_timestamps()


class Fired(ProcessWindowFunction[Any, Any, Any, Any]):
    def __init__(self, fired: Note) -> None:
        self.fired = fired

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        self.fired.add(f"{context.window().start} {len(list(elements))}")
        yield str(context.window().start)


def test_a_split_that_falls_silent_holds_event_time_back_until_it_counts_as_idle(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Split 0 stops at 100 ms of event time, split 1 goes on to 5 s; then split 0 goes on, and what it has is late.

    Each split is silent for longer than the time-out at some point, so neither may have passed the end of a window by itself
    before the other has what the window is to hold.
    """
    fired = Note(tmp_path / "fired")
    source = ControlledSource(tmp_path / "source", 10, 10)
    env = environment(tmp_path, 2)
    idle_s = 1.5
    records = env.from_source(source, IN_ORDER.with_idleness(Duration.of_millis(int(idle_s * 1000))), "two splits")
    windows = records.uid("two").key_by(lambda v: 0).window(TumblingEventTimeWindows.of(Time.milliseconds(1000)))
    windows.process(Fired(fired)).uid("windows").sink_to(FileSink.text(str(tmp_path / "out")))
    source.allow(0, 10)
    source.allow(1, 501)
    began = time.monotonic()
    client = env.execute_async("silent")

    def wait_for_records(number: int) -> None:
        wait_until(lambda: sum(r.records_in for r in client.epoch_reports()) >= number, f"{number} records")

    try:
        wait_until(lambda: len(fired.lines()) == 5, "windows without split 0")
        assert time.monotonic() - began > idle_s, "the time-out had not passed"
        assert fired.lines() == ["0 110", "1000 100", "2000 100", "3000 100", "4000 100"]
        source.allow(0, 600)  # what is before 5,000 ms is late, the rest is not: split 1 is at 5,000
        wait_for_records(501 + 600)
        source.allow(1, 601)
        wait_until(lambda: len(fired.lines()) == 6, "the window of both")
        assert fired.lines()[-1] == "5000 200"
    finally:
        client.cancel().result()


class Seen(MapFunction):
    """How far each split has come, in a file of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def map(self, value: Any) -> Any:
        with (self.folder / f"seen-{value[0]}").open("a") as file:
            file.write(f"{value[1]}\n")
        return str(value)


def test_a_split_that_is_ahead_of_its_group_waits_for_the_others(spark: SparkSession, tmp_path: Path) -> None:
    """Split 0 has 20,000 records of a second each, split 1 stands at 0.5 s: split 0 may be at most 5 s ahead, and what was
    granted before its watermark was known. Barriers are a second apart: it does not wait for them."""
    source = ControlledSource(tmp_path / "source", 1000, 10)
    strategy = IN_ORDER.with_watermark_alignment("group", Duration.of_seconds(5), Duration.of_millis(20))
    env = environment(tmp_path, 2, execution_checkpointing_interval="1 h", penstock_epoch_max__records=10)
    env.get_config().set_auto_watermark_interval(10)
    records = env.from_source(source, strategy, "two splits").uid("two")
    records.map(Seen(tmp_path)).uid("seen").sink_to(FileSink.text(str(tmp_path / "out"))).uid("out")
    source.allow(0, 1)  # a split without a watermark would hold the other back
    source.allow(1, 50)
    client = env.execute_async("aligned")

    def seen(split: int) -> int:
        file = tmp_path / f"seen-{split}"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def rests() -> bool:
        before = seen(0)
        time.sleep(1.0)
        return seen(0) == before

    try:
        wait_until(lambda: seen(1) == 50, "the laggard's records")
        source.allow(0, 20_000)
        wait_until(lambda: seen(0) >= 6 and rests(), "the leader, which waits")
        first = seen(0)
        print(f"the leader waits at {first} s of event time, 5.5 s are allowed")
        # It could have read thousands; a busy machine is late to tell it.
        assert 6 <= first <= 400, "it waits too far ahead"
        source.allow(1, 20_000)  # 200 s of event time
        wait_until(lambda: seen(0) >= 200, "the leader, when the laggard has gone on")
    finally:
        client.cancel().result()
