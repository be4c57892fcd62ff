"""Functions that only calculate, over a whole block of columns at once instead of record by record.

    lambda e: (e[0], e.price * 2)      key 1 2 3 │ price 5 6 7    →    (1, 10) (2, 12) (3, 14)
    lambda e: e[1] % 4 == 0                                       →            (2, 12)

What such a function does is read from its code: it takes fields of its record, constants and variables from outside, calculates
and compares, and gives a value or a tuple. Anything else (a call, a loop, a method) is not done here: the function is called for
each record, as ever. So it is where columns and Python would differ: a result that 64 bits do not hold, a division by zero, a
comparison of large whole numbers with floats, a field that is missing. Nothing is lost by trying, as such functions do nothing
else. Results are what Python would have made, values of Python's own classes. Nobody can step through a function that is not
called: with a debugger or a tracer at work there is none of this.

The instructions are those of Python 3.11; where another version compiles to others, functions are called.
"""

from __future__ import annotations

import dis
import inspect
import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import repeat
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.common.typeinfo import TupleTypeInfo, TypeInformation
from penstock.operators.fused import Kind
from penstock.operators.positions import OF_ROWS
from penstock.records import Columns
from penstock.records.convert import field_values, fields_of, makes_rows, to_rows

_FEW: Final = 200  # records: calling a function for each of so many is as cheap
_LARGEST: Final = 2**63 - 1
_EXACT: Final = 2**53  # whole numbers up to here are floats, too


class _CalledInstead(Exception):
    """The function is to be called for each record."""


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
        program = None if kind == "flat_map" else _program_of(function)
        if program is None:
            break
        programs.append(program)
    only_filters = "map" not in kinds[: len(programs)]
    if not programs or (only_filters and len(programs) < len(kinds)):
        return None
    try:
        with np.errstate(all="ignore"):
            return _run(block, type_info, kinds, functions, programs)
    except _CalledInstead:
        return None


def _run(
    block: Columns,
    type_info: TypeInformation | None,
    kinds: Sequence[Kind],
    functions: Sequence[Any],
    programs: Sequence[_Program],
) -> Calculated:
    records: _Records = _Given.of(block.batch, type_info)
    count, left = len(block), []
    chosen: npt.NDArray[np.int64] | None = None  # the places of what filters have kept
    for kind, function, program in zip(kinds, functions, programs, strict=False):
        given = _evaluate(program, function, records)
        if kind == "map":
            if not isinstance(given, _COLUMNS | _Tuple):
                raise _CalledInstead
            records = given
        else:
            kept = np.flatnonzero(_truth(given))
            if len(kept) < count:
                chosen = kept if chosen is None else chosen[kept]
                records, count = records.take(kept), len(kept)
        left.append(count)
    stamps = block.timestamps if chosen is None or block.timestamps is None else block.timestamps[chosen]
    return Calculated(list(records.listed(count)), None if stamps is None else stamps.tolist(), tuple(left))


# ------------------------------------------------------------------------------------------------------------------- values


@dataclass(frozen=True)
class _Ints:
    """Whole numbers; `low` and `high` say between which they are, if that is known without looking."""

    array: npt.NDArray[np.int64]
    bounds: tuple[int, int] | None = None

    @cached_property
    def between(self) -> tuple[int, int]:
        if self.bounds is not None:
            return self.bounds
        return (int(self.array.min()), int(self.array.max())) if len(self.array) else (0, 0)

    @property
    def exact(self) -> bool:
        """Whether floats hold all of them."""
        low, high = self.between
        return low >= -_EXACT and high <= _EXACT

    def take(self, places: npt.NDArray[np.int64]) -> _Ints:
        return _Ints(self.array[places], self.between if "between" in self.__dict__ else self.bounds)

    def listed(self, count: int) -> Iterable[Any]:
        values: list[int] = self.array.tolist()
        return values


@dataclass(frozen=True)
class _Floats:
    array: npt.NDArray[np.float64]

    def take(self, places: npt.NDArray[np.int64]) -> _Floats:
        return _Floats(self.array[places])

    def listed(self, count: int) -> Iterable[Any]:
        values: list[float] = self.array.tolist()
        return values


