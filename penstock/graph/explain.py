"""The plan for people (`explain`) and for tools (JSON in the shape of Flink's execution plan).

Plans, streams and jobs as notebooks show them: HTML without scripts, in the notebook's own colours. Pure.

A job graph as SVG, for notebooks: boxes on levels from left to right, arrows that cross no box. Pure.

The web page draws the same picture with what flows through it (`service/web/layout.js`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Any, Final

from penstock.graph.iterations import feedback_edges, reached
from penstock.graph.job_graph import JobEdge, JobGraph, JobVertex
from penstock.graph.stream_graph import StreamGraph
from penstock.protocol.ids import NodeId, VertexId


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
            "columnar": int(node.columnar),  # a number: programs for PyFlink read the plan with eval
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


def explain(job: JobGraph, execution: str = "") -> str:
    """Levels, vertices with their chains, the exchanges between them, and which operators work on columns. `execution` says how
    the job would be run."""
    lines = [
        f"{job.job_name}: {len(job.vertices)} vertices on {job.levels} levels in {job.slots} slots, "
        f"{job.levels - 1} exchanges, max parallelism {job.max_parallelism}"
    ]
    lines += [execution] if execution else []
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


_WIDTH, _LINE, _HEAD, _ALONG, _ACROSS, _LANE = 210, 18, 26, 90, 18, 12
_STUB, _APPROACH, _LOOP, _TURN, _MARGIN = 12, 22, 22, 8, 4
_LETTERS: Final = 28
_COLOUR: Final = "#2a8fb3"  # on white and on black


@dataclass(slots=True, kw_only=True, eq=False)
class _Place:
    """A vertex's box, or the lane in which an arrow passes a level."""

    height: int
    vertex: JobVertex | None = None
    before: list[_Place] = field(default_factory=list)
    x: int = 0
    y: float = 0.0
    order: float = 0.0

    @property
    def middle(self) -> float:
        return self.y + self.height / 2

    @property
    def wish(self) -> float:
        return sum(place.order for place in self.before) / len(self.before) if self.before else 0.0


@dataclass(slots=True, kw_only=True, eq=False)
class _Arrow:
    edge: JobEdge
    stops: list[_Place]
    leaves: float = 0.0
    comes: float = 0.0


def plan_svg(job: JobGraph) -> str:
    """A box for each vertex with its chain, arrows with their partitioners, and what iterations send back, dashed."""
    levels: list[list[_Place]] = [[] for _ in range(job.levels)]
    boxes: dict[VertexId, _Place] = {}
    for vertex in job.vertices.values():
        boxes[vertex.id] = _Place(height=_HEAD + _LINE * len(vertex.nodes) + 6, vertex=vertex)
        levels[vertex.level].append(boxes[vertex.id])
    arrows = [_lead(edge, boxes, levels) for vertex in job.vertices.values() for edge in vertex.inputs]
    loops = feedback_edges(job)
    side = _APPROACH if loops else 0
    across = _arrange(levels, _MARGIN + side)
    _spread(arrows, lambda arrow: arrow.stops[0], lambda arrow: arrow.stops[1], "leaves")
    _spread(arrows, lambda arrow: arrow.stops[-1], lambda arrow: arrow.stops[-2], "comes")
    drawn = [_arrow(arrow) for arrow in arrows]
    drawn += [_back(boxes[tail], boxes[head], across + _LOOP * (i + 1) - 8) for i, (tail, head) in enumerate(loops)]
    drawn += [_box(place) for place in boxes.values()]
    width = job.levels * (_WIDTH + _ALONG) - _ALONG + 2 * (_MARGIN + side)
    height = across + _LOOP * len(loops) + _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:g}" viewBox="0 0 {width} {height:g}" '
        f'style="max-width:100%;height:auto;font:12px sans-serif" role="img" aria-label="{escape(job.job_name)}">'
        f"{''.join(drawn)}</svg>"
    )


# ---------------------------------------------------------------- places


def _lead(edge: JobEdge, boxes: Mapping[VertexId, _Place], levels: Sequence[list[_Place]]) -> _Arrow:
    """An arrow over several levels passes those between in lanes of their own."""
    source, target = boxes[edge.source], boxes[edge.target]
    stops = [source]
    assert source.vertex is not None
    assert target.vertex is not None
    for level in range(source.vertex.level + 1, target.vertex.level):
        levels[level].append(_Place(height=_LANE, before=[stops[-1]]))
        stops.append(levels[level][-1])
    target.before.append(stops[-1])
    return _Arrow(edge=edge, stops=[*stops, target])


def _arrange(levels: Sequence[list[_Place]], left: int) -> float:
    """Beside what is read from, so that arrows cross little; each level in the middle. Returns the whole height."""
    bottoms = []
    for number, level in enumerate(levels):
        level.sort(key=lambda place: place.wish)
        y = float(_MARGIN)
        for position, place in enumerate(level):
            place.x, place.y, place.order = left + number * (_WIDTH + _ALONG), y, (position + 0.5) / len(level)
            y += place.height + _ACROSS
        bottoms.append(y - _ACROSS)
    lowest = max(bottoms)
    for level, bottom in zip(levels, bottoms, strict=True):
        for place in level:
            place.y += (lowest - bottom) / 2
    return lowest


