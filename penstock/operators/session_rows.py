"""Open sessions that windows over rows left in a checkpoint: those of older releases, in which no sessions were columnar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from penstock.functions.aggregates import Aggregate
from penstock.functions.window import EventTimeSessionWindows
from penstock.operators.aggregation import AggregatedRow, RowAggregation
from penstock.operators.merging_windows import IN_FLIGHT, WindowSets
from penstock.operators.selectors import ColumnKeySelector
from penstock.operators.window import CONTENTS, WindowOperator
from penstock.operators.window_contents import AggregateContents
from penstock.operators.window_context import WindowCodec
from penstock.state.backend import OperatorState
from penstock.state.keys import user_key
from penstock.state.overlay import MISSING
from penstock.state.specification import Specification

Row: TypeAlias = tuple[Any, int, int, list[Any]]  # key, start, end, one value for each partial result


def specification(
    keys: Sequence[str], assigner: EventTimeSessionWindows[Any], aggregates: Mapping[str, Aggregate]
) -> Specification:
    """What they said of their state."""
    rows = RowAggregation(aggregates)
    operator = WindowOperator(
        selector=ColumnKeySelector(tuple(keys)),
        assigner=assigner,
        contents=AggregateContents(rows, rows.partials),
        function=AggregatedRow(keys, aggregates),
    )
    return operator.specification()


def take(state: OperatorState, assigner: EventTimeSessionWindows[Any]) -> list[Row]:
    """All of them, which are then gone, with their timers."""
    codec = WindowCodec(assigner)
    WindowSets(state, assigner, codec).restored()
    windows, contents = state.tables[IN_FLIGHT], state.table(CONTENTS, AggregateContents.kind, namespaced=True)
    found: list[Row] = []
    entries: list[tuple[Any, Any]] = list(windows.items())
    for (key, stored), window in entries:
        accumulator = contents.get((key, stored))
        if accumulator is not MISSING:
            found.append((user_key(key), *window, accumulator))
        windows.delete((key, stored))
        contents.delete((key, stored))
    timers: list[tuple[Any, Any]] = list(state.event_timers.table.items())
    for (key, namespace, timestamp), _ in timers:
        state.event_timers.delete(timestamp, key, namespace)
    return found
