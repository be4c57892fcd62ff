"""The driver's side of a job's own sources: enumerators, their positions, and which of them have ended.

Watermark alignment: which splits wait because event time of others is too far behind.

    watermark     slow ───●
                  fast ───┼──────────●           limit = the least watermark of the group + drift
                          └─ drift ─┘            fast is over it and gets no records in the next epoch

Decided when an epoch is planned, from what the acknowledgements of earlier epochs said, and logged with the plan as empty
ranges. So a replay holds back the same splits. In a stream it is decided for every grant, from what was said of those that were
read. As in Flink, a split that has no watermark yet holds the group back, and one that is idle or has ended does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from penstock.checkpoint.manifest import SourcePosition
from penstock.common.watermark_strategy import WatermarkAlignment
from penstock.driver.admission import Admission
from penstock.engine.messages import SourceRanges, Splits, TaskAck
from penstock.functions.connectors import Json, Source, SourcePlan, SplitEnumerator, SplitRange


@dataclass(slots=True)
class _Group:
    members: dict[str, WatermarkAlignment] = field(default_factory=dict)  # by operator id
    decided_ms: int | None = None
    least: int | None = None  # of the watermarks of all its splits, as it was then


class SourceAlignment:
    """Which splits must wait because their watermarks are too far ahead of their group's."""

    def __init__(self, alignments: Mapping[str, WatermarkAlignment]) -> None:
        """`alignments` by operator id of the sources."""
        self._groups: dict[str, _Group] = {}
        for operator_id, alignment in alignments.items():
            self._groups.setdefault(alignment.group, _Group()).members[operator_id] = alignment
        self._alignments = alignments
        # By operator id and subtask: the watermark of each split that is neither idle nor at its end.
        self._watermarks: dict[str, dict[int, dict[str, int]]] = {}

    def forget(self) -> None:
        """The job starts again: nothing is known until its sources have said something."""
        self._watermarks = {}
        for group in self._groups.values():
            group.decided_ms = group.least = None

    def observe(self, acks: Iterable[TaskAck]) -> None:
        """An epoch is complete."""
        for ack in acks if self._groups else ():
            for operator_id, metrics in ack.metrics.items():
                self.read(operator_id, ack.task.subtask, metrics["splits"])

    def read(self, operator_id: str, subtask: int, splits: Splits) -> None:
        """So far event time has come in the splits of a subtask."""
        if operator_id in self._alignments:
            watermarks = {split: mark for split, (mark, idle) in splits.items() if not idle}
            self._watermarks.setdefault(operator_id, {})[subtask] = watermarks

    def aligned(self, operator_id: str) -> bool:
        """True if the source has to wait for others."""
        return operator_id in self._alignments

    def ahead(self, operator_id: str, now_ms: int) -> frozenset[str]:
        """The splits of this source that must wait. How far they may go stands for the length of the update interval; one that has
        come as far waits at once."""
        alignment = self._alignments.get(operator_id)
        if alignment is None:
            return frozenset()
        group = self._groups[alignment.group]
        interval = min(member.update_interval_ms for member in group.members.values())
        if group.decided_ms is None or not 0 <= now_ms - group.decided_ms < interval:
            group.decided_ms = now_ms
            group.least = min(
                (mark for member in group.members for mark in self._splits(member).values()), default=None
            )
        if group.least is None:
            return frozenset()
        limit = group.least + alignment.max_drift_ms
        return frozenset(split for split, mark in self._splits(operator_id).items() if mark > limit)

    def whole(self, operator_id: str, ahead: frozenset[str]) -> bool:
        """Whether these are all the splits of the source that are at work."""
        return bool(ahead) and ahead >= self._splits(operator_id).keys()

    def _splits(self, operator_id: str) -> dict[str, int]:
        return {split: mark for part in self._watermarks.get(operator_id, {}).values() for split, mark in part.items()}


