"""The jobs that are run: a few branches over two inputs, each with an answer that does not depend on the order of arrival.

A `Program` stays what it is for a whole run; a `Version` is how one driver runs it: at which parallelism, with its inputs in
which order, with an operator more or an input less.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.common import Configuration, Duration, Time, WatermarkStrategy
from penstock.common.restart_strategy import RestartStrategies
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import DataStream, OutputTag, StreamExecutionEnvironment
from penstock.datastream.functions import (
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
)
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from penstock.driver.description import JobDescription
from penstock.protocol.gate import BarrierMode
from penstock.testing.simulate import outside
from penstock.testing.simulate.inputs import ODD, PLAIN, ArrivingSource, Input, key_of, uneven
from penstock.testing.simulate.oracle import GAP_MS, HOPS, REACH_MS, WINDOW_MS, timer_of

OF_ONE_STREAM: Final = ("windows", "counts", "prefixes", "sessions", "loops")
OF_BOTH: Final = ("pairs", "rules")
WIDTHS: Final = (1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4, 5, 7)  # wide jobs cost time


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What a run is about."""

    world: str
    inputs: tuple[Input, Input]
    branches: tuple[str, ...]
    idleness_ms: int | None
    lateness_ms: int
    bulky: int  # see OutsideSink
    backend: str
    mode: BarrierMode
    settings: dict[str, Any]

    @property
    def fixed(self) -> bool:
        """What was on the way at an unaligned barrier can only go on to the same subtasks: the graph has to stay as it is."""
        return self.mode is BarrierMode.UNALIGNED

    def describe(self) -> str:
        return (
            f"branches {', '.join(self.branches)}; {self.mode.value}, {self.backend}; idle after {self.idleness_ms} ms, "
            f"{self.lateness_ms} ms late is in time"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """How one driver runs the program."""

    parallelism: int
    turned: bool = False  # b.union(a)
    chained: bool = True
    added: bool = False  # an operator that was not there, or is not there any more
    removed: bool = False  # the input b is gone
    max_records: int | None = None
    window_ms: int = WINDOW_MS
    reach_ms: int = REACH_MS

    def describe(self) -> str:
        inputs = "a" if self.removed else "b.union(a)" if self.turned else "a.union(b)"
        return (
            f"parallelism {self.parallelism}, {inputs}{' and one operator more' if self.added else ''}, "
            f"{'' if self.chained else 'not '}chained, {self.max_records or 'any number of'} records an epoch"
        )


def any_program(world: str, rng: random.Random) -> Program:
    mode = rng.choice([BarrierMode.EXACTLY_ONCE] * 7 + [BarrierMode.UNALIGNED] * 2 + [BarrierMode.AT_LEAST_ONCE])
    labels = ODD if rng.random() < 0.1 else PLAIN
    branches = rng.sample(OF_ONE_STREAM, rng.choice([1, 1, 2]))
    if rng.random() < 0.25 and mode is not BarrierMode.AT_LEAST_ONCE:
        branches.append(rng.choice(OF_BOTH))
    if mode is BarrierMode.UNALIGNED and "loops" in branches:
        branches.remove("loops")
    return Program(
        world=world,
        inputs=(uneven("a", rng, labels), uneven("b", rng, labels)),
        branches=tuple(branches or ["counts"]),
        idleness_ms=rng.choice([None, None, 600]),
        lateness_ms=rng.choice([0, 0, 900]),
        bulky=rng.choice([0, 1, 3]),
        backend=rng.choices(["hashmap", "rocksdb"], [149, 1])[0],
        mode=mode,
        settings={
            "mode": "AT_LEAST_ONCE" if mode is BarrierMode.AT_LEAST_ONCE and rng.random() < 0.5 else "EXACTLY_ONCE",
            "checkpoint_interval_ms": rng.choice([0, 0, 500]),
            "block_size": rng.choice([1, 3, 50]),
            "inline_threshold": rng.choice([0, 0, 20 * 1024]),
            "compact_after": rng.choice([2, 10]),
            "retained": rng.choice([1, 2]),
            "tolerable_checkpoint_failures": rng.choice([0, 1, 3]),
            "max_concurrent_checkpoints": rng.choice([1, 1, 3]),
            "checkpoint_timeout_ms": 20_000,  # of real time, for which a sound job never waits
            "incremental": rng.choice([True, True, False]),
            "restart": RestartStrategies.fixed_delay_restart(20, 10),
        },
    )


def any_version(program: Program, rng: random.Random, before: Version | None) -> Version:
    """The next driver's. What it did not draw it does not have: each differs from the one before at random."""
    parallelism, max_records = rng.choice(WIDTHS), rng.choice([None, None, 4, 9])
    turned, chained, added, removed = (rng.random() < p for p in (0.5, 0.85, 0.2, 0.1))
    if program.fixed and before is not None:
        return replace(before, max_records=max_records)
    # A loop's operators are known by their place in the program, and two streams remain two.
    added = added and "loops" not in program.branches
    removable = program.mode is BarrierMode.EXACTLY_ONCE and not {"loops", *OF_BOTH} & set(program.branches)
    removed = before is not None and (before.removed or removed) and removable
    return Version(
        parallelism=parallelism,
        turned=turned,
        chained=chained,
        added=added,
        removed=removed,
        max_records=max_records,
    )


def sinks_of(branches: tuple[str, ...]) -> list[str]:
    """The sinks of a job: one for each branch, and one for what is late in its windows."""
    return [*branches, *(f"late {branch}" for branch in branches if branch in ("windows", "sessions"))]


def job_of(
    program: Program, version: Version, *, lineage: str, path: str | None, local_dir: str | None
) -> JobDescription:
    """`lineage`: what is committed under one name. `path`: a savepoint that the job starts from."""
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    config.set_string("state.backend.type", program.backend)
    if local_dir is not None:
        config.set_string("state.backend.rocksdb.localdir", local_dir)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(version.parallelism).set_max_parallelism(8)
    if not version.chained:
        env.disable_operator_chaining()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Stamp())
    if program.idleness_ms is not None:
        strategy = strategy.with_idleness(Duration.of_millis(program.idleness_ms))
    inputs = [
        env.from_source(ArrivingSource(program.world, brings), strategy, brings.name).uid(brings.name)
        for brings in program.inputs
        if not (version.removed and brings.name == "b")
    ]
    streams = inputs[::-1] if version.turned else inputs
    stream = streams[0].union(*streams[1:]) if streams[1:] else streams[0]
    if version.added:
        stream = stream.map(_same).uid("added")

    def sink(results: DataStream, name: str) -> None:
        results.sink_to(outside.OutsideSink(program.world, f"{lineage} {name}", program.bulky)).uid(f"{name}-out")

    for branch in program.branches:
        _BRANCHES[branch](program, version, stream, inputs, sink)
    job = env._describe("simulated")
    settings = replace(
        job.settings,
        recovery_path=path,
        epoch_max_records=version.max_records,
        ignore_unclaimed_state=version.removed,
        **program.settings,
    )
    return replace(job, job_id=lineage, settings=settings)


