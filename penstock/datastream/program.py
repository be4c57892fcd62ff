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

Mistakes that can be told while a program is built, before anything runs: what is wrong, and where in the program.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import cloudpickle

from penstock.common.absent import missing_attribute
from penstock.errors import JobDefinitionError
from penstock.functions import Function
from penstock.graph import partitioner as p
from penstock.graph.stream_graph import StreamNode
from penstock.operators.base import Operator
from penstock.protocol.ids import NodeId

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    from penstock.common.execution_config import ExecutionConfig
    from penstock.datastream.data_stream import DataStream
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment

    # Of records and of keys. `DataStream` without a parameter is `DataStream[Any]`.
    Record = TypeVarWithDefault("Record", default=Any)
    Key = TypeVarWithDefault("Key", default=Any)
else:  # Python 3.13 is the first whose own TypeVar has defaults; only type checkers ask for them
    Record, Key = TypeVar("Record"), TypeVar("Key")


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


class KeysNeededError(JobDefinitionError, AttributeError):
    """A verb of keyed streams on one without keys. Also an AttributeError: `hasattr` says no, as it should."""


_NEED_KEYS: Final = {
    "window": "window_all(…) for windows over the whole stream",
    "count_window": "count_window_all(…) for windows over the whole stream",
    "reduce": "window_all(…).reduce(…) for one result over the whole stream",
    "sum": "key_by(lambda record: 0) for one sum over the whole stream",
    "min": "key_by(lambda record: 0) for one minimum over the whole stream",
    "max": "key_by(lambda record: 0) for one maximum over the whole stream",
    "min_by": "key_by(lambda record: 0) for one minimum over the whole stream",
    "max_by": "key_by(lambda record: 0) for one maximum over the whole stream",
    "interval_join": "key_by(lambda record: 0) on both streams for a join of all with all",
}


def no_such_verb(stream: DataStream, name: str) -> AttributeError:
    """For `DataStream.__getattr__`."""
    if name not in _NEED_KEYS:
        return missing_attribute(stream, name)
    return KeysNeededError(
        f"{name}() of the stream from {describe(stream._origins)} needs keys: call key_by(…) before it, or use "
        f"{_NEED_KEYS[name]}"
    )


def describe(origins: Iterable[Origin]) -> str:
    """Where a stream comes from: the operators, with the lines of the program that made them."""
    return " and ".join(dict.fromkeys(origin.node.where for origin in origins))


def what(value: Any) -> str:
    """For messages: what was passed instead of what was wanted."""
    return f"the class {value.__name__} (pass an instance)" if inspect.isclass(value) else f"a {type(value).__name__}"


def check_function(function: Any, kind: type, verb: str) -> None:
    """Raises JobDefinitionError unless `function` is callable or an instance of `kind`; a function class that was not
    instantiated is refused.
    """
    uninstantiated = inspect.isclass(function) and issubclass(function, Function)
    if uninstantiated or not (callable(function) or isinstance(function, kind)):
        raise JobDefinitionError(f"{verb} takes a function or a {kind.__name__}, not {what(function)}")


def call_site() -> str:
    """The file and line of the program that called into Penstock; empty if everything on the stack is Penstock's."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").startswith("penstock."):
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def check_program(nodes: Mapping[NodeId, StreamNode], edges: Iterable[ProgramEdge], config: ExecutionConfig) -> None:
    """What can only be told when the program is complete. (What graphs themselves forbid is in `StreamGraph.validate`.)"""
    inputs: dict[NodeId, list[NodeId]] = {}
    for edge in edges:
        inputs.setdefault(edge.target, []).append(edge.source)
    for node in nodes.values():
        _check_declarations(node, config)
        if _operator(node).needs_timestamps:
            _check_timestamps(node, nodes, inputs)


def _operator(node: StreamNode) -> Operator:
    operator: Any = node.operator
    assert isinstance(operator, Operator)
    return operator


def _check_declarations(node: StreamNode, config: ExecutionConfig) -> None:
    """What `disable_auto_generated_uids` and `disable_generic_types` ask for."""
    if node.uid is None and not config.has_auto_generated_uids_enabled():
        raise JobDefinitionError(
            f"operator {node.where} has no uid, and generated ones are disabled: give it one with .uid('…')"
        )
    if node.kind != "sink" and node.output_type is None and config.has_generic_types_disabled():
        raise JobDefinitionError(
            f"operator {node.where} does not say what it emits, and generic types are disabled: declare its type, as in "
            "map(function, output_type=Types.STRING())"
        )


def _check_timestamps(
    node: StreamNode, nodes: Mapping[NodeId, StreamNode], inputs: Mapping[NodeId, list[NodeId]]
) -> None:
    """Every way from a source to an operator of event time must pass one that gives records their timestamps.

    Sources that may bring timestamps of their own count as giving them. If they do not, the operator says so when the
    first record comes.
    """
    waiting, seen = list(inputs.get(node.id, ())), set[NodeId]()
    while waiting:
        upstream = nodes[waiting.pop()]
        if upstream.id in seen or _operator(upstream).gives_timestamps:
            continue
        seen.add(upstream.id)
        if upstream.kind == "source":
            raise JobDefinitionError(
                f"operator {node.where} works in event time, but records of the source {upstream.where} get there without a "
                "timestamp: call assign_timestamps_and_watermarks(WatermarkStrategy….with_timestamp_assigner(…)) before it, "
                "or use a window of processing time"
            )
        waiting += inputs.get(upstream.id, ())
