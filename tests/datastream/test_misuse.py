"""A program that cannot work is refused while it is built, with an error that says what is wrong and where."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from penstock.common import Configuration, Duration, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import (
    AggregateFunction,
    AllWindowFunction,
    DataStream,
    KeyedProcessFunction,
    KeyedStream,
    OutputTag,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    TimeWindow,
    Trigger,
    TriggerResult,
)
from penstock.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from penstock.datastream.window import (
    CountEvictor,
    CountTrigger,
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    Evictor,
    GlobalWindows,
    SlidingEventTimeWindows,
    TimestampedValue,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.datastream.windowed_stream import WindowedStream
from penstock.errors import JobDefinitionError, PenstockError
from penstock.testing.harness import OperatorHarness

HERE = re.escape(__file__)
TEN = TumblingEventTimeWindows.of(Time.milliseconds(10))


class Stamp(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


STAMPED = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Stamp())

SILENT = WatermarkStrategy.no_watermarks()


class Collect(ProcessWindowFunction[Any, Any, Any, TimeWindow]):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        yield list(elements)


class Count(AggregateFunction):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, a: int, b: int) -> int:
        return a + b


class Keep(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value


class Pairs(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterable[Any]:
        yield left, right


@pytest.fixture
def env() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment(Configuration())


@pytest.fixture
def numbers(env: StreamExecutionEnvironment) -> DataStream:
    return env.from_collection([1, 2, 3], Types.LONG())


def line() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


# -------------------------------------------------------------------- keys


@pytest.mark.parametrize(
    ("verb", "instead"),
    [
        ("window", "window_all"),
        ("count_window", "count_window_all"),
        ("reduce", "window_all"),
        ("sum", "key_by"),
        ("min_by", "key_by"),
        ("interval_join", "key_by"),
    ],
)
def test_a_verb_of_keyed_streams_asks_for_key_by_and_names_the_stream(
    numbers: DataStream, verb: str, instead: str
) -> None:
    doubled, at = numbers.map(lambda n: n * 2).name("Double"), line()
    with pytest.raises(JobDefinitionError) as raised:
        getattr(doubled, verb)(TEN)
    assert "call key_by(…) before it" in str(raised.value)
    assert instead in str(raised.value)
    assert f"'Double' ({__file__}:{at})" in str(raised.value)
    assert not hasattr(doubled, verb)
    assert hasattr(doubled.key_by(lambda n: n), verb)


def test_a_keyed_process_function_needs_a_keyed_stream(numbers: DataStream) -> None:
    with pytest.raises(JobDefinitionError, match=r"'Collection Source'.*KeyedProcessFunction needs keys; call key_by"):
        numbers.process(Keep())


def test_process_takes_a_process_function(numbers: DataStream) -> None:
    with pytest.raises(JobDefinitionError, match="the class Keep"):
        numbers.key_by(lambda n: n).process(Keep)  # type: ignore[arg-type]
    with pytest.raises(JobDefinitionError, match="takes a ProcessFunction, not a function"):
        numbers.process(lambda n: n)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "setting",
    [
        lambda s: s.uid("x"),
        lambda s: s.name("x"),
        lambda s: s.set_parallelism(2),
        lambda s: s.set_max_parallelism(2),
        lambda s: s.set_uid_hash("ab" * 16),
        lambda s: s.force_non_parallel(),
        lambda s: s.start_new_chain(),
        lambda s: s.disable_chaining(),
        lambda s: s.slot_sharing_group("x"),
    ],
)
def test_settings_of_an_operator_are_refused_between_key_by_and_the_operator(
    numbers: DataStream, setting: Callable[[KeyedStream], Any]
) -> None:
    with pytest.raises(JobDefinitionError, match=r"'Collection Source'.* is keyed, and keys are no operator"):
        setting(numbers.key_by(lambda n: n))


# -------------------------------------------------------------------- windows


class NeverMerges(Trigger[Any, TimeWindow]):
    def on_element(self, element: Any, timestamp: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.FIRE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: TimeWindow, ctx: Any) -> None: ...

    def can_merge(self) -> bool:
        return False

    def clear(self, window: TimeWindow, ctx: Any) -> None: ...


class FirstOfEachWindow(Evictor[Any, TimeWindow]):
    """Remembers the windows it has seen, which does not survive merging."""

    def __init__(self) -> None:
        self.seen: set[TimeWindow] = set()

    def can_merge(self) -> bool:
        return False

    def evict_before(
        self, elements: list[TimestampedValue[Any]], size: int, window: TimeWindow, evictor_context: Any
    ) -> None:
        if window in self.seen:
            elements.clear()
        self.seen.add(window)

    def evict_after(
        self, elements: list[TimestampedValue[Any]], size: int, window: TimeWindow, evictor_context: Any
    ) -> None: ...


def sessions(numbers: DataStream) -> WindowedStream:
    return numbers.key_by(lambda n: n).window(EventTimeSessionWindows.with_gap(Time.seconds(1)))


def test_a_trigger_that_cannot_merge_is_refused_on_session_windows(numbers: DataStream) -> None:
    with pytest.raises(JobDefinitionError, match=rf"NeverMerges cannot be used with EventTimeSessionWindows.*{HERE}"):
        sessions(numbers).trigger(NeverMerges())


def test_an_evictor_that_cannot_merge_is_refused_on_session_windows(numbers: DataStream) -> None:
    with pytest.raises(JobDefinitionError, match=rf"FirstOfEachWindow cannot be used with EventTimeSession.*{HERE}"):
        sessions(numbers).evictor(FirstOfEachWindow())
    sessions(numbers).evictor(CountEvictor.of(1))
    numbers.key_by(lambda n: n).window(TEN).evictor(FirstOfEachWindow())


def test_windows_check_what_they_are_given(numbers: DataStream) -> None:
    windows = numbers.key_by(lambda n: n).window(TEN)
    with pytest.raises(JobDefinitionError, match="takes a WindowAssigner, not the class TumblingEventTimeWindows"):
        numbers.key_by(lambda n: n).window(TumblingEventTimeWindows)  # type: ignore[arg-type]
    with pytest.raises(JobDefinitionError, match="takes a Trigger, not the class CountTrigger"):
        windows.trigger(CountTrigger)  # type: ignore[arg-type]
    with pytest.raises(JobDefinitionError, match="takes an Evictor, not a int"):
        windows.evictor(3)  # type: ignore[arg-type]
    with pytest.raises(JobDefinitionError, match=r"lateness of TumblingEventTimeWindows.*negative, but is -1"):
        windows.allowed_lateness(-1)
    with pytest.raises(JobDefinitionError, match="takes an OutputTag, not a str"):
        windows.side_output_late_data("late")  # type: ignore[arg-type]
    with pytest.raises(JobDefinitionError, match="AggregateFunction"):
        windows.aggregate(lambda a, b: a)  # type: ignore[arg-type]
    with pytest.raises(JobDefinitionError, match="a whole stream takes AllWindowFunction"):
        numbers.window_all(TEN).process(Collect())  # type: ignore[arg-type]

    class Everything(AllWindowFunction[Any, Any, TimeWindow]):
        def apply(self, window: TimeWindow, inputs: Iterable[Any]) -> Iterable[Any]:
            return inputs

    with pytest.raises(JobDefinitionError, match="a keyed stream takes WindowFunction"):
        windows.apply(Everything())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda: TumblingEventTimeWindows.of(Time.seconds(0)),
        lambda: TumblingEventTimeWindows.of(Time.seconds(-1)),
        lambda: TumblingProcessingTimeWindows.of(Time.seconds(-1)),
        lambda: SlidingEventTimeWindows.of(Time.seconds(1), Time.seconds(0)),
        lambda: EventTimeSessionWindows.with_gap(Time.seconds(0)),
        lambda: CumulativeEventTimeWindows.of(Time.seconds(10), Time.seconds(3)),
        lambda: CountTrigger.of(0),
        lambda: CountEvictor.of(-1),
    ],
)
def test_sizes_that_cannot_be_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises((JobDefinitionError, ValueError), match=r"-?\d"):
        make()


def test_count_windows_of_no_records_are_refused(numbers: DataStream) -> None:
    with pytest.raises((JobDefinitionError, ValueError), match=r"0|-2"):
        numbers.key_by(lambda n: n).count_window(0)
    with pytest.raises((JobDefinitionError, ValueError), match="-2"):
        numbers.count_window_all(3, -2)


# -------------------------------------------------------------------- event time


def windowed(stream: DataStream) -> None:
    stream.key_by(lambda n: n).window(TEN).aggregate(Count()).uid("per-ten").print()


def planned(env: StreamExecutionEnvironment) -> list[str]:
    """The operators of a program that was not refused."""
    return [node["type"] for node in json.loads(env.get_execution_plan())["nodes"]]


def test_a_window_of_event_time_without_timestamps_is_refused(
    env: StreamExecutionEnvironment, numbers: DataStream
) -> None:
    windowed(numbers.map(lambda n: n))
    with pytest.raises(JobDefinitionError) as raised:
        env.get_execution_plan()
    message = str(raised.value)
    assert "(uid 'per-ten'" in message
    assert "works in event time, but records of the source 'Collection Source'" in message
    assert "assign_timestamps_and_watermarks" in message
    assert message.count(__file__) == 2


def test_a_watermark_strategy_without_an_assigner_gives_no_timestamps(
    env: StreamExecutionEnvironment, numbers: DataStream
) -> None:
    windowed(numbers.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps()))
    with pytest.raises(JobDefinitionError, match="without a timestamp"):
        env.get_execution_plan()


def test_one_stream_of_a_union_without_timestamps_is_enough_to_refuse(env: StreamExecutionEnvironment) -> None:
    stamped = env.from_collection([1], Types.LONG()).assign_timestamps_and_watermarks(STAMPED)
    windowed(stamped.union(env.from_sequence(1, 3).name("Plain")))
    with pytest.raises(JobDefinitionError, match="'Plain'"):
        env.get_execution_plan()


def test_an_interval_join_and_a_window_over_all_need_timestamps_too(env: StreamExecutionEnvironment) -> None:
    keyed = env.from_collection([1]).key_by(lambda n: n)
    keyed.interval_join(keyed).between(Time.seconds(0), Time.seconds(1)).process(Pairs()).print()
    with pytest.raises(JobDefinitionError, match=r"'Interval Join'.* works in event time"):
        env.get_execution_plan()
    env.close()
    env.from_collection([1]).window_all(TEN).reduce(lambda a, b: a).print()
    with pytest.raises(JobDefinitionError, match=r"'WindowAll.* works in event time"):
        env.get_execution_plan()


@pytest.mark.parametrize(
    "stamped",
    [
        lambda env: env.from_collection([1]).assign_timestamps_and_watermarks(STAMPED).map(lambda n: n),
        lambda env: env.from_source(DataGeneratorSource(int, 3), STAMPED, "numbers"),
        lambda env: env.from_source(DataGeneratorSource(int, 3, timestamp_of=int), SILENT, "own"),
        lambda env: (
            env.from_collection([1])
            .window_all(TumblingProcessingTimeWindows.of(Time.seconds(1)))
            .reduce(lambda a, b: a)
        ),
    ],
    ids=["operator", "assigner of the source", "source", "window"],
)
def test_timestamps_may_come_from_an_assigner_the_source_or_an_earlier_window(
    env: StreamExecutionEnvironment, stamped: Callable[[StreamExecutionEnvironment], DataStream]
) -> None:
    windowed(stamped(env))
    assert "Window(TumblingEventTimeWindows)" in planned(env)


def test_windows_that_do_not_ask_for_event_time_need_no_timestamps(
    env: StreamExecutionEnvironment, numbers: DataStream
) -> None:
    keyed = numbers.key_by(lambda n: n)
    keyed.window(TumblingProcessingTimeWindows.of(Time.seconds(1))).aggregate(Count()).print()
    keyed.window(GlobalWindows.create()).trigger(CountTrigger.of(2)).aggregate(Count()).print()
    keyed.count_window(2).aggregate(Count()).print()
    windows = [name for name in planned(env) if name.startswith("Window")]
    assert windows == [
        "Window(TumblingProcessingTimeWindows)",
        "Window(GlobalWindows)",
        "Window(CountTumblingWindowAssigner)",
    ]


# -------------------------------------------------------------------- types


@pytest.mark.parametrize(
    ("unknown", "says"),
    [
        ("string", r"Types.STRING\(\), not 'string'"),
        (int, r"Types.LONG\(\), not <class 'int'>"),
        (Types.STRING, r"call it, Types.STRING\(\)"),
        ([Types.STRING()], "must be a TypeInformation"),
    ],
)
def test_an_unknown_type_is_refused_wherever_one_is_declared(
    env: StreamExecutionEnvironment, numbers: DataStream, unknown: Any, says: str
) -> None:
    declarations: list[tuple[str, Callable[[], Any]]] = [
        ("'Map'", lambda: numbers.map(lambda n: n, output_type=unknown)),
        ("'FlatMap'", lambda: numbers.flat_map(lambda n: [n], unknown)),
        ("'KeyedProcess'", lambda: numbers.key_by(lambda n: n).process(Keep(), unknown)),
        ("'Window", lambda: numbers.key_by(lambda n: n).window(TEN).aggregate(Count(), output_type=unknown)),
        ("'Collection Source'", lambda: env.from_collection([1], unknown)),
        ("key type", lambda: numbers.key_by(lambda n: n, unknown)),
        ("state 'seen'", lambda: ValueStateDescriptor("seen", unknown)),
        ("field 1", lambda: Types.TUPLE([Types.INT(), unknown])),
        ("field 0", lambda: Types.ROW_NAMED(["a"], [unknown])),
        ("key type of a map", lambda: Types.MAP(unknown, Types.INT())),
        ("element type", lambda: Types.LIST(unknown)),
    ]
    for what, declare in declarations:
        with pytest.raises(JobDefinitionError, match=f"{what}.*{says}"):
            declare()


def test_a_union_of_different_types_is_refused_with_both_places(
    env: StreamExecutionEnvironment, numbers: DataStream
) -> None:
    words = env.from_collection(["a"], Types.STRING()).uid("words")
    with pytest.raises(JobDefinitionError) as raised:
        numbers.union(words)
    assert "one is of " in str(raised.value)
    assert "(uid 'words'" in str(raised.value)
    assert str(raised.value).count(__file__) == 2


def test_a_union_takes_streams_of_one_environment_partitioned_alike(
    env: StreamExecutionEnvironment, numbers: DataStream
) -> None:
    with pytest.raises(JobDefinitionError, match="union takes DataStreams, not a list"):
        numbers.union([numbers])  # type: ignore[arg-type]
    with pytest.raises(JobDefinitionError, match="two environments"):
        numbers.union(StreamExecutionEnvironment().from_collection([1], Types.LONG()))
    with pytest.raises(JobDefinitionError, match="partitioned differently"):
        numbers.union(numbers.rebalance())


def test_keys_do_not_count_in_a_union(env: StreamExecutionEnvironment, numbers: DataStream) -> None:
    both = numbers.key_by(lambda n: n).union(numbers, numbers.key_by(lambda n: -n))
    assert not isinstance(both, KeyedStream)
    both.print()
    assert '"HASH"' not in env.get_execution_plan()


def test_one_side_output_cannot_have_two_types(numbers: DataStream) -> None:
    main = numbers.process(_Emit()).name("Emit")
    main.get_side_output(OutputTag("odd", Types.LONG()))
    main.get_side_output(OutputTag("odd", Types.LONG()))
    with pytest.raises(
        JobDefinitionError, match=rf"'odd' of 'Emit' \({HERE}:\d+\) was asked for as .* use one OutputTag"
    ):
        main.get_side_output(OutputTag("odd", Types.STRING()))


def test_only_an_operators_own_output_has_side_outputs(numbers: DataStream) -> None:
    tag = OutputTag("odd", Types.LONG())
    main = numbers.process(_Emit())
    with pytest.raises(JobDefinitionError, match="only an operator's own output"):
        main.get_side_output(tag).get_side_output(tag)
    with pytest.raises(JobDefinitionError, match="only an operator's own output"):
        main.union(main).get_side_output(tag)
    with pytest.raises(JobDefinitionError, match="takes an OutputTag"):
        main.get_side_output("odd")  # type: ignore[arg-type]


class _Emit(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        yield value


# -------------------------------------------------------------------- state


@pytest.mark.parametrize(
    ("second", "says"),
    [
        (ValueStateDescriptor("seen", Types.STRING()), "has declared it as .* before"),
        (ListStateDescriptor("seen", Types.LONG()), "as list, but it is value already"),
        (MapStateDescriptor("seen", Types.LONG(), Types.LONG()), "as map, but it is value already"),
    ],
)
def test_a_state_declared_twice_with_another_type_is_refused_when_the_function_opens(second: Any, says: str) -> None:
    class Twice(KeyedProcessFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))
            runtime_context.get_state(ValueStateDescriptor("seen", Types.LONG()))
            get = {
                ValueStateDescriptor: runtime_context.get_state,
                ListStateDescriptor: runtime_context.get_list_state,
                MapStateDescriptor: runtime_context.get_map_state,
            }
            get[type(second)](second)  # type: ignore[operator]

        def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
            yield value

    with pytest.raises(PenstockError, match=f"'seen'.*{says}"):
        OperatorHarness.for_function(Twice(), lambda n: n).push(1)


# -------------------------------------------------------------------- graph


def test_duplicate_uids_are_refused_with_both_places(env: StreamExecutionEnvironment, numbers: DataStream) -> None:
    numbers.map(lambda n: n).name("First").uid("same").map(lambda n: n).name("Second").uid("same").print()
    with pytest.raises(JobDefinitionError) as raised:
        env.get_execution_plan()
    assert re.search(
        rf"'First' \(uid 'same', {HERE}:\d+\) and 'Second' \(uid 'same', {HERE}:\d+\) have the same uid",
        str(raised.value),
    )


def test_a_parallelism_above_the_max_parallelism_is_refused(
    env: StreamExecutionEnvironment, numbers: DataStream
) -> None:
    env.set_max_parallelism(4)
    numbers.map(lambda n: n).uid("wide").set_parallelism(5).print()
    with pytest.raises(
        JobDefinitionError, match=rf"'Map' \(uid 'wide', {HERE}:\d+\) has parallelism 5; .* 1 and the max"
    ):
        env.get_execution_plan()


def test_forward_between_different_parallelisms_is_refused(
    env: StreamExecutionEnvironment, numbers: DataStream
) -> None:
    numbers.forward().map(lambda n: n).set_parallelism(2).print()
    with pytest.raises(
        JobDefinitionError, match=rf"forward\(\) from 'Collection Source' .*{HERE}.* 1 to 'Map' .*{HERE}"
    ):
        env.get_execution_plan()


def test_what_is_one_subtask_by_nature_cannot_be_made_parallel(env: StreamExecutionEnvironment) -> None:
    env.from_collection([1]).set_parallelism(2).print()
    with pytest.raises(JobDefinitionError, match=r"'Collection Source'.*at most 1.*never parallel"):
        env.get_execution_plan()
    env.close()
    windows = env.from_collection([1]).window_all(TumblingProcessingTimeWindows.of(Time.seconds(1)))
    windows.reduce(lambda a, b: a).set_parallelism(2).print()
    with pytest.raises(JobDefinitionError, match=r"'WindowAll.*at most 1"):
        env.get_execution_plan()


def test_a_parallelism_below_one_is_refused_at_once(env: StreamExecutionEnvironment, numbers: DataStream) -> None:
    for refuse in (env.set_parallelism, numbers.set_parallelism, numbers.print().set_parallelism):
        with pytest.raises(JobDefinitionError, match="at least 1, not 0"):
            refuse(0)


def test_a_program_without_a_source_is_refused(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(JobDefinitionError, match="no operators: create a source"):
        env.get_execution_plan()


def test_partitioning_a_keyed_stream_is_refused(numbers: DataStream) -> None:
    for tear in ("rebalance", "rescale", "shuffle", "forward", "global_", "broadcast"):
        with pytest.raises(JobDefinitionError, match="tear its keys apart"):
            getattr(numbers.key_by(lambda n: n), tear)()


def test_functions_are_checked_where_they_are_given(env: StreamExecutionEnvironment, numbers: DataStream) -> None:
    with pytest.raises(JobDefinitionError, match="map takes a function or a MapFunction, not a int"):
        numbers.map(3)  # type: ignore[call-overload]
    with pytest.raises(JobDefinitionError, match="partition_custom takes a function or a Partitioner"):
        numbers.partition_custom(3, lambda n: n)  # type: ignore[arg-type]
    with pytest.raises(JobDefinitionError, match="key_by takes a function"):
        numbers.key_by(3)  # type: ignore[call-overload]
    with pytest.raises(JobDefinitionError, match="sink_to takes a Penstock sink"):
        numbers.sink_to(print)  # type: ignore[arg-type]
    with pytest.raises(JobDefinitionError, match="from_source of 'numbers' takes a WatermarkStrategy, not a Duration"):
        env.from_source(DataGeneratorSource(int, 1), Duration.of_seconds(1), "numbers")  # type: ignore[arg-type]


def test_the_line_named_is_the_programs_own_not_one_of_penstocks(numbers: DataStream) -> None:
    joined, at = (
        numbers.join(numbers).where(lambda n: n).equal_to(lambda n: n).window(TEN).apply(lambda a, b: (a, b))
    ), line()  # fmt: skip
    file, _, number = joined._node.location.rpartition(":")
    assert file == __file__
    assert at - 3 <= int(number) <= at
