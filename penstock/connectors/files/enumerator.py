"""Driver side of the file source: finds files and decides how much of which is read in an epoch."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.connectors.files.formats import ReadFormat
from penstock.connectors.files.locations import Locations
from penstock.functions.connectors import Json, SourcePlan, SplitEnumerator, SplitRange

_STATE_VERSION = 1


@dataclass(slots=True)
class _File:
    """`position` is None once the whole file has been planned. A file's ordinal is its place in the list."""

    name: str
    size: int
    position: Json


class FileEnumerator(SplitEnumerator):
    """A file is found once, by name, and read as it was then. All names ever found are in the state, so a watched
    folder that gains millions of files should be rotated.

    The budget of an epoch is shared by the first `concurrent_files` unread files, so that several subtasks have work;
    what they leave goes to the files after them.
    """

    def __init__(
        self,
        locations: Locations,
        read_format: ReadFormat,
        *,
        monitor_interval_ms: int | None,
        max_bytes_per_epoch: int | None,
        concurrent_files: int,
    ) -> None:
        self._locations = locations
        self._format = read_format
        self._interval_ms = monitor_interval_ms
        self._max_bytes = max_bytes_per_epoch
        self._concurrent = concurrent_files
        self._files: list[_File] = []
        self._known: set[str] = set()
        self._listed_ms: int | None = None
        self._paused: frozenset[str] = frozenset()

    def pause(self, splits: frozenset[str]) -> None:
        self._paused = splits

    def restore(self, state: Json) -> None:
        self._files = [_File(name, size, position) for name, size, position in state["files"]]
        self._known = {file.name for file in self._files}
        self._listed_ms = state["listed_ms"]

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        new = self._discover(now_ms)
        budget = max_records if self._format.unit == "records" else self._max_bytes
        ranges: list[SplitRange] = []
        used = 0
        unread = [
            (ordinal, file)
            for ordinal, file in enumerate(self._files)
            if file.position is not None and file.name not in self._paused
        ]
        sharing = min(self._concurrent, len(unread))
        for turn, (ordinal, file) in enumerate(unread):
            left = None if budget is None else budget - used
            if left is not None and left <= 0:
                if ordinal >= new:
                    ranges.append(_range(ordinal, file, file.position, last=False))
                continue
            # Rounded up, so that small budgets reach the files at all.
            share = None if left is None else -(-left // max(1, sharing - turn))
            cut = self._format.cut(self._locations, file.name, file.size, file.position, share)
            ranges.append(_range(ordinal, file, cut.end, last=cut.last))
            file.position = None if cut.last else cut.end
            used += cut.used
        finished = self._interval_ms is None and all(file.position is None for file in self._files)
        records = used if self._format.unit == "records" else None
        return SourcePlan(ranges=tuple(ranges), state=self._state(), finished=finished, records=records)

    def _discover(self, now_ms: int) -> int:
        """List the locations if it is time; returns the ordinal from which on files are new."""
        first_new = len(self._files)
        if self._listed_ms is not None and (
            self._interval_ms is None or 0 <= now_ms - self._listed_ms < self._interval_ms
        ):
            return first_new
        for found in self._locations.list():
            if found.name not in self._known:
                self._known.add(found.name)
                self._files.append(_File(found.name, found.size, 0))
        self._listed_ms = now_ms
        return first_new

    def _state(self) -> Json:
        return {
            "version": _STATE_VERSION,
            "listed_ms": self._listed_ms,
            "files": [[file.name, file.size, file.position] for file in self._files],
        }


def _range(ordinal: int, file: _File, end: Json, *, last: bool) -> SplitRange:
    return SplitRange(split=file.name, ordinal=ordinal, start=file.position, end=end, last=last)
