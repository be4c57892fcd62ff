"""Interval joins: `a.key_by(…).interval_join(b.key_by(…)).between(lower, upper).process(function)`."""

from __future__ import annotations

from penstock.common.time import Interval
from penstock.common.typeinfo import TypeInformation
from penstock.datastream.connected_streams import _two_inputs
from penstock.datastream.data_stream import DataStream
from penstock.datastream.keyed_stream import KeyedStream
from penstock.datastream.misuse import what
from penstock.errors import JobDefinitionError
from penstock.functions import ProcessJoinFunction
from penstock.functions.output_tag import OutputTag
from penstock.operators.interval_join import IntervalJoinOperator


class IntervalJoin:
    """Two keyed streams that have no interval yet. Only event time is joined on, as in Flink."""

    def __init__(self, left: KeyedStream, right: KeyedStream) -> None:
        if not isinstance(right, KeyedStream):
            raise JobDefinitionError(f"interval_join takes a KeyedStream, not {what(right)}: call key_by() on it")
        if left._env is not right._env:
            raise JobDefinitionError("interval_join of streams of two environments: build both from the same one")
        self._left, self._right = left, right

    def between(self, lower_bound: Interval, upper_bound: Interval) -> IntervalJoined:
        """How much later than the left record the right one may be, bounds included; negative means earlier."""
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
        self._exclusive = (True, self._exclusive[1])
        return self

    def upper_bound_exclusive(self) -> IntervalJoined:
        self._exclusive = (self._exclusive[0], True)
        return self

    def side_output_left_late_data(self, output_tag: OutputTag) -> IntervalJoined:
        """Left records that come behind the watermark, which are dropped otherwise."""
        self._late_tags = (output_tag.tag_id, self._late_tags[1])
        return self

    def side_output_right_late_data(self, output_tag: OutputTag) -> IntervalJoined:
        """Right records that come behind the watermark, which are dropped otherwise."""
        self._late_tags = (self._late_tags[0], output_tag.tag_id)
        return self

    def process(self, function: ProcessJoinFunction, output_type: TypeInformation | None = None) -> DataStream:
        """Called for each pair with equal keys whose timestamps are in the interval."""
        if not isinstance(function, ProcessJoinFunction):
            raise JobDefinitionError(f"process of an interval join takes a ProcessJoinFunction, not {what(function)}")
        left, right = self._left, self._right
        operator = IntervalJoinOperator(
            function,
            (left._selector, right._selector),
            (left._type, right._type),
            lower=self._lower + self._exclusive[0],
            upper=self._upper - self._exclusive[1],
            late_tags=self._late_tags,
        )
        return _two_inputs(left, right, "Interval Join", operator, output_type)
