"""Windows with an evictor: they hold every element with its timestamp, and reduce or aggregate only when they fire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.common.constants import MIN_LONG_VALUE
from penstock.common.metrics import MetricGroup
from penstock.functions.window.evictor import Evictor, TimestampedValue
from penstock.operators.window_contents import ListContents, WindowContents
from penstock.state.overlay import OverlayTable

if TYPE_CHECKING:
    from penstock.operators.window import WindowOperator
    from penstock.operators.window_namespace import WindowNamespace

Element: TypeAlias = tuple[Any, int | None]  # (value, timestamp)


def element(value: Any, timestamp: int) -> Element:
    return value, None if timestamp <= MIN_LONG_VALUE else timestamp


class EvictingContents(ListContents):
    """(value, timestamp) pairs in the order of arrival, read as `inner` would have made of them."""

    kind = "list-with-timestamps"  # not "list": a checkpoint of the same window without evictor does not fit

    def __init__(self, inner: WindowContents) -> None:
        self.inner = inner

    def user_functions(self) -> Iterable[Any]:
        return self.inner.user_functions()

    def inputs(self, current: Any) -> list[Any]:
        if not current:
            return self.inner.inputs_of_nothing()
        contents = self.inner.first(current[0][0])
        for value, _ in current[1:]:
            contents = self.inner.add(contents, value)
        return self.inner.inputs(contents)


class EvictingWindows(Evictor.EvictorContext):
    """What the window operator does with an evictor when a pane fires; also what the evictor sees of the operator."""

    def __init__(self, operator: WindowOperator, evictor: Evictor[Any, Any], table: OverlayTable) -> None:
        self._operator, self._evictor, self._table = operator, evictor, table

    def evaluate(self, entry: Any, contents: list[Element], window: Any, namespace: WindowNamespace) -> None:
        elements: list[TimestampedValue[Any]] = [TimestampedValue(*pair) for pair in contents]
        self._evictor.evict_before(elements, len(elements), window, self)
        self._operator.evaluate(_pairs(elements), window, namespace)
        self._evictor.evict_after(elements, len(elements), window, self)
        if elements:
            self._table.put(entry, _pairs(elements))
        else:
            self._table.delete(entry)

    def get_current_processing_time(self) -> int:
        return self._operator.ctx.processing_time()

    def get_metric_group(self) -> MetricGroup:
        return self._operator.runtime_context.get_metrics_group()

    def get_current_watermark(self) -> int:
        return self._operator.current_watermark


def _pairs(elements: list[TimestampedValue[Any]]) -> list[Element]:
    return [(element.value, element.timestamp) for element in elements]
