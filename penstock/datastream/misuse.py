"""Mistakes that can be told while a program is built, before anything runs: what is wrong, and where in the program."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.common.absent import missing_attribute
from penstock.errors import JobDefinitionError
from penstock.functions import Function
from penstock.graph.stream_graph import StreamNode
from penstock.operators.base import Operator
from penstock.protocol.ids import NodeId

if TYPE_CHECKING:
    from penstock.common.execution_config import ExecutionConfig
    from penstock.datastream.data_stream import DataStream
    from penstock.datastream.program import Origin, ProgramEdge


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
