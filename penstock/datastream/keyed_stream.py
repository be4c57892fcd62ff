"""KeyedStream: the verbs of a stream whose records have keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic

from penstock.common.typeinfo import TypeInformation, check_type
from penstock.common.types import Row
from penstock.datastream.data_stream import DataStream
from penstock.datastream.keyed_column_verbs import KeyedColumnVerbs
from penstock.datastream.program import Key, Origin, Record, check_function, describe, what
from penstock.errors import JobDefinitionError
from penstock.functions import KeyedProcessFunction, ProcessFunction, ReduceFunction
from penstock.graph import partitioner as p
from penstock.graph.stream_graph import StreamNode
from penstock.operators import rolling
from penstock.operators.base import Operator
from penstock.operators.keyed import KeyedReduceOperator, ProcessOperator
from penstock.operators.keyed_elementwise import with_keys
from penstock.operators.simple import FunctionOperator, MapOperator
from penstock.state.keys import user_key

if TYPE_CHECKING:
    from penstock.datastream.joined_streams import IntervalJoin
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.datastream.windowed_stream import WindowedStream
    from penstock.functions.window import WindowAssigner


class KeyedStream(KeyedColumnVerbs, DataStream[Record], Generic[Record, Key]):
    """A stream whose records have keys: state, timers and windows behind it belong to one key each. Made by
    `DataStream.key_by`.

    All records of a key go to the same subtask, in the order each sender emitted them. `map`, `flat_map`, `filter` and
    `reduce` with a function that has `open` give it the state of the record's key, too. Keys are no operator: name, uid
    and parallelism are set before `key_by` or after the next verb.

    Example:

        payments.key_by("user").window(TumblingEventTimeWindows.of(Time.minutes(5))).agg(total=sum_("amount"))
    """

    class AccumulateType(Enum):
        """The rolling aggregates of a field."""

        MIN = 1
        MAX = 2
        MIN_BY = 3
        MAX_BY = 4
        SUM = 5

    _before_keys = None

    def __init__(
        self,
        env: StreamExecutionEnvironment,
        origins: list[Origin],
        type_info: TypeInformation | None,
        selector: Callable[[Any], Any],
        key_type: TypeInformation | None,
    ) -> None:
        super().__init__(env, origins, type_info, p.Hash(selector))
        if key_type is not None:
            check_type(key_type, f"the key type of the stream from {describe(origins)}")
        self._selector = selector
        self._key_type = key_type

    @property
    def _node(self) -> StreamNode:
        raise JobDefinitionError(
            f"the stream from {describe(self._origins)} is keyed, and keys are no operator: set name, uid, parallelism and "
            "chaining before key_by() or after the operator that uses the keys"
        )

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
        keyed = with_keys(operator, self._selector) if isinstance(operator, FunctionOperator) else None
        return super()._apply(
            name,
            keyed or operator,
            output_type,
            stateful=stateful or keyed is not None,
            kind=kind,
            parallelism=parallelism,
            why_rows=why_rows,
        )

    def process(
        self, func: ProcessFunction | KeyedProcessFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        """Runs a KeyedProcessFunction with the state and timers of the current record's key.

        Example:

            class Count(KeyedProcessFunction):
                def open(self, runtime_context):
                    self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.INT()))

                def process_element(self, value, ctx):
                    self.seen.update((self.seen.value() or 0) + 1)
                    yield ctx.get_current_key(), self.seen.value()

            words.key_by(lambda word: word).process(Count())  # gives [("be", 1), ("to", 1), ("to", 2)]
        """
        if not isinstance(func, (KeyedProcessFunction, ProcessFunction)):
            raise JobDefinitionError(f"process on a keyed stream takes a KeyedProcessFunction, not {what(func)}")
        return self._apply(
            "KeyedProcess", ProcessOperator(func, self._selector, self._type), output_type, stateful=True
        )

    def reduce(self, func: Callable[[Record, Record], Record] | ReduceFunction) -> DataStream[Record]:
        """For each record, folds it into the key's value with `func(value, record)`, and emits and keeps the result.
        The first record of a key is its first value.

        Example:

            pairs.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))  # gives [("a", 1), ("a", 4), ("b", 2)]
        """
        check_function(func, ReduceFunction, "reduce")
        return self._apply("Reduce", KeyedReduceOperator(func, self._selector, self._type), self._type, stateful=True)

    def execute_and_collect(self, job_execution_name: str | None = None, limit: int | None = None) -> Any:
        """As of any stream, but each record comes with its key, as in PyFlink: `Row(f0=key, f1=record)`.

        Example:

            with words.key_by(len).execute_and_collect() as results:
                first = next(results)
            first.f0, first.f1  # gives (2, "to")
        """
        plain: DataStream[Any] = DataStream(self._env, self._origins, self._type)
        same = len(self._origins) == 1
        pairs = plain._apply(
            "Key and Record",
            MapOperator(_KeyAndRecord(self._selector), self._type),
            parallelism=self._origins[0].node.parallelism if same else None,
        )
        return pairs.execute_and_collect(job_execution_name, limit)  # type: ignore[arg-type]

    def _accumulate(self, position: int | str, acc_type: AccumulateType) -> DataStream[Record]:
        verb = acc_type.name.lower()
        function = _ROLLING[acc_type](rolling.check_field(position, verb))
        operator = KeyedReduceOperator(function, self._selector, self._type)
        return self._apply(verb.title(), operator, self._type, stateful=True)

    def sum(self, position_to_sum: int | str = 0) -> DataStream[Record]:
        """The running sum of a field; the other fields are those of the key's first record.

        Example:

            pairs.key_by(lambda pair: pair[0]).sum(1)  # gives [("a", 1), ("a", 4), ("b", 2)]
        """
        return self._accumulate(position_to_sum, self.AccumulateType.SUM)

    def min(self, position_to_min: int | str = 0) -> DataStream[Record]:
        """The smallest value of a field so far; the other fields are those of the key's first record.

        Example:

            pairs.key_by(lambda pair: pair[0]).min(1)  # gives [("a", 1), ("a", 1), ("b", 2)]
        """
        return self._accumulate(position_to_min, self.AccumulateType.MIN)

    def max(self, position_to_max: int | str = 0) -> DataStream[Record]:
        """The largest value of a field so far; the other fields are those of the key's first record.

        Example:

            pairs.key_by(lambda pair: pair[0]).max(1)  # gives [("a", 1), ("a", 3), ("b", 2)]
        """
        return self._accumulate(position_to_max, self.AccumulateType.MAX)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream[Record]:
        """The record with the smallest value of a field so far; the first one of several.

        Example:

            pairs.key_by(lambda pair: pair[0]).min_by(1)  # gives [("a", 1), ("a", 1), ("b", 2)]
        """
        return self._accumulate(position_to_min_by, self.AccumulateType.MIN_BY)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream[Record]:
        """The record with the largest value of a field so far; the first one of several.

        Example:

            pairs.key_by(lambda pair: pair[0]).max_by(1)  # gives [("a", 1), ("a", 3), ("b", 2)]
        """
        return self._accumulate(position_to_max_by, self.AccumulateType.MAX_BY)

    def interval_join(self, other_stream: KeyedStream) -> IntervalJoin:
        """Records with equal keys whose timestamps are close: `a.interval_join(b).between(lower, upper).process(function)`.

        Example:

            left, right = events.key_by(lambda e: e[0]), events.key_by(lambda e: e[0])
            left.interval_join(right).between(Time.seconds(-5), Time.seconds(0)).process(Both())
        """
        from penstock.datastream.joined_streams import IntervalJoin

        return IntervalJoin(self, other_stream)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream[Record, Key]:
        """Windows of `size` records of a key; with `slide` one is opened every `slide` records. Only full ones fire.

        Example:

            pairs.key_by(lambda pair: pair[0]).count_window(2).reduce(lambda a, b: (a[0], a[1] + b[1]))  # gives [("a", 4)]
        """
        from penstock.datastream.windowed_stream import count_windows

        return self.window(count_windows(size, slide))

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream[Record, Key]:
        """Puts the records of each key into windows; `reduce`, `aggregate`, `apply`, `process` or `agg` says what is
        computed.

        Example:

            per_minute = events.key_by(lambda e: e[0]).window(TumblingEventTimeWindows.of(Time.minutes(1)))
            per_minute.reduce(lambda a, b: (a[0], a[1] + b[1]))  # gives [("a", 4), ("b", 2)]
        """
        from penstock.datastream.windowed_stream import WindowedStream

        return WindowedStream(self, window_assigner)

    def _partitioned(self, partitioner: p.Partitioner) -> DataStream[Record]:
        raise JobDefinitionError(
            f"{partitioner.name.lower()}() on a keyed stream would tear its keys apart: partition before key_by(), or after the "
            "operator that uses the keys"
        )


class _KeyAndRecord:
    def __init__(self, selector: Callable[[Any], Any]) -> None:
        self._selector = selector

    def __call__(self, value: Any) -> Row:
        return Row(f0=user_key(self._selector(value)), f1=value)


_ROLLING: Final[Mapping[KeyedStream.AccumulateType, Callable[[int | str], ReduceFunction]]] = {
    KeyedStream.AccumulateType.MIN: rolling.min_of,
    KeyedStream.AccumulateType.MAX: rolling.max_of,
    KeyedStream.AccumulateType.MIN_BY: rolling.min_by,
    KeyedStream.AccumulateType.MAX_BY: rolling.max_by,
    KeyedStream.AccumulateType.SUM: rolling.sum_of,
}
