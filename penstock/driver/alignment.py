"""Watermark alignment: which splits wait because event time of others is too far behind.

    watermark     slow ───●
                  fast ───┼──────────●           limit = the least watermark of the group + drift
                          └─ drift ─┘            fast is over it and gets no records in the next epoch

Decided when an epoch is planned, from what the acknowledgements of earlier epochs said, and logged with the plan as empty
ranges. So a replay holds back the same splits. As in Flink, a split that has no watermark yet holds the group back, and
one that is idle or has ended does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.common.watermark_strategy import WatermarkAlignment
from penstock.engine.messages import TaskAck


@dataclass(slots=True)
class _Group:
    members: dict[str, WatermarkAlignment] = field(default_factory=dict)  # by operator id
    decided_ms: int | None = None
    ahead: dict[str, frozenset[str]] = field(default_factory=dict)  # by operator id


class SourceAlignment:
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
            group.decided_ms, group.ahead = None, {}

    def observe(self, acks: Iterable[TaskAck]) -> None:
        """An epoch is complete."""
        for ack in acks if self._groups else ():
            for operator_id, metrics in ack.metrics.items():
                if operator_id in self._alignments:
                    watermarks = {split: mark for split, (mark, idle) in metrics["splits"].items() if not idle}
                    self._watermarks.setdefault(operator_id, {})[ack.task.subtask] = watermarks

    def aligned(self, operator_id: str) -> bool:
        return operator_id in self._alignments

    def ahead(self, operator_id: str, now_ms: int) -> frozenset[str]:
        """The splits of this source that must wait. The same answer for the length of the update interval."""
        alignment = self._alignments.get(operator_id)
        if alignment is None:
            return frozenset()
        group = self._groups[alignment.group]
        interval = min(member.update_interval_ms for member in group.members.values())
        if group.decided_ms is None or not 0 <= now_ms - group.decided_ms < interval:
            group.decided_ms = now_ms
            group.ahead = {member: self._over(member, group) for member in group.members}
        return group.ahead[operator_id]

    def whole(self, operator_id: str, ahead: frozenset[str]) -> bool:
        """Whether these are all the splits of the source that are at work."""
        return bool(ahead) and ahead >= self._splits(operator_id).keys()

    def _over(self, operator_id: str, group: _Group) -> frozenset[str]:
        least = min((mark for member in group.members for mark in self._splits(member).values()), default=None)
        if least is None:
            return frozenset()
        limit = least + self._alignments[operator_id].max_drift_ms
        return frozenset(split for split, mark in self._splits(operator_id).items() if mark > limit)

    def _splits(self, operator_id: str) -> dict[str, int]:
        return {split: mark for part in self._watermarks.get(operator_id, {}).values() for split, mark in part.items()}
