"""WindowedStream and AllWindowedStream: what can be done with the windows of a stream.

`agg`: built-in aggregates of windows, over columns where that can be and over rows where it cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

import pyarrow as pa

from penstock.common.time import MAX_LONG_VALUE
from penstock.common.typeinfo import TypeInformation, Types, schema_of
from penstock.datastream.aggregate_types import aggregated_type, check_aggregated
from penstock.datastream.column_verbs import gives_columns
from penstock.datastream.data_stream import DataStream
from penstock.datastream.keyed_stream import KeyedStream
from penstock.datastream.program import Key, Record, captured, describe, what
from penstock.errors import JobDefinitionError
from penstock.functions import (
    AggregateFunction,
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from penstock.functions.aggregates import Aggregate, result_columns
from penstock.functions.process import OutputTag
from penstock.functions.window import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    Evictor,
    GlobalWindows,
    MergingWindowAssigner,
    SlidingEventTimeWindows,
    Trigger,
    TumblingEventTimeWindows,
    WindowAssigner,
)
from penstock.graph.partitioner import Global
from penstock.operators.aggregation import AggregatedRow, RowAggregation
from penstock.operators.base import Operator
from penstock.operators.columnar_sessions import ColumnarSessionOperator
from penstock.operators.columnar_window import ColumnarWindowOperator
from penstock.operators.selectors import ColumnKeySelector
from penstock.operators.window import WindowOperator
from penstock.operators.window_contents import AggregateContents, ListContents, ReduceContents, WindowContents
from penstock.records.convert import travels_as_arrow

if TYPE_CHECKING:
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment


F = TypeVar("F")  # the kind of window function
P = TypeVar("P")  # the kind of process window function


class _Windowed(Generic[F, P, Record]):
    """What keyed and all-windows share."""

    _kind = "Window"

    def __init__(self, stream: DataStream[Record], assigner: WindowAssigner[Any, Any], selector: Any) -> None:
        if not isinstance(assigner, WindowAssigner):
            raise JobDefinitionError(
                f"window of the stream from {describe(stream._origins)} takes a WindowAssigner, not {what(assigner)}"
            )
        self._stream, self._selector = stream, selector
        self._assigner = captured(assigner, f"the assigner {type(assigner).__name__}")
        self._trigger: Trigger[Any, Any] | None = None
        self._evictor: Evictor[Any, Any] | None = None
        self._lateness = 0
        self._late_tag: OutputTag | None = None

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment the stream was made from.

        Example:

            words.count_window_all(2).get_execution_environment() is env  # gives True
        """
        return self._stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation | None:
        """The declared type of the records that go into the windows; None if they are pickled.

        Example:

            pairs.count_window_all(2).get_input_type()  # gives Types.TUPLE([Types.STRING(), Types.LONG()])
        """
        return self._stream.get_type()

    @property
    def _where(self) -> str:
        return f"{type(self._assigner).__name__} of the stream from {describe(self._stream._origins)}"

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """Replaces the assigner's default trigger. Windows that merge, such as sessions, refuse a trigger that
        cannot.

        Example:

            words.window_all(GlobalWindows.create()).trigger(CountTrigger.of(2)).reduce(lambda a, b: a + b)  # gives ["tobe"]
        """
        if not isinstance(trigger, Trigger):
            raise JobDefinitionError(f"trigger of {self._where} takes a Trigger, not {what(trigger)}")
        if isinstance(self._assigner, MergingWindowAssigner) and not trigger.can_merge():
            raise JobDefinitionError(
                f"{type(trigger).__name__} cannot be used with {self._where}: its windows merge and the trigger does not say how "
                "its state does (can_merge and on_merge)"
            )
        self._trigger = captured(trigger, f"the trigger {type(trigger).__name__}")
        return self

    def evictor(self, evictor: Evictor[Any, Any]) -> Self:
        """Removes elements before or after each firing. The window then keeps all its elements until they are removed
        or it ends: reduce and aggregate run over them when it fires. A reduce of none gives nothing, an aggregate the
        result of its empty accumulator.

        Example:

            last_two = numbers.window_all(GlobalWindows.create()).trigger(CountTrigger.of(3)).evictor(CountEvictor.of(2))
            last_two.reduce(lambda a, b: a + b)  # gives [5]
        """
        if not isinstance(evictor, Evictor):
            raise JobDefinitionError(f"evictor of {self._where} takes an Evictor, not {what(evictor)}")
        if isinstance(self._assigner, MergingWindowAssigner) and not evictor.can_merge():
            raise JobDefinitionError(
                f"{type(evictor).__name__} cannot be used with {self._where}: its windows merge, and the evictor keeps things "
                "about single windows (its can_merge() says no)"
            )
        self._evictor = captured(evictor, f"the evictor {type(evictor).__name__}")
        return self

    def allowed_lateness(self, time_ms: int) -> Self:
        """Keep a window this long after it fired; a late record within it fires the window again.

        Example:

            windows = events.key_by(lambda e: e[0]).window(TumblingEventTimeWindows.of(Time.minutes(1))).allowed_lateness(5000)
            windows.reduce(lambda a, b: (a[0], a[1] + b[1]))
        """
        if time_ms < 0:
            raise JobDefinitionError(f"the allowed lateness of {self._where} cannot be negative, but is {time_ms} ms")
        self._lateness = int(time_ms)
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
        """Sends records that are too late for every window to this side output of the result; without it they are
        dropped and counted.

        Example:

            late = OutputTag("late", Types.TUPLE([Types.STRING(), Types.LONG()]))
            windows = events.key_by(lambda e: e[0]).window(TumblingEventTimeWindows.of(Time.minutes(1))).side_output_late_data(late)
            windows.reduce(lambda a, b: (a[0], a[1] + b[1])).get_side_output(late)  # gives []
        """
        if not isinstance(output_tag, OutputTag):
            raise JobDefinitionError(
                f"side_output_late_data of {self._where} takes an OutputTag, not {what(output_tag)}"
            )
        self._late_tag = output_tag
        return self

    def _window(
        self, function: Any, contents: WindowContents, output_type: TypeInformation | None, why_rows: str = ""
    ) -> DataStream:
        operator = WindowOperator(
            assigner=self._assigner,
            trigger=self._trigger if self._trigger is not None else self._assigner.get_default_trigger(None),
            evictor=self._evictor,
            selector=self._selector,
            contents=contents,
            function=function,
            allowed_lateness=self._lateness,
            late_tag=None if self._late_tag is None else self._late_tag.tag_id,
            input_type=self._stream._type,
        )
        parallelism = None if self._selector is not None else 1
        result = self._stream._apply(
            f"{self._kind}({type(self._assigner).__name__})",
            operator,
            output_type,
            stateful=True,
            parallelism=parallelism,
            why_rows=why_rows,
        )
        return result if self._selector is not None else result._not_parallel()

    @overload
    def reduce(self, reduce_function: Callable[[Record, Record], Record] | ReduceFunction) -> DataStream[Record]: ...

    @overload
    def reduce(
        self,
        reduce_function: Callable[[Record, Record], Record] | ReduceFunction,
        window_function: F | P | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream: ...

    def reduce(
        self,
        reduce_function: Callable[[Record, Record], Record] | ReduceFunction,
        window_function: F | P | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Folds the records of a window into one as they come and emits it when the window fires. With
        `window_function` that function gets the one record, the key (if there are keys) and the window, and emits instead.

        Example:

            numbers.count_window_all(3).reduce(lambda a, b: a + b)  # gives [6]
        """
        kept = self._stream._type if window_function is None and output_type is None else output_type
        return self._window(window_function, ReduceContents(reduce_function), kept)

    def aggregate(
        self,
        aggregate_function: AggregateFunction,
        window_function: F | P | None = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Keeps one accumulator for each window and emits its result when the window fires. With `window_function`
        that function gets the one result, the key (if there are keys) and the window, and emits instead.

        Example:

            class Average(AggregateFunction):
                def create_accumulator(self):
                    return 0, 0

                def add(self, value, accumulator):
                    return accumulator[0] + value, accumulator[1] + 1

                def get_result(self, accumulator):
                    return accumulator[0] / accumulator[1]

                def merge(self, a, b):
                    return a[0] + b[0], a[1] + b[1]

            numbers.count_window_all(3).aggregate(Average())  # gives [2.0]
        """
        return self._window(window_function, AggregateContents(aggregate_function), output_type)

    def apply(self, window_function: F, output_type: TypeInformation | None = None) -> DataStream:
        """Keeps all records of a window and calls a WindowFunction with the key, the window and the records when it
        fires; without keys an AllWindowFunction, with the window and the records.

        Example:

            class Size(AllWindowFunction):
                def apply(self, window, inputs):
                    yield len(list(inputs))

            numbers.count_window_all(3).apply(Size())  # gives [3]
        """
        return self._window(window_function, ListContents(), output_type)

    def process(
        self,
        process_window_function: P,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Keeps all records of a window and calls a ProcessWindowFunction with the key, a context (time, state, side
        outputs) and the records when it fires; without keys a ProcessAllWindowFunction, without the key.

        Example:

            class Largest(ProcessAllWindowFunction):
                def process(self, context, elements):
                    yield max(elements)

            numbers.count_window_all(3).process(Largest())  # gives [3]
        """
        return self._window(process_window_function, ListContents(), output_type)


class WindowedStream(
    _Windowed[WindowFunction[Any, Any, Any, Any], ProcessWindowFunction[Any, Any, Any, Any], Record],
    Generic[Record, Key],
):
    """The windows of a keyed stream. The verbs that return Self refine the windows; the others say what is computed,
    once.

    Example:

        late = OutputTag("late")
        (
            clicks.key_by(lambda click: click.user)
            .window(EventTimeSessionWindows.with_gap(Time.minutes(30)))
            .allowed_lateness(60_000)
            .side_output_late_data(late)
            .process(CountClicks())
        )
    """

    def __init__(self, keyed_stream: KeyedStream[Record, Key], window_assigner: WindowAssigner[Any, Any]) -> None:
        super().__init__(keyed_stream, window_assigner, keyed_stream._selector)

    def agg(self, **aggregates: Aggregate) -> DataStream:
        """Built-in aggregates (not in Flink): `agg(n=count(), total=sum_("amount"))`. Needs key_by on column names. The
        result has the key columns, window_start, window_end (milliseconds) and the aggregates. Tumbling, sliding and
        cumulating event-time windows and sessions over columns make no Python object of a record; all others, such as
        those of processing time, give the same results record by record, and `explain()` says so.

        Example:

            per_minute = clicks.key_by("user").window(TumblingEventTimeWindows.of(Time.minutes(1)))
            per_minute.agg(total=sum_("amount")).select("user", "total")
        """
        return aggregate(self, aggregates)


class AllWindowedStream(_Windowed[AllWindowFunction[Any, Any, Any], ProcessAllWindowFunction[Any, Any, Any], Record]):
    """The windows of a stream without keys, in one subtask. The verbs are those of WindowedStream, without the key."""

    _kind = "WindowAll"

    def __init__(self, stream: DataStream[Record], assigner: WindowAssigner[Any, Any]) -> None:
        gathered = DataStream(stream._env, stream._origins, stream._type, Global())
        super().__init__(gathered, assigner, None)


def count_windows(size: int, slide: int) -> WindowAssigner[Any, Any]:
    """The assigner of `count_window`: tumbling if `slide` is 0, else sliding."""
    return CountTumblingWindowAssigner.of(size) if slide == 0 else CountSlidingWindowAssigner.of(size, slide)


# Exact types: a subclass may assign other windows.
_PANED = (TumblingEventTimeWindows, SlidingEventTimeWindows, CumulativeEventTimeWindows)
_WITHOUT_BOUNDS = (GlobalWindows, CountTumblingWindowAssigner, CountSlidingWindowAssigner)


def aggregate(windowed: WindowedStream, aggregates: Mapping[str, Aggregate]) -> DataStream:
    """Builds `WindowedStream.agg`: over columns where assigner, trigger and types allow it, else over rows."""
    selector, stream = windowed._selector, windowed._stream
    if not isinstance(selector, ColumnKeySelector):
        raise JobDefinitionError(
            "agg names its key columns: key_by column names, as in key_by('user'), before the window"
        )
    if isinstance(windowed._assigner, _WITHOUT_BOUNDS):
        raise JobDefinitionError(
            f"agg gives the start and end of every window, and those of {type(windowed._assigner).__name__} have none: use "
            "aggregate() or process()"
        )
    names = result_columns(selector.names, aggregates)
    check_aggregated(aggregates, stream._type)
    bounds = [Types.LONG(), Types.LONG()]
    output_type = aggregated_type(names, selector.names, bounds, aggregates, stream._type)
    why_rows = _why_rows(windowed)
    if why_rows is not None:
        function = AggregatedRow(selector.names, aggregates)
        rows = RowAggregation(aggregates)
        return windowed._window(function, AggregateContents(rows, rows.partials), output_type, why_rows)
    assigner, late_tag = windowed._assigner, None if windowed._late_tag is None else windowed._late_tag.tag_id
    operator: Operator
    if isinstance(assigner, EventTimeSessionWindows):
        operator = ColumnarSessionOperator(selector.names, assigner, aggregates, late_tag, stream._type)
    else:
        operator = ColumnarWindowOperator(
            selector.names, assigner, aggregates, windowed._lateness, late_tag, stream._type
        )
    return stream._apply(f"Columnar Window({type(windowed._assigner).__name__})", operator, output_type, stateful=True)


def _why_rows(windowed: WindowedStream) -> str | None:
    """The reason, for the plan; None: the window can be columnar."""
    stream, assigner = windowed._stream, windowed._assigner
    single = _why_single(windowed._trigger, windowed._evictor)
    if single is not None:
        return single
    if type(assigner) is EventTimeSessionWindows:
        if windowed._lateness:
            return "sessions with an allowed lateness fire again for single records"
        if assigner._session_gap > MAX_LONG_VALUE:
            return "its gap is longer than time"
    elif type(assigner) not in _PANED:
        return f"{type(assigner).__name__} are neither made of panes nor sessions with one gap for all"
    if stream._type is not None and not travels_as_arrow(stream._type):
        return f"{stream._type} has no columns"
    if stream._type is None and not gives_columns(stream):
        return "the type of its input is not declared"
    schema = schema_of(stream._type)
    if schema is not None and any(pa.types.is_nested(schema.field(name).type) for name in windowed._selector.names):
        return "a key has parts"
    return None


def why_not_paned(
    trigger: Trigger[Any, Any] | None, evictor: Evictor[Any, Any] | None, assigner: WindowAssigner[Any, Any]
) -> str | None:
    """What keeps windows from being made of panes; None: nothing."""
    single = _why_single(trigger, evictor)
    if single is not None:
        return single
    return None if type(assigner) in _PANED else f"{type(assigner).__name__} are not made of panes"


def _why_single(trigger: Trigger[Any, Any] | None, evictor: Evictor[Any, Any] | None) -> str | None:
    if evictor is not None:
        return "an evictor looks at single records"
    if trigger is not None and type(trigger) is not EventTimeTrigger:
        return f"{type(trigger).__name__} looks at single records"
    return None
