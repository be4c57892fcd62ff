"""Whether a function reads its record only as `record[0]` or `record.price`: such a function cannot tell a Row from a tuple, with
names or without, which is made at a third of the cost and read without a call.

Its code says so: every instruction must be one of a list whose meaning is known, and each that loads the record must be followed
by a constant and the subscript, or by the attribute. What hands the record on, looks at its type or length, unpacks it, takes a
slice or assigns does not qualify, nor what uses something that can look at its callers' variables, such as `locals`. Nor does what
a newer Python compiles to other instructions: then there are Rows, as ever.

It also says whether what a function makes of values that cannot be changed is such a value itself: numbers, texts and tuples of
them, put together by operators and a few functions of Python's own. Then nobody needs to look at each result.
"""

from __future__ import annotations

import dis
import inspect
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from penstock.common.types import Row, _ReadByName

# They take values, and see nothing of who calls them.
_PYTHONS_OWN: Final = frozenset(
    {
        "abs", "all", "any", "bool", "bytes", "chr", "dict", "divmod", "enumerate", "filter", "float", "format", "frozenset",
        "hash", "int", "isinstance", "iter", "len", "list", "map", "max", "min", "next", "ord", "pow", "range", "repr",
        "reversed", "round", "set", "sorted", "str", "sum", "tuple", "zip",
    }
)  # fmt: skip
# These see more: a function from one of these modules might look at the record in its caller's frame.
_LOOK_AT_CALLERS: Final = frozenset({"builtins", "sys", "inspect", "traceback", "gc", "bdb", "pdb", "__builtin__"})

# Of Python 3.11 to 3.13. These touch local variables, ...
_OF_LOCALS: Final = frozenset(
    {
        "LOAD_FAST", "STORE_FAST", "LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST",
        "MAKE_CELL", "LOAD_CLOSURE", "LOAD_DEREF", "STORE_DEREF",
    }
)  # fmt: skip
# ... and these none.
_OF_OTHERS: Final = frozenset(
    {
        "RESUME", "NOP", "PRECALL", "PUSH_NULL", "POP_TOP", "COPY", "SWAP",
        "LOAD_CONST", "LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR",
        "CALL", "KW_NAMES", "CALL_KW",
        "UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_NOT", "UNARY_INVERT", "TO_BOOL",
        "BINARY_OP", "BINARY_SUBSCR", "BINARY_SLICE", "BUILD_SLICE", "COMPARE_OP", "IS_OP", "CONTAINS_OP",
        "BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP", "BUILD_SET", "BUILD_STRING",
        "LIST_APPEND", "LIST_EXTEND", "LIST_TO_TUPLE", "SET_ADD", "SET_UPDATE", "MAP_ADD", "DICT_UPDATE", "DICT_MERGE",
        "UNPACK_SEQUENCE", "UNPACK_EX", "STORE_SUBSCR", "DELETE_SUBSCR", "DELETE_FAST", "RAISE_VARARGS", "CALL_FUNCTION_EX",
        "FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE",
        "GET_ITER", "FOR_ITER", "END_FOR",
        "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP",
        "POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE",
        "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_FORWARD_IF_FALSE",
        "POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE",
        "POP_JUMP_BACKWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_FALSE",
        "POP_JUMP_BACKWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NOT_NONE",
        "RETURN_VALUE", "RETURN_CONST", "RETURN_GENERATOR", "YIELD_VALUE",
        "CALL_INTRINSIC_1", "RERAISE",  # the end of a generator
        "COPY_FREE_VARS", "MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE",  # functions inside see what they are given, and cells
    }
)  # fmt: skip

# These make nothing that can be changed of what cannot be changed: no list, no object of a class of the user's.
_PLAIN: Final = frozenset(
    {
        "RESUME", "NOP", "PRECALL", "PUSH_NULL", "POP_TOP", "COPY", "SWAP", "LOAD_CONST", "LOAD_FAST", "STORE_FAST",
        "LOAD_GLOBAL", "CALL", "LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST",
        "UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_NOT", "UNARY_INVERT", "TO_BOOL",
        "BINARY_OP", "BINARY_SUBSCR", "COMPARE_OP", "IS_OP", "CONTAINS_OP",
        "BUILD_TUPLE", "BUILD_STRING", "FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE",
        "JUMP_FORWARD", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP",
        "POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE",
        "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_FORWARD_IF_FALSE",
        "POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE",
        "RETURN_VALUE", "RETURN_CONST",
    }
)  # fmt: skip
_GIVE_PLAIN: Final = frozenset(
    {"abs", "bool", "chr", "float", "int", "len", "max", "min", "ord", "pow", "round", "str"}
)

_GENERATOR_ENDS: Final = 3  # INTRINSIC_STOPITERATION_ERROR
_METHODS_BY_FLAG: Final = sys.version_info >= (3, 12)  # LOAD_ATTR says with a bit that a method is to be called
# What a Row has besides its fields.
OF_ROWS: Final = frozenset(name for base in Row.__mro__ if base is not _ReadByName for name in vars(base))


