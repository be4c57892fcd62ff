"""How streams hang together while a program is built.

What a program hands over counts as it is at the call: `for i in range(3): s.map(lambda v: v + i)` is three functions.

As in Flink it is serialised there and then, and the job gets what comes out of the bytes. So nothing that the program does
to the object afterwards changes the job, and what cannot travel is refused at the line that gave it.

Functions often hold the environment or a stream by accident: a method of a class that builds the job, a lambda beside it.
These belong to the program and stay there; with them every function would carry all operators before it, and those in turn
all before them.

Programs of an environment that have been executed: a stream of one may be used again, as in Flink.

Executing a program empties the environment. A stream that was built before still knows its operators: when something new
is attached to it, they and all that leads to them become part of the next program, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import cloudpickle

from penstock.datastream.misuse import call_site
from penstock.errors import JobDefinitionError
from penstock.graph import partitioner as p
from penstock.graph.stream_graph import StreamNode
from penstock.protocol.ids import NodeId

if TYPE_CHECKING:
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a stream comes from: a node and one of its outputs."""

    node: StreamNode
    tag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramEdge:
    """An edge as built; without a partitioner it becomes forward or rebalance once parallelisms are final."""

    source: NodeId
    target: NodeId
    partitioner: p.Partitioner | None = None
    input: int = 0
    tag: str | None = None


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


class EarlierPrograms:
    """The operators of programs that were executed before in this environment, for streams that are used again."""

    def __init__(self) -> None:
        self._nodes: dict[NodeId, StreamNode] = {}
        self._edges: dict[NodeId, list[Any]] = {}  # by target
        self._frames: dict[NodeId, Any] = {}
        self._bounded_frames: set[NodeId] = set()
        self._heads: set[NodeId] = set()

    def keep(self, env: StreamExecutionEnvironment) -> None:
        """The environment's program is about to be emptied."""
        self._nodes.update(env._nodes)
        for edge in env._edges:
            known = self._edges.setdefault(edge.target, [])
            if edge not in known:
                known.append(edge)
        self._frames.update(env._spark_frames)
        self._bounded_frames |= env._bounded_frames
        self._heads.update(iteration.head.id for iteration in env._iterations)

    def recall(self, env: StreamExecutionEnvironment, node: StreamNode) -> None:
        """Make `node`, and what leads to it, part of the program that is being built."""
        waiting = [node.id]
        while waiting:
            current = waiting.pop()
            if current in env._nodes:
                continue
            if current not in self._nodes:
                raise JobDefinitionError(
                    f"operator {node.where} belongs to another StreamExecutionEnvironment: streams of two environments cannot "
                    "be in one program"
                )
            if current in self._heads:
                raise JobDefinitionError(
                    f"operator {node.where} follows from an iteration of a program that has been executed: build the iteration "
                    "again"
                )
            env._nodes[current] = self._nodes[current]
            env._edges.extend(self._edges.get(current, ()))
            if current in self._frames:
                env._spark_frames[current] = self._frames[current]
            env._bounded_frames |= self._bounded_frames & {current}
            waiting.extend(edge.source for edge in self._edges.get(current, ()))
