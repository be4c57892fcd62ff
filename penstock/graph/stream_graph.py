"""StreamGraph: the program as written, one node an operator, one edge a connection. Pure data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import JobDefinitionError
from penstock.graph.iterations import Iteration
from penstock.graph.partitioner import Forward, Partitioner
from penstock.protocol.ids import NodeId


@dataclass(slots=True, kw_only=True)
class StreamNode:
    """One operator. `operator` is opaque to the graph: it is unpickled and opened by each subtask."""

    id: NodeId
    name: str
    kind: str  # "source", "operator" or "sink"
    operator: Any
    parallelism: int
    uid: str | None = None
    fixed_parallelism: bool = False  # it was set for this operator: a rescale of the job leaves it alone
    max_parallelism: int | None = None
    chainable: bool = True  # may be chained to what feeds it
    head: bool = False  # start_new_chain: may not be chained to what feeds it, but to what follows
    slot_sharing_group: str = "default"
    stateful: bool = False
    output_type: Any = None
    side_types: dict[str, Any] = field(default_factory=dict)  # of side outputs that declare one
    buffer_timeout_ms: int | None = None  # of what it sends; -1: full blocks only; None: as the job has it
    description: str = ""
    location: str = ""  # file:line of the call in the user's program, if known
    columnar: bool = False  # works on whole columns
    # Of columns that come to each input these only; None: any.
    reads: tuple[tuple[str, ...] | None, tuple[str, ...] | None] = (None, None)
    why_rows: str = ""  # could be columnar, but is not

    @property
    def operator_id(self) -> str:
        """The name of this operator's state: the uid, else one made of name and position in the program."""
        return self.uid or f"{re.sub(r'[^A-Za-z0-9]+', '-', self.name).strip('-').lower() or 'operator'}-{self.id}"

    @property
    def where(self) -> str:
        """Names the operator in messages: the name, the uid if the user gave one, and the line of the program."""
        details = [f"uid {self.uid!r}" if self.uid is not None else "", self.location]
        known = ", ".join(detail for detail in details if detail)
        return f"{self.name!r} ({known})" if known else repr(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEdge:
    """Records of one operator, or of one of its side outputs, go to another."""

    source: NodeId
    target: NodeId
    partitioner: Partitioner = field(default_factory=Forward)
    input: int = 0  # which input of a two-input operator
    tag: str | None = None  # a side output, or the main one
    implicit: bool = False  # the program named no partitioner: forward or rebalance, as the parallelisms have it


class StreamGraph:
    """The operators of a program as the user wrote them, before chaining."""

    def __init__(
        self, job_name: str = "penstock job", max_parallelism: int = 128, *, object_reuse: bool = False
    ) -> None:
        self.job_name = job_name
        self.max_parallelism = max_parallelism
        self.object_reuse = object_reuse
        self.nodes: dict[NodeId, StreamNode] = {}
        self.edges: list[StreamEdge] = []
        self.iterations: list[Iteration] = []

    def add_node(self, node: StreamNode) -> None:
        """Adds an operator."""
        self.nodes[node.id] = node

    def add_edge(self, edge: StreamEdge) -> None:
        """Adds an edge; both its ends are there when `validate` is called."""
        self.edges.append(edge)

    def add_iteration(self, iteration: Iteration) -> None:
        """Adds a loop; its head and tail are nodes."""
        self.iterations.append(iteration)

    def inputs(self, node: NodeId) -> list[StreamEdge]:
        """The edges that lead to an operator."""
        return [edge for edge in self.edges if edge.target == node]

    def outputs(self, node: NodeId) -> list[StreamEdge]:
        """The edges that leave an operator."""
        return [edge for edge in self.edges if edge.source == node]

    def topological(self) -> Iterator[StreamNode]:
        """Sources first; ties in the order of the program, so that generated ids and levels never jump."""
        missing = {node: len(self.inputs(node)) for node in self.nodes}
        ready = sorted(node for node, count in missing.items() if count == 0)
        seen = 0
        while ready:
            node = ready.pop(0)
            seen += 1
            yield self.nodes[node]
            for edge in self.outputs(node):
                missing[edge.target] -= 1
                if missing[edge.target] == 0:
                    ready.append(edge.target)
            ready.sort()
        if seen != len(self.nodes):
            cycle = sorted(self.nodes[n].name for n, count in missing.items() if count > 0)
            raise JobDefinitionError(f"the operators {', '.join(cycle)} form a cycle: a plain edge cannot lead back")

    def validate(self) -> None:
        """Raises JobDefinitionError for a graph that cannot run: no operators, two with one uid, a parallelism that
        does not fit.
        """
        if not self.nodes:
            raise JobDefinitionError(
                "the job has no operators: create a source with env.from_collection, from_source or from_spark, "
                "and end a stream with sink_to, print or execute_and_collect before calling execute()"
            )
        uids: dict[str, StreamNode] = {}
        for node in self.topological():
            if node.parallelism < 1 or node.parallelism > self.max_parallelism:
                raise JobDefinitionError(
                    f"operator {node.where} has parallelism {node.parallelism}; it must be between 1 and the max "
                    f"parallelism {self.max_parallelism}: change set_parallelism or env.set_max_parallelism"
                )
            if node.max_parallelism is not None and node.parallelism > node.max_parallelism:
                raise JobDefinitionError(
                    f"operator {node.where} has parallelism {node.parallelism} but allows at most {node.max_parallelism}: "
                    "change set_parallelism or set_max_parallelism"
                    + ("; from_collection and window_all are never parallel" if node.max_parallelism == 1 else "")
                )
            if node.operator_id in uids:
                raise JobDefinitionError(
                    f"operators {uids[node.operator_id].where} and {node.where} have the same uid {node.operator_id!r}: "
                    "state is stored under the uid, so each operator needs its own"
                )
            uids[node.operator_id] = node
        for edge in self.edges:
            up, down = self.nodes[edge.source], self.nodes[edge.target]
            if isinstance(edge.partitioner, Forward) and up.parallelism != down.parallelism:
                raise JobDefinitionError(
                    f"forward() from {up.where} with parallelism {up.parallelism} to {down.where} with parallelism "
                    f"{down.parallelism} is not possible: use rebalance() or rescale(), or give both the same parallelism"
                )
