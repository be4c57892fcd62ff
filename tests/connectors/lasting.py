"""A generator whose job does not end before the test has done to it what it wants to, however slow or fast the machine is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock.connectors.datagen import DataGeneratorSource
from penstock.functions.connectors import Json, SourcePlan, SplitEnumerator

_HANDFUL, _EVERY_MS = 5, 200


class Lasting(DataGeneratorSource):
    """Of its last quarter only a handful comes now and then, until the file `until` is there."""

    def __init__(self, generator: Any, count: int, *, until: Path, **more: Any) -> None:
        super().__init__(generator, count, **more)
        self._freely, self._until = count - count // 4, until

    def create_enumerator(self) -> SplitEnumerator:
        return _Trickling(super().create_enumerator(), self._freely, self._until)


class _Trickling(SplitEnumerator):
    def __init__(self, whole: SplitEnumerator, freely: int, until: Path) -> None:
        self._whole, self._freely, self._until = whole, freely, until
        self._dealt = self._handful_at_ms = 0

    def restore(self, state: Json) -> None:
        self._dealt = sum(state["positions"])
        self._whole.restore(state)

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        if not self._until.exists():
            allowed = self._allowed(now_ms)
            max_records = allowed if max_records is None else min(max_records, allowed)
        plan = self._whole.plan(now_ms=now_ms, max_records=max_records)
        self._dealt = sum(plan.state["positions"])
        return plan

    def _allowed(self, now_ms: int) -> int:
        if self._dealt < self._freely:
            return self._freely - self._dealt
        if now_ms - self._handful_at_ms < _EVERY_MS:
            return 0
        self._handful_at_ms = now_ms
        return _HANDFUL

    def splits_found(self) -> int | None:
        return self._whole.splits_found()
