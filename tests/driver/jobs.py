"""Jobs that run until they are told otherwise, on the embedded runtime."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import JobClient, StreamExecutionEnvironment


def eventually(condition: Callable[[], Any], what: str, timeout_s: float = 90.0) -> Any:
    """The first true value of `condition`; fails the test when there is none in time, which is far more than a busy machine
    with two cores needs."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {timeout_s:.0f} s")


def endless(home: Path, job_id: str | None = None, **settings: str) -> JobClient:
    """Counts numbers by their last digit, a few thousand an epoch, with a checkpoint each."""
    configuration = Configuration.from_dict(
        {
            "penstock.runtime": "embedded",
            "penstock.job.home": str(home),
            "penstock.epoch.interval": "20 ms",
            "penstock.epoch.max-records": "200",
            "execution.checkpointing.interval": "0 ms",
            **({"penstock.job.id": job_id} if job_id else {}),
            **settings,
        }
    )
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(2)
    source = DataGeneratorSource(lambda index: index, None)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    stream.key_by(lambda n: n % 10).map(lambda n: n).uid("counted").filter(lambda n: False).print().uid("out")
    return env.execute_async("endless")
