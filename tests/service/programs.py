"""Programs for drivers of their own, and the dispatcher as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.driver.control.home import is_running, read_json
from penstock.service.endpoint import Endpoint
from tests.driver.jobs import eventually

ROOT = Path(__file__).parents[2]

ENDLESS = """
import sys
from penstock.common import WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(10)
source = DataGeneratorSource(lambda index: index, None, rate_per_second=1000)
stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
stream.key_by(lambda n: n % 10).reduce(lambda a, b: max(a, b)).uid("newest").filter(lambda n: False).print().uid("out")
print("the program's words")
env.execute(sys.argv[1] if len(sys.argv) > 1 else "endless")
"""

FAILING = """
from penstock.common import RestartStrategies
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_restart_strategy(RestartStrategies.no_restart())
env.from_collection([1, 0]).map(lambda n: 1 / n).uid("divide").print()
env.execute("failing")
"""


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def start_jobmanager(home: Path, *options: str, token: str = "") -> tuple[subprocess.Popen[bytes], Endpoint]:
    """A dispatcher in a process of its own, on any free port."""
    (home / "dispatcher.json").unlink(missing_ok=True)  # of one that was killed
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", "jobmanager", "--port", "0", "--dir", str(home), *options],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PENSTOCK_RUNTIME": "embedded", "PENSTOCK_TOKEN": token},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )

    def up() -> dict[str, str] | None:
        assert process.poll() is None, "the dispatcher ended at once"
        found = read_json(home / "dispatcher.json")
        return found if found is not None and is_running(found) else None

    found = eventually(up, "the dispatcher starts")
    return process, Endpoint(found["address"], found["token"])


@contextmanager
def jobmanager(home: Path, *options: str, token: str = "") -> Iterator[Endpoint]:
    process, endpoint = start_jobmanager(home, *options, token=token)
    try:
        yield endpoint
    finally:
        process.terminate()
        process.wait(60)
