"""Cores that this process, its JVM and its Python workers use, and what others leave of the machine."""

from __future__ import annotations

import threading
import time
from typing import Final, TypeAlias

import psutil

_LOOK_S: Final = 0.25

# By process id and start: its kind, and the CPU seconds that it has used.
_Spent: TypeAlias = dict[tuple[int, float], tuple[str, float]]


class CoresUsed:
    """Between `begin` and `end`. Processes come and go meanwhile: they are looked at now and then."""

    def begin(self) -> None:
        self._at, self._busy = time.monotonic(), _machine()
        self._before = _spent()
        self._seen, self._over = dict(self._before), threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)
        self._looking.start()

    def _look(self) -> None:
        while not self._over.wait(_LOOK_S):
            self._seen.update(_spent())

    def end(self) -> dict[str, float]:
        """Cores by kind of process; `others`: of programs that are not ours."""
        self._over.set()
        self._looking.join()
        self._seen.update(_spent())
        seconds, used = time.monotonic() - self._at, dict.fromkeys(("driver", "jvm", "python"), 0.0)
        for process, (kind, spent) in self._seen.items():
            used[kind] += (spent - self._before.get(process, (kind, 0.0))[1]) / seconds
        used = {kind: round(cores, 2) for kind, cores in used.items()}
        used["others"] = round(max(0.0, (_machine() - self._busy) / seconds - sum(used.values())), 2)
        return used


def _spent() -> _Spent:
    me = psutil.Process()
    found: _Spent = {}
    for process in [me, *me.children(recursive=True)]:
        try:
            kind = "driver" if process.pid == me.pid else "jvm" if "java" in process.name() else "python"
            times = process.cpu_times()
            found[process.pid, process.create_time()] = kind, times.user + times.system
        except psutil.Error:  # it has ended
            continue
    return found


def _machine() -> float:
    times = psutil.cpu_times()
    return sum(times) - times.idle - getattr(times, "iowait", 0.0)