@dataclass(frozen=True)
class _Bools:
    array: npt.NDArray[np.bool_]

    def take(self, places: npt.NDArray[np.int64]) -> _Bools:
        return _Bools(self.array[places])

    def listed(self, count: int) -> Iterable[Any]:
        values: list[bool] = self.array.tolist()
        return values


@dataclass(frozen=True)
class _Others:
    """A column that nothing is calculated of, but texts may be compared."""

    column: pa.Array
    kind: TypeInformation

    def take(self, places: npt.NDArray[np.int64]) -> _Others:
        return _Others(self.column.take(pa.array(places)), self.kind)

    def listed(self, count: int) -> Iterable[Any]:
        return field_values(self.column, self.kind)


@dataclass(frozen=True)
class _Tuple:
    fields: tuple[_Value, ...]

    def take(self, places: npt.NDArray[np.int64]) -> _Tuple:
        return _Tuple(tuple([f.take(places) if isinstance(f, _COLUMNS | _Tuple) else f for f in self.fields]))

    def listed(self, count: int) -> Iterable[Any]:
        return zip(
            *[f.listed(count) if isinstance(f, _COLUMNS | _Tuple) else repeat(f, count) for f in self.fields],
            strict=True,
        )

    def at(self, position: Any) -> _Value:
        if type(position) is not int or not -len(self.fields) <= position < len(self.fields):
            raise _CalledInstead
        return self.fields[position]


@dataclass(frozen=True)
class _Given:
    """The records of a block: Rows with fields of these `names`, or tuples (None). `places`: of those that filters have kept."""

    batch: pa.RecordBatch
    type_info: TypeInformation | None
    types: list[TypeInformation]
    names: list[str] | None
    places: npt.NDArray[np.int64] | None = None
    columns: dict[int, _Column] = field(default_factory=dict)

    @staticmethod
    def of(batch: pa.RecordBatch, type_info: TypeInformation | None) -> _Records:
        names, types = fields_of(batch, type_info)
        if isinstance(type_info, TupleTypeInfo):
            return _Given(batch, type_info, types, None)
        if makes_rows(batch, type_info):
            return _Given(batch, type_info, types, names)
        return _column(batch.column(0), types[0])

    def take(self, places: npt.NDArray[np.int64]) -> _Given:
        kept = places if self.places is None else self.places[places]
        return _Given(self.batch, self.type_info, self.types, self.names, kept)

    def listed(self, count: int) -> Iterable[Any]:
        kept = self.batch if self.places is None else self.batch.take(pa.array(self.places))
        return to_rows(Columns(kept), self.type_info).values

    def at(self, position: Any) -> _Value:
        if type(position) is not int or not -len(self.types) <= position < len(self.types):
            raise _CalledInstead
        position %= len(self.types)
        if position not in self.columns:
            column = _column(self.batch.column(position), self.types[position])
            self.columns[position] = column if self.places is None else column.take(self.places)
        return self.columns[position]

    def named(self, name: str) -> _Value:
        # One name twice, or one of Row's own: Python decides what is meant.
        if self.names is None or self.names.count(name) != 1 or name in OF_ROWS or name[:1] == "_":
            raise _CalledInstead
        return self.at(self.names.index(name))


def _column(column: pa.Array, kind: TypeInformation) -> _Column:
    of_arrow = column.type
    if not column.null_count and not kind.need_conversion():
        if pa.types.is_integer(of_arrow) and of_arrow != pa.uint64():
            return _Ints(column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False))
        if pa.types.is_floating(of_arrow) and of_arrow != pa.float16():
            return _Floats(column.to_numpy(zero_copy_only=False).astype(np.float64, copy=False))
    return _Others(column, kind)


_Column: TypeAlias = _Ints | _Floats | _Bools | _Others
_COLUMNS: Final = _Ints | _Floats | _Bools | _Others
_Constant: TypeAlias = int | float | str | bool | None
_Records: TypeAlias = _Given | _Column | _Tuple
_Value: TypeAlias = _Records | _Constant


