"""What a program hands over counts as it is at the call: `for i in range(3): s.map(lambda v: v + i)` is three functions.

As in Flink it is serialised there and then, and the job gets what comes out of the bytes. So nothing that the program does
to the object afterwards changes the job, and what cannot travel is refused at the line that gave it.

Functions often hold the environment or a stream by accident: a method of a class that builds the job, a lambda beside it.
These belong to the program and stay there; with them every function would carry all operators before it, and those in turn
all before them.
"""

from __future__ import annotations

from typing import Any, TypeVar

import cloudpickle

from penstock.datastream.misuse import call_site
from penstock.errors import JobDefinitionError

T = TypeVar("T")


def captured(value: T, what: str) -> T:
    """A copy of a function, selector, source, sink, assigner or a whole operator, as it is now. `what` names it."""
    try:
        copy: T = cloudpickle.loads(cloudpickle.dumps(value))
    except Exception as error:
        raise JobDefinitionError(
            f"{call_site() or 'this program'}: {what} cannot be sent to the cluster: {type(error).__name__}: {error}. Something "
            f"it refers to{_of(value)} cannot be pickled, such as a lock, a socket, an open file or a SparkSession: create it "
            "in open() instead"
        ) from error
    return copy


def _of(value: Any) -> str:
    functions = [type(function).__name__ for function in getattr(value, "user_functions", tuple)()]
    return f" ({', '.join(functions)})" if functions else ""


class LeftBehind:
    """In the place of the environment or a stream, where a function refers to it. It may be held, but not used."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # only asked for by copying, printing and the like
            raise AttributeError(name)
        raise JobDefinitionError(
            f"a function of this job uses {name!r} of the {self._what}, which describes the job and is not there when it runs: "
            "take what you need from it before, and let the function refer to that"
        )
