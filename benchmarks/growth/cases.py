"""What is measured: the cost of one thing at a size, for several sizes, and how fast it may grow.

`steepness` is the exponent of the law cost ∝ sizeˢ: 1 is linear, 2 quadratic, 0 constant. Measured ones are not whole, so each
bound leaves some room, and not enough for the next whole number.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from penstock.checkpoint.restore import decode_contents, encode_contents
from penstock.common import Configuration, WatermarkStrategy
from penstock.common.accumulators import ListAccumulator
from penstock.connectors.program import DiscardingSink
from penstock.datastream import MapFunction, StreamExecutionEnvironment
from penstock.functions import AggregateFunction, ProcessWindowFunction
from penstock.functions.state import ListStateDescriptor, MapStateDescriptor
from penstock.functions.window import EventTimeSessionWindows, TumblingEventTimeWindows
from penstock.operators.runtime_context import keyed_state
from penstock.operators.simple import MapOperator
from penstock.operators.window import WindowOperator
from penstock.operators.window_contents import AggregateContents, ListContents
from penstock.state.backend import OperatorState
from penstock.state.backends import StateSettings, keyspace_factory
from penstock.state.snapshot import SnapshotContents
from penstock.testing import Epoch, ScriptedSource
from penstock.testing.harness import OperatorHarness

CONSTANT: Final = 0.4
LINEAR: Final = 1.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One law. `measure` gives the cost at a size, in `unit`."""

    title: str
    size: str  # what is counted
    sizes: tuple[int, ...]
    unit: str
    measure: Callable[[int], float]
    steepness: float
    before: str  # what was measured before anybody looked


def _timed(run: Callable[[], object]) -> float:
    gc.collect()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _state(backend: str) -> OperatorState:
    return OperatorState("op", 128, keyspace_factory(StateSettings(backend=backend), 128)())


def _end_epoch(state: OperatorState) -> None:
    state.snapshot(full=False)
    state.fold(checkpointed=True)


def list_adds(backend: str, epochs: int) -> float:
    """One element an epoch to one list."""
    state = _state(backend)
    handle: Any = keyed_state(state, ListStateDescriptor("list"), lambda: 0)
    state.current_key = "k"

    def run() -> None:
        for number in range(epochs):
            handle.add({"n": number})
            _end_epoch(state)

    return _timed(run)


