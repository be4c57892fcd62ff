"""Penstock's side, a process of its own: `python -m benchmarks.latency.penstock_job SPEC`, SPEC as JSON.

Events come at a fixed rate and go through keyed stages in Python: value state, then windows of ten events of a key. The result of a
window is the event that completed it, and a sink function notes when it came. An event's time is when it was *due*, so that
waiting to be read counts.
"""

from __future__ import annotations

import glob
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.latency.figures import Noted, figures
from benchmarks.latency.usage import CoresUsed
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction, SinkFunction
from penstock.datastream.state import ValueStateDescriptor

KEYS = 100
WINDOW = 10  # events of a key; the result is the event that completes it


class Total(KeyedProcessFunction):
    """Counts the events of a key in value state and hands each on."""

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.total.update((self.total.value() or 0) + 1)
        yield value


class Note(SinkFunction):
    """Notes when each result came."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self, runtime_context: Any) -> None:
        self._noted = Noted(self._folder)

    def invoke(self, value: Any, context: Any) -> None:
        self._noted.add(value[0], value[2])

    def close(self) -> None:
        self._noted.write()


def main(spec: dict[str, Any]) -> dict[str, Any]:
    rate, seconds, warm_up = float(spec["rate"]), float(spec["seconds"]), float(spec["warm_up"])
    folder = str(spec["folder"])
    config = Configuration()
    config.set_string("penstock.execution.mode", str(spec["mode"]))
    config.set_string("penstock.job.dir", f"{folder}/job")
    for key, value in spec.get("settings", {}).items():
        config.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(int(spec.get("parallelism", 2)))
    env.enable_checkpointing(1000)
    count = int(rate * (seconds + warm_up))
    source = DataGeneratorSource(lambda index: index, count, splits=2, rate_per_second=rate)
    stream: Any = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("events")
    stream = stream.map(lambda index: (index, index % KEYS, time.time()))
    for stage in range(int(spec.get("levels", 3)) - 2):
        shift = stage + 1
        stream = stream.key_by(lambda v, shift=shift: (v[1] + shift) % KEYS).process(Total()).uid(f"total-{stage}")
    stream = stream.key_by(lambda v: v[1] % 50).count_window(WINDOW)
    stream.reduce(lambda a, b: b).uid("window").add_sink(Note(folder))
    started = time.time()
    client = env.execute_async("latency")
    used = CoresUsed()
    waiting = client.get_job_execution_result()
    while not glob.glob(f"{folder}/noted-*.npy") and not waiting.done():
        time.sleep(0.05)
    time.sleep(warm_up)
    used.begin()
    time.sleep(max(1.0, seconds * 0.8))
    cores = used.end()
    waiting.result()
    reports = client.epoch_reports()
    return {**figures(folder, rate, warm_up), "cores": cores, "wall_s": time.time() - started,
            "checkpoints": sum(report.checkpoint for report in reports)}  # fmt: skip


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    (Path(given["folder"]) / "run.json").write_text(json.dumps(main(given)))
