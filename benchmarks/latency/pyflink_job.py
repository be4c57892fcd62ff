"""PyFlink's side, in a virtual environment of its own: `python -m benchmarks.latency.pyflink_job SPEC`, SPEC as JSON.

The same job as ours: value state, then windows of ten events of a key, an exactly-once checkpoint every second, two of each. A
thread of this process writes the events to a socket when they are due; before that some that are not counted, until the first
result is there: Python workers take seconds to start, and what would come meanwhile takes minutes to work off. Python functions get
records in bundles; by default a bundle waits up to a second, here 5 ms.
"""

from __future__ import annotations

import glob
import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyflink.common import Configuration, Types  # type: ignore[import-not-found,unused-ignore]
from pyflink.datastream import (  # type: ignore[import-not-found,unused-ignore]
    DataStream,
    KeyedProcessFunction,
    MapFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import ValueStateDescriptor  # type: ignore[import-not-found,unused-ignore]
from pyflink.java_gateway import get_gateway  # type: ignore[import-not-found,unused-ignore]

from benchmarks.latency.figures import Noted, figures
from benchmarks.latency.usage import CoresUsed

KEYS = 100
WINDOW = 10
BUNDLE_MS = 5
_TICK_S = 0.002
_PRIMER_S = 0.1


class Total(KeyedProcessFunction):  # type: ignore[misc,unused-ignore]
    """Counts the events of a key in value state and hands each on."""

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.total.update((self.total.value() or 0) + 1)
        yield value


class Note(MapFunction):  # type: ignore[misc,unused-ignore]
    """Notes when each result came: PyFlink has no sink functions in Python."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self, runtime_context: Any) -> None:
        self._noted = Noted(self._folder)

    def map(self, value: Any) -> Any:
        self._noted.add(value[0], value[2])
        return value

    def close(self) -> None:
        self._noted.write()


def feed(server: socket.socket, rate: float, count: int, folder: str) -> None:
    """Sends the numbers of events, each when it is due, behind negative ones."""
    connection, _ = server.accept()
    with connection:
        while not glob.glob(f"{folder}/noted-*.npy"):
            connection.sendall("".join(f"{-index}\n" for index in range(1, KEYS + 1)).encode())
            time.sleep(_PRIMER_S)
        began, sent = time.time(), 0
        while sent < count:
            due = min(count, int((time.time() - began) * rate))
            if due > sent:
                connection.sendall("".join(f"{index}\n" for index in range(sent, due)).encode())
                sent = due
            time.sleep(_TICK_S)


def main(spec: dict[str, Any]) -> dict[str, Any]:
    rate, seconds, warm_up = float(spec["rate"]), float(spec["seconds"]), float(spec["warm_up"])
    folder = str(spec["folder"])
    server = socket.create_server(("127.0.0.1", 0))
    count = int(rate * (seconds + warm_up))
    threading.Thread(target=feed, args=(server, rate, count, folder), daemon=True).start()
    config = Configuration()
    for key, value in {
        "python.execution-mode": str(spec["mode"]),
        "python.fn-execution.bundle.time": str(BUNDLE_MS),
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "execution.checkpointing.dir": f"file://{folder}/checkpoints",
        "execution.buffer-timeout.interval": "5 ms",
    }.items():
        config.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(2)
    env.enable_checkpointing(1000)
    lines = env._j_stream_execution_environment.socketTextStream("127.0.0.1", server.getsockname()[1])
    event = Types.TUPLE([Types.LONG(), Types.LONG(), Types.DOUBLE()])
    stream = DataStream(lines).map(lambda line: (int(line), int(line) % KEYS, time.time()), output_type=event)
    stream = stream.key_by(lambda v: (v[1] + 1) % KEYS, key_type=Types.LONG()).process(Total(), output_type=event)
    windows = stream.key_by(lambda v: v[1] % 50, key_type=Types.LONG()).count_window(WINDOW)
    noted = windows.reduce(lambda a, b: b).map(Note(folder), output_type=event)
    noted._j_data_stream.sinkTo(get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink())
    used = CoresUsed()
    client = env.execute_async("latency")
    waiting = client.get_job_execution_result()
    while not glob.glob(f"{folder}/noted-*.npy"):
        if waiting.done():
            waiting.result()
        time.sleep(0.05)
    time.sleep(warm_up)
    used.begin()
    time.sleep(max(1.0, seconds * 0.8))
    cores = used.end()
    waiting.result()
    return {**figures(folder, rate, warm_up), "cores": cores}


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    (Path(given["folder"]) / "run.json").write_text(json.dumps(main(given)))
