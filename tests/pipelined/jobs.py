"""What tests of pipelined jobs share: an environment, and files through which the test and the job's functions talk."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.client import JobClient
from penstock.errors import PenstockError


def environment(folder: Path, parallelism: int = 1, **settings: Any) -> StreamExecutionEnvironment:
    """Pipelined, with its job folder in `folder`; `settings` by key, with _ for . and __ for -."""
    config = Configuration()
    config.set_string("penstock.execution.mode", "pipelined")
    config.set_string("penstock.job.dir", str(folder / "job"))
    config.set_string("execution.checkpointing.interval", "100 ms")
    for name, value in settings.items():
        config.set_string(name.replace("__", "-").replace("_", "."), str(value))
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(parallelism)
    return env


def wait_until(true: Callable[[], Any], what: str, seconds: float = 120.0) -> Any:
    """The first true answer; fails the test when there is none in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if answer := true():
            return answer
        time.sleep(0.01)
    raise AssertionError(f"not within {seconds:.0f} s: {what}")


def soon_enough(measure: Callable[[Path], float], folder: Path, most: float, tries: int = 3) -> None:
    """Something takes no longer than `most`. A busy machine may delay it, but not every time; what is slow by itself always is."""
    found: list[float] = []
    for number in range(tries):
        (again := folder / str(number)).mkdir()
        found.append(measure(again))
        if found[-1] <= most:
            return
    raise AssertionError(f"{found}, and at most {most} is right")


def completes(client: JobClient, tries: int = 10) -> int:
    """A checkpoint, where they have a time-out so short that one may miss it by accident: its number."""
    while True:
        try:
            return client.trigger_checkpoint().result()
        except PenstockError:
            tries -= 1
            if tries == 0:
                raise


class Note:
    """Lines that functions append in their processes and the test reads."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, value: Any) -> None:
        with self.path.open("a") as file:
            file.write(f"{value}\n")

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []
