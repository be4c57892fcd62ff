"""WindowedStream and AllWindowedStream: what can be done with the windows of a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.capture import captured
from penstock.datastream.data_stream import DataStream
from penstock.datastream.keyed_stream import KeyedStream
from penstock.datastream.misuse import describe, what
from penstock.errors import JobDefinitionError
from penstock.functions import (
    AggregateFunction,
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from penstock.functions.output_tag import OutputTag
from penstock.functions.window import (
    Evictor,
    MergingWindowAssigner,
    Trigger,
    WindowAssigner,
)
from penstock.operators.window import WindowOperator
from penstock.operators.window_contents import AggregateContents, ListContents, ReduceContents, WindowContents

if TYPE_CHECKING:
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.functions.aggregates import Aggregate


class _Windowed:
    """What keyed and all-windows share."""

    _kind = "Window"

    def __init__(self, stream: DataStream, assigner: WindowAssigner[Any, Any], selector: Any) -> None:
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
        return self._stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation | None:
        return self._stream.get_type()

    @property
    def _where(self) -> str:
        return f"{type(self._assigner).__name__} of the stream from {describe(self._stream._origins)}"

    def trigger(self, trigger: Trigger[Any, Any]) -> Self:
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
        result of its empty accumulator."""
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
        """Keep a window this long after it fired; a late record within it fires the window again."""
        if time_ms < 0:
            raise JobDefinitionError(f"the allowed lateness of {self._where} cannot be negative, but is {time_ms} ms")
        self._lateness = int(time_ms)
        return self

    def side_output_late_data(self, output_tag: OutputTag) -> Self:
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


class WindowedStream(_Windowed):
    def __init__(self, keyed_stream: KeyedStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        super().__init__(keyed_stream, window_assigner, keyed_stream._selector)

    def reduce(
        self,
        reduce_function: Callable[[Any, Any], Any] | ReduceFunction,
        window_function: WindowFunction[Any, Any, Any, Any] | ProcessWindowFunction[Any, Any, Any, Any] | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        kept = self._stream._type if window_function is None and output_type is None else output_type
        return self._window(window_function, ReduceContents(reduce_function), kept)

    def aggregate(
        self,
        aggregate_function: AggregateFunction,
        window_function: WindowFunction[Any, Any, Any, Any] | ProcessWindowFunction[Any, Any, Any, Any] | None = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        return self._window(window_function, AggregateContents(aggregate_function), output_type)

    def apply(
        self, window_function: WindowFunction[Any, Any, Any, Any], output_type: TypeInformation | None = None
    ) -> DataStream:
        return self._window(window_function, ListContents(), output_type)

    def process(
        self,
        process_window_function: ProcessWindowFunction[Any, Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        return self._window(process_window_function, ListContents(), output_type)

    def agg(self, **aggregates: Aggregate) -> DataStream:
        """Built-in aggregates (not in Flink): `agg(n=count(), total=sum_("amount"))`. Needs key_by on column names. The
        result has the key columns, window_start, window_end (milliseconds) and the aggregates. Tumbling, sliding and
        cumulating event-time windows over columns make no Python object of a record; all others, such as sessions, give
        the same results record by record, and `explain()` says so."""
        from penstock.datastream.window_aggregates import aggregate

        return aggregate(self, aggregates)


class AllWindowedStream(_Windowed):
    _kind = "WindowAll"

    def __init__(self, stream: DataStream, assigner: WindowAssigner[Any, Any]) -> None:
        from penstock.graph.partitioner import Global

        gathered = DataStream(stream._env, stream._origins, stream._type, Global())
        super().__init__(gathered, assigner, None)

    def reduce(
        self,
        reduce_function: Callable[[Any, Any], Any] | ReduceFunction,
        window_function: AllWindowFunction[Any, Any, Any] | ProcessAllWindowFunction[Any, Any, Any] | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        kept = self._stream._type if window_function is None and output_type is None else output_type
        return self._window(window_function, ReduceContents(reduce_function), kept)

    def aggregate(
        self,
        aggregate_function: AggregateFunction,
        window_function: AllWindowFunction[Any, Any, Any] | ProcessAllWindowFunction[Any, Any, Any] | None = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        return self._window(window_function, AggregateContents(aggregate_function), output_type)

    def apply(
        self, window_function: AllWindowFunction[Any, Any, Any], output_type: TypeInformation | None = None
    ) -> DataStream:
        return self._window(window_function, ListContents(), output_type)

    def process(
        self,
        process_window_function: ProcessAllWindowFunction[Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        return self._window(process_window_function, ListContents(), output_type)


def count_windows(size: int, slide: int) -> WindowAssigner[Any, Any]:
    from penstock.functions.window import CountSlidingWindowAssigner, CountTumblingWindowAssigner

    return CountTumblingWindowAssigner.of(size) if slide == 0 else CountSlidingWindowAssigner.of(size, slide)
