"""Whether a function reads its record only as `record[0]`, `record[1]`: such a function cannot tell a Row from a tuple, which is
made at a third of the cost and read without a call.

Its code says so: every instruction must be one of a list whose meaning is known, and each that loads the record must be followed
by a constant and the subscript. What hands the record on, looks at its type or length, unpacks it, takes a slice, assigns, or
uses a closure or a global other than a few of Python's own (`locals` would show the record) does not qualify. Nor does what a
newer Python compiles to other instructions: then there are Rows, as ever.
"""

from __future__ import annotations

import dis
import inspect
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

# They take values, and see nothing of who calls them.
_PYTHONS_OWN: Final = frozenset(
    {
        "abs", "bool", "bytes", "chr", "dict", "divmod", "float", "frozenset", "int", "isinstance", "len", "list", "max", "min",
        "ord", "pow", "range", "round", "set", "sorted", "str", "sum", "tuple",
    }
)  # fmt: skip

# Of Python 3.11 to 3.13. These touch local variables, ...
_OF_LOCALS: Final = frozenset(
    {"LOAD_FAST", "STORE_FAST", "LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST"}
)
# ... and these none.
_OF_OTHERS: Final = frozenset(
    {
        "RESUME", "NOP", "PRECALL", "PUSH_NULL", "POP_TOP", "COPY", "SWAP",
        "LOAD_CONST", "LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR",
        "CALL", "KW_NAMES", "CALL_KW",
        "UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_NOT", "UNARY_INVERT", "TO_BOOL",
        "BINARY_OP", "BINARY_SUBSCR", "BINARY_SLICE", "BUILD_SLICE", "COMPARE_OP", "IS_OP", "CONTAINS_OP",
        "BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_CONST_KEY_MAP", "BUILD_SET", "BUILD_STRING", "LIST_EXTEND",
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
    }
)  # fmt: skip

_GENERATOR_ENDS: Final = 3  # INTRINSIC_STOPITERATION_ERROR


@dataclass(frozen=True, slots=True)
class _Reads:
    lowest: int
    highest: int
    names: frozenset[str]  # of Python's own


def reads_by_position(function: Any, width: int, arguments: int = 1) -> bool:
    """Whether a function of so many arguments, the first of them a record of `width` fields, does nothing with that one but read
    fields that it has."""
    method = type(function) is MethodType
    code_of = function.__func__ if method else function
    if type(code_of) is not FunctionType:
        return False
    found = _reads(code_of.__code__, int(method), arguments)
    return (
        found is not None
        and -width <= found.lowest
        and found.highest < width
        and found.names.isdisjoint(code_of.__globals__)
    )


@lru_cache(1_000)
def _reads(code: CodeType, place: int, arguments: int) -> _Reads | None:
    """How a function reads the argument at `place`; None if not by position alone."""
    others = code.co_flags & (
        inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    )
    if (
        others
        or code.co_argcount != place + arguments
        or code.co_kwonlyargcount
        or code.co_freevars
        or code.co_cellvars
    ):
        return None
    record, positions, names = code.co_varnames[place], {0}, set()
    steps = list(dis.get_instructions(code))
    for at, step in enumerate(steps):
        if step.opname in _OF_LOCALS:
            if step.argval == record:
                position = _position(steps[at : at + 3])
                if position is None:
                    return None
                positions.add(position)
            elif isinstance(step.argval, tuple) and record in step.argval:
                return None
        elif step.opname == "LOAD_GLOBAL":
            names.add(step.argval)
        elif step.opname not in _OF_OTHERS or (step.opname == "CALL_INTRINSIC_1" and step.arg != _GENERATOR_ENDS):
            return None
    return _Reads(min(positions), max(positions), frozenset(names)) if names <= _PYTHONS_OWN else None


def _position(steps: list[dis.Instruction]) -> int | None:
    """The position that is read, if this is the record, a constant and the subscript; and no other way leads between them."""
    if [step.opname for step in steps] != ["LOAD_FAST", "LOAD_CONST", "BINARY_SUBSCR"]:
        return None
    position = steps[1].argval
    if type(position) is not int or steps[1].is_jump_target or steps[2].is_jump_target:
        return None
    return position
