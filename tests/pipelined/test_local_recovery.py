"""A pipelined job is restored from the copies of its state on the same machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.common import Types, WatermarkStrategy
from penstock.connectors.files import FileSink, committed_files
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from tests.connectors.lasting import Lasting
from tests.pipelined.jobs import environment, wait_until

pytestmark = pytest.mark.spark
NUMBERS, KEYS = 2000, 40


class Count(KeyedProcessFunction):
    """Fails when the test has taken its files away."""

    def __init__(self, away: Path) -> None:
        self.away = away

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        if self.away.exists():
            self.away.unlink()
            raise RuntimeError("as the test wants it")
        self.count.update((self.count.value() or 0) + 1)
        yield f"{ctx.get_current_key()} {self.count.value()}"


def test_it_is_restored_though_the_store_has_lost_its_files(spark: SparkSession, tmp_path: Path) -> None:
    local = tmp_path / "local"
    env = environment(
        tmp_path,
        2,
        execution_checkpointing_interval="300 ms",
        execution_state__recovery_from__local="true",
        taskmanager_state_local_root__dirs=local,
        restart__strategy_type="fixed-delay",
        restart__strategy_fixed__delay_delay="10 ms",
        penstock_checkpoint_inline__threshold="0",
    )
    source = Lasting(lambda i: i, NUMBERS, until=tmp_path / "may-end", rate_per_second=600)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    counts = numbers.key_by(lambda n: n % KEYS).process(Count(tmp_path / "away")).uid("count")
    counts.sink_to(FileSink.text(str(tmp_path / "out")))
    client = env.execute_async("local recovery")
    wait_until(lambda: len(client.epoch_reports()) >= 3, "checkpoints")
    copies = wait_until(lambda: list(local.glob("penstock-local-*/chk-*/*")), "local copies")
    for file in (tmp_path / "job" / "checkpoints").glob("chk-*/*"):
        if any(copy.name == file.name for copy in copies):
            file.write_bytes(b"lost")
    (tmp_path / "away").touch()
    (tmp_path / "may-end").touch()
    client.get_job_execution_result().result()
    assert not (tmp_path / "away").exists(), "the job did not fail"
    lines = [line for path in committed_files(str(tmp_path / "out")) for line in Path(path).read_text().splitlines()]
    assert sorted(lines) == sorted(f"{key} {n + 1}" for key in range(KEYS) for n in range(NUMBERS // KEYS))
    assert list(local.iterdir()) == [], "the job is over"
