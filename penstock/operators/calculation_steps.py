"""The code of a function that only calculates, as steps of a stack machine:

    lambda e: (e[0], e.price * 2)     record, constant 0, [] ─▶ record, field price, constant 2, * ─▶ tuple of 2

Every instruction must be one whose meaning is known, and the only jumps those of `and` and `or`. The instructions are those of
Python 3.11; what another version compiles to others has no steps.
"""

from __future__ import annotations

import dis
import inspect
from functools import lru_cache
from types import CodeType, FunctionType, MethodType
from typing import Any, Final, TypeAlias

from penstock.operators.calculation_signs import SIGNS

# What is done, and with what: a constant, a name, a number of fields.
Program: TypeAlias = tuple[tuple[str, Any], ...]

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


def program_of(function: Any) -> Program | None:
    """The steps of a function of one record; None if it does more than calculate."""
    method = type(function) is MethodType
    code_of = function.__func__ if method else function
    return _program(code_of.__code__, int(method)) if type(code_of) is FunctionType else None


@lru_cache(1_000)
def _program(code: CodeType, place: int) -> Program | None:
    # `place`: of the record among its arguments.
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
            if step.argrepr not in SIGNS:
                return None
            program.append((step.argrepr, None))
        elif name in _SIMPLE:
            program.append((_SIMPLE[name], None))
        elif name in _WITH_VALUE and not (name == "STORE_FAST" and step.argval in arguments):
            program.append((_WITH_VALUE[name], step.argval))
        else:
            return None
    return None
