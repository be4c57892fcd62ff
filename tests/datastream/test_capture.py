"""What is handed over counts as it is at the call, whatever the program does to it before the job runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from penstock.common import Configuration, WatermarkStrategy
from penstock.common.time import Time
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction, MapFunction, SinkFunction
from penstock.datastream.window import CountTrigger, TumblingEventTimeWindows, TumblingProcessingTimeWindows
from penstock.errors import JobDefinitionError
from penstock.functions.window.evictors import CountEvictor
from penstock.testing import ListSink

HERE = Path(__file__)


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    return StreamExecutionEnvironment.get_execution_environment(config)


def _collected(stream: DataStream) -> list[Any]:
    return list(stream.execute_and_collect())


def test_functions_made_in_a_loop_keep_the_value_of_their_turn(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection([10])
    outs = []
    for i in range(3):
        outs.append(stream.map(lambda v: v + i))  # noqa: B023 - this is the point
    assert sorted(_collected(outs[0].union(*outs[1:]))) == [10, 11, 12]


class Settings:
    """What the function of each verb looks at; the test changes it after the call."""

    def __init__(self) -> None:
        self.by = 1

    def add(self, value: int) -> int:
        return value + self.by

    def keep(self, value: int) -> bool:
        return value >= self.by

    def twice(self, value: int) -> list[int]:
        return [value, value + self.by]

    def sum(self, one: int, other: int) -> int:
        return one + other + self.by

    def modulo(self, value: int) -> int:
        return value % self.by

    def to_first(self, key: int, partitions: int) -> int:
        return self.by - 1


class Adds(MapFunction):
    def __init__(self) -> None:
        self.by = 1

    def map(self, value: int) -> int:
        return value + self.by


class Stateful(KeyedProcessFunction):
    def __init__(self) -> None:
        self.by = 1

    def process_element(self, value: int, ctx: Any) -> Iterable[Any]:
        yield ctx.get_current_key(), value + self.by


VERBS: dict[str, tuple[Callable[[DataStream, Settings], DataStream], list[Any]]] = {
    "map": (lambda s, f: s.map(f.add), [2, 3, 4]),
    "filter": (lambda s, f: s.filter(f.keep), [1, 2, 3]),
    "flat_map": (lambda s, f: s.flat_map(f.twice), [1, 2, 2, 3, 3, 4]),
    "reduce": (lambda s, f: s.key_by(lambda v: 0).reduce(f.sum), [1, 4, 8]),
    "key_by": (lambda s, f: s.key_by(f.modulo).process(Stateful()), [(0, 2), (0, 3), (0, 4)]),
    "partition_custom": (lambda s, f: s.partition_custom(f.to_first, lambda v: v).map(lambda v: v), [1, 2, 3]),
    "count_window": (lambda s, f: s.key_by(f.modulo).count_window(3).reduce(f.sum), [8]),
}


@pytest.mark.parametrize("verb", VERBS)
def test_an_object_changed_after_the_call_counts_as_it_was(env: StreamExecutionEnvironment, verb: str) -> None:
    build, expected = VERBS[verb]
    settings = Settings()
    stream = build(env.from_collection([1, 2, 3]), settings)
    settings.by = 1000
    assert sorted(_collected(stream)) == expected


def test_function_objects_sources_and_sinks_too(env: StreamExecutionEnvironment) -> None:
    function, offset, sink = Adds(), [1], ListSink("captured")
    ListSink.clear("captured")
    source = DataGeneratorSource(lambda index: index + offset[0], 3)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").map(function)
    stream.sink_to(sink)
    function.by = offset[0] = 1000
    sink.name = "changed"
    env.execute()
    assert sorted(ListSink.results("captured")) == [2, 3, 4]


def test_a_collection_counts_as_it_was(env: StreamExecutionEnvironment) -> None:
    records = [{"n": 1}, {"n": 2}]
    stream = env.from_collection(records)
    records[0]["n"] = 1000
    records.append({"n": 3})
    assert _collected(stream) == [{"n": 1}, {"n": 2}]


class Stamps(TimestampAssigner):
    def __init__(self) -> None:
        self.by = 1

    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value) * self.by


def test_assigners_triggers_and_evictors_count_as_they_were(env: StreamExecutionEnvironment) -> None:
    stamps, window = Stamps(), TumblingEventTimeWindows.of(Time.milliseconds(10))
    trigger, evictor = CountTrigger.of(2), CountEvictor.of(1)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(stamps)
    timed = env.from_collection([1, 2, 3, 14, 15]).assign_timestamps_and_watermarks(strategy)
    windows = timed.key_by(lambda v: 0).window(window).trigger(trigger).evictor(evictor)
    stamps.by, window._size, trigger._window_size, evictor._max_count = 1000, 1, 1, 1000
    assert _collected(windows.reduce(lambda a, b: a + b)) == [2, 15]


# -------------------------------------------------------------------- what cannot travel


class _Locked(MapFunction, KeyedProcessFunction, SinkFunction):
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def map(self, value: Any) -> Any:
        return value

    def __call__(self, *values: Any) -> Any:
        return values

    def process_element(self, value: Any, ctx: Any) -> Any:
        return ()

    def invoke(self, value: Any, context: Any) -> None:
        return None


class _LockedTrigger(CountTrigger[Any, Any]):
    def __init__(self) -> None:
        super().__init__(1)
        self.lock = threading.Lock()


REFUSED: dict[str, Callable[[StreamExecutionEnvironment, DataStream], Any]] = {
    "operator 'Map'": lambda env, s: s.map(_Locked()),
    "operator 'Filter'": lambda env, s: s.filter(_Locked()),
    "operator 'KeyedProcess'": lambda env, s: s.key_by(lambda v: v).process(_Locked()),
    "the key selector of key_by": lambda env, s: s.key_by(_Locked()),
    "the partitioner or key selector": lambda env, s: s.partition_custom(_Locked(), lambda v: v),
    "the key selector of where": lambda env, s: s.join(s).where(_Locked()),
    "the key selector of equal_to": lambda env, s: s.join(s).where(lambda v: v).equal_to(_Locked()),
    "the trigger _LockedTrigger": lambda env, s: s.window_all(
        TumblingProcessingTimeWindows.of(Time.seconds(1))
    ).trigger(_LockedTrigger()),
    "operator 'Sink: _Locked'": lambda env, s: s.add_sink(_Locked()),
    "operator 'Collection Source'": lambda env, s: env.from_collection([threading.Lock()]),
}


@pytest.mark.parametrize("named", REFUSED)
def test_what_cannot_travel_is_refused_at_the_call_and_the_line_comes_first(
    env: StreamExecutionEnvironment, named: str
) -> None:
    stream = env.from_collection([1])
    with pytest.raises(JobDefinitionError, match=r"lock.*open\(\)") as raised:
        REFUSED[named](env, stream)
    message = str(raised.value)
    place, _, rest = message.partition(": ")
    file, _, line = place.rpartition(":")
    assert file == __file__
    assert (
        "_Locked" in HERE.read_text().splitlines()[int(line) - 1]
        or "Lock()" in HERE.read_text().splitlines()[int(line) - 1]
    )
    assert rest.startswith(f"{named}")


# -------------------------------------------------------------------- what belongs to the program


class Program:
    """Many jobs are written like this: every function is a method, and so refers to the environment and the streams."""

    def __init__(self, env: StreamExecutionEnvironment) -> None:
        self.env = env
        self.stream = env.from_collection([0])

    def increment(self, value: int) -> int:
        return value + 1

    def width(self, value: int) -> int:
        return value + self.env.get_parallelism()

    def again(self, value: int) -> Any:
        return self.stream.map(lambda v: v)


def test_functions_that_hold_the_program_do_not_carry_it_with_them(env: StreamExecutionEnvironment) -> None:
    program = Program(env)
    for _ in range(9):  # a function that carried all before it would be twice as large as the last
        program.stream = program.stream.map(program.increment)
    assert len(cloudpickle.dumps(program.stream._node.operator)) < 10_000
    assert _collected(program.stream) == [9]


@pytest.mark.parametrize(
    ("method", "named"),
    [("width", "'get_parallelism' of the StreamExecutionEnvironment"), ("again", "'map' of the DataStream")],
)
def test_a_function_that_uses_the_program_is_told_so(env: StreamExecutionEnvironment, method: str, named: str) -> None:
    program = Program(env)
    stream = program.stream.map(getattr(program, method))
    with pytest.raises(JobDefinitionError, match=f"{named}, which describes the job"):
        _collected(stream)
