"""The interval join: records of two keyed streams meet if the right one's timestamp is close enough to the left one's.

             left.timestamp + lower ≤ right.timestamp ≤ left.timestamp + upper

    left   ──────────────────●─────────────────────────────▶ event time
                    lower ├──┴──────────┤ upper
    right  ───────────────●───●─────────●──────────────────▶

A record waits as long as one that it could meet may still come; an event-time timer then removes it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Any, cast

from penstock.common.time import MAX_LONG_VALUE, MIN_LONG_VALUE
from penstock.common.typeinfo import TypeInformation
from penstock.common.values import own, own_all
from penstock.errors import JobDefinitionError, PenstockError
from penstock.functions import ProcessJoinFunction
from penstock.functions.base import TimeDomain
from penstock.operators.base import OperatorContext
from penstock.operators.keyed import Calls
from penstock.operators.lean_rows import Reader
from penstock.operators.two_inputs import Selector, TwoInputOperator
from penstock.state.list_table import ListTable
from penstock.state.overlay import MISSING
from penstock.state.specification import Specification, type_name

LEFT, RIGHT = 0, 1
SIDES = ("left", "right")


class JoinContext(ProcessJoinFunction.Context):
    """The timestamps of the pair that is joined."""

    def __init__(self) -> None:
        self.left = self.right = 0

    def get_left_timestamp(self) -> int:
        return self.left

    def get_right_timestamp(self) -> int:
        return self.right

    def get_timestamp(self) -> int:
        return max(self.left, self.right)


class IntervalJoinOperator(TwoInputOperator):
    """Bounds in milliseconds, both inclusive. Results carry the later of both timestamps. A record behind the watermark
    meets nobody: it goes to its side's `late_tags`, or is counted in `metrics.late_dropped`."""

    needs_timestamps = True

    def __init__(
        self,
        function: ProcessJoinFunction,
        selectors: tuple[Selector, Selector],
        input_types: tuple[TypeInformation | None, TypeInformation | None] = (None, None),
        *,
        lower: int,
        upper: int,
        late_tags: tuple[str | None, str | None] = (None, None),
    ) -> None:
        if not isinstance(function, ProcessJoinFunction):
            raise JobDefinitionError(f"an interval join takes a ProcessJoinFunction, not {function!r}")
        super().__init__(function, selectors, input_types)
        # By side: from where to where the timestamps of the other side's records may be, relative to a record's own.
        self._reach = ((lower, upper), (-upper, -lower))
        self._late_tags = late_tags

    def specification(self) -> Specification:
        left, right = (type_name(kind) for kind in self.input_types)
        return Specification(
            holds="records that wait for an interval join",
            reach=self._reach[LEFT],
            values=None if left is None or right is None else f"{left} and {right}",
        )

    def setup(self, ctx: OperatorContext) -> None:
        super().setup(ctx)
        # One entry for each timestamp of a key, so that a snapshot holds what is new and not all that waits; and in
        # order the timestamps that a key has, which is what a record is looked up by.
        tables = (ctx.state.table(f"interval-join-{side}", "list", namespaced=True) for side in SIDES)
        self._records = [cast("ListTable", table) for table in tables]
        self._times = ctx.state.table("interval-join-times", "value", namespaced=True)
        self._context = JoinContext()

    def calls(self, input: int) -> tuple[Calls, Reader | None]:
        what = f"process_element (for a {SIDES[input]} record)"
        return Calls(what, lambda value, side: self._element(side, value), input, self), None  # records are kept

    def _element(self, side: int, value: Any) -> None:
        timestamp = self._timestamp
        if timestamp is None or timestamp <= MIN_LONG_VALUE:
            raise PenstockError(
                f"operator {self.ctx.name!r} cannot join a {SIDES[side]} record that has no timestamp. Call "
                "assign_timestamps_and_watermarks(...) with a timestamp assigner before interval_join"
            )
        if timestamp < self.current_watermark:
            self._late(side, value, timestamp)
            return
        self._keep(side, value, timestamp)
        self._meet(side, value, timestamp)

    def _late(self, side: int, value: Any, timestamp: int) -> None:
        tag = self._late_tags[side]
        if tag is None:
            self.ctx.metrics.late_dropped += 1
        else:
            self.collector.side(tag, value, timestamp)

    def _keep(self, side: int, value: Any, timestamp: int) -> None:
        state, table = self.ctx.state, self._records[side]
        key = state.current_key
        new = not table.has((key, timestamp))
        table.extend((key, timestamp), [own(value)])
        if new:
            times = self._times.get((key, side))
            times = [] if times is MISSING else times
            insort(times, timestamp)
            self._times.put((key, side), times)
        until = timestamp + max(self._reach[side][1], 0)
        state.event_timers.register(min(until, MAX_LONG_VALUE), key, (side, timestamp))

    def _meet(self, side: int, value: Any, timestamp: int) -> None:
        key, other = self.ctx.state.current_key, 1 - side
        times = self._times.peek((key, other))
        if times is MISSING:
            return
        lower, upper = self._reach[side]
        context, table = self._context, self._records[other]
        process, take = self.function.process_element, self.collector.take
        for time in times[bisect_left(times, timestamp + lower) : bisect_right(times, timestamp + upper)]:
            context.left, context.right = (timestamp, time) if side == LEFT else (time, timestamp)
            for partner in own_all(table.peek((key, time))):
                pair = (value, partner) if side == LEFT else (partner, value)
                take(process(*pair, context), max(timestamp, time))

    def on_timer(self, timestamp: int, namespace: Any, domain: TimeDomain) -> None:
        """Nobody can come any more for whom the records of this time wait."""
        side, time = namespace
        key = self.ctx.state.current_key
        self._records[side].delete((key, time))
        times = self._times.get((key, side))
        times.remove(time)
        if times:
            self._times.put((key, side), times)
        else:
            self._times.delete((key, side))
