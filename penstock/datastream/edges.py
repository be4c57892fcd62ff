"""How streams hang together while a program is built."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.graph import partitioner as p
from penstock.graph.stream_graph import StreamNode
from penstock.protocol.ids import NodeId


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a stream comes from: a node and one of its outputs."""

    node: StreamNode
    tag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An edge as built; without a partitioner it becomes forward or rebalance once parallelisms are final."""

    source: NodeId
    target: NodeId
    partitioner: p.Partitioner | None = None
    input: int = 0
    tag: str | None = None