# ---------------------------------------------------------------- functions


class _Stamp(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[2])


def _same(record: Any) -> Any:
    return record


class _Ids(ProcessWindowFunction[Any, Any, Any, Any]):
    """Changes what it is given when it has told: what it does to its elements must not matter."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        gathered = list(elements)
        yield gathered[0][0], context.window().start, tuple(sorted(element[1] for element in gathered))


class _Counts(KeyedProcessFunction):
    """Keeps a list and changes it when it is kept: state holds values, not objects."""

    def __init__(self, world: str) -> None:
        self._world = world

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))
        self.label = runtime_context.get_state(ValueStateDescriptor("label"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        held = self.count.value() or [0]
        held[0] += 1
        count = held[0]
        self.count.update(held)
        held[0] = -1
        self.label.update(value[0])
        ctx.timer_service().register_event_time_timer(timer_of(value[2]))
        yield "count", value[0], count, value[1]

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield "timer", self.label.value(), timestamp

    def close(self) -> None:
        outside.world(self._world).is_closed()


class _Pair(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        yield left[1], right[1]


_RULES: Final = MapStateDescriptor("rules")


class _Rules(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        return ()

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        rules = ctx.get_broadcast_state(_RULES)
        rules.put(value[1], True)
        yield value[1], len(list(rules.keys()))


def _grown(left: Any, right: Any) -> Any:
    left[1].extend(right[1])
    return left


# ---------------------------------------------------------------- branches

_Sink = Callable[[DataStream, str], None]


def _windows(program: Program, version: Version, stream: DataStream, inputs: list[DataStream], sink: _Sink) -> None:
    _fire(program, stream, "windows", TumblingEventTimeWindows.of(Time.milliseconds(version.window_ms)), sink)


def _sessions(program: Program, version: Version, stream: DataStream, inputs: list[DataStream], sink: _Sink) -> None:
    _fire(
        replace(program, lateness_ms=0),
        stream,
        "sessions",
        EventTimeSessionWindows.with_gap(Time.milliseconds(GAP_MS)),
        sink,
    )


def _fire(program: Program, stream: DataStream, name: str, assigner: Any, sink: _Sink) -> None:
    late = OutputTag(f"late {name}")
    windows = stream.key_by(key_of).window(assigner).allowed_lateness(program.lateness_ms).side_output_late_data(late)
    fired = windows.process(_Ids()).uid(name)
    sink(fired, name)
    sink(fired.get_side_output(late), f"late {name}")


def _counts(program: Program, version: Version, stream: DataStream, inputs: list[DataStream], sink: _Sink) -> None:
    sink(stream.key_by(key_of).process(_Counts(program.world)).uid("counts"), "counts")


def _prefixes(program: Program, version: Version, stream: DataStream, inputs: list[DataStream], sink: _Sink) -> None:
    listed = stream.map(lambda record: (record[0], [record[1]])).uid("listed")
    sink(listed.key_by(key_of).reduce(_grown).uid("prefixes"), "prefixes")


def _loops(program: Program, version: Version, stream: DataStream, inputs: list[DataStream], sink: _Sink) -> None:
    begun = stream.map(lambda record: (0, record[1])).uid("begun").iterate()
    step = begun.map(lambda token: (token[0] + 1, token[1])).uid("step")
    begun.close_with(step.filter(lambda token: token[0] < HOPS).uid("again"))
    sink(step.filter(lambda token: token[0] >= HOPS).uid("through"), "loops")


def _pairs(program: Program, version: Version, stream: DataStream, inputs: list[DataStream], sink: _Sink) -> None:
    a, b = (single.key_by(key_of) for single in inputs)
    reach = version.reach_ms
    joined = a.interval_join(b).between(Time.milliseconds(-reach), Time.milliseconds(reach))
    sink(joined.process(_Pair()).uid("pairs"), "pairs")


def _rules(program: Program, version: Version, stream: DataStream, inputs: list[DataStream], sink: _Sink) -> None:
    a, b = inputs
    sink(a.key_by(key_of).connect(b.broadcast(_RULES)).process(_Rules()).uid("rules"), "rules")


_BRANCHES: Final = {
    "windows": _windows,
    "sessions": _sessions,
    "counts": _counts,
    "prefixes": _prefixes,
    "loops": _loops,
    "pairs": _pairs,
    "rules": _rules,
}
