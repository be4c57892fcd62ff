"""When a job should change its parallelism by itself. Pure: reports of epochs in, a parallelism or nothing out.

The one measure is how long an epoch takes against the time it should take: a job that cannot keep up with its sources
takes longer, because records gather while an epoch runs or because every epoch is as full as it may be. It is asked
for more only while its operators are really busy or held back: an epoch that is slow for other reasons (a slow store, a
slow sink) would not gain from more subtasks.
"""

from __future__ import annotations

import math
from collections import deque

from penstock.engine.messages import EpochReport
from penstock.engine.settings import AutoscaleSettings


class Autoscaler:
    """Feed it every epoch's report."""

    def __init__(self, settings: AutoscaleSettings) -> None:
        self._settings = settings
        self._recent: deque[tuple[float, float]] = deque(maxlen=max(settings.up_after, settings.down_after))
        self._cooldown = 0

    def observe(self, report: EpochReport, parallelism: int) -> int | None:
        """The parallelism to go to, or None to stay."""
        if self._cooldown:
            self._cooldown -= 1
            return None
        self._recent.append((report.duration_ms / self._settings.target_ms, busy_ratio(report)))
        wanted = decide(list(self._recent), parallelism, self._settings)
        if wanted is not None:
            self._recent.clear()
            self._cooldown = self._settings.cooldown
        return wanted


def decide(recent: list[tuple[float, float]], parallelism: int, settings: AutoscaleSettings) -> int | None:
    """`recent`: (duration against the target, busy ratio) of the latest epochs, oldest first. At most doubles, so that one
    bad measurement cannot take the whole cluster; goes down to where the job would be at 60 % of the target."""
    if not settings.least <= parallelism <= settings.most:
        return min(max(parallelism, settings.least), settings.most)
    latest = recent[-settings.up_after :]
    if len(latest) == settings.up_after and all(load > 1 and busy >= settings.busy for load, busy in latest):
        load = min(load for load, _ in latest)
        wanted = min(settings.most, parallelism * 2, max(parallelism + 1, math.ceil(round(parallelism * load, 6))))
        return wanted if wanted > parallelism else None
    latest = recent[-settings.down_after :]
    if len(latest) == settings.down_after and all(load < settings.idle for load, _ in latest):
        load = max(load for load, _ in latest)
        wanted = max(settings.least, min(parallelism - 1, math.ceil(round(parallelism * load / 0.6, 6))))
        return wanted if wanted < parallelism else None
    return None


def busy_ratio(report: EpochReport) -> float:
    """Of the busiest vertex: the time its subtasks computed or waited for space, of the time they had."""
    ratios = [
        (vertex["busy_ms"] + vertex["blocked_ms"]) / (vertex["parallelism"] * report.duration_ms)
        for vertex in report.vertices
        if report.duration_ms > 0
    ]
    return max(ratios, default=0.0)