# --------------------------------------------------------------------------------------------------------------- calculation


def _evaluate(program: _Program, function: Any, records: _Records) -> _Value:
    code_of: Any = function.__func__ if type(function) is MethodType else function
    stack: list[_Value] = []
    variables: dict[str, _Value] = {}
    for does, what in program:
        match does:
            case "record":
                stack.append(records)
            case "constant":
                stack.append(what)
            case "load":
                if what not in variables:
                    raise _CalledInstead
                stack.append(variables[what])
            case "store":
                variables[what] = stack.pop()
            case "global":
                stack.append(_from_outside(code_of.__globals__.get(what, _Given)))
            case "cell":
                stack.append(_from_outside(_contents(code_of, what)))
            case "field":
                stack.append(_named(stack.pop(), what))
            case "[]":
                position = stack.pop()
                stack.append(_at(stack.pop(), position))
            case "tuple":
                fields = tuple(stack[len(stack) - what :])
                if not fields or any(isinstance(field, _Given) for field in fields):
                    raise _CalledInstead
                del stack[len(stack) - what :]
                stack.append(_Tuple(fields))
            case "negative":
                stack.append(_negative(stack.pop()))
            case "not":
                stack.append(_Bools(~_truth(stack.pop())))
            case _:
                right = stack.pop()
                left = stack.pop()
                stack.append(_TWO[does](left, right))
    return stack.pop()


def _from_outside(value: Any) -> _Constant:
    if type(value) not in (int, float, str):
        raise _CalledInstead
    constant: _Constant = value
    return constant


def _contents(function: FunctionType, name: str) -> Any:
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    try:
        return cells[name].cell_contents
    except ValueError:  # it has no value yet
        raise _CalledInstead from None


def _named(value: _Value, name: str) -> _Value:
    if isinstance(value, _Given):
        return value.named(name)
    raise _CalledInstead


def _at(value: _Value, position: _Value) -> _Value:
    if isinstance(value, _Given | _Tuple):
        return value.at(position)
    raise _CalledInstead


def _truth(value: _Value) -> npt.NDArray[np.bool_]:
    if isinstance(value, _Bools):
        return value.array
    if isinstance(value, _Ints | _Floats):
        truth: npt.NDArray[np.bool_] = value.array != 0
        return truth
    raise _CalledInstead


def _negative(value: _Value) -> _Value:
    if isinstance(value, _Floats):
        return _Floats(-value.array)
    if isinstance(value, _Ints):
        low, high = value.between
        return _ints(np.negative, (value,), (-high, -low))
    raise _CalledInstead


def _ints(calculate: Callable[..., Any], of: Sequence[_Ints | int], bounds: tuple[int, int]) -> _Ints:
    """Of whole numbers, when the result surely fits."""
    if bounds[0] < -_LARGEST or bounds[1] > _LARGEST:
        raise _CalledInstead
    return _Ints(calculate(*(one.array if isinstance(one, _Ints) else np.int64(one) for one in of)), bounds)


def _are_ints(left: _Value, right: _Value) -> bool:
    """Whether both are whole numbers, of 64 bits, and at least one of them is a column."""
    return (
        isinstance(left, _Ints | int)
        and isinstance(right, _Ints | int)
        and (isinstance(left, _Ints) or isinstance(right, _Ints))
        and not any(
            isinstance(one, bool) or (isinstance(one, int) and not -_LARGEST <= one <= _LARGEST)
            for one in (left, right)
        )
    )


def _between(value: Any) -> tuple[int, int]:
    return value.between if isinstance(value, _Ints) else (value, value)


def _floats(left: _Value, right: _Value, *, exact: bool) -> tuple[Any, Any]:
    """Both as floats, at least one of them a column. Whole numbers become floats as Python makes them; `exact`: none of them may
    change."""
    return _float(left, exact), _float(right, exact)