class JobSources:
    """The enumerators of a job: plan an epoch of all sources, restore them, close them."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        admission: Admission,
        alignments: Mapping[str, WatermarkAlignment] | None = None,
    ) -> None:
        self._sources, self._admission = sources, admission
        self._alignment = SourceAlignment(alignments or {})
        self._latest: dict[str, dict[str, SplitRange]] = {}  # of aligned sources: each split's last range
        self._enumerators: dict[str, SplitEnumerator] = {}
        self._states: dict[str, Json] = {}
        self._done: set[str] = set()
        self._known_splits: dict[str, set[str]] = {}

    def restart(self, stored: Mapping[str, SourcePosition]) -> None:
        """Go on after the epoch whose positions by source are given; {}: from the beginning."""
        self.close()
        self._states = {k: v.state for k, v in stored.items()}
        self._done = {k for k, v in stored.items() if v.finished}
        self._known_splits = {}
        self._latest = {}
        self._alignment.forget()
        for operator_id, source in self._sources.items():
            enumerator = self._enumerators[operator_id] = source.create_enumerator()
            if operator_id in self._states:
                enumerator.restore(self._states[operator_id])

    def plan(
        self,
        now: int,
        logged: Mapping[str, Json] | None,
        *,
        only: Collection[str] | None = None,
        most: Mapping[str, int] | None = None,
    ) -> tuple[dict[str, SourceRanges], dict[str, SourcePosition]]:
        """The next ranges, and what a manifest keeps of each source; the same again if they were logged. `only`: of these
        sources. `most`: how many records each may plan at once, instead of what admission control says."""
        sources: dict[str, SourceRanges] = {}
        states: dict[str, SourcePosition] = {}
        for operator_id, enumerator in self._enumerators.items():
            if only is not None and operator_id not in only:
                continue
            bound = self._admission.max_records if most is None else most.get(operator_id)
            plan = self._plan(operator_id, enumerator, now, logged, bound)
            self._remember(operator_id, plan)
            sources[operator_id] = SourceRanges(ranges=plan.ranges, finished=plan.finished, records=plan.records)
            states[operator_id] = SourcePosition(state=plan.state, finished=plan.finished)
            self._states[operator_id] = plan.state
            if plan.finished:
                self._done.add(operator_id)
        return sources, states

    def stand(self, now: int) -> tuple[dict[str, SourceRanges], dict[str, SourcePosition]]:
        """Nothing more is read: where every source stands. One that has not begun says first where that is."""
        sources, states = self.drain(now)
        return (
            {k: replace(part, finished=k in self._done) for k, part in sources.items()},
            {k: replace(position, finished=k in self._done) for k, position in states.items()},
        )

    @property
    def done(self) -> frozenset[str]:
        """The sources that have ended."""
        return frozenset(self._done)

    def drain(self, now: int) -> tuple[dict[str, SourceRanges], dict[str, SourcePosition]]:
        """Every source ends here, where it stands; one that has not begun says first where that is."""
        sources, states = {}, {}
        for operator_id, enumerator in self._enumerators.items():
            ranges: tuple[SplitRange, ...] = ()
            if operator_id not in self._states:
                plan = enumerator.plan(now_ms=now, max_records=self._admission.max_records)
                ranges, self._states[operator_id] = plan.ranges, plan.state
            sources[operator_id] = SourceRanges(ranges=ranges, finished=True)
            states[operator_id] = SourcePosition(state=self._states[operator_id], finished=True)
        return sources, states

    def _plan(
        self,
        operator_id: str,
        enumerator: SplitEnumerator,
        now: int,
        logged: Mapping[str, Json] | None,
        max_records: int | None,
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
        ahead = self._alignment.ahead(operator_id, now)
        if self._alignment.whole(operator_id, ahead):
            plan = SourcePlan(ranges=(), state=self._states[operator_id], finished=False, records=0)
        else:
            if self._alignment.aligned(operator_id):
                enumerator.pause(ahead)
            plan = enumerator.plan(now_ms=now, max_records=max_records)
        return replace(plan, ranges=self._with_paused(operator_id, plan.ranges, ahead)) if ahead else plan

    def _with_paused(
        self, operator_id: str, ranges: tuple[SplitRange, ...], ahead: frozenset[str]
    ) -> tuple[SplitRange, ...]:
        """Splits that wait are listed, so that their readers do not take them for idle."""
        reading = {part.split for part in ranges if part.start != part.end or part.last}
        waiting = [
            replace(part, start=part.end, paused=True)
            for split, part in self._latest.get(operator_id, {}).items()
            if split in ahead - reading
        ]
        listed = {part.split for part in waiting}
        return (*(part for part in ranges if part.split not in listed), *waiting)

    def _remember(self, operator_id: str, plan: SourcePlan) -> None:
        if self._alignment.aligned(operator_id):
            latest = self._latest.setdefault(operator_id, {})
            for part in plan.ranges:
                latest[part.split] = part
                if part.last:
                    del latest[part.split]

    def splits_found(self, operator_id: str) -> int | None:
        """How many splits the source has found so far; None if it does not say."""
        return self._enumerators[operator_id].splits_found()

    def observe(self, acks: Iterable[TaskAck]) -> None:
        """An epoch is complete: how far event time has come in each split."""
        self._alignment.observe(acks)

    def splits_read(self, operator_id: str, subtask: int, splits: Splits) -> None:
        """A stream does not wait for the end of an epoch with it."""
        self._alignment.read(operator_id, subtask, splits)

    def brings_something(self, sources: Mapping[str, SourceRanges]) -> bool:
        """Data, the end of a split, or a split that is new: its reader must hear of it even if it is empty."""
        found = False
        for operator_id, source in sources.items():
            known = self._known_splits.setdefault(operator_id, set())
            for part in source.ranges:
                found = found or part.start != part.end or part.last or part.split not in known
                known.add(part.split)
        return found

    def checkpoint_complete(self, states: Mapping[str, SourcePosition]) -> None:
        """A checkpoint with these states is complete; each enumerator may tell others how far it is."""
        for operator_id, enumerator in self._enumerators.items():
            enumerator.checkpoint_complete(states[operator_id].state)

    def close(self) -> None:
        """Closes all enumerators."""
        for enumerator in self._enumerators.values():
            enumerator.close()
        self._enumerators = {}
