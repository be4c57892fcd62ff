"""Flame graphs of a running job's vertices, in the shape of Flink's REST: sampled while somebody asks for them."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from penstock.common.time import now_ms
from penstock.engine.sampling import Place, Sample

Json = dict[str, Any]

_SECONDS: Final = 5.0
_FRESH_S: Final = 10.0  # older samples are shown, and new ones are taken meanwhile
_LEAST: Final = 0.001  # of all samples: rarer branches are left out

_log = logging.getLogger("penstock")


class FlameGraphs:
    """Thread-safe. `sample(seconds)` looks at all subtasks of the job, and blocks for that long."""

    def __init__(self, sample: Callable[[float], Counter[Sample]], *, seconds: float = _SECONDS) -> None:
        self._sample, self._seconds = sample, seconds
        self._lock = threading.Lock()
        self._running = False
        self._ended = float("-inf")
        self._end_ms = 0
        self._found: Counter[Sample] = Counter()

    def of(self, vertex: int, *, subtask: int | None, kind: str) -> Json:
        """The newest one, at once; `root` is null while there is none yet. Ask again: asking is what keeps it fresh."""
        with self._lock:
            if not self._running and time.monotonic() - self._ended > _FRESH_S:
                self._running = True
                threading.Thread(target=self._take, name="penstock-samples", daemon=True).start()
            found, end_ms = self._found, self._end_ms
        chosen = (
            (sample.stack, hits)
            for sample, hits in found.items()
            if sample.vertex == vertex
            and subtask in (None, sample.subtask)
            and (kind == "full" or sample.on_cpu == (kind == "on_cpu"))
        )
        return {"endTimestamp": end_ms, "root": flame_graph(chosen) if end_ms else None}

    def _take(self) -> None:
        found: Counter[Sample] | None = None
        try:
            found = self._sample(self._seconds)
        except Exception as error:  # of a job that ends or a slot that dies just now: there is a next time
            _log.debug("no samples for a flame graph: %s", error)
        with self._lock:
            self._running, self._ended = False, time.monotonic()
            if found is not None:
                self._found, self._end_ms = found, now_ms()


def flame_graph(stacks: Iterable[tuple[tuple[Place, ...], int]]) -> Json:
    """The root of a tree: how often each place was seen, with the places it had called below it, most seen first."""
    root = _Node(Place("root", "engine"))
    for stack, hits in stacks:
        node = root
        node.hits += hits
        for place in stack:
            node = node.children.setdefault(place, _Node(place))
            node.hits += hits
    return root.document(root.hits * _LEAST)


class _Node:
    __slots__ = ("children", "hits", "place")

    def __init__(self, place: Place) -> None:
        self.place, self.hits = place, 0
        self.children: dict[Place, _Node] = {}

    def document(self, least: float) -> Json:
        kept = sorted((n for n in self.children.values() if n.hits >= least), key=lambda n: (-n.hits, n.place.function))
        return {
            "stackTraceLocation": self.place.function,
            "origin": self.place.origin,
            "hitCount": self.hits,
            "children": [node.document(least) for node in kept],
        }
