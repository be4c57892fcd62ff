"""A running pipelined job is rescaled while one of its splits lags far behind in event time: nothing becomes late."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.common import Time, WatermarkStrategy
from penstock.connectors.files import FileSink, committed_files
from penstock.datastream import OutputTag
from penstock.datastream.functions import ProcessWindowFunction
from penstock.datastream.window import TumblingEventTimeWindows
from tests.pipelined.controlled import ControlledSource
from tests.pipelined.jobs import environment, wait_until

pytestmark = pytest.mark.spark

LATE = OutputTag("late")
STEP_MS, WINDOW_MS, KEYS = 10, 500, 5
LAGGARD = 2


class Sums(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        for split, count in sorted(Counter(split for split, _ in elements).items()):
            yield f"{key} {context.window().start} {split} {count}"


def test_a_job_with_a_lagging_split_is_rescaled_2_to_4_to_2_and_nothing_is_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = ControlledSource(tmp_path / "source", STEP_MS, STEP_MS, STEP_MS)
    env = environment(tmp_path, 2)
    records = env.from_source(source, WatermarkStrategy.for_monotonous_timestamps(), "splits").uid("splits")
    windows = records.key_by(lambda v: v[1] % KEYS).window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS)))
    fired = windows.side_output_late_data(LATE).process(Sums()).uid("windows")
    fired.sink_to(FileSink.text(str(tmp_path / "out"))).uid("out")
    fired.get_side_output(LATE).map(str).sink_to(FileSink.text(str(tmp_path / "late"))).uid("late")
    client = env.execute_async("lagging")
    over = threading.Event()

    def go_on() -> None:
        """Splits 0 and 1 at 1,000 records a second, split 2 at 50, until the job has been rescaled twice."""
        for n in itertools.count(20, 20):
            if over.wait(0.02):
                return
            for split in range(3):
                source.allow(split, n // 20 if split == LAGGARD else n)

    def read() -> int:
        return sum(report.records_in for report in client.epoch_reports())

    feeding = threading.Thread(target=go_on)
    feeding.start()
    pauses = []
    try:
        for parallelism in (4, 2):
            seen = read()
            wait_until(lambda seen=seen: read() > seen + 500, "records")  # type: ignore[misc]
            result = client.rescale(parallelism).result()
            assert result.after == parallelism
            pauses.append(result.pause_ms)
            assert source.allowed(LAGGARD) < source.allowed(0) / 4, "the laggard does not lag"
    finally:
        over.set()
        feeding.join()
    of_each = source.allowed(0)
    for split in range(3):
        source.allow(split, of_each)
    wait_until(lambda: read() >= 3 * of_each, "all records")
    client.stop_with_savepoint(True, str(tmp_path / "savepoints")).result()
    client.get_job_execution_result().result()
    print(f"rescaled 2 → 4 → 2, pauses of {pauses[0]:.0f} and {pauses[1]:.0f} ms")
    found = [line for path in committed_files(str(tmp_path / "out")) for line in Path(path).read_text().splitlines()]
    expected = Counter(
        (n % KEYS, n * STEP_MS - n * STEP_MS % WINDOW_MS, split) for split in range(3) for n in range(of_each)
    )
    assert sorted(found) == sorted(f"{key} {start} {split} {count}" for (key, start, split), count in expected.items())
    assert committed_files(str(tmp_path / "late")) == []
