"""DataStream: the verbs of a program. Each adds a node and edges to the environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, overload

import pyarrow.compute as pc

from penstock.common.execution_config import ExecutionConfig
from penstock.common.typeinfo import PickledBytesTypeInfo, TupleTypeInfo, TypeInformation
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream.column_verbs import ColumnVerbs
from penstock.datastream.ends import CloseableIterator as CloseableIterator
from penstock.datastream.ends import DataStreamSink as DataStreamSink
from penstock.datastream.ends import Ends
from penstock.datastream.placement import OperatorSettings, PartitioningVerbs
from penstock.datastream.program import (
    LeftBehind,
    Origin,
    ProgramEdge,
    Record,
    captured,
    check_function,
    describe,
    no_such_verb,
    what,
)
from penstock.errors import JobDefinitionError
from penstock.functions import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    ProcessFunction,
)
from penstock.functions.process import OutputTag
from penstock.graph import partitioner as p
from penstock.graph.explain import leading_to, table
from penstock.graph.stream_graph import StreamNode
from penstock.operators import rolling, selectors
from penstock.operators.base import Operator
from penstock.operators.column_operators import SelectOperator
from penstock.operators.keyed import ProcessOperator
from penstock.operators.selectors import check_columns
from penstock.operators.simple import FilterOperator, FlatMapOperator, MapOperator
from penstock.operators.watermarks import WatermarkOperator

if TYPE_CHECKING:
    from penstock.datastream.cached_data_stream import CachedDataStream
    from penstock.datastream.connected_streams import BroadcastConnectedStream, BroadcastStream, ConnectedStreams
    from penstock.datastream.iterative_stream import IterativeStream
    from penstock.datastream.joined_streams import CoGroupedStreams, JoinedStreams
    from penstock.datastream.keyed_stream import KeyedStream as KeyedStream
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.datastream.windowed_stream import AllWindowedStream
    from penstock.functions.window import WindowAssigner

R = TypeVar("R")
K = TypeVar("K")
_PICKLED = PickledBytesTypeInfo()  # of a stream that declares no type


class DataStream(OperatorSettings, PartitioningVerbs[Record], ColumnVerbs, Ends[Record]):
    """A stream of records in a program under construction. Every verb adds an operator and returns the stream behind
    it; nothing runs before `execute`.

    A verb refuses what cannot work with a JobDefinitionError when it is called, not when the job runs. `output_type`
    declares the records of the result: they then travel as columns and are checked; without it they are pickled.

    Example:

        env = StreamExecutionEnvironment.get_execution_environment()
        words = env.from_collection(["to be", "or not to be"], Types.STRING())
        counts = (
            words.flat_map(lambda line: [(word, 1) for word in line.split()], Types.TUPLE([Types.STRING(), Types.INT()]))
            .key_by(lambda pair: pair[0])
            .reduce(lambda a, b: (a[0], a[1] + b[1]))
        )
        counts.print()
        env.execute("word count")
    """

    def __init__(
        self,
        env: StreamExecutionEnvironment,
        origins: list[Origin],
        type_info: TypeInformation | None = None,
        partitioner: p.Partitioner | None = None,
    ) -> None:
        self._env = env
        self._origins = origins
        self._type = type_info
        self._partitioner = partitioner

    if not TYPE_CHECKING:  # to a type checker a name that is not here is simply not here

        def __getattr__(self, name: str) -> Any:
            raise no_such_verb(self, name)

    def __reduce__(self) -> tuple[type[LeftBehind], tuple[str]]:
        return LeftBehind, (type(self).__name__,)

    # ---------------------------------------------------------------- properties of the last operator

    @property
    def _node(self) -> StreamNode:
        if len(self._origins) != 1:
            raise JobDefinitionError(
                f"the union of {describe(self._origins)} has no operator of its own: set name, uid and parallelism on the "
                "operators before or after it"
            )
        return self._origins[0].node

    def get_name(self) -> str:
        """The name of the operator this stream comes from. A union and a keyed stream have none: JobDefinitionError.

        Example:

            words.map(len).name("lengths").get_name()  # gives "lengths"
        """
        return self._node.name

    def _repr_html_(self) -> str:
        """For notebooks: the operators that lead to this stream, its own last."""
        edges = [(edge.source, edge.target) for edge in self._env._edges]
        path = [self._env._nodes[node] for node in leading_to((origin.node.id for origin in self._origins), edges)]
        rows = [(node.name, node.kind, node.uid or "–", node.parallelism, node.output_type or "–") for node in path]
        shape = "" if self._partitioner is None else f", partitioned by {self._partitioner.name}"
        return table(f"{type(self).__name__}{shape}", ("operator", "kind", "uid", "parallelism", "type"), rows)

    def set_max_parallelism(self, max_parallelism: int) -> DataStream[Record]:
        """Bounds the parallelism of this operator. The number of key groups is the job's: `env.set_max_parallelism`.

        Example:

            pairs.key_by(lambda pair: pair[0]).sum(1).set_max_parallelism(256)
        """
        if max_parallelism < 1:
            raise JobDefinitionError(
                f"{self._node.where}: the max parallelism must be at least 1, not {max_parallelism}"
            )
        self._node.max_parallelism = max_parallelism
        return self

    def _not_parallel(self) -> DataStream[Record]:
        """An operator that is one subtask by its nature."""
        self._node.max_parallelism = 1
        return self

    def force_non_parallel(self) -> DataStream[Record]:
        """One subtask, now and after every rescaling.

        Example:

            words.map(len).force_non_parallel()
        """
        return self.set_parallelism(1).set_max_parallelism(1)

    def set_buffer_timeout(self, timeout_millis: int) -> DataStream[Record]:
        """Pipelined: what this operator sends to other tasks leaves after so many milliseconds at the latest; 0: at once, -1: when
        a block is full, or a watermark or a barrier takes it along. Otherwise as `env.set_buffer_timeout` has it for all.

        Example:

            words.map(len).set_buffer_timeout(5)
        """
        if timeout_millis < -1:
            raise JobDefinitionError(
                f"{self._node.where}: the buffer timeout must be -1 or more milliseconds, not {timeout_millis}"
            )
        self._node.buffer_timeout_ms = timeout_millis
        return self

    def start_new_chain(self) -> DataStream[Record]:
        """Starts a chain with this operator: it does not run in one task with the operators before it.

        Example:

            words.map(str.upper).map(len).start_new_chain()  # gives [2, 2, 2]
        """
        self._node.head = True
        return self

    def get_type(self) -> TypeInformation | None:
        """The declared type of the records; None if they are pickled Python objects.

        Example:

            words.map(len, Types.INT()).get_type()  # gives Types.INT()
        """
        return self._type

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """The environment the stream was made from, and in which its program will run.

        Example:

            words.get_execution_environment() is env  # gives True
        """
        return self._env

    def get_execution_config(self) -> ExecutionConfig:
        """The ExecutionConfig of the environment.

        Example:

            words.get_execution_config().get_parallelism()  # gives 1
        """
        return self._env.get_config()

    # ---------------------------------------------------------------- operators

    def _apply(
        self,
        name: str,
        operator: Operator,
        output_type: TypeInformation | None = None,
        *,
        stateful: bool = False,
        kind: str = "operator",
        parallelism: int | None = None,
        why_rows: str = "",
    ) -> DataStream:
        node = self._env._add_node(
            name,
            kind,
            operator,
            output_type=output_type,
            stateful=stateful,
            parallelism=parallelism,
            why_rows=why_rows,
        )
        self._connect(node)
        return DataStream(self._env, [Origin(node)], output_type)

    def _connect(self, node: StreamNode, input: int = 0) -> None:
        for origin in self._origins:
            self._env._earlier.recall(self._env, origin.node)
            self._env._edges.append(
                ProgramEdge(
                    source=origin.node.id,
                    target=node.id,
                    partitioner=self._partitioner,
                    input=input,
                    tag=origin.tag,
                )
            )

    @overload
    def map(self, func: MapFunction, output_type: TypeInformation | None = None) -> DataStream: ...

    @overload
    def map(self, func: Callable[[Record], R]) -> DataStream[R]: ...

    @overload  # a record of a declared type is what the type makes of it: a Row, where the function gave a dict
    def map(self, func: Callable[[Record], Any], output_type: TypeInformation | None) -> DataStream: ...

    def map(self, func: Callable[[Any], Any] | MapFunction, output_type: TypeInformation | None = None) -> DataStream:
        """Calls `func` once for each record and emits the result.

        Example:

            numbers.map(lambda n: n * 2, output_type=Types.LONG())  # gives [2, 4, 6]
        """
        check_function(func, MapFunction, "map")
        return self._apply("Map", MapOperator(func, self._type), output_type)

    @overload
    def flat_map(self, func: FlatMapFunction, output_type: TypeInformation | None = None) -> DataStream: ...

    @overload
    def flat_map(self, func: Callable[[Record], Iterable[R] | None]) -> DataStream[R]: ...

    @overload
    def flat_map(self, func: Callable[[Record], Any], output_type: TypeInformation | None) -> DataStream: ...

    def flat_map(
        self, func: Callable[[Any], Any] | FlatMapFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        """Calls `func` once for each record and emits everything it yields or returns in an iterable; None emits
        nothing.

        Example:

            lines.flat_map(lambda line: line.split(), output_type=Types.STRING())  # gives ["be", "be", "not", "or", "to"]
        """
        check_function(func, FlatMapFunction, "flat_map")
        return self._apply("FlatMap", FlatMapOperator(func, self._type), output_type)

    def filter(self, func: Callable[[Record], Any] | FilterFunction | pc.Expression) -> DataStream[Record]:
        """Keeps the records for which `func` is true: a function, or an expression over columns such as
        `pc.field("amount") > 3` of pyarrow.compute, which is evaluated on whole blocks (false and null drop a record).

        Example:

            words.filter(lambda word: word != "be")  # gives ["to", "to"]
        """
        if isinstance(func, pc.Expression):
            return self._filter_columns(func)
        check_function(func, FilterFunction, "filter")
        return self._apply("Filter", FilterOperator(func, self._type), self._type)

    def process(
        self, func: ProcessFunction | KeyedProcessFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        """Runs a ProcessFunction: it sees the record's timestamp and the watermark, and may emit to side outputs. A
        KeyedProcessFunction is refused; it needs `key_by` before.

        Example:

            class Twice(ProcessFunction):
                def process_element(self, value, ctx):
                    yield value
                    yield value

            words.process(Twice())  # gives ["be", "be", "to", "to", "to", "to"]
        """
        if isinstance(func, KeyedProcessFunction):
            raise JobDefinitionError(
                f"process of the stream from {describe(self._origins)}: a KeyedProcessFunction needs keys; call key_by() before it"
            )
        if not isinstance(func, ProcessFunction):
            raise JobDefinitionError(f"process takes a ProcessFunction, not {what(func)}")
        return self._apply("Process", ProcessOperator(func, None, self._type), output_type)

    @overload
    def key_by(
        self, key_selector: KeySelector, key_type: TypeInformation | None = None
    ) -> KeyedStream[Record, Any]: ...

    @overload
    def key_by(
        self, key_selector: str | list[str], key_type: TypeInformation | str | None = None, *more_columns: str
    ) -> KeyedStream[Record, Any]: ...

    @overload
    def key_by(
        self, key_selector: Callable[[Record], K], key_type: TypeInformation | None = None
    ) -> KeyedStream[Record, K]: ...

    def key_by(
        self,
        key_selector: Callable[[Any], Any] | KeySelector | str | list[str],
        key_type: TypeInformation | str | None = None,
        *more_columns: str,
    ) -> KeyedStream[Record, Any]:
        """Keys by a function of the record or by column names: `key_by("user")`, `key_by("user", "page")`. Columns of a
        columnar stream are read as columns; of other records they are fields, entries or attributes.

        Example:

            pairs.key_by(lambda pair: pair[0]).sum(1)  # gives [("a", 1), ("a", 4), ("b", 2)]
        """
        from penstock.datastream.keyed_stream import KeyedStream

        if isinstance(key_selector, str) and isinstance(key_type, str):
            key_selector, key_type = [key_selector, key_type, *more_columns], None
        declared = key_type if isinstance(key_type, TypeInformation) else None  # anything else is refused below
        selector = captured(selectors.key_selector(key_selector, self._type, declared), "the key selector of key_by")
        return KeyedStream(self._env, self._origins, self._type, selector, key_type)  # type: ignore[arg-type]

    def union(self, *streams: DataStream[Record]) -> DataStream[Record]:
        """The records of all streams, of one type. Keys do not count: call key_by() after it.

        Example:

            words.union(words.map(str.upper, Types.STRING()))  # gives ["BE", "TO", "TO", "be", "to", "to"]
        """
        origins = list(self._origins)
        for stream in streams:
            if not isinstance(stream, DataStream):
                raise JobDefinitionError(f"union takes DataStreams, not {what(stream)}")
            both = f"{describe(self._origins)} with the one from {describe(stream._origins)}"
            if stream._env is not self._env:
                raise JobDefinitionError(
                    f"union of the stream from {both}: they belong to two environments; build both from the same one"
                )
            if (self._type or _PICKLED) != (stream._type or _PICKLED):
                raise JobDefinitionError(
                    f"union of the stream from {both}: one is of {self._type or _PICKLED}, the other of "
                    f"{stream._type or _PICKLED}; map one to the other's type with output_type"
                )
            if type(stream._before_keys) is not type(self._before_keys):
                raise JobDefinitionError(
                    f"union of the stream from {both}: they are partitioned differently; union first, partition after"
                )
            origins += stream._origins
        return DataStream(self._env, origins, self._type, self._before_keys)

    @property
    def _before_keys(self) -> p.Partitioner | None:
        return self._partitioner

    @overload
    def connect(self, ds: DataStream) -> ConnectedStreams: ...

    @overload
    def connect(self, ds: BroadcastStream) -> BroadcastConnectedStream: ...

    def connect(self, ds: DataStream | BroadcastStream) -> ConnectedStreams | BroadcastConnectedStream:
        """Both streams into one function, which keeps them apart and may share state between them.

        Example:

            words.connect(pairs).map(WordsAndPairs())
        """
        from penstock.datastream.connected_streams import BroadcastConnectedStream, BroadcastStream, ConnectedStreams

        if isinstance(ds, BroadcastStream):
            return BroadcastConnectedStream(self, ds, ds._descriptors)
        if not isinstance(ds, DataStream):
            raise JobDefinitionError(f"connect takes a DataStream or a BroadcastStream, not {what(ds)}")
        return ConnectedStreams(self, ds)

    def join(self, other_stream: DataStream) -> JoinedStreams:
        """An inner join, window by window: `a.join(b).where(key).equal_to(key).window(assigner).apply(function)`. With
        `select(left=…, right=…)` in place of `apply` the result is columns of both; without `window` too, over all time.

        Example:

            minute = TumblingEventTimeWindows.of(Time.minutes(1))
            events.join(events).where(lambda e: e[0]).equal_to(lambda e: e[0]).window(minute).apply(lambda a, b: (a[1], b[1]))
        """
        from penstock.datastream.joined_streams import JoinedStreams

        return JoinedStreams(self, other_stream)

    def co_group(self, other_stream: DataStream) -> CoGroupedStreams:
        """Groups the records of both streams by key and window:
        `a.co_group(b).where(…).equal_to(…).window(…).apply(…)`.

        Example:

            minute = TumblingEventTimeWindows.of(Time.minutes(1))
            grouped = events.co_group(events).where(lambda e: e[0]).equal_to(lambda e: e[0]).window(minute)
            grouped.apply(lambda left, right: [(len(list(left)), len(list(right)))])  # gives [(1, 1), (2, 2)]
        """
        from penstock.datastream.joined_streams import CoGroupedStreams

        return CoGroupedStreams(self, other_stream)

    def iterate(self, max_wait_time_ms: int = 0) -> IterativeStream:
        """The start of a loop: what `close_with` is given comes through here again, an epoch later. When its input has
        ended and nothing has come back for `max_wait_time_ms`, the iteration ends.

        Example:

            loop = numbers.iterate()
            smaller = loop.map(lambda n: n - 1)
            loop.close_with(smaller.filter(lambda n: n > 0))
            smaller.filter(lambda n: n == 0)  # gives [0, 0, 0]
        """
        from penstock.datastream.iterative_stream import iterate

        return iterate(self, max_wait_time_ms)

    def get_side_output(self, output_tag: OutputTag) -> DataStream:
        """The records this operator emitted under `output_tag`. Only a stream that an operator returned has side
        outputs, and all uses of a tag's id must declare the same type.

        Example:

            late = OutputTag("late", Types.TUPLE([Types.STRING(), Types.LONG()]))
            windows = TumblingEventTimeWindows.of(Time.minutes(1))
            windowed = events.key_by(lambda e: e[0]).window(windows).side_output_late_data(late)
            totals = windowed.reduce(lambda a, b: (a[0], a[1] + b[1]))
            totals.get_side_output(late)  # gives []
        """
        if not isinstance(output_tag, OutputTag):
            raise JobDefinitionError(f"get_side_output takes an OutputTag, not {what(output_tag)}")
        if len(self._origins) != 1 or self._origins[0].tag is not None:
            raise JobDefinitionError(
                f"get_side_output({output_tag.tag_id!r}) of the stream from {describe(self._origins)}: only an operator's own "
                "output has side outputs; keep what process() or a window returned, and ask that"
            )
        node = self._origins[0].node
        declared = self._env._side_types.setdefault((node.id, output_tag.tag_id), output_tag.type_info)
        if declared != output_tag.type_info:
            raise JobDefinitionError(
                f"side output {output_tag.tag_id!r} of {node.where} was asked for as {declared} and now as "
                f"{output_tag.type_info}: use one OutputTag for both"
            )
        if output_tag.type_info is not None:
            node.side_types[output_tag.tag_id] = output_tag.type_info
        return DataStream(self._env, [Origin(node, output_tag.tag_id)], output_tag.type_info)

    def assign_timestamps_and_watermarks(self, watermark_strategy: WatermarkStrategy) -> DataStream[Record]:
        """Gives every record the timestamp of the strategy's assigner and generates watermarks behind it. A strategy
        with watermark alignment is refused: it belongs to `from_source`.

        Example:

            five_seconds = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
            pairs.assign_timestamps_and_watermarks(five_seconds.with_timestamp_assigner(SecondOfPair()))
        """
        if not isinstance(watermark_strategy, WatermarkStrategy):
            raise JobDefinitionError(
                f"assign_timestamps_and_watermarks takes a WatermarkStrategy, not {what(watermark_strategy)}"
            )
        if watermark_strategy.alignment is not None:
            raise JobDefinitionError(
                f"assign_timestamps_and_watermarks of the stream from {describe(self._origins)}: only a source can wait for "
                "others; give the strategy with the watermark alignment to from_source"
            )
        column = getattr(watermark_strategy.timestamp_assigner, "column", None)
        check_columns([] if column is None else [column], self._type, "assign_timestamps_and_watermarks")
        return self._apply(
            "Timestamps/Watermarks",
            WatermarkOperator(watermark_strategy, self._type),
            self._type,
            stateful=True,
        )

    def project(self, *field_indexes: int) -> DataStream:
        """The fields of a tuple stream at these positions, in this order; a field may be repeated or left out.

        Example:

            pairs.project(1)  # gives [(1,), (2,), (3,)]
        """
        if self._type is not None and not isinstance(self._type, TupleTypeInfo):
            raise JobDefinitionError(f"project works on streams of tuples, but this one is of {self._type}: use map()")
        positions: list[int] = []
        types = None if self._type is None else self._type.get_field_types()
        for index in field_indexes:
            position = rolling.check_field(index, "project")
            if isinstance(position, str) or (types is not None and position >= len(types)):
                raise JobDefinitionError(
                    f"project: the stream has no field at position {position!r}, its type is {self._type}"
                )
            positions.append(position)
        if not positions:
            raise JobDefinitionError("project needs at least one position")
        if types is not None:
            chosen = TupleTypeInfo([types[position] for position in positions])
            columns = [f"f{position}" for position in positions]
            return self._apply("Projection", SelectOperator(columns, None, positions), chosen)
        function = rolling.Projection(tuple(positions))
        return self._apply("Projection", MapOperator(function))

    def count_window_all(self, size: int, slide: int = 0) -> AllWindowedStream[Record]:
        """Windows of `size` records of the whole stream; with `slide` one is opened every `slide` records. Only full
        ones fire.

        Example:

            numbers.count_window_all(3).reduce(lambda a, b: a + b)  # gives [6]
        """
        from penstock.datastream.windowed_stream import count_windows

        return self.window_all(count_windows(size, slide))

    def window_all(self, window_assigner: WindowAssigner[Any, Any]) -> AllWindowedStream[Record]:
        """Windows over the whole stream, without keys. One subtask does all the work; `key_by(...).window(...)` is
        parallel.

        Example:

            per_minute = events.window_all(TumblingEventTimeWindows.of(Time.minutes(1)))
            per_minute.reduce(lambda a, b: ("all", a[1] + b[1]))  # gives [("all", 6)]
        """
        from penstock.datastream.windowed_stream import AllWindowedStream

        return AllWindowedStream(self, window_assigner)

    def _partitioned(self, partitioner: p.Partitioner) -> DataStream[Record]:
        return DataStream(self._env, self._origins, self._type, partitioner)

    def cache(self) -> CachedDataStream:
        """Batch mode only: the first job that computes this stream keeps its records, and later jobs of this environment
        read them.

        Example:

            lengths = words.map(len).cache()
        """
        from penstock.datastream.cached_data_stream import CachedDataStream

        return CachedDataStream(self)

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(
            "a DataStream is not a collection: use execute_and_collect() to run the job and read its records"
        )


# Names that PyFlink has in this module and Penstock in one of their own, which import this one.
_ELSEWHERE = {
    "AllWindowedStream": "windowed_stream",
    "BroadcastConnectedStream": "connected_streams",
    "BroadcastStream": "connected_streams",
    "CachedDataStream": "cached_data_stream",
    "ConnectedStreams": "connected_streams",
    "KeyedStream": "keyed_stream",
    "WindowedStream": "windowed_stream",
}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name in _ELSEWHERE:
            return getattr(import_module(f"penstock.datastream.{_ELSEWHERE[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
