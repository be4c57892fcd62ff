"""What a program hands over counts as it is at the call: `for i in range(3): s.map(lambda v: v + i)` is three functions.

As in Flink it is serialised there and then, and the job gets what comes out of the bytes. So nothing that the program does
to the object afterwards changes the job, and what cannot travel is refused at the line that gave it.
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
