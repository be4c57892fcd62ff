"""Window joins and co-groups: `a.join(b).where(key).equal_to(key).window(assigner).apply(function)`.

There is no operator for them. Both streams are tagged, become one, and a window of that one holds the records of both:

    a ── (0, record) ──┐
                       ├── union ── key_by ── window ── function(those with 0, those with 1)
    b ── (1, record) ──┘

So lateness, triggers, merging and state are those of any window, and event time is that of the slower stream.

Interval joins: `a.key_by(…).interval_join(b.key_by(…)).between(lower, upper).process(function)`.

With `select(left=…, right=…)` in place of a function a join of columns has an operator of its own (`joined_columns`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, Generic, Self, TypeAlias, TypeVar

from penstock.common.time import Interval
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.connected_streams import _two_inputs
from penstock.datastream.data_stream import DataStream
from penstock.datastream.joined_columns import Chosen, PairsInInterval, _JoinedColumns
from penstock.datastream.keyed_stream import KeyedStream
from penstock.datastream.program import captured, check_function, what
from penstock.datastream.windowed_stream import WindowedStream, why_not_paned
from penstock.errors import JobDefinitionError
from penstock.functions import (
    CoGroupFunction,
    Function,
    JoinFunction,
    KeySelector,
    ProcessJoinFunction,
    RuntimeContext,
    WindowFunction,
)
from penstock.functions.process import OutputTag
from penstock.functions.window import Evictor, Trigger, WindowAssigner
from penstock.operators import selectors
from penstock.operators.columnar_interval_join import ColumnarIntervalJoinOperator
from penstock.operators.columnar_join import ColumnarJoinOverAllTime
from penstock.operators.columnar_window_join import ColumnarWindowJoinOperator
from penstock.operators.interval_join import IntervalJoinOperator
from penstock.operators.simple import MapOperator
from penstock.operators.window_contents import ListContents

Key: TypeAlias = Callable[[Any], Any] | KeySelector | str | list[str]
Tagged: TypeAlias = tuple[int, Any]  # (0 for the first stream, 1 for the second; the record)


class _WithWindow(ABC):
    """Two streams, their keys and a window."""

    _kind: str

    def __init__(
        self, streams: _TwoStreams[Any], selectors: tuple[Any, Any], assigner: WindowAssigner[Any, Any]
    ) -> None:
        if not isinstance(assigner, WindowAssigner):
            raise JobDefinitionError(f"window of two streams takes a WindowAssigner, not {what(assigner)}")
        self._streams, self._selectors = streams, selectors
        self._assigner = captured(assigner, f"the assigner {type(assigner).__name__}")
        self._trigger: Trigger[Any, Any] | None = None
        self._evictor: Evictor[Any, Any] | None = None
        self._lateness = 0

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
        """The elements it sees are pairs: (0, record of the first stream) or (1, record of the second).

        Example:

            minute = TumblingEventTimeWindows.of(Time.minutes(1))
            joined = events.join(events).where(lambda e: e[0]).equal_to(lambda e: e[0]).window(minute)
            joined.trigger(CountTrigger.of(2)).apply(lambda a, b: (a, b))
        """
        self._trigger = captured(trigger, f"the trigger {type(trigger).__name__}")
        return self

    def evictor(self, evictor: Evictor[Any, Any]) -> Self:
        """Sees the same pairs as a trigger does.

        Example:

            minute = TumblingEventTimeWindows.of(Time.minutes(1))
            joined = events.join(events).where(lambda e: e[0]).equal_to(lambda e: e[0]).window(minute)
            joined.evictor(CountEvictor.of(10)).apply(lambda a, b: (a, b))
        """
        self._evictor = captured(evictor, f"the evictor {type(evictor).__name__}")
        return self

    def allowed_lateness(self, time_ms: int) -> Self:
        """Keep a window this long after it fired; a late record within it fires the window again, with all it holds.

        Example:

            minute = TumblingEventTimeWindows.of(Time.minutes(1))
            joined = events.join(events).where(lambda e: e[0]).equal_to(lambda e: e[0]).window(minute)
            joined.allowed_lateness(5000).apply(lambda a, b: (a, b))
        """
        self._lateness = time_ms
        return self

    @abstractmethod
    def apply(self, function: Any, output_type: TypeInformation | None = None) -> DataStream: ...

    def _evaluate(
        self, function: _TaggedWindowFunction, output_type: TypeInformation | None, why_rows: str = ""
    ) -> DataStream:
        first, second = (_tagged(stream, tag) for tag, stream in enumerate(self._streams.both))
        windows: WindowedStream = first.union(second).key_by(_TaggedKey(*self._selectors)).window(self._assigner)
        if self._trigger is not None:
            windows.trigger(self._trigger)
        if self._evictor is not None:
            windows.evictor(self._evictor)
        windows.allowed_lateness(self._lateness)
        result = windows._window(function, ListContents(), output_type, why_rows)
        return result.name(f"{self._kind}({type(self._assigner).__name__})")


class _JoinWindow(_WithWindow):
    _kind = "Join"

    def apply(
        self, function: Callable[[Any, Any], Any] | JoinFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        """One result for every pair of records with equal keys in one window.

        Example:

            minute = TumblingEventTimeWindows.of(Time.minutes(1))
            joined = events.join(events).where(lambda e: e[0]).equal_to(lambda e: e[0]).window(minute)
            joined.apply(lambda left, right: left[1] + right[1])  # gives [2, 4, 4, 4, 6]
        """
        check_function(function, JoinFunction, "apply of a join")
        return self._evaluate(_JoinPairs(function), output_type)

    def select(self, left: Chosen = (), right: Chosen = ()) -> DataStream:
        """Columns of both streams for every pair of records with equal keys in one window (not in PyFlink's DataStream):
        names of columns, or new names with the columns they are for. Over streams of columns keyed by columns, in
        tumbling, sliding and cumulating windows, no Python object of a record is made; all others give the same results
        record by record, and `explain()` says so.

        Example:

            minute = TumblingEventTimeWindows.of(Time.minutes(1))
            joined = clicks.join(clicks).where("user").equal_to("user").window(minute)
            joined.select(left=["user", "amount"], right={"other": "amount"})
        """
        columns = _JoinedColumns("select of a join", self._streams.both, self._selectors, left, right)
        why_rows = columns.why_rows() or why_not_paned(self._trigger, self._evictor, self._assigner)
        if why_rows is not None:
            return self._evaluate(_JoinPairs(columns.pair()), columns.result_type, why_rows)
        operator = ColumnarWindowJoinOperator(
            columns.keys, columns.chosen, self._assigner, self._lateness, columns.types
        )
        return columns.joined(f"Columnar Join({type(self._assigner).__name__})", operator)


class _CoGroupWindow(_WithWindow):
    _kind = "CoGroup"

    def apply(
        self,
        function: Callable[[list[Any], list[Any]], Iterable[Any] | None] | CoGroupFunction,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Called once for each key and window in which either stream has a record.

        Example:

            minute = TumblingEventTimeWindows.of(Time.minutes(1))
            grouped = events.co_group(events).where(lambda e: e[0]).equal_to(lambda e: e[0]).window(minute)
            grouped.apply(lambda left, right: [(len(list(left)), len(list(right)))])  # gives [(1, 1), (2, 2)]
        """
        check_function(function, CoGroupFunction, "apply of a co-group")
        return self._evaluate(_CoGroups(function), output_type)


W = TypeVar("W", bound=_WithWindow)


class _EqualTo(Generic[W]):
    def __init__(self, streams: _TwoStreams[W], selectors: tuple[Any, Any]) -> None:
        self._streams, self._selectors = streams, selectors

    def window(self, assigner: WindowAssigner[Any, Any]) -> W:
        """Joins what falls into the same windows.

        Example:

            events.join(events).where(lambda e: e[0]).equal_to(lambda e: e[0]).window(TumblingEventTimeWindows.of(Time.minutes(1)))
        """
        return self._streams._with_window(self._streams, self._selectors, assigner)


class _Where(Generic[W]):
    def __init__(self, streams: _TwoStreams[W], selector: Any, key_type: TypeInformation | None) -> None:
        self._streams, self._selector, self._key_type = streams, selector, key_type

    def equal_to(self, key_selector: Key, key_type: TypeInformation | None = None) -> _EqualTo[W]:
        """The key of the second stream's records.

        Example:

            events.join(events).where(lambda e: e[0]).equal_to(lambda e: e[0])
        """
        if self._key_type is not None and key_type is not None and self._key_type != key_type:
            raise JobDefinitionError(
                f"where gives keys of {self._key_type}, equal_to keys of {key_type}: they would never be equal"
            )
        selector = captured(selectors.key_selector(key_selector, None, key_type), "the key selector of equal_to")
        return _EqualTo(self._streams, (self._selector, selector))


class _JoinEqualTo(_EqualTo[_JoinWindow]):
    def select(self, left: Chosen = (), right: Chosen = ()) -> DataStream:
        """Columns of both streams for every pair of records with equal keys, however far apart in time (not in PyFlink's
        DataStream): names of columns, or new names with the columns they are for. Both streams are of columns. All records
        of both are kept for good.

        Example:

            clicks.join(clicks).where("user").equal_to("user").select(left=["user"], right=["amount"])
        """
        columns = _JoinedColumns("select of a join", self._streams.both, self._selectors, left, right)
        why_rows = columns.why_rows()
        if why_rows is not None:
            raise JobDefinitionError(
                f"a join without windows works on columns, but {why_rows}: name key columns in where() and equal_to(), and declare "
                "the row types of both streams (output_type=Types.ROW_NAMED(…)); or connect() the streams and process() them"
            )
        return columns.joined("Columnar Join", ColumnarJoinOverAllTime(columns.keys, columns.chosen, columns.types))


class _JoinWhere(_Where[_JoinWindow]):
    def equal_to(self, key_selector: Key, key_type: TypeInformation | None = None) -> _JoinEqualTo:
        """The key of the second stream's records. Behind it come the windows, or `select` for a join over all time.

        Example:

            events.join(events).where(lambda e: e[0]).equal_to(lambda e: e[0])
        """
        keys = super().equal_to(key_selector, key_type)
        return _JoinEqualTo(keys._streams, keys._selectors)


class _TwoStreams(Generic[W]):
    _verb: str
    _with_window: type[W]

    def __init__(self, first: DataStream, second: DataStream) -> None:
        if not isinstance(second, DataStream):
            raise JobDefinitionError(f"{self._verb} takes a DataStream, not {what(second)}")
        if first._env is not second._env:
            raise JobDefinitionError(f"{self._verb} of streams of two environments: build both from the same one")
        self.both = (first, second)

    def where(self, key_selector: Key, key_type: TypeInformation | None = None) -> _Where[W]:
        """The key of the first stream's records.

        Example:

            events.join(events).where(lambda e: e[0])
        """
        selector = captured(selectors.key_selector(key_selector, None, key_type), "the key selector of where")
        return _Where(self, selector, key_type)


class JoinedStreams(_TwoStreams[_JoinWindow]):
    """An inner join of two streams, window by window.

    Example:

        windows = TumblingEventTimeWindows.of(Time.minutes(5))
        orders.join(payments).where(lambda o: o.id).equal_to(lambda p: p.order).window(windows).apply(lambda o, p: (o, p))
    """

    _verb = "join"
    _with_window = _JoinWindow

    def where(self, key_selector: Key, key_type: TypeInformation | None = None) -> _JoinWhere:
        """The key of the first stream's records.

        Example:

            events.join(events).where(lambda e: e[0])
        """
        where = super().where(key_selector, key_type)
        return _JoinWhere(where._streams, where._selector, where._key_type)


class CoGroupedStreams(_TwoStreams[_CoGroupWindow]):
    """The records of two streams side by side, by key and window."""

    _verb = "co_group"
    _with_window = _CoGroupWindow


# -------------------------------------------------------------------- tags


class _Tag:
    def __init__(self, tag: int) -> None:
        self._tag = tag

    def __call__(self, value: Any) -> Tagged:
        return self._tag, value


def _tagged(stream: DataStream, tag: int) -> DataStream:
    # As wide as its input, so that the two are chained.
    parallelism = stream._origins[0].node.parallelism if len(stream._origins) == 1 else None
    name = ("First Input", "Second Input")[tag]
    tagged = stream._apply(name, MapOperator(_Tag(tag), stream._type), None, parallelism=parallelism)
    tagged._node.fixed_parallelism = parallelism is not None and stream._node.fixed_parallelism
    return tagged


class _TaggedKey:
    """The key of a tagged record: each stream has a selector of its own."""

    def __init__(self, first: Callable[[Any], Any], second: Callable[[Any], Any]) -> None:
        self._selectors = (first, second)

    def __call__(self, tagged: Tagged) -> Any:
        return self._selectors[tagged[0]](tagged[1])


class _TaggedWindowFunction(WindowFunction[Tagged, Any, Any, Any]):
    """A window function around the user's."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        if isinstance(self._function, Function):
            self._function.open(runtime_context)

    def close(self) -> None:
        if isinstance(self._function, Function):
            self._function.close()

    @staticmethod
    def _apart(inputs: Iterable[Tagged]) -> tuple[list[Any], list[Any]]:
        sides: tuple[list[Any], list[Any]] = ([], [])
        for tag, value in inputs:
            sides[tag].append(value)
        return sides


class _JoinPairs(_TaggedWindowFunction):
    def apply(self, key: Any, window: Any, inputs: Iterable[Tagged]) -> Iterable[Any]:
        firsts, seconds = self._apart(inputs)
        join = self._function.join if isinstance(self._function, JoinFunction) else self._function
        return (join(first, second) for first in firsts for second in seconds)


class _CoGroups(_TaggedWindowFunction):
    def apply(self, key: Any, window: Any, inputs: Iterable[Tagged]) -> Any:
        co_group = self._function.co_group if isinstance(self._function, CoGroupFunction) else self._function
        return co_group(*self._apart(inputs))


class IntervalJoin:
    """Two keyed streams that have no interval yet. Only event time is joined on, as in Flink."""

    def __init__(self, left: KeyedStream, right: KeyedStream) -> None:
        if not isinstance(right, KeyedStream):
            raise JobDefinitionError(f"interval_join takes a KeyedStream, not {what(right)}: call key_by() on it")
        if left._env is not right._env:
            raise JobDefinitionError("interval_join of streams of two environments: build both from the same one")
        self._left, self._right = left, right

    def between(self, lower_bound: Interval, upper_bound: Interval) -> IntervalJoined:
        """Sets how much later than the left record the right one may be, bounds included; negative means earlier.

        Example:

            left, right = events.key_by(lambda e: e[0]), events.key_by(lambda e: e[0])
            left.interval_join(right).between(Time.seconds(-5), Time.seconds(0)).process(Both())
        """
        return IntervalJoined(self._left, self._right, lower_bound.to_milliseconds(), upper_bound.to_milliseconds())


class IntervalJoined:
    """Two keyed streams and an interval."""

    def __init__(self, left: KeyedStream, right: KeyedStream, lower: int, upper: int) -> None:
        if lower > upper:
            raise JobDefinitionError(
                f"interval_join: the lower bound ({lower} ms) must not be above the upper bound ({upper} ms)"
            )
        self._left, self._right = left, right
        self._lower, self._upper = lower, upper
        self._exclusive = (False, False)
        self._late_tags: tuple[str | None, str | None] = (None, None)

    def lower_bound_exclusive(self) -> IntervalJoined:
        """A pair exactly at the lower bound does not join.

        Example:

            left, right = events.key_by(lambda e: e[0]), events.key_by(lambda e: e[0])
            left.interval_join(right).between(Time.seconds(-5), Time.seconds(0)).lower_bound_exclusive().process(Both())
        """
        self._exclusive = (True, self._exclusive[1])
        return self

    def upper_bound_exclusive(self) -> IntervalJoined:
        """A pair exactly at the upper bound does not join.

        Example:

            left, right = events.key_by(lambda e: e[0]), events.key_by(lambda e: e[0])
            left.interval_join(right).between(Time.seconds(-5), Time.seconds(0)).upper_bound_exclusive().process(Both())
        """
        self._exclusive = (self._exclusive[0], True)
        return self

    def side_output_left_late_data(self, output_tag: OutputTag) -> IntervalJoined:
        """Left records that come behind the watermark, which are dropped otherwise.

        Example:

            late = OutputTag("late", Types.TUPLE([Types.STRING(), Types.LONG()]))
            left, right = events.key_by(lambda e: e[0]), events.key_by(lambda e: e[0])
            joined = left.interval_join(right).between(Time.seconds(-5), Time.seconds(0)).side_output_left_late_data(late)
            joined.process(Both()).get_side_output(late)  # gives []
        """
        self._late_tags = (output_tag.tag_id, self._late_tags[1])
        return self

    def side_output_right_late_data(self, output_tag: OutputTag) -> IntervalJoined:
        """Right records that come behind the watermark, which are dropped otherwise.

        Example:

            late = OutputTag("late", Types.TUPLE([Types.STRING(), Types.LONG()]))
            left, right = events.key_by(lambda e: e[0]), events.key_by(lambda e: e[0])
            joined = left.interval_join(right).between(Time.seconds(-5), Time.seconds(0)).side_output_right_late_data(late)
            joined.process(Both()).get_side_output(late)  # gives []
        """
        self._late_tags = (self._late_tags[0], output_tag.tag_id)
        return self

    def process(self, function: ProcessJoinFunction, output_type: TypeInformation | None = None) -> DataStream:
        """Called for each pair with equal keys whose timestamps are in the interval.

        Example:

            class Amounts(ProcessJoinFunction):
                def process_element(self, left, right, ctx):
                    yield left[1], right[1]

            left, right = events.key_by(lambda e: e[0]), events.key_by(lambda e: e[0])
            joined = left.interval_join(right).between(Time.seconds(-5), Time.seconds(0))
            joined.process(Amounts())  # gives [(1, 1), (2, 2), (3, 1), (3, 3)]
        """
        if not isinstance(function, ProcessJoinFunction):
            raise JobDefinitionError(f"process of an interval join takes a ProcessJoinFunction, not {what(function)}")
        return self._process(function, output_type)

    def select(self, left: Chosen = (), right: Chosen = ()) -> DataStream:
        """Columns of both streams for every pair with equal keys whose timestamps are in the interval (not in PyFlink's
        DataStream): names of columns, or new names with the columns they are for. Over streams of columns keyed by columns
        no Python object of a record is made; all others give the same results record by record, and `explain()` says so.

        Example:

            left, right = clicks.key_by("user"), clicks.key_by("user")
            joined = left.interval_join(right).between(Time.seconds(-5), Time.seconds(0))
            joined.select(left=["user", "amount"], right={"other": "amount"})
        """
        streams, keys = (self._left, self._right), (self._left._selector, self._right._selector)
        columns = _JoinedColumns("select of an interval join", streams, keys, left, right)
        why_rows = columns.why_rows()
        if why_rows is not None:
            return self._process(PairsInInterval(columns.pair()), columns.result_type, why_rows)
        operator = ColumnarIntervalJoinOperator(
            columns.keys,
            columns.chosen,
            columns.types,
            lower=self._lower + self._exclusive[0],
            upper=self._upper - self._exclusive[1],
            late_tags=self._late_tags,
        )
        return columns.joined("Columnar Interval Join", operator)

    def _process(
        self, function: ProcessJoinFunction, output_type: TypeInformation | None, why_rows: str = ""
    ) -> DataStream:
        left, right = self._left, self._right
        operator = IntervalJoinOperator(
            function,
            (left._selector, right._selector),
            (left._type, right._type),
            lower=self._lower + self._exclusive[0],
            upper=self._upper - self._exclusive[1],
            late_tags=self._late_tags,
        )
        return _two_inputs(left, right, "Interval Join", operator, output_type, why_rows)
