"""Evictors and times to live in whole jobs: cuts, parallelism, interleaving and crashes do not matter."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Time, Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import (
    DataStream,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from penstock.datastream.state import StateTtlConfig, ValueStateDescriptor
from penstock.datastream.window import CountEvictor, Evictor, TimeEvictor, TumblingEventTimeWindows
from penstock.driver.job_master import JobMaster
from penstock.testing import Epoch, ListSink, ScriptedSource, Split, Stamped
from tests.embedded import jobs
from tests.embedded.jobs import key_of
from tests.embedded.runs import Run
from tests.embedded.two_streams import records_of, run_job, runs, scripts

SIZE = 8


class Numbers(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        found = sorted(element[1] for element in elements)
        yield key, context.window().start, tuple(found)


def evicting(evictor: Evictor[Any, Any]) -> Callable[[DataStream, DataStream], DataStream]:
    return lambda a, b: (
        a.union(b).key_by(key_of).window(TumblingEventTimeWindows(SIZE, 0)).evictor(evictor).process(Numbers())
    )


@settings(max_examples=40)
@given(scripts(), scripts(), runs, st.integers(1, SIZE))
def test_a_time_evictor_leaves_the_same_whatever_the_order_of_arrival(
    first: list[Any], second: list[Any], run: Run, keep: int
) -> None:
    results, _ = run_job(first, second, run, evicting(TimeEvictor.of(Time.milliseconds(keep))))
    windows: dict[Any, list[tuple[int, int]]] = {}
    for key, number, time in [*records_of(first), *records_of(second)]:
        windows.setdefault((key, time // SIZE * SIZE), []).append((time, number))
    expected = []
    for (key, start), held in windows.items():
        newest = max(time for time, _ in held)
        expected.append((key, start, tuple(sorted(number for time, number in held if time > newest - keep))))
    assert results == sorted(expected)


@settings(max_examples=40)
@given(scripts(), scripts(), runs, st.integers(1, 3))
def test_a_count_evictor_leaves_as_many_and_nothing_foreign(
    first: list[Any], second: list[Any], run: Run, keep: int
) -> None:
    results, _ = run_job(first, second, run, evicting(CountEvictor.of(keep)))
    windows: dict[Any, list[int]] = {}
    for key, number, time in [*records_of(first), *records_of(second)]:
        windows.setdefault((key, time // SIZE * SIZE), []).append(number)
    assert sorted((key, start) for key, start, _ in results) == sorted(windows)
    for key, start, found in results:
        held = list(windows[key, start])
        assert len(found) == min(keep, len(held))
        for number in found:
            held.remove(number)  # fails for one that is not, or no longer, there


# -------------------------------------------------------------------- time to live

TTL_MS = 20


class Alive(KeyedProcessFunction):
    """For each record: the key's how manieth it is, when it was processed, and how many the state with a time to live has
    counted. The reference needs nothing else, so it does not matter which moments the clock gave."""

    def __init__(self, on_read: bool) -> None:
        self.on_read = on_read

    def open(self, runtime_context: RuntimeContext) -> None:
        builder = StateTtlConfig.new_builder(Time.milliseconds(TTL_MS))
        builder = builder.update_ttl_on_read_and_write() if self.on_read else builder.update_ttl_on_create_and_write()
        descriptor = ValueStateDescriptor("alive", Types.LONG())
        descriptor.enable_time_to_live(builder.build())
        self.alive = runtime_context.get_state(descriptor)
        self.all = runtime_context.get_state(ValueStateDescriptor("all", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        ordinal = (self.all.value() or 0) + 1
        self.all.update(ordinal)
        seen = self.alive.value() or 0
        write = ordinal % 3 != 0  # every third record only reads
        if write:
            self.alive.update(seen + 1)
        yield value[0], ordinal, ctx.timer_service().current_processing_time(), seen


def expected_counts(moments: list[int], on_read: bool) -> list[int]:
    counts, alive, touched = [], 0, 0
    for ordinal, now in enumerate(moments, start=1):
        if alive and now >= touched + TTL_MS:
            alive = 0
        counts.append(alive)
        write = ordinal % 3 != 0
        if write:
            alive += 1
        if write or (on_read and alive):
            touched = now
    return counts


def run_with_ttl(script: list[Any], run: Run, on_read: bool, clock: Callable[[], int]) -> tuple[list[Any], int]:
    name = f"ttl-{run.seed}-{on_read}"
    ListSink.clear(name)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(run.sources).set_max_parallelism(8)
    stream = env.from_source(ScriptedSource(script), WatermarkStrategy.no_watermarks(), "source")
    stream.key_by(key_of).process(Alive(on_read)).set_parallelism(run.parallelism).sink_to(ListSink(name))
    job = replace(env._describe("ttl"), job_id="job", settings=jobs.settings())
    runtime = run.of(job, JobMaster(job, jobs.memory_storage(), clock=clock))
    runtime.run()
    results = ListSink.results(name)
    ListSink.clear(name)
    return results, runtime.crashes


def ticking(seed: int) -> Callable[[], int]:
    """A clock that sometimes stands and sometimes leaps past the time to live."""
    steps, now = random.Random(seed), [1_000]

    def read() -> int:
        now[0] += steps.choice([0, 0, 1, 2, TTL_MS // 2])
        return now[0]

    return read


def check_ttl(script: list[Any], run: Run, on_read: bool) -> int:
    results, crashes = run_with_ttl(script, run, on_read, ticking(run.seed))
    by_key: dict[str, dict[int, tuple[int, int]]] = {}
    for key, ordinal, now, seen in results:
        assert ordinal not in by_key.setdefault(key, {}), "a record was counted twice"
        by_key[key][ordinal] = (now, seen)
    wanted = sorted(record[0] for record in records_of(script))
    assert sorted(key for key, found in by_key.items() for _ in found) == wanted
    for found in by_key.values():
        assert sorted(found) == list(range(1, len(found) + 1))
        inorder = [found[ordinal] for ordinal in sorted(found)]
        assert [seen for _, seen in inorder] == expected_counts([now for now, _ in inorder], on_read)
    return crashes


@settings(max_examples=80)
@given(scripts(), runs, st.booleans())
def test_state_lives_so_long_after_its_last_use_crash_or_not(script: list[Any], run: Run, on_read: bool) -> None:
    check_ttl(script, run, on_read)


def test_the_crashes_and_the_expiry_of_these_tests_do_happen() -> None:
    script: list[Any] = [Split("x")]
    for number in range(12):
        script += [Stamped(("a", number, number), number), Epoch()]
    run = Run(parallelism=2, seed=3, crashes=[("process", 5), ("after-snapshot", 9)])
    assert check_ttl(script[:-1], run, on_read=False) == 2
    results, _ = run_with_ttl(script[:-1], run, False, ticking(3))
    assert len({seen for *_, seen in results}) > 1
    assert [seen for *_, seen in results].count(0) > 1, "nothing expired: the clock does not leap far enough"
