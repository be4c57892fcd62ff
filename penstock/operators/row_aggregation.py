"""Built-in aggregates over single records: for windows that have no panes, such as sessions, or whose records are not
columns. Gives the rows that columnar windows give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from penstock.common.types import _create_row
from penstock.errors import PenstockError
from penstock.functions import AggregateFunction, ProcessWindowFunction
from penstock.functions.aggregates import Aggregate, Partial, fold, partial_names
from penstock.functions.window import TimeWindow
from penstock.operators.selectors import read_column
from penstock.state.specification import PartialName


class RowAggregation(AggregateFunction):
    """The accumulator is one value for each distinct partial."""

    def __init__(self, aggregates: Mapping[str, Aggregate]) -> None:
        self._aggregates = list(aggregates.values())
        self._partials: list[Partial] = list(dict.fromkeys(p for a in self._aggregates for p in a.partials))
        self._steps = [(partial.column, fold(partial.function)) for partial in self._partials]
        self._positions = [[self._partials.index(p) for p in a.partials] for a in self._aggregates]

    @property
    def partials(self) -> tuple[PartialName, ...]:
        """What an accumulator holds, in its order."""
        return partial_names(self._partials)

    def create_accumulator(self) -> list[Any]:
        return [0 if partial.merge == "sum" and partial.function != "sum" else None for partial in self._partials]

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        for index, (column, step) in enumerate(self._steps):
            accumulator[index] = step(accumulator[index], None if column is None else read_column(value, column))
        return accumulator

    def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        for index, partial in enumerate(self._partials):
            acc_a[index] = fold(partial.merge)(acc_a[index], acc_b[index])
        return acc_a

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        return [
            aggregate.finish_one([accumulator[index] for index in positions])
            for aggregate, positions in zip(self._aggregates, self._positions, strict=True)
        ]


class AggregatedRow(ProcessWindowFunction[Any, Any, Any, Any]):
    """Key columns, window_start, window_end and the aggregates, as a named Row."""

    def __init__(self, keys: Sequence[str], aggregates: Mapping[str, Aggregate]) -> None:
        self._single = len(keys) == 1
        self._names = [*keys, "window_start", "window_end", *aggregates]

    def process(self, key: Any, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]) -> Iterable[Any]:
        window = context.window()
        if not isinstance(window, TimeWindow):
            raise PenstockError(
                f"agg gives the start and end of every window, and {window!r} has none: use aggregate() or process()"
            )
        keys = (key,) if self._single else key
        for results in elements:
            yield _create_row(self._names, [*keys, window.start, window.end, *results])
