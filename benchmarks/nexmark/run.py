"""One query, a process of its own: `python -m benchmarks.nexmark.run SPEC`, SPEC as JSON; the result goes to FOLDER/run.json.

Bounded: a small site is asked first, and its answer compared with DuckDB's; then a large one, whose answer is dropped. The rate
is that of what the large one has more, over what it took longer: what starting and stopping takes is in neither.

Unbounded (`rate`): events come at a fixed rate, and a sink function notes how long after its time each result came: of a record
its own time, of a window the end of it.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.latency.usage import CoresUsed
from benchmarks.nexmark.answers import difference
from benchmarks.nexmark.events import BEGINNING, EVENTS, SHARES, Events, Site, write
from benchmarks.nexmark.queries import QUERIES, Streams
from penstock.common import Configuration, Duration, WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.connectors.program import DiscardingSink
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.functions import SinkFunction

CORES = 2


def environment(spec: dict[str, Any]) -> StreamExecutionEnvironment:
    """Two cores, an exactly-once checkpoint every second."""
    config = Configuration()
    config.set_string("penstock.execution.mode", spec["mode"])
    config.set_string("spark.master", f"local[{CORES if spec['mode'] == 'epochs' else 32},4]")
    config.set_string("penstock.job.dir", f"{spec['folder']}/job-{time.time_ns()}")
    for key, value in spec.get("settings", {}).items():
        config.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(CORES)
    env.enable_checkpointing(1000)
    return env


class ReadStreams(Streams):
    """Remembers what is read."""

    def __init__(self, env: StreamExecutionEnvironment, folder: Path, site: Site) -> None:
        super().__init__(env, folder, site)
        self.kinds: list[str] = []

    def __call__(self, kind: str, *columns: str) -> DataStream:
        self.kinds.append(kind)
        return super().__call__(kind, *columns)


def data(folder: Path, site: Site) -> Path:
    """The files of a site; made once."""
    there = folder / f"events-{site.events}-{site.rate}-{site.disorder}-{site.seed}"
    if not there.exists():
        write(site, (making := there.with_suffix(f".{os.getpid()}")), files=CORES)
        making.rename(there)
    return there


def bounded(spec: dict[str, Any]) -> dict[str, Any]:
    """Events per second, and what was wrong with the answer, if anything."""
    query = QUERIES[spec["query"]]
    small = Site(events=spec.get("small", 100_000))
    large = Site(events=spec["events"])
    cache = Path(spec["cache"])
    answered = query.build(Streams(environment(spec), data(cache, small), small)).execute_and_collect()
    with answered as results:
        wrong = difference(spec["query"], results, data(cache, small))
    taken, read = [], []
    used = CoresUsed()
    for site in (small, large):
        files = data(cache, site)
        env = environment(spec)
        streams = ReadStreams(env, files, site)
        query.build(streams).sink_to(DiscardingSink())
        used.begin()
        started = time.perf_counter()
        env.execute(f"nexmark-{spec['query']}")
        taken.append(time.perf_counter() - started)
        read.append(sum(site.count(kind) for kind in streams.kinds))
    cores = used.end()
    return {
        "query": spec["query"],
        "mode": spec["mode"],
        "wrong": wrong,
        "events": read[1],
        "seconds": taken[1],
        "start_up_s": taken[0] - read[0] * (taken[1] - taken[0]) / max(read[1] - read[0], 1),
        "rate": (read[1] - read[0]) / max(taken[1] - taken[0], 1e-3),
        "cores": cores,
    }


class RatedStreams(Streams):
    """Endless streams that come at the rate of the site."""

    def __call__(self, kind: str, *columns: str) -> DataStream:
        rate = self.site.rate * SHARES[kind] / EVENTS
        source = DataGeneratorSource(Events(self.site, kind), self.site.count(kind), splits=CORES, rate_per_second=rate)
        in_order = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(self.site.bound_ms))
        events = self.env.from_source(source, in_order, kind).uid(kind)
        return events.select(*columns) if columns else events


class Note(SinkFunction):
    """Notes the event time of each result, and when it came, in files of its own."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self, runtime_context: Any) -> None:
        self._seen: list[tuple[float, float]] = []
        self._written, self._parts = time.time(), 0

    def invoke(self, value: Any, context: Any) -> None:
        now = time.time()
        self._seen.append((context.timestamp() - BEGINNING, now))
        if now - self._written > 1.0:
            self._write()

    def close(self) -> None:
        self._write()

    def _write(self) -> None:
        self._written, self._parts = time.time(), self._parts + 1
        np.save(f"{self._folder}/noted-{os.getpid()}-{id(self)}-{self._parts}.npy", np.array(self._seen))
        self._seen = []


def unbounded(spec: dict[str, Any]) -> dict[str, Any]:
    """Latencies in ms, behind the warm-up, relative to the luckiest in a thousand."""
    rate, seconds, warm_up = int(spec["rate"]), float(spec["seconds"]), float(spec["warm_up"])
    site = Site(events=int(rate * (seconds + warm_up)), rate=rate, disorder=rate // 100)
    env = environment(spec)
    QUERIES[spec["query"]].build(RatedStreams(env, Path(), site)).add_sink(Note(spec["folder"]))
    used = CoresUsed()
    used.begin()
    env.execute(f"nexmark-{spec['query']}")
    cores = used.end()
    noted = np.concatenate([part for name in glob.glob(f"{spec['folder']}/noted-*.npy") if len(part := np.load(name))])
    event_time, came = noted[:, 0] / 1000, noted[:, 1]
    counted = (event_time >= warm_up) & (event_time < seconds + warm_up - 1)  # at the end all windows fire at once
    late = (came - event_time)[counted]
    values = (late - np.percentile(late, 0.1)) * 1000
    return {
        "query": spec["query"],
        "mode": spec["mode"],
        "rate": rate,
        "results": len(values),
        **{f"p{p}": round(float(np.percentile(values, p)), 1) for p in (50, 90, 99)},
        "max": round(float(values.max()), 1),
        "cores": cores,
    }


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """The result of a run."""
    try:
        return unbounded(spec) if "rate" in spec else bounded(spec)
    finally:
        for job in glob.glob(f"{spec['folder']}/job-*"):
            shutil.rmtree(job, ignore_errors=True)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    (Path(given["folder"]) / "run.json").write_text(json.dumps(main(given)))
