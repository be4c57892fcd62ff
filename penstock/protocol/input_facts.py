"""What a gate knows of its channels (watermark, idle, ended), written down by who sends on them.

A channel's number says only where it stands among the inputs of today's graph. After a rescale, or when `a.union(b)` became
`b.union(a)`, the same number is another sender. So a snapshot names the sender of each channel, and carries the *lineage* of
its vertex: a fingerprint of the vertex, its parallelism, and everything upstream of it.

* The lineage is the same: every sender is who it was and reads what it read. Each channel goes on exactly where it stood.
* It is not: a sender may bring records that another one brought before, so what was known of one holds for none. All channels
  of an edge start at the slowest that any old subtask had on it, idle or ended only if all were, and the gate at the slowest
  of its predecessors. Senders say where they are when they have been restored (`Task.begin_epoch`), which moves it on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.protocol.events import MAX_WATERMARK, MIN_WATERMARK


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """An input of a vertex, whatever its place among the others. `copy` tells apart edges that are alike (`a.union(a)`)."""

    sender: str  # operator id
    input: int
    tag: str | None
    copy: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """A subtask at the other end of an input."""

    edge: Edge
    subtask: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """`sources` are the operator ids of the sources upstream."""

    fingerprint: str
    sources: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Facts:
    watermark: int
    idle: bool = False
    behind: bool = False
    ended: bool = False


_UNKNOWN = _Facts(MIN_WATERMARK)


def store(gate: dict[str, Any], senders: Mapping[int, Sender], lineage: Lineage) -> dict[str, Any]:
    """The snapshot of a gate, by number, as it goes into a checkpoint. JSON-able."""
    ended = set(gate["ended"])
    edges: dict[Edge, list[list[Any]]] = {}
    for channel, watermark, idle, behind in gate["valve"]["channels"]:
        sender = senders[channel]
        edges.setdefault(sender.edge, []).append(
            [channel, sender.subtask, watermark, idle, behind, channel in ended],
        )
    return {
        "watermark": gate["valve"]["watermark"],
        "lineage": lineage.fingerprint,
        "sources": sorted(lineage.sources),
        "edges": [
            {"sender": e.sender, "input": e.input, "tag": e.tag, "copy": e.copy, "channels": channels}
            for e, channels in edges.items()
        ],
    }


def is_of(stored: dict[str, Any], lineage: Lineage) -> bool:
    """Whether every sender is who it was."""
    return stored.get("lineage") == lineage.fingerprint


def reopened(stored: Sequence[dict[str, Any]], lineage: Lineage) -> bool:
    """Whether records can come from a source that was not there before: then an input that had ended goes on."""
    return any(gate.get("sources") is not None and lineage.sources - set(gate["sources"]) for gate in stored)


def restore(stored: Sequence[dict[str, Any]], senders: Mapping[int, Sender], lineage: Lineage) -> dict[str, Any]:
    """The snapshot of a gate with these channels. `stored` is its own if the lineage is the same, else those of all old
    subtasks of its vertex."""
    if len(stored) == 1 and is_of(stored[0], lineage):
        watermark, facts = stored[0]["watermark"], _by_sender(stored[0], senders)
    else:
        watermark, facts = _slowest(stored, senders, reopened(stored, lineage))
    return {
        "valve": {
            "watermark": watermark,
            "channels": [[channel, f.watermark, f.idle, f.behind] for channel, f in facts.items()],
        },
        "ended": [channel for channel, f in facts.items() if f.ended],
    }


def _by_sender(gate: dict[str, Any], senders: Mapping[int, Sender]) -> dict[int, _Facts]:
    known = {
        Sender(edge=_edge(edge), subtask=subtask): _Facts(*facts)
        for edge in gate["edges"]
        for _, subtask, *facts in edge["channels"]
    }
    return {channel: known[sender] for channel, sender in senders.items()}


def _slowest(
    stored: Sequence[dict[str, Any]], senders: Mapping[int, Sender], reopened: bool
) -> tuple[int, dict[int, _Facts]]:
    known: dict[Edge, list[_Facts]] = {}
    by_number: list[_Facts] = []  # of checkpoints that named no senders
    for gate in stored:
        if "edges" not in gate:
            by_number += _numbered(gate)
            continue
        for edge in gate["edges"]:
            known.setdefault(_edge(edge), []).extend(_Facts(*facts) for _, _, *facts in edge["channels"])
    watermark = min(gate["watermark"] if "edges" in gate else gate["valve"]["watermark"] for gate in stored)
    facts = {channel: _merged(known.get(sender.edge, by_number), reopened) for channel, sender in senders.items()}
    # All had ended, and now there is a source that has not: event time begins again with it.
    return (MIN_WATERMARK if reopened and watermark == MAX_WATERMARK else watermark), facts


def _merged(facts: Sequence[_Facts], reopened: bool) -> _Facts:
    if not facts:
        return _UNKNOWN
    slowest = min(f.watermark for f in facts)
    if reopened and slowest == MAX_WATERMARK:
        return _UNKNOWN
    return _Facts(
        slowest,
        idle=all(f.idle for f in facts),
        ended=all(f.ended for f in facts) and not reopened,
    )


def _numbered(gate: dict[str, Any]) -> list[_Facts]:
    ended = set(gate["ended"])
    return [
        _Facts(watermark, idle, behind, channel in ended)
        for channel, watermark, idle, behind in gate["valve"]["channels"]
    ]


def _edge(stored: dict[str, Any]) -> Edge:
    return Edge(sender=stored["sender"], input=stored["input"], tag=stored["tag"], copy=stored["copy"])


def renumbered(stored: dict[str, Any] | None, senders: Mapping[int, Sender]) -> dict[int, int] | None:
    """Old channel → today's channel of the same sender, or of one that took over from it: of the same edge. A channel is not
    there if the edge is gone. None: the checkpoint named no senders."""
    if stored is None or "edges" not in stored:
        return None
    today: dict[Edge, dict[int, int]] = {}
    for channel, sender in sorted(senders.items()):
        today.setdefault(sender.edge, {})[sender.subtask] = channel
    found: dict[int, int] = {}
    for edge in stored["edges"]:
        if channels := today.get(_edge(edge)):
            others = list(channels.values())
            for channel, subtask, *_ in edge["channels"]:
                found[channel] = channels.get(subtask, others[subtask % len(others)])
    return found


def joined(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Of two subtasks, for a savepoint that holds a vertex as one. It is nobody's own: whoever restores it merges."""
    if "edges" not in one or "edges" not in other:
        return min(one, other, key=lambda gate: gate["watermark"] if "edges" in gate else gate["valve"]["watermark"])
    return {
        "watermark": min(one["watermark"], other["watermark"]),
        "lineage": None,
        "sources": sorted(set(one["sources"]) & set(other["sources"])),
        "edges": [*one["edges"], *other["edges"]],
    }
