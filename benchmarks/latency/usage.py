"""Cores that this process, its JVM and its Python workers use, and what others leave of the machine."""

from __future__ import annotations

import time

import psutil


class CoresUsed:
    """Between `begin` and `end`."""

    def begin(self) -> None:
        self._at, self._before, self._busy = time.monotonic(), _spent(), _machine()

    def end(self) -> dict[str, float]:
        """Cores by kind of process; `others`: of programs that are not ours."""
        seconds, now = time.monotonic() - self._at, _spent()
        used = {kind: round((now[kind] - self._before.get(kind, 0.0)) / seconds, 2) for kind in now}
        used["others"] = round(max(0.0, (_machine() - self._busy) / seconds - sum(used.values())), 2)
        return used


def _spent() -> dict[str, float]:
    me = psutil.Process()
    found: dict[str, float] = {}
    for process in [me, *me.children(recursive=True)]:
        try:
            kind = "driver" if process.pid == me.pid else "jvm" if "java" in process.name() else "python"
            times = process.cpu_times()
            found[kind] = found.get(kind, 0.0) + times.user + times.system
        except psutil.Error:  # it has ended
            continue
    return found


def _machine() -> float:
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0)
