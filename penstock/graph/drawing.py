"""A job graph as SVG, for notebooks: boxes on levels from left to right, arrows that cross no box. Pure.

The web page draws the same picture with what flows through it (`jobmanager/web/layout.js`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise
from typing import Final

from penstock.graph.iterations import feedback_edges
from penstock.graph.job_graph import JobEdge, JobGraph, JobVertex
from penstock.protocol.ids import VertexId

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
