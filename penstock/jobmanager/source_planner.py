"""The driver's side of a job's own sources: enumerators, their positions, and which of them have ended."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.connectors.base import Json, Source, SourcePlan, SplitEnumerator, SplitRange
from penstock.jobmanager.epoch import SourceRanges


class SourcePlanner:
    def __init__(self, sources: Mapping[str, Source], max_records: int | None) -> None:
        self._sources, self._max_records = sources, max_records
        self._enumerators: dict[str, SplitEnumerator] = {}
        self._states: dict[str, Json] = {}
        self._done: set[str] = set()
        self._known_splits: dict[str, set[str]] = {}

    def restart(self, stored: Mapping[str, Json]) -> None:
        """Go on after the epoch whose `{"state", "finished"}` by source are given; {}: from the beginning."""
        self.close()
        self._states = {k: v["state"] for k, v in stored.items()}
        self._done = {k for k, v in stored.items() if v["finished"]}
        self._known_splits = {}
        for operator_id, source in self._sources.items():
            enumerator = self._enumerators[operator_id] = source.create_enumerator()
            if operator_id in self._states:
                enumerator.restore(self._states[operator_id])

    def plan(
        self, now: int, logged: Mapping[str, Json] | None
    ) -> tuple[dict[str, SourceRanges], dict[str, dict[str, Json]]]:
        """The next epoch's ranges, and what the manifest keeps of each source; the same again if they were logged."""
        sources: dict[str, SourceRanges] = {}
        states: dict[str, dict[str, Json]] = {}
        for operator_id, enumerator in self._enumerators.items():
            plan = self._plan(operator_id, enumerator, now, logged)
            sources[operator_id] = SourceRanges(ranges=plan.ranges, finished=plan.finished)
            states[operator_id] = {"state": plan.state, "finished": plan.finished}
            self._states[operator_id] = plan.state
            if plan.finished:
                self._done.add(operator_id)
        return sources, states

    def drain(self, now: int) -> tuple[dict[str, SourceRanges], dict[str, dict[str, Json]]]:
        """Every source ends here, where it stands; one that has not begun says first where that is."""
        sources, states = {}, {}
        for operator_id, enumerator in self._enumerators.items():
            ranges: tuple[SplitRange, ...] = ()
            if operator_id not in self._states:
                plan = enumerator.plan(now_ms=now, max_records=self._max_records)
                ranges, self._states[operator_id] = plan.ranges, plan.state
            sources[operator_id] = SourceRanges(ranges=ranges, finished=True)
            states[operator_id] = {"state": self._states[operator_id], "finished": True}
        return sources, states

    def _plan(
        self, operator_id: str, enumerator: SplitEnumerator, now: int, logged: Mapping[str, Json] | None
    ) -> SourcePlan:
        if operator_id in self._done:
            return SourcePlan(ranges=(), state=self._states[operator_id], finished=True, records=0)
        if logged is not None and operator_id in logged["sources"]:
            entry = logged["sources"][operator_id]
            plan = SourcePlan(
                ranges=tuple(SplitRange(**r) for r in entry["ranges"]), state=entry["state"], finished=entry["finished"]
            )
            fresh = self._sources[operator_id].create_enumerator()
            fresh.restore(plan.state)
            self._enumerators[operator_id] = fresh
            return plan
        return enumerator.plan(now_ms=now, max_records=self._max_records)

    def brings_something(self, sources: Mapping[str, SourceRanges]) -> bool:
        """Data, the end of a split, or a split that is new: its reader must hear of it even if it is empty."""
        found = False
        for operator_id, source in sources.items():
            known = self._known_splits.setdefault(operator_id, set())
            for part in source.ranges:
                found = found or part.start != part.end or part.last or part.split not in known
                known.add(part.split)
        return found

    def checkpoint_complete(self, states: Mapping[str, Json]) -> None:
        """A checkpoint that holds these states of the sources is complete, and its output committed."""
        for operator_id, enumerator in self._enumerators.items():
            enumerator.checkpoint_complete(states[operator_id]["state"])

    def close(self) -> None:
        for enumerator in self._enumerators.values():
            enumerator.close()
        self._enumerators = {}
