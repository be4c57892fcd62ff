"""What waits behind a barrier and is more than may wait in memory: in a file, until its turn comes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from io import BufferedRandom
from pathlib import Path
from typing import Final

from penstock.engine.exchange_rows import decode_event, encode_event
from penstock.protocol.events import Data, Event

_NAME: Final = "waiting"


@dataclass(frozen=True, slots=True)
class Spilled:
    """Stands on a channel for events that are in the file: one, or the parts of one that is large."""

    at: int
    parts: tuple[tuple[int, int], ...]  # kind and size of each


class SpillFile:
    """Of one host. The file is emptied whenever nothing in it is waited for."""

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder
        self._file: BufferedRandom | None = None
        self._end = self._waiting = 0
        self.written = 0  # bytes, in all

    def write(self, event: Data) -> Spilled:
        """Puts an event away."""
        if self._file is None:
            self._file = (self._folder() / _NAME).open("w+b")
        at, parts = self._end, []
        self._file.seek(at)
        for kind, payload in encode_event(event):
            self._file.write(payload)
            parts.append((int(kind), len(payload)))
            self._end += len(payload)
        self._waiting += 1
        self.written += self._end - at
        return Spilled(at, tuple(parts))

    def read(self, spilled: Spilled) -> list[Event]:
        """Takes it out again. Once."""
        assert self._file is not None
        self._file.seek(spilled.at)
        events = [decode_event(kind, self._file.read(size)) for kind, size in spilled.parts]
        self._waiting -= 1
        if not self._waiting:
            self._file.seek(0)
            self._file.truncate()
            self._end = 0
        return events

    def close(self) -> None:
        """The folder goes with the host."""
        if self._file is not None:
            self._file.close()
            self._file = None