@dataclass(frozen=True, slots=True)
class FieldsRead:
    """`positions` of fields that are read, from 0; `by_name`: some of them by name."""

    positions: frozenset[int]
    by_name: bool


@dataclass(frozen=True, slots=True)
class _Reads:
    positions: frozenset[int]
    fields: frozenset[str]  # that are read by name
    names: frozenset[str]  # of globals, and Python's own


def fields_read(function: Any, names: Sequence[str], arguments: int = 1) -> FieldsRead | None:
    """What a function of so many arguments, the first of them a record with fields of these names, reads of it; None: it may do
    more with it than read fields that it has."""
    method = type(function) is MethodType
    code_of = function.__func__ if method else function
    if type(code_of) is not FunctionType:
        return None
    found, width = _reads(code_of.__code__, int(method), arguments), len(names)
    if (
        found is None
        or not all(-width <= position < width for position in found.positions)
        or not found.fields.issubset(names)
        or not _sees_no_callers(code_of, found.names)
    ):
        return None
    at = [position % width for position in found.positions] + [names.index(field) for field in found.fields]
    return FieldsRead(frozenset(at), bool(found.fields))


def gives_plain(function: Any) -> bool:
    """Whether a function of one argument gives what cannot be changed, a value or a tuple of values, if its argument is such."""
    if type(function) is not FunctionType:
        return False
    names = _plain_names(function.__code__)
    return names is not None and names.isdisjoint(function.__globals__)


def _sees_no_callers(function: FunctionType, names: Iterable[str]) -> bool:
    """Whether nothing that a function takes from outside can look at its variables."""
    known = function.__globals__
    for name in names:
        if name in known:
            if _looks_at_callers(known[name]):
                return False
        elif name not in _PYTHONS_OWN:
            return False
    for cell in function.__closure__ or ():
        try:
            if _looks_at_callers(cell.cell_contents):
                return False
        except ValueError:  # it has no value yet
            return False
    return True


def _looks_at_callers(value: Any) -> bool:
    if isinstance(value, ModuleType):
        return value.__name__ in _LOOK_AT_CALLERS
    if isinstance(value, BuiltinFunctionType) and value.__module__ == "builtins":
        return value.__name__ not in _PYTHONS_OWN
    if isinstance(value, FunctionType | BuiltinFunctionType):
        return value.__module__ in _LOOK_AT_CALLERS
    return value is super


@lru_cache(1_000)
def _reads(code: CodeType, place: int, arguments: int) -> _Reads | None:
    """How a function reads the argument at `place`; None if not as a field alone."""
    others = code.co_flags & (
        inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    )
    if others or code.co_argcount != place + arguments or code.co_kwonlyargcount:
        return None
    record = code.co_varnames[place]
    positions: set[int] = set()
    fields: set[str] = set()
    names: set[str] = set()
    steps = list(dis.get_instructions(code))
    for at, step in enumerate(steps):
        if step.opname in _OF_LOCALS:
            if step.argval == record:
                field = _field(steps[at : at + 3])
                if field is None:
                    return None
                if isinstance(field, str):
                    fields.add(field)
                else:
                    positions.add(field)
            elif isinstance(step.argval, tuple) and record in step.argval:
                return None
        elif step.opname == "LOAD_GLOBAL":
            names.add(step.argval)
        elif step.opname not in _OF_OTHERS or (step.opname == "CALL_INTRINSIC_1" and step.arg != _GENERATOR_ENDS):
            return None
    return _Reads(frozenset(positions), frozenset(fields), frozenset(names))


def _field(steps: list[dis.Instruction]) -> int | str | None:
    """The position or the name that is read, if this is the record, a constant and the subscript, or the record and the attribute;
    and no other way leads between them."""
    kinds = [step.opname for step in steps]
    if kinds[:2] == ["LOAD_FAST", "LOAD_ATTR"]:
        name, by_call = steps[1].argval, _METHODS_BY_FLAG and bool((steps[1].arg or 0) & 1)
        return None if steps[1].is_jump_target or by_call or name in OF_ROWS or name[:1] == "_" else str(name)
    if kinds != ["LOAD_FAST", "LOAD_CONST", "BINARY_SUBSCR"]:
        return None
    position = steps[1].argval
    if type(position) is not int or steps[1].is_jump_target or steps[2].is_jump_target:
        return None
    return position


@lru_cache(1_000)
def _plain_names(code: CodeType) -> frozenset[str] | None:
    """The functions of Python's own that a function of one argument uses; None if what it gives may be changed."""
    others = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_COROUTINE | inspect.CO_GENERATOR
    if code.co_flags & (others | inspect.CO_ASYNC_GENERATOR) or code.co_argcount != 1 or code.co_kwonlyargcount:
        return None
    steps = list(dis.get_instructions(code))
    names = {step.argval for step in steps if step.opname == "LOAD_GLOBAL"}
    argument = code.co_varnames[0]
    for at, step in enumerate(steps):
        if step.opname in _PLAIN:
            continue
        is_field = step.opname == "LOAD_ATTR" and at and steps[at - 1].argval == argument
        if not (is_field and isinstance(_field(steps[at - 1 : at + 2]), str)):
            return None
    return frozenset(names) if names <= _GIVE_PLAIN else None
