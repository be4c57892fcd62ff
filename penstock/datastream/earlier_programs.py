"""Programs of an environment that have been executed: a stream of one may be used again, as in Flink.

Executing a program empties the environment. A stream that was built before still knows its operators: when something new
is attached to it, they and all that leads to them become part of the next program, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import JobDefinitionError
from penstock.graph.stream_graph import StreamNode
from penstock.protocol.ids import NodeId

if TYPE_CHECKING:
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment


class EarlierPrograms:
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
