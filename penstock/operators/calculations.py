"""Functions that only calculate, over a whole block of columns at once instead of record by record.

    lambda e: (e[0], e.price * 2)      key 1 2 3 │ price 5 6 7    →    (1, 10) (2, 12) (3, 14)
    lambda e: e[1] % 4 == 0                                       →            (2, 12)

What such a function does is read from its code (`calculation_steps`): it takes fields of its record, constants and variables from
outside, calculates and compares, and gives a value or a tuple. Anything else (a call, a loop, a method) is not done here: the
function is called for each record, as ever. So it is where columns and Python would differ (`calculation_signs`): a result that 64
bits do not hold, a division by zero, a comparison of large whole numbers with floats, a field that is missing. Nothing is lost by
trying, as such functions do nothing else. Results are what Python would have made, values of Python's own classes. Nobody can step
through a function that is not called: with a debugger or a tracer at work there is none of this.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import FunctionType, MethodType
from typing import Any, Final

import numpy as np

from penstock.common.typeinfo import TypeInformation
from penstock.operators.calculation_signs import SIGNS, negative, truth
from penstock.operators.calculation_steps import Program, program_of
from penstock.operators.calculation_values import (
    MADE,
    Bools,
    CalledInstead,
    Constant,
    Given,
    Places,
    Records,
    Tuple,
    Value,
    records_of,
)
from penstock.operators.fused import Kind
from penstock.records import Columns

_FEW: Final = 200  # records: calling a function for each of so many is as cheap


@dataclass(frozen=True, slots=True)
class Calculated:
    """What the first `steps` functions of a chain give: `values`, the timestamps that are left, and after each function how many
    records there are."""

    values: list[Any]
    timestamps: list[int | None] | None
    left: tuple[int, ...]

    @property
    def steps(self) -> int:
        """How many functions were calculated."""
        return len(self.left)


def calculated(
    block: Columns, type_info: TypeInformation | None, kinds: Sequence[Kind], functions: Sequence[Any]
) -> Calculated | None:
    """The results of the functions at the beginning of a chain that only calculate; None if there are none, or too few records.
    Filters alone only if they are the whole chain: what follows reads from columns, too."""
    if len(block) < _FEW or sys.gettrace() is not None:
        return None
    programs = []
    for kind, function in zip(kinds, functions, strict=True):
        program = None if kind == "flat_map" else program_of(function)
        if program is None:
            break
        programs.append(program)
    only_filters = "map" not in kinds[: len(programs)]
    if not programs or (only_filters and len(programs) < len(kinds)):
        return None
    try:
        with np.errstate(all="ignore"):
            return _run(block, type_info, kinds, functions, programs)
    except CalledInstead:
        return None


def _run(
    block: Columns,
    type_info: TypeInformation | None,
    kinds: Sequence[Kind],
    functions: Sequence[Any],
    programs: Sequence[Program],
) -> Calculated:
    records = records_of(block.batch, type_info)
    count, left = len(block), []
    chosen: Places | None = None  # of what filters have kept
    for kind, function, program in zip(kinds, functions, programs, strict=False):
        given = _evaluate(program, function, records)
        if kind == "map":
            if not isinstance(given, MADE):
                raise CalledInstead
            records = given
        else:
            kept = np.flatnonzero(truth(given))
            if len(kept) < count:
                chosen = kept if chosen is None else chosen[kept]
                records, count = records.take(kept), len(kept)
        left.append(count)
    stamps = block.timestamps if chosen is None or block.timestamps is None else block.timestamps[chosen]
    return Calculated(list(records.listed(count)), None if stamps is None else stamps.tolist(), tuple(left))


def _evaluate(program: Program, function: Any, records: Records) -> Value:
    code_of: Any = function.__func__ if type(function) is MethodType else function
    stack: list[Value] = []
    variables: dict[str, Value] = {}
    for does, what in program:
        match does:
            case "record":
                stack.append(records)
            case "constant":
                stack.append(what)
            case "load":
                if what not in variables:
                    raise CalledInstead
                stack.append(variables[what])
            case "store":
                variables[what] = stack.pop()
            case "global":
                stack.append(_from_outside(code_of.__globals__.get(what, _Nothing)))
            case "cell":
                stack.append(_from_outside(_contents(code_of, what)))
            case "field":
                value = stack.pop()
                if not isinstance(value, Given):
                    raise CalledInstead
                stack.append(value.named(what))
            case "[]":
                position, value = stack.pop(), stack.pop()
                if not isinstance(value, Given | Tuple):
                    raise CalledInstead
                stack.append(value.at(position))
            case "tuple":
                fields = tuple(stack[len(stack) - what :])
                if not fields or any(isinstance(part, Given) for part in fields):
                    raise CalledInstead
                del stack[len(stack) - what :]
                stack.append(Tuple(fields))
            case "negative":
                stack.append(negative(stack.pop()))
            case "not":
                stack.append(Bools(~truth(stack.pop())))
            case _:
                right, left = stack.pop(), stack.pop()
                stack.append(SIGNS[does](left, right))
    return stack.pop()


class _Nothing:
    """In the place of a variable that is not there."""


def _from_outside(value: Any) -> Constant:
    if type(value) not in (int, float, str):
        raise CalledInstead
    constant: Constant = value
    return constant


def _contents(function: FunctionType, name: str) -> Any:
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    try:
        return cells[name].cell_contents
    except ValueError:  # it has no value yet
        raise CalledInstead from None