def _spread(
    arrows: Sequence[_Arrow], mine: Callable[[_Arrow], _Place], other: Callable[[_Arrow], _Place], end: str
) -> None:
    """Several arrows of a box begin, or end, at places of their own, in the order of their other ends."""
    groups: dict[int, list[_Arrow]] = {}
    for arrow in arrows:
        groups.setdefault(id(mine(arrow)), []).append(arrow)
    for group in groups.values():
        group.sort(key=lambda arrow: other(arrow).middle)
        for position, arrow in enumerate(group, start=1):
            place = mine(arrow)
            setattr(arrow, end, place.y + place.height * position / (len(group) + 1))


# ---------------------------------------------------------------- shapes


def _box(place: _Place) -> str:
    vertex, x, y = place.vertex, place.x, place.y
    assert vertex is not None
    chain = "".join(
        f'<text x="{x + 12}" y="{y + _HEAD + 12 + _LINE * line:g}" fill="currentColor">{_cut(node.name)}'
        f"<title>{escape(node.operator_id)}</title></text>"
        for line, node in enumerate(vertex.nodes)
    )
    return (
        f'<rect x="{x}" y="{y:g}" width="{_WIDTH}" height="{place.height}" rx="7" fill="{_COLOUR}" fill-opacity=".1" '
        f'stroke="{_COLOUR}"/><text x="{x + 10}" y="{y + 17:g}" font-weight="bold" fill="currentColor">'
        f"[{vertex.id}] ×{vertex.parallelism}</text>{chain}"
    )


def _arrow(arrow: _Arrow) -> str:
    points = [(place.x, place.middle) for place in arrow.stops]
    points[0], points[-1] = (points[0][0], arrow.leaves), (points[-1][0], arrow.comes)
    path, labels = "", []
    for number, ((x1, y1), (x2, y2)) in enumerate(pairwise(points)):
        end = x2 - 6 if number == len(points) - 2 else x2
        middle = (x1 + _WIDTH + end) / 2
        path += f"{'L' if path else 'M'}{x1 + _WIDTH} {y1:g}C{middle:g} {y1:g} {middle:g} {y2:g} {end} {y2:g}"
        labels.append((middle, (y1 + y2) / 2))
    return _line(path) + _head(*points[-1]) + _label(*labels[0], arrow.edge.stream_edge.partitioner.name)


def _back(tail: _Place, head: _Place, lane: float) -> str:
    """Out at the tail's far side, under the graph, in at the head's near side: also when both are one box."""
    x1, y1, x2, y2, r = tail.x + _WIDTH, tail.y + tail.height - 12, head.x, head.y + head.height - 12, _TURN
    path = (
        f"M{x1} {y1:g}H{x1 + _STUB - r}q{r} 0 {r} {r}V{lane - r:g}q0 {r} {-r} {r}H{x2 - _APPROACH + r}"
        f"q{-r} 0 {-r} {-r}V{y2 + r:g}q0 {-r} {r} {-r}H{x2 - 6}"
    )
    return _line(path, dashed=True) + _head(x2, y2) + _label((x1 + x2) / 2, lane - 5, "FEEDBACK")


def _line(path: str, *, dashed: bool = False) -> str:
    dashes = ' stroke-dasharray="3 4"' if dashed else ""
    return f'<path d="{path}" fill="none" stroke="currentColor" opacity=".6"{dashes}/>'


def _head(x: float, y: float) -> str:
    return f'<path d="M{x - 7} {y - 4:g}L{x} {y:g}L{x - 7} {y + 4:g}z" fill="currentColor" fill-opacity=".6"/>'


def _label(x: float, y: float, text: str) -> str:
    return (
        f'<text x="{x:g}" y="{y - 5:g}" text-anchor="middle" font-size="10" fill="currentColor">{escape(text)}</text>'
    )


def _cut(text: str) -> str:
    return escape(text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…")


_CELL = "padding:2px 10px;text-align:left"
_NUMBER = "padding:2px 10px;text-align:right;font-variant-numeric:tabular-nums"


class Plan(str):
    """The result of `env.explain()`: text that a notebook shows as a graph."""

    svg: str

    def __new__(cls, text: str, job: JobGraph) -> Plan:
        made = super().__new__(cls, text)
        made.svg = plan_svg(job)
        return made

    def _repr_html_(self) -> str:
        return f"{self.svg}<details><summary>as text</summary><pre>{escape(self)}</pre></details>"


def leading_to(ends: Iterable[NodeId], edges: Iterable[tuple[NodeId, NodeId]]) -> list[NodeId]:
    """The nodes on any way to `ends`, those first that were built first."""
    sources: dict[NodeId, list[NodeId]] = {}
    for source, target in edges:
        sources.setdefault(target, []).append(source)
    return sorted(reached(ends, lambda node: sources.get(node, ())))


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A column whose name begins with > has numbers: they are right-aligned."""
    style = [_NUMBER if column.startswith(">") else _CELL for column in columns]
    head = "".join(
        f'<th style="{look}">{escape(column.lstrip(">"))}</th>' for look, column in zip(style, columns, strict=True)
    )
    body = ""
    for row in rows:
        cells = "".join(f'<td style="{look}">{escape(str(cell))}</td>' for look, cell in zip(style, row, strict=True))
        body += f"<tr>{cells}</tr>"
    return (
        f"<table><caption style='{_CELL};font-weight:bold'>{escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )
