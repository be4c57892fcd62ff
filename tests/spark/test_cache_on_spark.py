"""A cached stream on Spark: slots write it, the slots of the next job read it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration, Types
from penstock.datastream import RuntimeExecutionMode, StreamExecutionEnvironment

pytestmark = pytest.mark.spark


def test_the_next_job_reads_what_the_slots_of_the_first_have_written(
    configuration: Configuration, tmp_path: Path
) -> None:
    configuration.set_string("penstock.cache.dir", str(tmp_path / "cache"))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2).set_runtime_mode(RuntimeExecutionMode.BATCH)
    counted = tmp_path / "calls"

    def square(number: int) -> tuple[int, int]:
        with counted.open("a") as file:
            os.write(file.fileno(), b".")
        return number, number * number

    pairs = Types.TUPLE([Types.INT(), Types.INT()])
    cached = env.from_collection(list(range(50))).map(square, pairs).cache()
    env.execute("first")
    collected: list[Any]
    with cached.filter(lambda pair: pair[0] % 2 == 0).execute_and_collect() as results:
        collected = sorted(results)
    assert collected == [(n, n * n) for n in range(0, 50, 2)]
    assert len(counted.read_bytes()) == 50
