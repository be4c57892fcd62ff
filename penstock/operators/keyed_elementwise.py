"""Map, flat_map and filter behind `key_by`: their rich functions have state of the record's key, as in PyFlink."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.common.typeinfo import TypeInformation
from penstock.functions import Function
from penstock.operators.fused import Kind
from penstock.operators.keyed_records import keyed_records
from penstock.operators.lean_rows import LeanRows, Reader
from penstock.operators.simple import (
    ElementwiseOperator,
    FilterOperator,
    FlatMapOperator,
    FunctionOperator,
    MapOperator,
)
from penstock.records import Block, Rows
from penstock.state.backend import NO_KEY


class KeyedElementwise(ElementwiseOperator):
    """Makes the key of each record the current one before the function is called with it."""

    def __init__(
        self, function: Any, selector: Callable[[Any], Any], input_type: TypeInformation | None = None
    ) -> None:
        super().__init__(function, input_type)
        self.selector = selector

    def _taken(
        self, block: Block, kinds: tuple[Kind, ...], functions: list[Callable[[Any], Any]]
    ) -> tuple[Rows, LeanRows | None, Callable[[Any], Any]]:
        readers = [Reader(function) for function in functions[: self._readers(kinds)]]
        whole = kinds[0] == "filter"
        rows, keys, lean = keyed_records(block, self.input_type, self.selector, readers, whole=whole)
        function, state = functions[0], self.ctx.state
        coming: Iterator[Any] = map(self.selector, rows.values) if keys is None else iter(keys)

        def with_key(value: Any) -> Any:
            state.current_key = next(coming)  # it is called once for each record, in order
            return function(value)

        return rows, lean, with_key

    def process(self, input: int, block: Block) -> None:
        super().process(input, block)
        self.ctx.state.current_key = NO_KEY


class KeyedMapOperator(KeyedElementwise, MapOperator):
    """Runs a MapFunction with keyed state."""


class KeyedFlatMapOperator(KeyedElementwise, FlatMapOperator):
    """Runs a FlatMapFunction with keyed state."""


class KeyedFilterOperator(KeyedElementwise, FilterOperator):
    """Runs a FilterFunction with keyed state."""


_KEYED: Final[dict[type[FunctionOperator], type[KeyedElementwise]]] = {
    MapOperator: KeyedMapOperator,
    FlatMapOperator: KeyedFlatMapOperator,
    FilterOperator: KeyedFilterOperator,
}


def is_rich(function: Any) -> bool:
    """Whether the function can have asked for state: only `open` is given the RuntimeContext."""
    return isinstance(function, Function) and type(function).open is not Function.open


def with_keys(operator: FunctionOperator, selector: Callable[[Any], Any]) -> KeyedElementwise | None:
    """The keyed form of an operator whose function may have state; None if it cannot, and keys would only cost time."""
    keyed = _KEYED.get(type(operator))
    if keyed is None or not is_rich(operator.function):
        return None
    return keyed(operator.function, selector, operator.input_type)
