"""The window operator: any assigner, any trigger, with Flink's rules for lateness, merging and clean-up.

A pane is one key's window. Everything a pane is lives in tables and timers of `ctx.state`: its contents, its trigger's
state, its timers, and one clean-up timer at `max_timestamp + allowed_lateness`, after which nothing of it is left.

               contents kept, each late element may fire again
    element   ┌──────────────────────────────────────────────┐
    ──────────●─────────────────●────────────────────────────●──────────▶ watermark
          first element    max_timestamp        max_timestamp + allowed lateness: dropped; later elements are late
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import repeat
from typing import Any, cast

from penstock.common.time import MAX_LONG_VALUE, MIN_LONG_VALUE
from penstock.common.typeinfo import TypeInformation
from penstock.common.values import own
from penstock.errors import JobDefinitionError, PenstockError
from penstock.functions import AllWindowFunction, ProcessAllWindowFunction, ProcessWindowFunction, WindowFunction
from penstock.functions.base import TimeDomain
from penstock.functions.window import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    CountWindow,
    Evictor,
    GlobalWindow,
    GlobalWindows,
    MergingWindowAssigner,
    Trigger,
    TriggerResult,
    WindowAssigner,
)
from penstock.operators.aligned_windows import AlignedWindows, is_aligned
from penstock.operators.base import OperatorContext
from penstock.operators.keyed import TimedOperator
from penstock.operators.keyed_records import ASK, keyed_records
from penstock.operators.lean_rows import shown
from penstock.operators.merging_windows import WindowSets
from penstock.operators.selectors import ColumnKeySelector
from penstock.operators.window_contents import (
    AggregateContents,
    EvictingContents,
    EvictingWindows,
    ListContents,
    WindowContents,
    element,
    merge_namespaces,
)
from penstock.operators.window_context import (
    ALL_KEY,
    AssignerContext,
    TriggerContext,
    WindowCodec,
    WindowContext,
    WindowNamespace,
    described_windows,
    kind_of_windows,
)
from penstock.records import Block, Columns
from penstock.state.backend import NO_KEY
from penstock.state.keys import user_key
from penstock.state.list_table import ListTable
from penstock.state.overlay import MISSING
from penstock.state.specification import WINDOWS, Specification, type_name

CONTENTS = "window-contents"

_CONTINUE = TriggerResult.CONTINUE


class WindowOperator(TimedOperator):
    """Windows of a keyed stream, or with `selector` None of a whole stream.

    Each time a pane fires, `function` is called with its contents; without a function the reduced or aggregated value
    itself is emitted. Results carry the window's max_timestamp; those of count and global windows, which have no end, the
    timestamp of the record or timer that fired them, as in PyFlink. Elements none of whose windows can still take them go
    to the side output `late_tag`, or are counted in `metrics.late_dropped`.
    """

    def __init__(
        self,
        *,
        selector: Callable[[Any], Any] | None,
        assigner: WindowAssigner[Any, Any],
        contents: WindowContents,
        function: Any = None,
        trigger: Trigger[Any, Any] | None = None,
        evictor: Evictor[Any, Any] | None = None,
        allowed_lateness: int = 0,
        late_tag: str | None = None,
        input_type: TypeInformation | None = None,
        fast_path: bool = True,
    ) -> None:
        """`allowed_lateness` in milliseconds. Without `fast_path` all takes the general path, with the same results."""
        super().__init__()
        self.selector = selector
        self.assigner = assigner
        self.contents = contents
        self.function = function
        self.trigger: Trigger[Any, Any] = assigner.get_default_trigger(None) if trigger is None else trigger
        self.allowed_lateness = allowed_lateness
        self.late_tag = late_tag
        self.input_type = input_type
        self.merging = isinstance(assigner, MergingWindowAssigner)
        self.clears = isinstance(function, (ProcessWindowFunction, ProcessAllWindowFunction))
        self._event_time = self.needs_timestamps = assigner.is_event_time()
        self.gives_timestamps = not isinstance(
            assigner, (CountTumblingWindowAssigner, CountSlidingWindowAssigner, GlobalWindows)
        )
        self._fast_path = fast_path
        self._check()
        self.evictor = evictor
        if evictor is not None:
            self.contents = EvictingContents(contents)

    def _check(self) -> None:
        if self.allowed_lateness < 0:
            raise JobDefinitionError(f"the allowed lateness must not be negative, but is {self.allowed_lateness} ms")
        if self.merging and not self.trigger.can_merge():
            raise JobDefinitionError(
                f"{type(self.trigger).__name__} cannot be used with {self.assigner!r}, whose windows merge: its "
                "can_merge() says no. Use another trigger, or implement can_merge() and on_merge()"
            )
        keyed, everything = (WindowFunction, ProcessWindowFunction), (AllWindowFunction, ProcessAllWindowFunction)
        fitting = everything if self.selector is None else keyed
        if self.function is None:
            if isinstance(self.contents, ListContents):
                raise JobDefinitionError(
                    "a window that keeps all its elements needs a window function to evaluate them"
                )
        elif not isinstance(self.function, fitting):
            raise JobDefinitionError(
                f"a window over {'a whole' if self.selector is None else 'a keyed'} stream takes "
                f"{fitting[0].__name__} or {fitting[1].__name__}, not {self.function!r}"
            )

    def setup(self, ctx: OperatorContext) -> None:
        super().setup(ctx)
        self._codec = WindowCodec(self.assigner)
        self._fired_at: int | None = None  # the timestamp of the record or timer whose trigger is asked
        self._table = ctx.state.table(CONTENTS, self.contents.kind, namespaced=True)
        self._lists = self._table if isinstance(self._table, ListTable) else None
        if self.merging:
            self._sets = WindowSets(ctx.state, cast("MergingWindowAssigner[Any, Any]", self.assigner), self._codec)
        self._assigner_context = AssignerContext(self)
        self._trigger_context = TriggerContext(self)
        self._window_context = WindowContext(self)
        self._evicting = None if self.evictor is None else EvictingWindows(self, self.evictor, self._table)
        fast = self._fast_path and self._evicting is None and is_aligned(self.assigner, self.trigger)
        self._aligned = AlignedWindows(self, self._table) if fast else None

    def specification(self) -> Specification:
        contents = self.contents.inner if isinstance(self.contents, EvictingContents) else self.contents
        # Evicting windows hold the records themselves, whatever is made of them when they fire.
        folded = self.evictor is None
        return Specification(
            holds=WINDOWS,
            function=contents.described if folded else "all records",
            keys=self.selector.names if isinstance(self.selector, ColumnKeySelector) else None,
            kind_of_windows=kind_of_windows(self.assigner),
            windows=described_windows(self.assigner),
            lateness=self.allowed_lateness,
            partials=contents.partials if folded else None,
            values=None if folded and isinstance(contents, AggregateContents) else type_name(self.input_type),
        )

    def migrate_state(self, before: Specification) -> None:
        assert isinstance(self.contents, AggregateContents), "only these have partial aggregates"
        places = [(before.partials or ()).index(partial) for partial in self.contents.partials or ()]
        for entry, accumulator in list(self._table.items()):
            self._table.put(entry, [accumulator[place] for place in places])

    def restore_state(self) -> None:
        if self.merging:
            self._sets.restored()

    def user_functions(self) -> Iterable[Any]:
        yield from self.contents.user_functions()
        if self.function is not None:
            yield self.function

    # ---------------------------------------------------------------- elements

    def process(self, input: int, block: Block) -> None:
        # On the fast path a window's contents alone see the records, and errors, and who takes late ones.
        in_time = isinstance(block, Columns) and block.timestamps is not None
        readers = self.contents.readers() if self._aligned is not None and in_time and self.late_tag is None else None
        rows, found, lean = keyed_records(block, self.input_type, self.selector, readers)
        self.ctx.metrics.records_in += len(rows)
        keys: Iterable[Any] = repeat(ALL_KEY)
        if self.selector is not None:
            keys = repeat(ASK) if found is None else found
        stamps = rows.timestamps
        if self._aligned is not None and stamps is not None and None not in stamps:
            show = partial(shown, lean, block, self.input_type)
            plain = lean is not None and lean.plain
            self._aligned.process(rows.values, cast("list[int]", stamps), keys, show, plain=plain)
        else:
            self._process(rows.values, stamps or [None] * len(rows), keys)
        self.ctx.state.current_key = NO_KEY
        self.collector.flush()

    def _process(self, values: list[Any], stamps: list[int | None], keys: Iterable[Any]) -> None:
        state, selector, assign = self.ctx.state, self.selector, self.assigner.assign_windows
        context = self._assigner_context
        add = self._add_merging if self.merging else self._add
        value: Any = None
        try:
            for value, stamp, key in zip(values, stamps, keys):  # noqa: B905 - keys may be endless
                timestamp = MIN_LONG_VALUE if stamp is None else stamp
                state.current_key = selector(value) if key is ASK and selector is not None else key
                taken = False
                for index, window in enumerate(assign(value, timestamp, context)):
                    mine = own(value) if index else value  # to each window its own
                    taken = add(mine, timestamp, window) or taken
                if not taken and self._event_time and timestamp + self.allowed_lateness <= self.current_watermark:
                    self.late(value, stamp)
        except Exception as error:
            self.fail(error, "window", value, has_record=True)

    def late(self, value: Any, stamp: int | None) -> None:
        """Takes a record that is too late for every window: to the side output, or counted."""
        if self.late_tag is None:
            self.ctx.metrics.late_dropped += 1
        else:
            self.collector.side(self.late_tag, value, stamp)

    def _add(self, value: Any, timestamp: int, window: Any) -> bool:
        """Put the element of the current key into `window`; False if the window is late."""
        if self._event_time and self._cleanup_time(window) <= self.current_watermark:
            return False
        namespace = self._codec.namespace(window)
        self._put(value, timestamp, window, namespace, namespace)
        return True

    def _put(
        self, value: Any, timestamp: int, window: Any, namespace: WindowNamespace, stored: WindowNamespace
    ) -> None:
        """`stored` is the namespace of the contents: the window's own, or its state window's (merging)."""
        entry = (self.ctx.state.current_key, stored)
        kept = value if self._evicting is None else element(value, timestamp)
        if self._lists is not None:
            self._lists.extend(entry, [kept])
        else:
            current = self._table.get(entry)
            contents = self.contents.first(kept) if current is MISSING else self.contents.add(current, kept)
            self._table.put(entry, contents)
        self._fired_at = None if timestamp <= MIN_LONG_VALUE else timestamp
        result = self.trigger.on_element(value, timestamp, window, self._trigger_context.at(namespace))
        if result is not _CONTINUE:
            self._apply(result, window, namespace, stored)
        self._register_cleanup(window, namespace)

    def _add_merging(self, value: Any, timestamp: int, new: Any) -> bool:
        windows = self._sets.of(self.ctx.state.current_key)
        window = windows.add(new, self._merge)
        taken = not (self._event_time and self._cleanup_time(window) <= self.current_watermark)
        if taken:
            self._put(
                value,
                timestamp,
                window,
                self._codec.namespace(window),
                self._codec.namespace(windows.state_window(window)),
            )
        else:
            windows.retire(window)
        self._sets.store(self.ctx.state.current_key, windows)
        return taken

    def _merge(self, result: Any, merged: list[Any], state_window: Any, moving: list[Any]) -> None:
        """Windows in flight became one: merge trigger state and contents, forget the timers of those that are gone."""
        self._check_merge(result)
        namespace, context = self._codec.namespace(result), self._trigger_context
        gone = [window for window in merged if window != result]
        context.merged = [self._codec.namespace(window) for window in gone]
        self.trigger.on_merge(result, context.at(namespace))
        for window, old in zip(gone, context.merged, strict=True):
            self.trigger.clear(window, context.at(old))
            self._delete_cleanup(window, old)
        context.merged = []
        sources = [self._codec.namespace(window) for window in moving]
        target = self._codec.namespace(state_window)
        merge_namespaces(self._table, self.ctx.state.current_key, target, sources, self.contents.merge)

    def _check_merge(self, result: Any) -> None:
        now = self.current_watermark if self._event_time else self.ctx.processing_time()
        end = self._cleanup_time(result) if self._event_time else result.max_timestamp()
        if end <= now:
            raise PenstockError(
                f"{self.assigner!r} merged windows into {result!r}, which has ended already (time is {now}): merging "
                "must not make windows end earlier"
            )

    # ---------------------------------------------------------------- timers

    def on_timer(self, timestamp: int, namespace: Any, domain: TimeDomain) -> None:
        try:
            if self._aligned is not None and domain is TimeDomain.EVENT_TIME:
                self._aligned.on_timer(timestamp, namespace)
            else:
                self._on_timer(timestamp, namespace, domain is TimeDomain.EVENT_TIME)
        except Exception as error:
            key = self.ctx.state.current_key
            self.fail(error, f"window {self._codec.window(namespace)!r} of key {key!r}, fired at {timestamp},", None)

    def _on_timer(self, timestamp: int, namespace: WindowNamespace, event_time: bool) -> None:
        window = self._codec.window(namespace)
        windows, stored = None, namespace
        if self.merging:
            windows = self._sets.of(self.ctx.state.current_key)
            state_window = windows.state_window(window)
            if state_window is None:
                return  # a timer its trigger left behind when the window was merged or dropped
            stored = self._codec.namespace(state_window)
        self._fired_at = timestamp if event_time else None
        fire = self.trigger.on_event_time if event_time else self.trigger.on_processing_time
        result = fire(timestamp, window, self._trigger_context.at(namespace))
        if result is not _CONTINUE:
            self._apply(result, window, namespace, stored)
        if event_time is self._event_time and timestamp == self._cleanup_time(window):
            self._table.delete((self.ctx.state.current_key, stored))
            self.trigger.clear(window, self._trigger_context.at(namespace))
            self.clear_function(window, namespace)
            if windows is not None:
                windows.retire(window)
                self._sets.store(self.ctx.state.current_key, windows)

    def _cleanup_time(self, window: Any) -> int:
        end: int = window.max_timestamp()
        return min(end + self.allowed_lateness, MAX_LONG_VALUE) if self._event_time else end

    def _register_cleanup(self, window: Any, namespace: WindowNamespace) -> None:
        time = self._cleanup_time(window)
        if time == MAX_LONG_VALUE:
            return  # never: global windows and count windows
        state = self.ctx.state
        timers = state.event_timers if self._event_time else state.processing_timers
        timers.register(time, state.current_key, namespace)

    def _delete_cleanup(self, window: Any, namespace: WindowNamespace) -> None:
        state = self.ctx.state
        timers = state.event_timers if self._event_time else state.processing_timers
        timers.delete(self._cleanup_time(window), state.current_key, namespace)

    # ---------------------------------------------------------------- firing

    def _apply(self, result: TriggerResult, window: Any, namespace: WindowNamespace, stored: WindowNamespace) -> None:
        entry = (self.ctx.state.current_key, stored)
        if result.is_fire():
            whole = self._lists is not None and self._evicting is None  # of which `inputs` makes copies
            contents = self._table.peek(entry) if whole else self._table.get(entry)
            if contents is not MISSING and self._evicting is not None:
                self._evicting.evaluate(entry, contents, window, namespace)
            elif contents is not MISSING:
                self.evaluate(contents, window, namespace)
        if result.is_purge():
            self._table.delete(entry)

    def evaluate(self, contents: Any, window: Any, namespace: WindowNamespace) -> None:
        """Call the window function of the current key and collect what it gives."""
        inputs = self.contents.inputs(contents)
        function = self.function
        stamp = self._fired_at if isinstance(window, (CountWindow, GlobalWindow)) else window.max_timestamp()
        key = user_key(self.ctx.state.current_key)
        match function:
            case None:
                self.collector.give(inputs, stamp)  # copies already
                return
            case ProcessWindowFunction():
                results: Any = function.process(key, self._window_context.at(window, namespace), inputs)
            case WindowFunction():
                results = function.apply(key, window, inputs)
            case ProcessAllWindowFunction():
                results = function.process(self._window_context.at(window, namespace), inputs)
            case _:
                results = function.apply(window, inputs)
        self.collector.take(results, stamp)

    def clear_function(self, window: Any, namespace: WindowNamespace) -> None:
        """The pane is dropped: let the window function clear its state."""
        if self.clears:
            self.function.clear(self._window_context.at(window, namespace))
