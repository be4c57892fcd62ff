"""Whole jobs that join columns: every pair once under crashes, cuts and any parallelism, with either state backend."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Row, Time, Types, WatermarkStrategy
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.window import SlidingEventTimeWindows
from penstock.runtime.embedded.crash import CrashPoint
from penstock.testing import CrashPlan, EmbeddedJob, Epoch, ListSink, ScriptedSource, Split, Stamped
from tests.embedded.jobs import configured, master_of, memory_storage
from tests.embedded.jobs import settings as job_settings

RECORD = Types.ROW_NAMED(["side", "key", "value", "time"], [Types.STRING(), Types.STRING(), Types.LONG(), Types.LONG()])
_names = itertools.count()

# No watermark but the last: which records are late would depend on how the two inputs are read.
records = st.builds(
    lambda side, key, value, time: Stamped((side, key, value, time), time),
    st.sampled_from(["left", "right"]),
    st.sampled_from(["a", "a", "b", None]),
    st.integers(0, 3),
    st.integers(0, 30),
)
_POINTS: st.SearchStrategy[CrashPoint] = st.sampled_from(["process", "after-snapshot", "after-manifest"])


@st.composite
def scripts(draw: st.DrawFn) -> list[Any]:
    """Two splits over up to three epochs; a side may be silent."""
    script: list[Any] = []
    for number in range(draw(st.integers(1, 3))):
        script += [Epoch()] if number else []
        for split in "xy":
            script += [Split(split), *draw(st.lists(records, max_size=10))]
    return script


def joined(env: StreamExecutionEnvironment, script: list[Any], kind: str, parallelism: int) -> DataStream:
    stream = env.from_source(ScriptedSource(script), WatermarkStrategy.no_watermarks(), "source")
    declared = stream.map(lambda v: Row(side=v[0], key=v[1], value=v[2], time=v[3]), RECORD)
    left, right = (declared.filter(pc.field("side") == side) for side in ("left", "right"))
    selected: Any = {"left": ["key", "value"], "right": {"other": "value"}}
    match kind:
        case "interval":
            near = left.key_by("key").interval_join(right.key_by("key"))
            result = near.between(Time.milliseconds(-4), Time.milliseconds(7)).select(**selected)
        case "window":
            equal = left.join(right).where("key").equal_to("key")
            result = equal.window(SlidingEventTimeWindows(10, 5, 0)).select(**selected)
        case _:
            result = left.join(right).where("key").equal_to("key").select(**selected)
    assert result._node.columnar
    return result.set_parallelism(parallelism)


def times(kind: str, left: int, right: int) -> int:
    """How often two records of a key are a pair."""
    if kind == "interval":
        return int(-4 <= right - left <= 7)
    return (
        sum(start <= left < start + 10 and start <= right < start + 10 for start in range(-5, 35, 5))
        if kind == "window"
        else 1
    )


def expected(script: list[Any], kind: str) -> Counter[Any]:
    values = [item.value for item in script if isinstance(item, Stamped)]
    pairs: Counter[Any] = Counter()
    for side, key, value, time in values:
        for other_side, other_key, other, other_time in values:
            if (side, other_side) == ("left", "right") and key == other_key:
                pairs[(key, value, other)] += times(kind, time, other_time)
    return +pairs


def results(name: str) -> Counter[Any]:
    found = [tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in ListSink.results(name)]
    ListSink.clear(name)
    return Counter(found)


@settings(max_examples=60)
@given(
    script=scripts(),
    kind=st.sampled_from(["interval", "window", "all time"]),
    parallelism=st.integers(1, 3),
    block_size=st.sampled_from([1, 2, 5, 100]),
    seed=st.integers(0, 2**16),
    crashes=st.lists(st.tuples(_POINTS, st.integers(1, 8)), max_size=2),
)
def test_a_job_gives_every_pair_once_however_it_is_run(
    script: list[Any], kind: str, parallelism: int, block_size: int, seed: int, crashes: list[tuple[CrashPoint, int]]
) -> None:
    name = f"joined-{next(_names)}"
    env = StreamExecutionEnvironment.get_execution_environment().set_max_parallelism(8)
    joined(env, script, kind, parallelism).sink_to(ListSink(name))
    job = replace(env._describe("joins"), job_id="job", settings=job_settings(block_size=block_size))
    runtime = EmbeddedJob(
        job,
        master_of(job, memory_storage()),
        schedule="random",
        seed=seed,
        max_in_flight=2,
        crashes=CrashPlan(crashes),
    )
    runtime.run()
    assert results(name) == expected(script, kind)


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("kind", ["interval", "window", "all time"])
def test_a_job_with_checkpoints_gives_every_pair_once_with_either_backend(
    tmp_path: Path, backend: str, kind: str
) -> None:
    script: list[Any] = []
    for number in range(300):
        side, time = ("left", "right")[number % 3 % 2], number * 7 % 31
        script += [Epoch()] if number % 60 == 59 else []
        script.append(Stamped((side, f"key {number % 11}", number, time), time))
    name = f"joined-{next(_names)}"
    env = StreamExecutionEnvironment.get_execution_environment(configured(tmp_path, {"state.backend.type": backend}))
    joined(env, script, kind, 2).sink_to(ListSink(name))
    env.execute("joins")
    assert results(name) == expected(script, kind)
    assert expected(script, kind)
