"""Random pairs of streams in event time, and whole jobs over them with a crash in the middle."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.protocol.events import Watermark
from penstock.testing import Epoch, ListSink, ScriptedSource, Split, Stamped
from tests.embedded.jobs import master_of, memory_storage, settings
from tests.embedded.runs import Run, runs_with

Record = tuple[str, int, int]  # (key, number, timestamp)
MAX_TIME = 40

_names = itertools.count()


runs = runs_with(["process", "after-snapshot"], latest=12, most=2)


@st.composite
def scripts(draw: st.DrawFn, step: int = 1) -> list[Any]:
    """Records in two splits over up to three epochs, at multiples of `step`. After some of them comes a watermark, as
    high as can be without making any record of its split late."""
    times = st.integers(0, MAX_TIME // step).map(lambda number: number * step)
    cuts = draw(st.integers(0, 2))
    sections = [
        [draw(st.lists(st.tuples(st.sampled_from("abc"), times), max_size=4)) for _ in "xy"] for _ in range(cuts + 1)
    ]
    told = draw(st.lists(st.booleans(), min_size=1, max_size=8))
    left = [[time for section in sections for _, time in section[split]] for split in range(2)]
    tell, number = itertools.cycle(told), itertools.count()
    script: list[Any] = []
    for index, section in enumerate(sections):
        for split, records in enumerate(section):
            script.append(Split("xy"[split]))
            for key, time in records:
                script.append(Stamped((key, next(number), time), time))
                left[split].pop(0)
                if next(tell):
                    script.append(Watermark(min(left[split], default=MAX_TIME) - 1))
        if index < cuts:
            script.append(Epoch())
    return script


def records_of(script: list[Any]) -> list[Record]:
    return [item.value for item in script if isinstance(item, Stamped)]


def run_job(
    first: list[Any], second: list[Any], run: Run, build: Callable[[DataStream, DataStream], DataStream]
) -> tuple[list[Any], int]:
    """What the job commits, sorted, and how often it crashed."""
    name = f"two-streams-{next(_names)}"
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(run.sources).set_max_parallelism(8)
    strategy = WatermarkStrategy.no_watermarks()  # the script's own are enough
    streams = [env.from_source(ScriptedSource(script), strategy, "source") for script in (first, second)]
    build(*streams).set_parallelism(run.parallelism).sink_to(ListSink(name))
    job = replace(env._describe("two streams"), job_id="job", settings=settings())
    runtime = run.of(job, master_of(job, memory_storage()))
    runtime.run()
    results = sorted(ListSink.results(name))
    ListSink.clear(name)
    return results, runtime.crashes
