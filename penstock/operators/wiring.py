"""The operators of one subtask, each connected with those behind it and with the channels of other subtasks.

Where the results of an operator in a chain go.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

import cloudpickle

from penstock.common.typeinfo import TypeInformation
from penstock.common.values import own_all
from penstock.errors import JobDefinitionError
from penstock.graph.execution_graph import ExecutionGraph
from penstock.graph.job_graph import JobEdge
from penstock.graph.partitioner import Broadcast, Custom, Hash
from penstock.graph.stream_graph import StreamNode
from penstock.operators.base import Operator
from penstock.operators.routing import Router, create_router
from penstock.operators.simple import FilterOperator, fuse
from penstock.operators.source import SourceOperator
from penstock.protocol.events import Data, Event, IdleStatus, LatencyMarker, Watermark
from penstock.protocol.ids import NodeId, TaskId, VertexId
from penstock.records import Block, Columns, Rows
from penstock.records.convert import to_columns, travels_as_arrow
from penstock.records.typed import Typed


class ChainOutput:
    """Output of one operator: chained operators first, then the exchanges that start here. Where there are several, each
    gets records of its own: what one does to them is not seen by the others. With object reuse, as in Flink, they share."""

    __slots__ = ("_shared", "_sides", "_typed", "chained", "chained_sides", "routers", "side_routers")

    def __init__(
        self, typed: Typed | None = None, *, sides: Mapping[str, Typed] | None = None, object_reuse: bool = False
    ) -> None:
        """`typed` converts a block before anybody gets it, so that all find the same records and keys; `sides` those of side
        outputs."""
        self._typed, self._sides = typed, sides or {}
        self._shared = object_reuse
        self.chained: list[Operator] = []
        self.chained_sides: dict[str, list[Operator]] = {}
        self.routers: list[Router] = []
        self.side_routers: dict[str, list[Router]] = {}

    def block(self, block: Block) -> None:
        """Hands a block to the chained operators and the exchanges, converted and checked as its type says."""
        if self._typed is not None:
            block = self._typed.block(block)
        self._deliver(block, self.chained, self.routers)

    def side(self, tag: str, block: Block) -> None:
        """Hands a block to those that take this side output."""
        typed = self._sides.get(tag)
        if typed is not None:
            block = typed.block(block)
        self._deliver(block, self.chained_sides.get(tag, ()), self.side_routers.get(tag, ()))

    def only(self, operator: Operator) -> bool:
        """Whether blocks go to this chained operator as they are, and to nobody else."""
        return self._typed is None and self.chained == [operator] and not self.routers

    def _deliver(self, block: Block, operators: Sequence[Operator], routers: Sequence[Router]) -> None:
        others = len(operators) + len(routers)
        for operator in operators:
            others -= 1
            operator.process(0, self._copy(block) if others else block)
        for router in routers:
            others -= 1
            router.route(self._copy(block) if others else block)

    def _copy(self, block: Block) -> Block:
        if self._shared or isinstance(block, Columns):
            return block
        values = own_all(block.values)
        return block if values is block.values else Rows(values, block.timestamps)

    def watermark(self, timestamp: int) -> None:
        """Passes a watermark on."""
        for operator in self._operators():
            operator.on_watermark(timestamp)
        event = Watermark(timestamp)
        for router in self.all_routers():
            router.broadcast(event)

    def idle(self, idle: bool) -> None:
        """Passes a change between idle and active on."""
        for operator in self._operators():
            operator.on_idle(idle)
        event = IdleStatus(idle)
        for router in self.all_routers():
            router.broadcast(event)

    def marker(self, marker: LatencyMarker) -> None:
        """Passes a latency marker on."""
        for operator in self._operators():
            operator.on_marker(marker)
        for router in self.all_routers():
            router.mark(marker)

    def _operators(self) -> Iterable[Operator]:
        yield from self.chained
        for operators in self.chained_sides.values():
            yield from operators

    def all_routers(self) -> Iterable[Router]:
        """The exchanges that start here, of the main output and of side outputs."""
        yield from self.routers
        for routers in self.side_routers.values():
            yield from routers


COLUMN_BLOCKS: Final = 8  # times as many records may be in a block where nobody makes Python objects of them
_CALLS_PER_OPERATOR = 10
_CALLS_ELSEWHERE = 1_000  # Python's own limit

Emit: TypeAlias = Callable[[VertexId, int, int, Event], None]  # (target vertex, target subtask, channel there, event)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """The operators of one task, connected."""

    operators: dict[NodeId, Operator]
    outputs: dict[NodeId, ChainOutput]
    routers: list[Router]


def wire(graph: ExecutionGraph, task: TaskId, *, send: Emit, block_size: int) -> Wiring:
    """Fresh operators of a task, before `setup`."""
    vertex = graph.vertex(task)
    _allow_calls_along(len(vertex.nodes))
    operators = {node.id: _load(node) for node in vertex.nodes}
    reuse = graph.job.object_reuse
    outputs = {node.id: _output(node, operators[node.id], object_reuse=reuse) for node in vertex.nodes}
    for edge in vertex.chained:
        output, operator = outputs[edge.source], operators[edge.target]
        if edge.tag is None:
            output.chained.append(operator)
        else:
            output.chained_sides.setdefault(edge.tag, []).append(operator)
    routers = []
    for job_edge in vertex.outputs:
        edge = job_edge.stream_edge
        router = _router(graph, task, job_edge, operators[edge.source], send, block_size)
        routers.append(router)
        if edge.tag is None:
            outputs[edge.source].routers.append(router)
        else:
            outputs[edge.source].side_routers.setdefault(edge.tag, []).append(router)
    for edge in reversed(vertex.chained):
        if edge.tag is None and outputs[edge.source].only(operators[edge.target]):
            fuse(operators[edge.source], operators[edge.target])
    return Wiring(operators=operators, outputs=outputs, routers=routers)


def _allow_calls_along(operators: int) -> None:
    """Every operator of a chain calls the next, by way of its output: a block at the end of a long chain is deep in calls of
    Python's, which take no stack of C's but are counted."""
    needed = _CALLS_ELSEWHERE + _CALLS_PER_OPERATOR * operators
    if sys.getrecursionlimit() < needed:
        sys.setrecursionlimit(needed)


def _output(node: StreamNode, operator: Operator, *, object_reuse: bool) -> ChainOutput:
    where = f"operator {node.where}"
    typed = Typed(node.output_type, where) if _makes(operator) and node.output_type is not None else None
    sides = {tag: Typed(declared, f"side output {tag!r} of {where}") for tag, declared in node.side_types.items()}
    return ChainOutput(typed, sides=sides, object_reuse=object_reuse)


def _makes(operator: Operator) -> bool:
    """What an operator makes is converted to its declared type; what it hands on has been."""
    return (operator.gives == "rows" and not isinstance(operator, FilterOperator)) or isinstance(
        operator, SourceOperator
    )


def _load(node: StreamNode) -> Operator:
    """Operators travel as bytes: every subtask unpickles its own copy."""
    data = node.operator if isinstance(node.operator, bytes) else cloudpickle.dumps(node.operator)
    operator: Operator = cloudpickle.loads(data)
    return operator


def share_of(
    graph: ExecutionGraph, job_edge: JobEdge, block: Block, subtask: int, moved_from: int, block_size: int
) -> list[Block]:
    """What a subtask gets of a block that was on its way to another when the parallelism was another one. Records with a key go
    where their state is; those that anybody may have stay together."""
    partitioner = job_edge.stream_edge.partitioner
    parallelism = graph.job.vertices[job_edge.target].parallelism
    if isinstance(partitioner, Broadcast):
        raise JobDefinitionError(
            f"the unaligned checkpoint holds {len(block)} broadcast records that were on their way to subtask {moved_from} and may "
            "have been taken by others: resume with the same parallelism, take a savepoint, and rescale from that one"
        )
    if not isinstance(partitioner, Hash | Custom):
        return [block] if moved_from % parallelism == subtask else []
    mine: list[Block] = []

    def keep(target: int, event: Event) -> None:
        if target == subtask:
            assert isinstance(event, Data)
            mine.append(event.block)

    source = next(n for n in graph.job.vertices[job_edge.source].nodes if n.id == job_edge.stream_edge.source)
    declared = source.output_type if job_edge.stream_edge.tag is None else None
    router = create_router(
        partitioner,
        upstream=0,
        targets=range(parallelism),
        max_parallelism=graph.job.max_parallelism,
        input_type=declared,
        send=keep,
        block_size=block_size,
    )
    if isinstance(block, Columns) and declared is not None:
        router.pack = partial(to_columns, type_info=declared, where=f"operator {source.where}", checked=False)
    router.route(block)
    router.flush()
    return mine


def _router(
    graph: ExecutionGraph, task: TaskId, job_edge: JobEdge, operator: Operator, send: Emit, block_size: int
) -> Router:
    edge = job_edge.stream_edge
    channel = graph.channel_of(job_edge, task.subtask)
    source = next(node for node in graph.vertex(task).nodes if node.id == edge.source)
    declared: TypeInformation | None = source.output_type if edge.tag is None else None
    router = create_router(
        edge.partitioner,
        upstream=task.subtask,
        targets=graph.targets_of(job_edge, task.subtask),
        max_parallelism=graph.job.max_parallelism,
        input_type=declared,
        send=lambda target, event: send(job_edge.target, target, channel, event),
        block_size=block_size,
    )
    router.timeout_ms = source.buffer_timeout_ms
    receivers = graph.job.vertices[job_edge.target].nodes
    router.reads = next(node for node in receivers if node.id == edge.target).reads[edge.input]
    if all(node.columnar for node in receivers):
        router.column_rows = COLUMN_BLOCKS * block_size
    if declared is not None and travels_as_arrow(declared):
        checked = _makes(operator)
        router.pack = partial(to_columns, type_info=declared, where=f"operator {source.where}", checked=checked)
    return router
