"""The plan for people (`explain`) and for tools (JSON in the shape of Flink's execution plan)."""

from __future__ import annotations

import json
from typing import Any

from penstock.graph.iterations import feedback_edges
from penstock.graph.job_graph import JobGraph
from penstock.graph.stream_graph import StreamGraph


def plan_json(graph: StreamGraph) -> str:
    """Flink's `getExecutionPlan` shape: one node an operator, predecessors with their ship strategy."""
    nodes: list[dict[str, Any]] = []
    for node in graph.topological():
        entry: dict[str, Any] = {
            "id": node.id,
            "type": node.name,
            "pact": {"source": "Data Source", "sink": "Data Sink"}.get(node.kind, "Operator"),
            "contents": node.description or node.name,
            "parallelism": node.parallelism,
            "uid": node.operator_id,
            "columnar": node.columnar,
        }
        inputs = graph.inputs(node.id)
        if inputs:
            entry["predecessors"] = [
                {
                    "id": edge.source,
                    "ship_strategy": edge.partitioner.name,
                    "side": ("second" if edge.input == 1 else "first")
                    if edge.tag is None
                    else f"side output {edge.tag}",
                }
                for edge in inputs
            ]
        nodes.append(entry)
    return json.dumps({"nodes": nodes}, indent=2)


def explain(job: JobGraph) -> str:
    """Levels, vertices with their chains, the exchanges between them, and which operators work on columns."""
    lines = [
        f"{job.job_name}: {len(job.vertices)} vertices on {job.levels} levels in {job.slots} slots, "
        f"{job.levels - 1} exchanges an epoch, one Spark job an epoch, max parallelism {job.max_parallelism}"
    ]
    for level in range(job.levels):
        lines.append(f"level {level}")
        for vertex in job.at_level(level):
            lines.append(f"  [{vertex.id}] {vertex.name}  ×{vertex.parallelism}")
            for edge in vertex.inputs:
                stream = edge.stream_edge
                tag = f" side output {stream.tag!r}" if stream.tag is not None else ""
                which = f" input {stream.input + 1}" if any(e.stream_edge.input for e in vertex.inputs) else ""
                lines.append(f"      ← {stream.partitioner.name}{which} from [{edge.source}]{tag}")
            for tail, head in feedback_edges(job):
                if tail == vertex.id:
                    lines.append(f"      ↺ feedback to [{head}] in the next epoch")
            columnar = [node.name for node in vertex.nodes if node.columnar]
            if columnar:
                lines.append(f"      columns: {', '.join(columnar)}")
            lines += [f"      rows: {node.name}, because {node.why_rows}" for node in vertex.nodes if node.why_rows]
            uids = [f"{node.name}={node.operator_id}" for node in vertex.nodes if node.stateful]
            if uids:
                lines.append(f"      state: {', '.join(uids)}")
    return "\n".join(lines)
