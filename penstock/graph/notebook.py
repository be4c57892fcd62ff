"""Plans, streams and jobs as notebooks show them: HTML without scripts, in the notebook's own colours. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from penstock.graph.job_graph import JobGraph, JobVertex
from penstock.protocol.ids import NodeId, VertexId

_WIDTH, _LINE, _HEAD, _ALONG, _ACROSS = 210, 18, 26, 90, 18
_CELL = "padding:2px 10px;text-align:left"
_LETTERS = 28


class Plan(str):
    """What `env.explain()` gives: text that a notebook shows as a graph."""

    svg: str

    def __new__(cls, text: str, job: JobGraph) -> Plan:
        made = super().__new__(cls, text)
        made.svg = plan_svg(job)
        return made

    def _repr_html_(self) -> str:
        return f"{self.svg}<details><summary>as text</summary><pre>{escape(self)}</pre></details>"


def plan_svg(job: JobGraph) -> str:
    """A box for each vertex with its chain, levels from left to right, arrows with their partitioners."""
    at: dict[VertexId, tuple[int, int, int]] = {}
    bottom = 0
    for level in range(job.levels):
        y = 4
        for vertex in job.at_level(level):
            height = _HEAD + _LINE * len(vertex.nodes) + 6
            at[vertex.id] = (4 + level * (_WIDTH + _ALONG), y, height)
            y += height + _ACROSS
        bottom = max(bottom, y)
    width = job.levels * (_WIDTH + _ALONG) - _ALONG + 8
    arrows = [arrow for vertex in job.vertices.values() for arrow in _arrows(vertex, at)]
    boxes = [_box(vertex, *at[vertex.id]) for vertex in job.vertices.values()]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{bottom}" viewBox="0 0 {width} {bottom}" '
        f'style="max-width:100%;height:auto;font:12px sans-serif" role="img" aria-label="{escape(job.job_name)}">'
        f"{''.join(arrows)}{''.join(boxes)}</svg>"
    )


def _box(vertex: JobVertex, x: int, y: int, height: int) -> str:
    chain = "".join(
        f'<text x="{x + 12}" y="{y + _HEAD + 12 + _LINE * line}" fill="currentColor">{_cut(node.name)}'
        f"<title>{escape(node.operator_id)}</title></text>"
        for line, node in enumerate(vertex.nodes)
    )
    return (
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{height}" rx="7" fill="#0b6e8f" fill-opacity=".1" stroke="#0b6e8f"/>'
        f'<text x="{x + 10}" y="{y + 17}" font-weight="bold" fill="currentColor">[{vertex.id}] ×{vertex.parallelism}</text>{chain}'
    )


def _arrows(vertex: JobVertex, at: Mapping[VertexId, tuple[int, int, int]]) -> Iterable[str]:
    x2, y, height = at[vertex.id]
    y2 = y + height // 2
    for edge in vertex.inputs:
        left, top, tall = at[edge.source]
        x1, y1 = left + _WIDTH, top + tall // 2
        middle = (x1 + x2) // 2
        label = edge.stream_edge.partitioner.name
        yield (
            f'<path d="M{x1} {y1}C{middle} {y1} {middle} {y2} {x2 - 6} {y2}" fill="none" stroke="currentColor" opacity=".6"/>'
            f'<path d="M{x2 - 7} {y2 - 4}L{x2} {y2}L{x2 - 7} {y2 + 4}z" fill="currentColor" fill-opacity=".6"/>'
            f'<text x="{middle}" y="{(y1 + y2) // 2 - 6}" text-anchor="middle" font-size="10" fill="currentColor">'
            f"{escape(label)}</text>"
        )


def leading_to(ends: Iterable[NodeId], edges: Iterable[tuple[NodeId, NodeId]]) -> list[NodeId]:
    """The nodes on any way to `ends`, those first that were built first."""
    sources: dict[NodeId, list[NodeId]] = {}
    for source, target in edges:
        sources.setdefault(target, []).append(source)
    found: set[NodeId] = set()
    ahead = list(ends)
    while ahead:
        node = ahead.pop()
        if node not in found:
            found.add(node)
            ahead += sources.get(node, [])
    return sorted(found)


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f'<th style="{_CELL}">{escape(column)}</th>' for column in columns)
    body = ""
    for row in rows:
        cells = "".join(f'<td style="{_CELL}">{escape(str(cell))}</td>' for cell in row)
        body += f"<tr>{cells}</tr>"
    return (
        f"<table><caption style='{_CELL};font-weight:bold'>{escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _cut(text: str) -> str:
    return escape(text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…")
