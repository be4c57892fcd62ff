"""Stateless operators: map, flat_map, filter. They work block by block, which is where their speed comes from.

What a function gives is a value (`penstock.common.values`): it is looked at the moment it is given, because the next
operator sees it only when the block is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from penstock.common.typeinfo import TypeInformation
from penstock.common.values import ATOMS, own
from penstock.operators.base import Operator
from penstock.records import Block
from penstock.records.convert import to_rows


class FunctionOperator(Operator):
    """An operator around one user function, given as a function object or a plain callable."""

    method = "map"

    def __init__(self, function: Any, input_type: TypeInformation | None = None) -> None:
        super().__init__()
        self.function = function
        self.input_type = input_type

    def user_functions(self) -> Iterable[Any]:
        return (self.function,)

    def bound(self) -> Callable[[Any], Any]:
        method: Callable[[Any], Any] = getattr(self.function, self.method, self.function)
        return method


class MapOperator(FunctionOperator):
    method = "map"

    def process(self, input: int, block: Block) -> None:
        rows = to_rows(block, self.input_type)
        self.ctx.metrics.records_in += len(rows)
        function = self.bound()
        out: list[Any] = []
        append, atoms = out.append, ATOMS
        value: Any = None
        try:
            for value in rows.values:  # the error names the record it stopped at
                result = function(value)
                append(result if type(result) in atoms else own(result))
        except Exception as error:
            self.fail(error, "map", value, has_record=True)
        self.emit(out, rows.timestamps)


class FilterOperator(FunctionOperator):
    method = "filter"

    def process(self, input: int, block: Block) -> None:
        rows = to_rows(block, self.input_type)
        self.ctx.metrics.records_in += len(rows)
        function = self.bound()
        keep: list[int] = []
        out: list[Any] = []
        index, value = 0, None
        try:
            for index, value in enumerate(rows.values):
                if function(value):
                    keep.append(index)
                    out.append(value if type(value) in ATOMS else own(value))
        except Exception as error:
            self.fail(error, "filter", value, has_record=True)
        stamps = rows.timestamps
        self.emit(out, stamps if stamps is None or len(keep) == len(rows) else [stamps[i] for i in keep])


class FlatMapOperator(FunctionOperator):
    method = "flat_map"

    def process(self, input: int, block: Block) -> None:
        rows = to_rows(block, self.input_type)
        self.ctx.metrics.records_in += len(rows)
        function = self.bound()
        out: list[Any] = []
        append, atoms = out.append, ATOMS
        given = rows.timestamps
        stamps: list[int | None] = []
        value: Any = None
        try:
            for index, value in enumerate(rows.values):
                before = len(out)
                results = function(value)
                if results is not None:
                    for result in results:
                        append(result if type(result) in atoms else own(result))
                if given is not None:
                    stamps.extend([given[index]] * (len(out) - before))
        except Exception as error:
            self.fail(error, "flat_map", value, has_record=True)
        self.emit(out, None if given is None else stamps)
