"""How this process and its machine are off for memory, for the page and REST to show."""

from __future__ import annotations

import os
import threading
import time
from typing import Final

import psutil

_FRESH_S: Final = 1.0
_lock = threading.Lock()
_told: dict[str, int] = {}
_told_at = float("-inf")


def figures() -> dict[str, int]:
    """Bytes that this process has in memory, bytes that its machine has and that are free there, and processors. At most a
    second old: every task of a process asks at every barrier."""
    global _told, _told_at
    with _lock:
        if time.monotonic() - _told_at > _FRESH_S:
            memory = psutil.virtual_memory()
            _told = {
                "memory_bytes": psutil.Process().memory_info().rss,
                "host_memory_bytes": memory.total,
                "host_free_bytes": memory.available,
                "cpus": os.cpu_count() or 0,
            }
            _told_at = time.monotonic()
        return _told
