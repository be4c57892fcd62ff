"""A loop on Spark: one epoch a round, and a slot that dies while records are on the way back."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration, Types
from penstock.connectors.files import FileSink, committed_files
from penstock.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from penstock.datastream.state import ValueStateDescriptor

pytestmark = pytest.mark.spark

STARTS = range(1, 28)
LIMIT = 12


class Collatz(KeyedProcessFunction):
    """Counts the visits of each start: a step that is lost or made twice shows. Its slot dies once, in the fourth round."""

    def __init__(self, once: Path) -> None:
        self.once = once

    def open(self, runtime_context: Any) -> None:
        self.visits = runtime_context.get_state(ValueStateDescriptor("visits", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        start, number = value
        visits = (self.visits.value() or 0) + 1
        self.visits.update(visits)
        if start == 27 and visits == 4 and not self.once.exists():
            self.once.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        yield start, number, visits


def going_on(step: Any) -> bool:
    return bool(step[1] > 1 and step[2] < LIMIT)


def build(env: StreamExecutionEnvironment, folder: Path) -> None:
    starts = env.from_collection([(n, n) for n in STARTS])
    iteration = starts.map(lambda pair: pair).iterate()
    iteration.uid("loop")
    steps = iteration.key_by(lambda pair: pair[0]).process(Collatz(folder / "killed")).uid("collatz")
    iteration.close_with(
        steps.filter(going_on).map(lambda s: (s[0], s[1] // 2 if s[1] % 2 == 0 else 3 * s[1] + 1)).rebalance()
    )
    steps.map(lambda s: f"{s[0]} {s[1]} {s[2]}").sink_to(FileSink.text(str(folder / "out")))


def expected() -> list[str]:
    lines = []
    for start in STARTS:
        number, visit = start, 1
        lines.append(f"{start} {number} {visit}")
        while number > 1 and visit < LIMIT:
            number, visit = number // 2 if number % 2 == 0 else 3 * number + 1, visit + 1
            lines.append(f"{start} {number} {visit}")
    return sorted(lines)


def test_a_loop_survives_the_death_of_a_slot_and_ends_by_itself(configuration: Configuration, tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    build(env, tmp_path)
    client = env.execute_async("collatz")
    client.get_job_execution_result().result()
    reports = client.epoch_reports()
    dead = (tmp_path / "killed").read_text()
    assert dead in [name.rpartition(":")[2] for name in reports[2].slots]
    assert dead not in [name.rpartition(":")[2] for name in reports[-1].slots]
    assert sum(report.restored_tasks for report in reports) > 0
    assert [report.feedback for report in reports[-2:]] == [0, 0]
    out = [line for file in committed_files(str(tmp_path / "out")) for line in Path(file).read_text().splitlines()]
    assert sorted(out) == expected()
