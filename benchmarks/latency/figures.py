"""Results with the times at which they came, and what they say of latency. Needs numpy and nothing of ours."""

from __future__ import annotations

import glob
import os
import time
from typing import Any

import numpy as np


class Noted:
    """(index, when it was read, when its result came), in files of its own, one a second."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen: list[tuple[float, float, float]] = []
        self._written, self._parts = time.time(), 0

    def add(self, index: int, read: float) -> None:
        now = time.time()
        self._seen.append((index, read, now))
        if now - self._written > 1.0:
            self.write()

    def write(self) -> None:
        self._written, self._parts = time.time(), self._parts + 1
        np.save(f"{self._folder}/noted-{os.getpid()}-{id(self)}-{self._parts}.npy", np.array(self._seen))
        self._seen = []


def figures(folder: str, rate: float, warm_up: float) -> dict[str, Any]:
    """Latencies behind the warm-up, in ms. An event is due at index / rate behind the start, and the start is such that the
    luckiest in a thousand was read when it was due: waiting to be read counts for all others."""
    noted = np.concatenate([part for name in glob.glob(f"{folder}/noted-*.npy") if len(part := np.load(name))])
    noted = noted[noted[:, 0] >= rate * warm_up]
    index, read, at = noted[:, 0], noted[:, 1], noted[:, 2]
    due = index / rate + np.percentile(read - index / rate, 0.1)
    values = (at - due) * 1000
    return {
        "events": len(values),
        **{f"p{p}": round(float(np.percentile(values, p)), 2) for p in (50, 90, 99)},
        "max": round(float(values.max()), 2),
        "histogram": [round(float(v), 2) for v in np.percentile(values, range(0, 100))],
    }
