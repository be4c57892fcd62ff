"""The fast path of the window operator: tumbling and sliding event-time windows that fire at their end.

While a block is processed the watermark stands still. So every window is, for a whole block, in one of three states:
open (elements only add to its contents), ended (each element fires it again) or late. Open windows need neither trigger
nor window object for an element: contents are gathered in one plain dict per window and stored once per block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.common.time import MAX_LONG_VALUE, MIN_LONG_VALUE
from penstock.common.values import ATOMS, own
from penstock.functions.window import EventTimeTrigger, SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.functions.window.windows import TimeWindow, last_timestamp
from penstock.operators.keyed_records import ASK
from penstock.state.list_table import ListTable
from penstock.state.overlay import MISSING, OverlayTable

if TYPE_CHECKING:
    from penstock.operators.window import WindowOperator

_NOT_OPEN: dict[Any, Any] = {}  # marks a window that has ended or is late; compared by identity


def is_aligned(assigner: Any, trigger: Any) -> bool:
    """Exact types only: a subclass may mean something else."""
    return type(trigger) is EventTimeTrigger and type(assigner) in (TumblingEventTimeWindows, SlidingEventTimeWindows)


class AlignedWindows:
    """Gives the same results, state and timers as the general path."""

    def __init__(self, operator: WindowOperator, table: OverlayTable) -> None:
        assigner: Any = operator.assigner
        self._operator = operator
        self._table = table
        self._lists = table if isinstance(table, ListTable) else None
        self._contents = operator.contents
        self._size: int = assigner._size
        self._slide: int = getattr(assigner, "_slide", self._size)
        self._offset: int = assigner._offset
        self._lateness = operator.allowed_lateness
        # During one block: window start → key → contents; what errors show; whether no record can be changed.
        self._open: dict[int, dict[Any, Any]] = {}
        self._show: Callable[[Any], Any] = lambda value: value
        self._plain = False

    def process(
        self,
        values: list[Any],
        stamps: Sequence[int],
        keys: Iterable[Any],
        show: Callable[[Any], Any],
        *,
        plain: bool,
    ) -> None:
        """Puts records into their windows; for a key that is ASK the selector is asked. `show` gives what an error shows of one;
        `plain`: none of them can be changed."""
        self._open, self._show, self._plain = {}, show, plain
        if self._size == self._slide:
            self._tumbling(values, stamps, keys)
        else:
            self._sliding(values, stamps, keys)
        self._store()

    def _tumbling(self, values: list[Any], stamps: Sequence[int], keys: Iterable[Any]) -> None:
        operator, opened = self._operator, self._open
        size, offset, selector = self._size, self._offset, operator.selector
        first, add = self._contents.first, self._contents.adder()
        value: Any = None
        try:
            for value, timestamp, key in zip(values, stamps, keys):  # noqa: B905 - keys may be endless
                start = timestamp - (timestamp - offset) % size
                pane = opened.get(start)
                if pane is None:
                    pane = self._open_pane(start)
                if key is ASK and selector is not None:
                    key = selector(value)
                if pane is _NOT_OPEN:
                    self._one_by_one(value, timestamp, key)
                    continue
                current = pane.get(key, MISSING)
                if current is MISSING:
                    current = self._load(key, start)
                pane[key] = first(value) if current is MISSING else add(current, value)
        except Exception as error:
            operator.fail(error, "window", self._show(value), has_record=True)

    def _sliding(self, values: list[Any], stamps: Sequence[int], keys: Iterable[Any]) -> None:
        operator, opened = self._operator, self._open
        size, slide, offset, selector = self._size, self._slide, self._offset, operator.selector
        first, add, all_plain = self._contents.first, self._contents.adder(), self._plain
        value: Any = None
        try:
            for value, timestamp, key in zip(values, stamps, keys):  # noqa: B905 - keys may be endless
                last = timestamp - (timestamp - offset) % slide
                if key is ASK and selector is not None:
                    key = selector(value)
                closed = last <= timestamp - size  # between two windows
                plain = all_plain or type(value) in ATOMS
                for start in range(last, timestamp - size, -slide):
                    pane = opened.get(start)
                    if pane is None:
                        pane = self._open_pane(start)
                    if pane is _NOT_OPEN:
                        closed = True
                        continue
                    current = pane.get(key, MISSING)
                    if current is MISSING:
                        current = self._load(key, start)
                    element = value if plain else own(value)  # to each window its own
                    pane[key] = first(element) if current is MISSING else add(current, element)
                if closed:
                    self._one_by_one(value, timestamp, key)
        except Exception as error:
            operator.fail(error, "window", self._show(value), has_record=True)

    def _open_pane(self, start: int) -> dict[Any, Any]:
        # Windows that reach down to the smallest long could take "no timestamp" for one: the general path refuses it.
        ended = last_timestamp(self._end(start)) <= self._operator.current_watermark or start <= MIN_LONG_VALUE
        pane = self._open[start] = _NOT_OPEN if ended else {}
        return pane

    def _end(self, start: int) -> int:
        return min(start + self._size, MAX_LONG_VALUE)

    def _one_by_one(self, value: Any, timestamp: int, key: Any) -> None:
        """An element with a window that is not open: those of its windows take the general path, latest first."""
        operator = self._operator
        operator.ctx.state.current_key = key
        taken = False
        for window in operator.assigner.assign_windows(value, timestamp, operator._assigner_context):
            if self._open.get(window.start) is _NOT_OPEN:
                taken = operator._add(value, timestamp, window) or taken
            else:
                taken = True
        if not taken and timestamp + self._lateness <= operator.current_watermark:
            operator.late(value, timestamp)

    def _load(self, key: Any, start: int) -> Any:
        """Contents stored by earlier blocks; those that are lists are only added to, so a block begins without. Timers are
        registered here, once per pane and block, also for a pane that has contents: after a rescale the watermark may be
        behind the one at which the pane fired."""
        namespace = (start, self._end(start))
        end = last_timestamp(namespace[1])
        timers = self._operator.ctx.state.event_timers
        timers.register(end, key, namespace)
        if self._lateness and end + self._lateness < MAX_LONG_VALUE:
            timers.register(end + self._lateness, key, namespace)
        return MISSING if self._lists is not None else self._table.get((key, namespace))

    def _store(self) -> None:
        lists, overlay = self._lists, self._table.overlay
        for start, pane in self._open.items():
            namespace = (start, self._end(start))
            for key, contents in pane.items():
                if lists is None:
                    overlay[(key, namespace)] = contents
                else:
                    lists.extend((key, namespace), contents)
        self._open = {}

    def on_timer(self, timestamp: int, namespace: tuple[int, int]) -> None:
        """At max_timestamp fire; at max_timestamp + allowed lateness drop the pane. Its timers are gone by then."""
        operator, end = self._operator, last_timestamp(namespace[1])
        entry = (operator.ctx.state.current_key, namespace)
        if timestamp == end:
            contents = self._table.get(entry) if self._lists is None else self._lists.peek(entry)
            if contents is not MISSING:
                if operator.function is None:
                    operator.collector.give(self._contents.inputs(contents), end)
                else:
                    operator.evaluate(contents, TimeWindow(*namespace), namespace)
        if timestamp == (min(end + self._lateness, MAX_LONG_VALUE) if self._lateness else end):
            self._table.delete(entry)
            if operator.clears:
                operator.clear_function(TimeWindow(*namespace), namespace)
