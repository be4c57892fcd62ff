"""A job goes on from an unaligned checkpoint at another parallelism: what was on the way goes where its key now is, once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from penstock.checkpoint.restore import chain_contents
from penstock.common import Types, WatermarkStrategy
from penstock.common.restart_strategy import RestartStrategies
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.functions import BroadcastProcessFunction, KeyedProcessFunction, RuntimeContext
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.driver.description import JobDescription
from penstock.driver.job_master import JobMaster
from penstock.errors import JobDefinitionError
from penstock.protocol.events import Data
from penstock.testing import BarrierMode, EmbeddedJob, Epoch, ListSink, ScriptedSource, Split
from tests.embedded.jobs import master_of, memory_storage

NUMBERS, KEYS, SPLITS, SINK = 240, 2, 3, "unaligned rescale"
NONE = WatermarkStrategy.no_watermarks()


class Fuse:
    """Fails the job when so many records have come to it."""

    left = 0

    @classmethod
    def burn(cls, value: Any) -> Any:
        cls.left -= 1
        if cls.left == 0:
            raise RuntimeError("as the test wants it")
        return value


class Counting(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield value[0], ctx.get_current_key(), self.count.value()


def script(splits: int) -> list[Any]:
    steps: list[Any] = []
    for n in range(NUMBERS):
        steps += [Split(str(n % splits)), (n, n % KEYS), *([Epoch()] if n % 12 == 11 else [])]
    return steps


Exchange = Callable[[DataStream[Any]], DataStream[Any]]
PAIR = Types.TUPLE([Types.LONG(), Types.LONG()])


EXCHANGES: dict[str, Exchange] = {
    "key_by": lambda stream: stream.key_by(lambda pair: pair[1]).map(lambda pair: (pair[0], pair[1])),
    "columns": lambda stream: (
        stream.map(lambda pair: pair, output_type=PAIR).key_by("f1").map(lambda pair: (pair[0], pair[1]))
    ),
    "rebalance": lambda stream: stream.rebalance().map(lambda pair: pair),
    "shuffle": lambda stream: stream.shuffle().map(lambda pair: pair),
    "global": lambda stream: stream.global_().map(lambda pair: pair),
    "custom": lambda stream: stream.partition_custom(lambda key, n: key % n, lambda p: p[1]).map(lambda p: p),
    "forward": lambda stream: stream.map(lambda pair: pair).start_new_chain(),
}

IN_ORDER = {"key_by", "columns", "global", "custom", "forward"}  # records of a key and a split go one way


def job_of(exchange: Exchange, parallelism: int) -> JobDescription:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism).set_max_parallelism(16)
    numbers = env.from_source(ScriptedSource(script(SPLITS)), NONE, "numbers").uid("numbers")
    keyed = exchange(numbers).uid("exchanged").map(Fuse.burn).uid("fuse").key_by(lambda pair: pair[1])
    keyed.process(Counting()).uid("counting").sink_to(ListSink(SINK)).uid("sink")
    return described(env)


def described(env: StreamExecutionEnvironment) -> JobDescription:
    job = env._describe("unaligned")
    return replace(
        job,
        job_id="unaligned",
        settings=replace(
            job.settings,
            checkpoint_interval_ms=0,
            block_size=3,
            restart=RestartStrategies.no_restart(),
            inline_threshold=1,
        ),
    )


def run(job: JobDescription, master: JobMaster, seed: int) -> None:
    apart = random.Random(seed).random() < 0.5
    EmbeddedJob(
        job, master, schedule="random", mode=BarrierMode.UNALIGNED, seed=seed, max_in_flight=2, apart=apart
    ).run()


def on_the_way(master: JobMaster) -> int:
    """Records that the newest checkpoint has on channels."""
    assert master.store is not None
    manifest = master.restored
    if manifest is None:
        return 0
    contents = (c for task in manifest.tasks for c in chain_contents(task, master.store.read_state))
    return sum(len(e.block) for c in contents for _, e in c.channel_state if isinstance(e, Data))


def reordered(results: list[Any]) -> list[tuple[int, int]]:
    """Pairs of numbers of one key and one split that were counted in another order than they were read in."""
    counted: dict[tuple[int, int], list[int]] = {}
    for number, key, _ in sorted(results, key=lambda result: result[2]):
        counted.setdefault((key, number % SPLITS), []).append(number)
    return [(a, b) for numbers in counted.values() for a, b in pairwise(numbers) if a > b]


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_what_was_on_the_way_is_neither_lost_nor_taken_twice(exchange: str) -> None:
    moved = 0
    for seed, (before, after) in enumerate([(3, 2), (2, 3), (1, 4), (4, 1), (2, 4), (1, 3), (5, 3)] * 2):
        ListSink.clear(SINK)
        storage = memory_storage()
        Fuse.left = 60 + 10 * seed
        job = job_of(EXCHANGES[exchange], before)
        master = master_of(job, storage)
        with pytest.raises(Exception, match="as the test wants it"):
            run(job, master, seed)
        moved += on_the_way(master)
        Fuse.left = -1
        resumed = job_of(EXCHANGES[exchange], after)
        run(resumed, master_of(resumed, storage), seed)
        results = ListSink.results(SINK)
        assert sorted(n for n, _, _ in results) == list(range(NUMBERS)), (before, after, seed)
        assert Counter(key for _, key, _ in results) == Counter(n % KEYS for n in range(NUMBERS))
        assert len({(key, count) for _, key, count in results}) == NUMBERS, "each count of a key once"
        if exchange in IN_ORDER:
            assert reordered(results) == [], (before, after, seed)
    assert moved > 20, "nothing was on the way: the test shows nothing"


class Rules(BroadcastProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        yield Fuse.burn(value)


def test_broadcast_records_on_the_way_are_refused_at_another_parallelism() -> None:
    def job(parallelism: int) -> JobDescription:
        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(parallelism).set_max_parallelism(16)
        rules = MapStateDescriptor("rules", Types.INT(), Types.INT())
        numbers, others = (
            env.from_source(ScriptedSource(script(SPLITS)), NONE, name).uid(name).rebalance()
            for name in ("numbers", "others")
        )
        both = numbers.connect(others.broadcast(rules)).process(Rules()).uid("rules")
        both.sink_to(ListSink(SINK)).uid("sink")
        return described(env)

    for seed in range(20):
        ListSink.clear(SINK)
        storage, Fuse.left, first = memory_storage(), 150, job(2)
        master = master_of(first, storage)
        with pytest.raises(Exception, match="as the test wants it"):
            run(first, master, seed)
        manifest, store = master.restored, master.store
        Fuse.left = -1
        assert store is not None
        broadcast = manifest is not None and any(
            isinstance(event, Data) and channel >= 2
            for task in manifest.tasks
            for contents in chain_contents(task, store.read_state)
            for channel, event in contents.channel_state
        )
        if broadcast:
            other = job(3)
            with pytest.raises(JobDefinitionError, match="broadcast records that were on their way"):
                run(other, master_of(other, storage), seed)
            run(first, master_of(first, storage), seed)  # at the same parallelism it goes on
            return
    raise AssertionError("no broadcast record was on the way: the test shows nothing")
