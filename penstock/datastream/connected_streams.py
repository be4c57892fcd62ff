"""Two streams in one operator: connected streams, and a stream connected with a broadcast one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.data_stream import DataStream
from penstock.datastream.keyed_stream import KeyedStream
from penstock.datastream.program import Origin, what
from penstock.errors import JobDefinitionError
from penstock.functions import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeySelector,
)
from penstock.functions.state import MapStateDescriptor
from penstock.operators.base import Operator
from penstock.operators.two_inputs import (
    BroadcastOperator,
    CoFlatMapOperator,
    CoMapOperator,
    CoProcessOperator,
    Selector,
    TwoInputOperator,
)


def _check_environments(first: DataStream, second: DataStream) -> None:
    if first._env is not second._env:
        raise JobDefinitionError("connect of streams of two environments: build both from the same one")


def _two_inputs(
    first: DataStream,
    second: DataStream,
    name: str,
    operator: Operator,
    output_type: TypeInformation | None,
    why_rows: str = "",
) -> DataStream:
    env = first._env
    node = env._add_node(name, "operator", operator, output_type=output_type, stateful=True, why_rows=why_rows)
    first._connect(node, input=0)
    second._connect(node, input=1)
    return DataStream(env, [Origin(node)], output_type)


class ConnectedStreams:
    """Two streams, maybe of different types, whose records meet in one function. Keyed if both are.

    Example:

        orders.connect(payments).key_by(lambda order: order.id, lambda payment: payment.order).process(Match())
    """

    def __init__(self, stream1: DataStream, stream2: DataStream) -> None:
        _check_environments(stream1, stream2)
        self.stream1, self.stream2 = stream1, stream2

    def key_by(
        self,
        key_selector1: Callable[[Any], Any] | KeySelector | str | list[str],
        key_selector2: Callable[[Any], Any] | KeySelector | str | list[str],
        key_type: TypeInformation | None = None,
    ) -> ConnectedStreams:
        """Records of both streams with equal keys meet in one subtask and share the state of their key.

        Example:

            pairs.connect(words).key_by(lambda pair: pair[0], lambda word: word[0])
        """
        return ConnectedStreams(
            self.stream1.key_by(key_selector1, key_type), self.stream2.key_by(key_selector2, key_type)
        )

    def map(self, func: CoMapFunction, output_type: TypeInformation | None = None) -> DataStream:
        """Calls `map1` for each record of the first stream and `map2` for each of the second; a result of None is
        dropped.

        Example:

            class Lengths(CoMapFunction):
                def map1(self, value):
                    return len(value)

                def map2(self, value):
                    return value[1]

            words.connect(pairs).map(Lengths())  # gives [1, 2, 2, 2, 2, 3]
        """
        if not isinstance(func, CoMapFunction):
            raise JobDefinitionError(f"map of connected streams takes a CoMapFunction, not {what(func)}")
        return self._apply("Co-Map", CoMapOperator(func, self._selectors, self._types), output_type)

    def flat_map(self, func: CoFlatMapFunction, output_type: TypeInformation | None = None) -> DataStream:
        """Calls `flat_map1` for each record of the first stream and `flat_map2` for each of the second, and emits what
        they yield.

        Example:

            class Letters(CoFlatMapFunction):
                def flat_map1(self, value):
                    yield from value

                def flat_map2(self, value):
                    yield value[0]

            words.connect(pairs).flat_map(Letters())  # gives ["a", "a", "b", "b", "e", "o", "o", "t", "t"]
        """
        if not isinstance(func, CoFlatMapFunction):
            raise JobDefinitionError(f"flat_map of connected streams takes a CoFlatMapFunction, not {what(func)}")
        return self._apply("Co-FlatMap", CoFlatMapOperator(func, self._selectors, self._types), output_type)

    def process(
        self, func: CoProcessFunction | KeyedCoProcessFunction, output_type: TypeInformation | None = None
    ) -> DataStream:
        """Runs a CoProcessFunction, or a KeyedCoProcessFunction if both streams are keyed: both sides of a key then
        share state and timers. A keyed function on streams without keys is refused.

        Example:

            class Merge(CoProcessFunction):
                def process_element1(self, value, ctx):
                    yield value

                def process_element2(self, value, ctx):
                    yield value[0]

            words.connect(pairs).process(Merge())  # gives ["a", "a", "b", "be", "to", "to"]
        """
        if not isinstance(func, (CoProcessFunction, KeyedCoProcessFunction)):
            raise JobDefinitionError(
                f"process of connected streams takes a CoProcessFunction or a KeyedCoProcessFunction, not {what(func)}"
            )
        if isinstance(func, KeyedCoProcessFunction) and self._selectors[0] is None:
            raise JobDefinitionError(
                "a KeyedCoProcessFunction needs keys on both streams: call key_by(selector1, selector2) before process()"
            )
        return self._apply("Co-Process", CoProcessOperator(func, self._selectors, self._types), output_type)

    def _apply(self, name: str, operator: TwoInputOperator, output_type: TypeInformation | None) -> DataStream:
        return _two_inputs(self.stream1, self.stream2, name, operator, output_type)

    @property
    def _selectors(self) -> tuple[Selector | None, Selector | None]:
        first, second = self.stream1, self.stream2
        if isinstance(first, KeyedStream) and isinstance(second, KeyedStream):
            return first._selector, second._selector
        return None, None

    @property
    def _types(self) -> tuple[TypeInformation | None, TypeInformation | None]:
        return self.stream1._type, self.stream2._type


class BroadcastStream:
    """A stream of which every subtask gets every record, to be connected with another one."""

    def __init__(self, input_stream: DataStream, broadcast_state_descriptors: Sequence[MapStateDescriptor]) -> None:
        for descriptor in broadcast_state_descriptors:
            if not isinstance(descriptor, MapStateDescriptor):
                raise JobDefinitionError(f"broadcast takes MapStateDescriptors, not {what(descriptor)}")
        self._stream = input_stream
        self._descriptors = list(broadcast_state_descriptors)
        self._names = [descriptor.name for descriptor in broadcast_state_descriptors]
        if len(set(self._names)) != len(self._names):
            raise JobDefinitionError(f"broadcast got two states of one name: {', '.join(self._names)}")


class BroadcastConnectedStream:
    """A stream (keyed or not) and a broadcast stream."""

    def __init__(
        self,
        non_broadcast_stream: DataStream,
        broadcast_stream: BroadcastStream,
        broadcast_state_descriptors: Sequence[MapStateDescriptor],
    ) -> None:
        _check_environments(non_broadcast_stream, broadcast_stream._stream)
        self._stream, self._broadcast = non_broadcast_stream, broadcast_stream
        self._names = [descriptor.name for descriptor in broadcast_state_descriptors]

    def process(
        self,
        func: BroadcastProcessFunction[Any, Any, Any] | KeyedBroadcastProcessFunction[Any, Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Runs a BroadcastProcessFunction, or a KeyedBroadcastProcessFunction if the stream is keyed. Every subtask
        sees all broadcast records and may write broadcast state only for them; the other kind of function is refused.

        Example:

            rules = MapStateDescriptor("rules", Types.STRING(), Types.INT())

            class Applies(BroadcastProcessFunction):
                def process_broadcast_element(self, value, ctx):
                    ctx.get_broadcast_state(rules).put(value, 1)

                def process_element(self, value, ctx):
                    yield value

            pairs.connect(words.broadcast(rules)).process(Applies())  # gives [("a", 1), ("a", 3), ("b", 2)]
        """
        stream, broadcast = self._stream, self._broadcast._stream
        keyed = isinstance(stream, KeyedStream)
        fitting = KeyedBroadcastProcessFunction if keyed else BroadcastProcessFunction
        if not isinstance(func, fitting):
            raise JobDefinitionError(
                f"process of a {'keyed' if keyed else 'non-keyed'} stream connected with a broadcast stream takes a "
                f"{fitting.__name__}, not {what(func)}"
            )
        selector = stream._selector if isinstance(stream, KeyedStream) else None
        operator = BroadcastOperator(func, self._names, selector, (stream._type, broadcast._type))
        return _two_inputs(stream, broadcast, "Co-Process-Broadcast", operator, output_type)