def _float(value: _Value, exact: bool) -> Any:
    if isinstance(value, _Floats):
        return value.array
    if isinstance(value, _Ints) and (value.exact or not exact):
        return value.array.astype(np.float64)
    if type(value) is float:
        return value
    if type(value) is int and -_EXACT <= value <= _EXACT:
        return float(value)
    raise _CalledInstead


def _needs_column(left: _Value, right: _Value) -> None:
    if not isinstance(left, _Ints | _Floats) and not isinstance(right, _Ints | _Floats):
        raise _CalledInstead


def _sum_like(calculate: Callable[..., Any], bounds: Callable[..., tuple[int, int]]) -> Callable[..., _Value]:
    def both(left: _Value, right: _Value) -> _Value:
        if _are_ints(left, right):
            return _ints(calculate, (left, right), bounds(_between(left), _between(right)))  # type: ignore[arg-type]
        _needs_column(left, right)
        return _Floats(calculate(*_floats(left, right, exact=False)))

    return both


def _corners(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    corners = [a * b for a in one for b in other]
    return min(corners), max(corners)


def _divisor(value: _Value) -> tuple[int, int]:
    """Between which bounds a divisor is; none is 0."""
    low, high = _between(value)
    if low <= 0 <= high and not (isinstance(value, _Ints) and value.array.all()):
        raise _CalledInstead
    return low, high


def _whole_quotient(left: _Value, right: _Value) -> _Value:
    if not _are_ints(left, right):
        raise _CalledInstead
    _divisor(right)
    low, high = _between(left)
    largest = max(abs(low), abs(high))
    return _ints(np.floor_divide, (left, right), (-largest - 1, largest))  # type: ignore[arg-type]


def _remainder(left: _Value, right: _Value) -> _Value:
    if not _are_ints(left, right):
        raise _CalledInstead
    low, high = _divisor(right)
    return _ints(np.remainder, (left, right), (min(0, low + 1), max(0, high - 1)))  # type: ignore[arg-type]


def _quotient(left: _Value, right: _Value) -> _Value:
    _needs_column(left, right)
    one, other = _floats(left, right, exact=_are_ints(left, right))
    if not np.all(other):
        raise _CalledInstead
    return _Floats(one / other)


def _bits(calculate: Callable[..., Any]) -> Callable[..., _Value]:
    def both(left: _Value, right: _Value) -> _Value:
        if not _are_ints(left, right):
            raise _CalledInstead
        found = _ints(calculate, (left, right), (0, 0))  # type: ignore[arg-type]
        return _Ints(found.array)

    return both


def _shifted_right(left: _Value, right: _Value) -> _Value:
    if not isinstance(left, _Ints) or type(right) is not int or not 0 <= right < 64:
        raise _CalledInstead
    low, high = left.between
    return _ints(np.right_shift, (left, right), (low >> right, high >> right))


def _compared(compare: Callable[..., Any]) -> Callable[..., _Value]:
    def both(left: _Value, right: _Value) -> _Value:
        if _are_ints(left, right):
            return _Bools(compare(*(one.array if isinstance(one, _Ints) else np.int64(one) for one in (left, right))))  # type: ignore[arg-type]
        if isinstance(left, _Others) or isinstance(right, _Others):
            return _texts_compared(compare, left, right)
        _needs_column(left, right)
        return _Bools(compare(*_floats(left, right, exact=True)))

    return both


def _texts_compared(compare: Callable[..., Any], left: _Value, right: _Value) -> _Value:
    """Equal or not; the order of texts is Python's affair."""
    if type(left) is str:
        left, right = right, left
    if not isinstance(left, _Others) or compare not in (operator.eq, operator.ne):
        raise _CalledInstead
    if (
        type(right) is not str
        or left.column.type != pa.string()
        or left.column.null_count
        or left.kind.need_conversion()
    ):
        raise _CalledInstead
    equal = pc.equal(left.column, right).to_numpy(zero_copy_only=False)
    return _Bools(equal if compare is operator.eq else ~equal)


def _both_true(left: _Value, right: _Value) -> _Value:
    if isinstance(left, _Bools) and isinstance(right, _Bools):
        return _Bools(left.array & right.array)
    raise _CalledInstead


def _one_true(left: _Value, right: _Value) -> _Value:
    if isinstance(left, _Bools) and isinstance(right, _Bools):
        return _Bools(left.array | right.array)
    raise _CalledInstead


_TWO: Final[dict[str, Callable[[_Value, _Value], _Value]]] = {
    "+": _sum_like(operator.add, lambda one, other: (one[0] + other[0], one[1] + other[1])),
    "-": _sum_like(operator.sub, lambda one, other: (one[0] - other[1], one[1] - other[0])),
    "*": _sum_like(operator.mul, _corners),
    "//": _whole_quotient,
    "%": _remainder,
    "/": _quotient,
    "&": _bits(np.bitwise_and),
    "|": _bits(np.bitwise_or),
    "^": _bits(np.bitwise_xor),
    ">>": _shifted_right,
    "==": _compared(operator.eq),
    "!=": _compared(operator.ne),
    "<": _compared(operator.lt),
    "<=": _compared(operator.le),
    ">": _compared(operator.gt),
    ">=": _compared(operator.ge),
    "and": _both_true,
    "or": _one_true,
}


# ---------------------------------------------------------------------------------------------------------------------- code

_Program: TypeAlias = tuple[tuple[str, Any], ...]

_NOTHING: Final = frozenset({"RESUME", "NOP", "PRECALL", "COPY_FREE_VARS"})
_JUMPS: Final = {"JUMP_IF_FALSE_OR_POP": "and", "JUMP_IF_TRUE_OR_POP": "or"}
_SIMPLE: Final = {"BINARY_SUBSCR": "[]", "UNARY_NEGATIVE": "negative", "UNARY_NOT": "not"}
_WITH_VALUE: Final = {
    "LOAD_CONST": "constant",
    "LOAD_DEREF": "cell",
    "LOAD_ATTR": "field",
    "STORE_FAST": "store",
    "BUILD_TUPLE": "tuple",
}


def _program_of(function: Any) -> _Program | None:
    method = type(function) is MethodType
    code_of = function.__func__ if method else function
    return _program(code_of.__code__, int(method)) if type(code_of) is FunctionType else None


@lru_cache(1_000)
def _program(code: CodeType, place: int) -> _Program | None:
    """What a function of one record does, as steps of a stack machine; None if it does more than calculate."""
    others = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_COROUTINE | inspect.CO_GENERATOR
    if code.co_flags & (others | inspect.CO_ASYNC_GENERATOR) or code.co_argcount != place + 1 or code.co_kwonlyargcount:
        return None
    arguments = code.co_varnames[: place + 1]
    program: list[tuple[str, Any]] = []
    waiting: list[tuple[int, str]] = []  # where an `and` or an `or` ends
    steps = list(dis.get_instructions(code))
    for step in steps:
        while waiting and waiting[-1][0] == step.offset:
            program.append((waiting.pop()[1], None))
        name = step.opname
        if name in _NOTHING:
            continue
        if name == "RETURN_VALUE":
            return tuple(program) if step is steps[-1] and not waiting else None
        if name in _JUMPS:
            waiting.append((step.argval, _JUMPS[name]))
        elif name == "LOAD_FAST":
            if step.argval == arguments[place]:
                program.append(("record", None))
            elif step.argval in arguments:
                return None
            else:
                program.append(("load", step.argval))
        elif name == "LOAD_GLOBAL":
            if (step.arg or 0) & 1:  # to be called
                return None
            program.append(("global", step.argval))
        elif name in ("BINARY_OP", "COMPARE_OP"):
            if step.argrepr not in _TWO:
                return None
            program.append((step.argrepr, None))
        elif name in _SIMPLE:
            program.append((_SIMPLE[name], None))
        elif name in _WITH_VALUE and not (name == "STORE_FAST" and step.argval in arguments):
            program.append((_WITH_VALUE[name], step.argval))
        else:
            return None
    return None
