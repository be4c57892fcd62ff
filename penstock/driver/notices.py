"""What a person should know of a job that runs and yet does not get on: said in the log, in its facts and on the page."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

_log = logging.getLogger("penstock")


class Notices:
    """Each is there for as long as it is true. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: dict[str, dict[str, Any]] = {}

    def say(self, key: str, text: str) -> None:
        """Logged once, until it was over."""
        with self._lock:
            known = key in self._now
            since = self._now[key]["since_ms"] if known else time.time_ns() // 1_000_000
            self._now[key] = {"key": key, "text": text, "since_ms": since}
        if not known:
            _log.warning("%s", text)

    def over(self, key: str) -> None:
        with self._lock:
            was = self._now.pop(key, None)
        if was is not None:
            _log.warning("no longer: %s", was["text"])

    def to_json(self) -> list[dict[str, Any]]:
        with self._lock:
            return [dict(notice) for notice in self._now.values()]
