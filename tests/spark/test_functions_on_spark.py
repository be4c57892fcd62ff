"""Asynchronous I/O, operator state, checkpoint listeners and accumulators in slot processes, with a failure on the way."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration, Time, WatermarkStrategy
from penstock.connectors.files import FileSink, committed_files
from penstock.connectors.program import CollectionSource
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    CheckpointedFunction,
    CheckpointListener,
    FlatMapFunction,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import ListStateDescriptor

pytestmark = pytest.mark.spark

VALUES, CUTS = list(range(60)), [20, 40]


class Slow(AsyncFunction):
    async def async_invoke(self, value: int) -> list[Any]:
        await asyncio.sleep((value % 7) / 1000)
        return [value * 10]


class InThrees(FlatMapFunction, CheckpointedFunction, CheckpointListener):
    """Passes records on three at a time; says in files what it was told, and fails once."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self, runtime_context: Any) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.seen = runtime_context.get_int_counter("seen")

    def close(self) -> None:
        self.say("closed")

    def say(self, text: str) -> None:
        with open(os.path.join(self.folder, f"log-{self.subtask}"), "a") as file:
            file.write(f"{text}\n")

    def initialize_state(self, context: Any) -> None:
        self.state = context.get_operator_state_store().get_list_state(ListStateDescriptor("waiting"))
        self.waiting = list(self.state.get())
        self.restored = context.get_restored_checkpoint_id()

    def snapshot_state(self, context: Any) -> None:
        self.state.update(self.waiting)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.say(f"complete {checkpoint_id}")

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.say(f"aborted {checkpoint_id}")

    def flat_map(self, value: int) -> Any:
        if value == 300 and self.restored is None:
            raise RuntimeError("once")
        self.seen.add(1)
        self.waiting.append(value)
        if len(self.waiting) == 3:
            yield " ".join(map(str, self.waiting))
            self.waiting.clear()


def test_functions_in_slots_keep_their_state_hear_of_checkpoints_and_are_closed(
    configuration: Configuration, tmp_path: Path
) -> None:
    configuration.set_string("restart-strategy.type", "fixed-delay")
    configuration.set_string("restart-strategy.fixed-delay.delay", "0 ms")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    source = env.from_source(CollectionSource(VALUES, epochs=CUTS), WatermarkStrategy.no_watermarks(), "numbers")
    asked = AsyncDataStream.unordered_wait(source.rebalance(), Slow(), Time.seconds(10), capacity=5)
    threes = asked.rebalance().flat_map(InThrees(str(tmp_path))).uid("threes")
    threes.sink_to(FileSink.text(str(tmp_path / "out")))
    client = env.execute_async("functions")
    result = client.get_job_execution_result().result()
    lines = [line for file in committed_files(str(tmp_path / "out")) for line in Path(file).read_text().splitlines()]
    assert sorted(int(number) for line in lines for number in line.split()) == [value * 10 for value in VALUES]
    assert result.get_all_accumulator_results() == {"seen": len(VALUES)}
    final = client.epoch_reports()[-1].epoch
    for subtask in range(2):
        log = (tmp_path / f"log-{subtask}").read_text().splitlines()
        assert log[-2:] == [f"complete {final}", "closed"]
        assert "aborted 2" in log
        assert log.count("complete 2") == 1
