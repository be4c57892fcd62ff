"""Joins and broadcast state in whole jobs, under random interleavings and crashes: the same answer every time."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import KeyedBroadcastProcessFunction, KeyedCoProcessFunction, StreamExecutionEnvironment
from penstock.datastream.functions import RuntimeContext
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor
from penstock.driver.description import JobDescription
from penstock.testing import BarrierMode, CrashPlan, EmbeddedJob, Epoch, ListSink, ScriptedSource, Split
from tests.embedded.jobs import KEYS, key_of, master_of, memory_storage, settings

RULES = MapStateDescriptor("rules")


class Join(KeyedCoProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.left = runtime_context.get_list_state(ListStateDescriptor("left"))
        self.right = runtime_context.get_list_state(ListStateDescriptor("right"))

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        self.left.add(value[1])
        return [(value[0], value[1], other) for other in self.right.get()]

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        self.right.add(value[1])
        return [(value[0], other, value[1]) for other in self.left.get()]


class Sum(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    """Broadcast numbers add up in every subtask; each key reports the sum once event time has come to its end."""

    def process_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> None:
        ctx.timer_service().register_event_time_timer(2**62)

    def process_broadcast_element(self, value: Any, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        rules = ctx.get_broadcast_state(RULES)
        rules.put("sum", (rules.get("sum") or 0) + value[1])

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.get_current_key(), ctx.get_broadcast_state(RULES).get("sum")


def _script(seed: int) -> list[Any]:
    rng = random.Random(seed)
    script: list[Any] = []
    for epoch in range(3):
        for split in "xy":
            script.append(Split(split))
            script += [(rng.choice(KEYS), rng.randrange(100)) for _ in range(4)]
        if epoch < 2:
            script.append(Epoch())
    return script


LEFT, RIGHT = _script(1), _script(2)


def _values(script: list[Any]) -> list[Any]:
    return [item for item in script if isinstance(item, tuple)]


def _job(kind: str, name: str, sources: int, parallelism: int) -> JobDescription:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(sources).set_max_parallelism(8)
    left = env.from_source(ScriptedSource(LEFT), WatermarkStrategy.no_watermarks(), "left")
    right = env.from_source(ScriptedSource(RIGHT), WatermarkStrategy.no_watermarks(), "right")
    if kind == "join":
        result = left.connect(right).key_by(key_of, key_of).process(Join())
    else:
        result = left.key_by(key_of).connect(right.broadcast(RULES)).process(Sum())
    result.set_parallelism(parallelism).sink_to(ListSink(name))
    return replace(env._describe("two inputs"), job_id="job", settings=settings())


def _run(seed: int, mode: BarrierMode, kind: str) -> tuple[list[Any], int]:
    rng = random.Random(seed)
    name = f"two-inputs-{kind}-{mode.value}-{seed}"
    job = _job(kind, name, rng.randint(1, 3), rng.randint(1, 3))
    crashes = CrashPlan([("process", rng.randint(1, 12)), ("after-snapshot", rng.randint(1, 12))])
    runtime = EmbeddedJob(
        job,
        master_of(job, memory_storage()),
        schedule="random",
        seed=seed,
        mode=mode,
        channel_capacity=rng.choice([1, 3, None]),
        max_in_flight=rng.randint(1, 3),
        crashes=crashes,
    )
    runtime.run()
    results = sorted(ListSink.results(name))
    ListSink.clear(name)
    return results, runtime.crashes


def _expected(kind: str) -> list[Any]:
    if kind == "join":
        return sorted((a, x, y) for a, x in _values(LEFT) for b, y in _values(RIGHT) if a == b)
    total = sum(number for _, number in _values(RIGHT))
    return sorted((key, total) for key in {key for key, _ in _values(LEFT)})


@pytest.mark.parametrize("mode", [BarrierMode.EXACTLY_ONCE, BarrierMode.UNALIGNED])
def test_a_join_gives_every_pair_once_whatever_the_interleaving_and_wherever_it_crashes(mode: BarrierMode) -> None:
    expected = _expected("join")
    runs = [_run(seed, mode, "join") for seed in range(40)]
    assert [seed for seed, (results, _) in enumerate(runs) if results != expected] == []
    assert sum(crashes for _, crashes in runs) > 40


@pytest.mark.parametrize("mode", [BarrierMode.EXACTLY_ONCE, BarrierMode.UNALIGNED])
def test_every_subtask_adds_up_every_broadcast_record_exactly_once(mode: BarrierMode) -> None:
    expected = _expected("broadcast")
    runs = [_run(seed, mode, "broadcast") for seed in range(40)]
    assert [seed for seed, (results, _) in enumerate(runs) if results != expected] == []
    assert sum(crashes for _, crashes in runs) > 40


@pytest.mark.parametrize("kind", ["join", "broadcast"])
@pytest.mark.parametrize("chain", [[1, 3], [3, 1], [2, 3, 2]])
def test_a_job_of_two_streams_goes_on_at_another_parallelism(kind: str, chain: list[int]) -> None:
    name, storage = f"two-inputs-rescaled-{kind}-{chain}", memory_storage()
    for index, parallelism in enumerate(chain):
        job = _job(kind, name, 2, parallelism)
        runtime = EmbeddedJob(job, master_of(job, storage))
        if index < len(chain) - 1:
            runtime.master.on_report = lambda report, runtime=runtime: runtime.cancel()
        runtime.run()
        assert runtime.master.finished == (index == len(chain) - 1)
    results = sorted(ListSink.results(name))
    ListSink.clear(name)
    assert results == _expected(kind)