class _Count(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield len(list(elements))


def _windows(assigner: Any, contents: Any = None) -> OperatorHarness:
    operator = WindowOperator(
        selector=_first, assigner=assigner, contents=contents or ListContents(), function=None if contents else _Count()
    )
    return OperatorHarness(operator)


def _first(value: Any) -> Any:
    return value[0]


def _epoch_each(harness: OperatorHarness, epochs: int, step_ms: int) -> None:
    for number in range(epochs):
        harness.push(("k", {"n": number}), number * step_ms)
        harness.operator.end_epoch()
        _end_epoch(harness.state)


def window_lists(epochs: int) -> float:
    """One element an epoch to one window that keeps its elements."""
    return _timed(lambda: _epoch_each(_windows(TumblingEventTimeWindows(10**12, 0)), epochs, 1))


def long_session(epochs: int) -> float:
    """One element an epoch to one session that keeps its elements."""
    return _timed(lambda: _epoch_each(_windows(EventTimeSessionWindows(1000)), epochs, 1))


class _Sum(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator + value[1]

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a + acc_b


def open_sessions(sessions: int) -> float:
    """So many sessions of one key at once: they open, grow, and end."""
    harness = _windows(EventTimeSessionWindows(10), AggregateContents(_Sum()))

    def run() -> None:
        for extra in (0, 5):
            for start in range(0, sessions, 100):
                block = [(("k", n), n * 100 + extra) for n in range(start, min(start + 100, sessions))]
                harness.push_all(block)
                _end_epoch(harness.state)
        harness.end_input()

    return _timed(run)


def _map_of(backend: str, entries: int) -> tuple[OperatorState, Any]:
    state = _state(backend)
    handle: Any = keyed_state(state, MapStateDescriptor("map"), lambda: 0)
    state.current_key = "k"
    handle.put_all({f"key {n}": [n] for n in range(entries)})
    _end_epoch(state)
    return state, handle


def first_map_key(backend: str, entries: int) -> float:
    """Take the first key of a map, remove it, add another: a queue. The first listing is not counted."""
    state, handle = _map_of(backend, entries)
    next(iter(handle.keys()))

    def run() -> None:
        for number in range(20):
            handle.remove(next(iter(handle.keys())))
            handle.put(f"new {number}", [number])
            _end_epoch(state)

    return _timed(run) / 20 * 1000


class _Join(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        sides: tuple[list[Any], list[Any]] = ([], [])
        for _, side, number in elements:
            sides[side].append(number)
        return ((left, right) for left in sides[0] for right in sides[1])


class _Nowhere:
    """An output that keeps nothing."""

    def block(self, block: Any) -> None: ...
    def side(self, tag: str, block: Any) -> None: ...
    def watermark(self, timestamp: int) -> None: ...
    def idle(self, idle: bool) -> None: ...
    def marker(self, marker: Any) -> None: ...


def join_memory(records: int) -> float:
    """Peak memory of a window in which as many records of one side meet as many of the other."""
    operator = WindowOperator(
        selector=_first, assigner=TumblingEventTimeWindows(1000, 0), contents=ListContents(), function=_Join()
    )
    harness = OperatorHarness(operator)
    harness.push_all([(("k", side, n), n % 1000) for side in (0, 1) for n in range(records)])
    harness.operator.ctx.output = _Nowhere()
    return _peak(harness.end_input)


def timer_memory(timers: int) -> float:
    """Peak memory while windows of so many keys fire at once, beyond their state."""
    harness = _windows(TumblingEventTimeWindows(1000, 0), AggregateContents(_Fat()))
    harness.push_all([((n, n), 1) for n in range(timers)])
    harness.operator.ctx.output = _Nowhere()
    return _peak(harness.end_input)


class _Fat(_Sum):
    def get_result(self, accumulator: Any) -> Any:
        return "x" * 10_000


def _peak(run: Callable[[], object]) -> float:
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


class _Keeping(MapFunction):
    def open(self, runtime_context: Any) -> None:
        self.all = ListAccumulator()
        runtime_context.add_accumulator("all", self.all)

    def map(self, value: Any) -> Any:
        self.all.add(value)
        return value


def accumulated(epochs: int) -> float:
    """One element an epoch to a list accumulator."""
    harness = OperatorHarness(MapOperator(_Keeping()))

    def run() -> None:
        for number in range(epochs):
            harness.push(number).clear_output()
            _end_epoch(harness.state)

    return _timed(run)


def chain(operators: int) -> float:
    """A chain of so many operators, a thousand records."""
    env = StreamExecutionEnvironment.get_execution_environment(_embedded())
    stream = env.from_collection(list(range(1000)))
    for _ in range(operators):
        stream = stream.map(_next)

    def run() -> None:
        with stream.execute_and_collect() as results:
            assert sum(1 for _ in results) == 1000

    return _timed(run)


def _next(value: int) -> int:
    return value + 1


def _embedded() -> Configuration:
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    return config


def embedded_epochs(epochs: int) -> float:
    """A job of so many epochs on the embedded runtime, each a checkpoint in memory: a disk would be measured otherwise."""
    config = _embedded()
    config.set_string("execution.checkpointing.storage", "jobmanager")
    config.set_string("execution.checkpointing.interval", "0 ms")
    config.set_string("penstock.epoch.interval", "0 ms")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    script = [item for n in range(epochs) for item in (n, Epoch())]
    stream = env.from_source(ScriptedSource(script), WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    stream.key_by(_parity).map(_next).uid("next").sink_to(DiscardingSink())
    return _timed(lambda: env.execute("epochs"))


def _rocksdb_of(keys: int) -> OperatorState:
    state = _state("rocksdb")
    table = state.table("counts", "value")
    for start in range(0, keys, 20_000):
        for key in range(start, start + 20_000):
            table.put(key, (key, 0.5))
        state.fold(checkpointed=True)
    return state


def rocksdb_restore(keys: int) -> float:
    """From the bytes of a full snapshot to a database that can be read."""
    source = _rocksdb_of(keys)
    files = [encode_contents(SnapshotContents(tables=[table], gate=None)) for table in source.freeze(100_000)]
    state = _state("rocksdb")

    def run() -> None:
        for file in files:
            for table in decode_contents(file, "snapshot").tables:
                state.restore(table, range(128))
        state.restored()

    return _timed(run)


def rocksdb_changed(keys: int) -> float:
    """Snapshot and fold of an epoch that has changed a thousand keys; the best of five."""
    state = _rocksdb_of(keys)
    table = state.table("counts", "value")

    def run() -> None:
        encode_contents(SnapshotContents(tables=state.snapshot(full=False), gate=None))
        state.fold(checkpointed=True)

    times = []
    for number in range(5):
        for key in range(number, keys, keys // 1000):
            table.put(key, (number, 0.5))
        times.append(_timed(run))
    return min(times) * 1000


def _parity(value: int) -> int:
    return value % 2


CASES: Final[dict[str, Case]] = {
    "list": Case(
        title="an element an epoch to one list state",
        size="epochs",
        sizes=(1_000, 4_000, 16_000, 64_000),
        unit="s",
        measure=partial(list_adds, "hashmap"),
        steepness=LINEAR,
        before="257 ms each at 100,000, quadratic",
    ),
    "list-rocksdb": Case(
        title="an element an epoch to one list state, RocksDB",
        size="epochs",
        sizes=(1_000, 4_000, 16_000),
        unit="s",
        measure=partial(list_adds, "rocksdb"),
        steepness=LINEAR,
        before="85 ms each at 100,000, quadratic",
    ),
    "window-list": Case(
        title="an element an epoch to one window that keeps its elements",
        size="epochs",
        sizes=(1_000, 4_000, 16_000),
        unit="s",
        measure=window_lists,
        steepness=LINEAR,
        before="the whole list copied in each epoch, quadratic",
    ),
    "long-session": Case(
        title="an element an epoch to one session that keeps its elements",
        size="epochs",
        sizes=(1_000, 4_000, 16_000),
        unit="s",
        measure=long_session,
        steepness=LINEAR,
        before="the whole list copied in each epoch, quadratic",
    ),
    "open-sessions": Case(
        title="sessions of one key that are open at once",
        size="sessions",
        sizes=(500, 1_000, 4_000, 16_000),
        unit="s",
        measure=open_sessions,
        steepness=LINEAR,
        before="800: 4.6 s, 4,000: 66 s, quadratic",
    ),
    "map-keys": Case(
        title="first of the keys of a map, from which it is then removed",
        size="entries",
        sizes=(1_000, 10_000, 100_000),
        unit="ms",
        measure=partial(first_map_key, "hashmap"),
        steepness=CONSTANT,
        before="100,000: 112 ms, linear",
    ),
    "map-keys-rocksdb": Case(
        title="first of the keys of a map, from which it is then removed, RocksDB",
        size="entries",
        sizes=(1_000, 10_000, 100_000),
        unit="ms",
        measure=partial(first_map_key, "rocksdb"),
        steepness=CONSTANT,
        before="linear",
    ),
    "join-memory": Case(
        title="peak memory of a window in which n records meet n",
        size="n",
        sizes=(250, 500, 1_000),
        unit="MB",
        measure=join_memory,
        steepness=CONSTANT,
        before="6,000: 3.2 GB, quadratic",
    ),
    "timer-memory": Case(
        title="peak memory while windows fire at once, 10 kB each",
        size="windows",
        sizes=(4_000, 8_000, 32_000),
        unit="MB",
        measure=timer_memory,
        steepness=CONSTANT,
        before="all results at once, linear",
    ),
    "accumulator": Case(
        title="an element an epoch to a list accumulator",
        size="epochs",
        sizes=(1_000, 4_000, 16_000),
        unit="s",
        measure=accumulated,
        steepness=LINEAR,
        before="4,000: 0.37 s, s = 2.1",
    ),
    "chain": Case(
        title="a chain of operators, a thousand records",
        size="operators",
        sizes=(100, 400, 1_600),
        unit="s",
        measure=chain,
        steepness=LINEAR,
        before="RecursionError at some 250",
    ),
    "epochs": Case(
        title="a job of n epochs on the embedded runtime",
        size="epochs",
        sizes=(250, 500, 1_000, 2_000),
        unit="s",
        measure=embedded_epochs,
        steepness=LINEAR,
        before="538 epochs/s, after 11,000 of them 136",
    ),
    "rocksdb-restore": Case(
        title="a restore of n keys into RocksDB",
        size="keys",
        sizes=(20_000, 100_000, 500_000),
        unit="s",
        measure=rocksdb_restore,
        steepness=LINEAR,
        before="7 to 10 us each, linear",
    ),
    "rocksdb-changed": Case(
        title="a checkpoint of 1,000 changed keys of n in RocksDB",
        size="keys",
        sizes=(20_000, 100_000, 500_000),
        unit="ms",
        measure=rocksdb_changed,
        steepness=CONSTANT,
        before="constant",
    ),
}
