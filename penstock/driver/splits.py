"""Subtasks of a source that have no split, and hold event time where it is: said for as long as it is so.

A split may still come to such a subtask, so nobody may go on without it, as in Flink: with one partition and two subtasks no window
of event time ever fires. Of a source with an end they hold nothing (it has named all its splits), nor where the strategy times out.
"""

from __future__ import annotations

from penstock.driver.description import JobDescription
from penstock.driver.failures import Notices
from penstock.driver.sources import JobSources
from penstock.graph.job_graph import JobVertex


class SplitWatch:
    """Looked at after every plan: sources may find splits at any time, and a rescaled job has other subtasks."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self._said: dict[str, tuple[int, int]] = {}  # by operator id: parallelism, and the splits there were

    def look(self, job: JobDescription, sources: JobSources) -> None:
        """Say what is so now, and take back what no longer is."""
        for vertex in job.graph.job.vertices.values() if job.waits_for_splits else ():
            source = vertex.head.operator_id
            if source in job.waits_for_splits:
                found = sources.splits_found(source)
                # Without any split there is nothing yet that event time could be held back from.
                without = 0 < (found or 0) < vertex.parallelism and source not in sources.done
                self._note(source, vertex, found if without else None)

    def _note(self, source: str, vertex: JobVertex, found: int | None) -> None:
        now = None if found is None else (vertex.parallelism, found)
        before = self._said.get(source)
        if now == before:
            return
        key = notice_key(source)
        if before is not None:
            self._notices.over(key)
            del self._said[source]
        if now is not None and found is not None:
            self._said[source] = now
            none = vertex.parallelism - found
            those = "the one without one holds event time back, because a split may still come to it"
            if none > 1:
                those = f"the {none} without one hold event time back, because a split may still come to them"
            self._notices.say(
                key,
                f"event time stands still behind {vertex.head.name!r}: it has {_count(found, 'split')} for {vertex.parallelism} "
                f"subtasks, and {those}. No window "
                f"of event time fires. Set the source's parallelism to {found}, or give its watermark strategy with_idleness",
            )


def notice_key(source: str) -> str:
    """Under which it is said of a source; by operator id."""
    return f"splits-{source}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
