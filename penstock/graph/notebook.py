"""Plans, streams and jobs as notebooks show them: HTML without scripts, in the notebook's own colours. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from penstock.graph.drawing import plan_svg
from penstock.graph.job_graph import JobGraph
from penstock.protocol.ids import NodeId

_CELL = "padding:2px 10px;text-align:left"
_NUMBER = "padding:2px 10px;text-align:right;font-variant-numeric:tabular-nums"


class Plan(str):
    """What `env.explain()` gives: text that a notebook shows as a graph."""

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
    found: set[NodeId] = set()
    ahead = list(ends)
    while ahead:
        node = ahead.pop()
        if node not in found:
            found.add(node)
            ahead += sources.get(node, [])
    return sorted(found)


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
