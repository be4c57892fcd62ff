"""Spark's own checkpoint folder: seeded from ours on every start, read for the positions of Spark's own sources.

A folder with `metadata`, `offsets/n-1`, `offsets/n` and `commits/n` makes a new query go on at batch n + 1. Batch b is
epoch b + 1. The first line of offsets in every file is the heartbeat's, then one a Spark source, in plan order.

The folder is thrown away with its query. Some sources keep more than an offset: Spark's file source has a log of the files
it has listed below `sources/`, and an offset is a number in it. That goes into our checkpoints with the offsets.
"""

from __future__ import annotations

import json
import shutil
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.checkpoint import layout
from penstock.checkpoint.manifest import FileState, Manifest, SparkPosition
from penstock.checkpoint.store import CheckpointStore
from penstock.errors import PenstockError

_COMPACTED = ".compact"
_NOT_OF_A_LOG = 1 << 62  # whatever another source keeps: always needed


@dataclass(frozen=True, slots=True)
class Progress:
    """Offsets of Spark's own sources at the end of a batch and of the one before."""

    batch: int
    lines: tuple[str, ...]
    before: tuple[str, ...]

    def changed(self, index: int) -> bool:
        """Source `index` (0 = the first Spark source) has something new in this batch."""
        now = self.lines[index + 1]
        return now != "-" and (len(self.before) <= index + 1 or self.before[index + 1] != now)


@dataclass(slots=True, kw_only=True)
class SparkLog:
    """Spark's own checkpoint folder of one query. `attempt` is unique among all attempts of the job."""

    location: Path
    store: CheckpointStore | None
    attempt: str
    _before: tuple[str, ...] = ()
    _stored: dict[str, FileState] = field(default_factory=dict)

    def seed(self, manifest: Manifest | None, slots: int, sources: int) -> None:
        """Prepare the folder so that the next batch is the one after the checkpoint's epoch."""
        if manifest is None:
            return
        batch = int(manifest.epoch) - 1
        heartbeat = json.dumps({"offset": slots * int(manifest.epoch), "timestamp": int(manifest.epoch)})
        lines = [heartbeat]
        if sources:
            if manifest.spark is None or len(manifest.spark.lines) != sources + 1:
                raise PenstockError(
                    f"checkpoint {manifest.checkpoint_id} has no positions for the {sources} source(s) this job reads through "
                    "Spark: it was taken by a job with other sources. Resume the job it belongs to, or start in a new folder"
                )
            lines += manifest.spark.lines[1:]
            self._bring_back(manifest.spark)
        head = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": manifest.created_ms, "conf": {}})
        text = "\n".join(["v1", head, *lines])
        (self.location / "offsets").mkdir(exist_ok=True)
        (self.location / "commits").mkdir(exist_ok=True)
        (self.location / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        for number in (batch - 1, batch):
            if number >= 0:
                (self.location / "offsets" / str(number)).write_text(text)
        (self.location / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        self._before = tuple(lines)

    def _bring_back(self, position: SparkPosition) -> None:
        assert self.store is not None
        for name, file in position.files.items():
            target = self.location / "sources" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(self.store.read_state(file))
        if position.location is not None:  # of a checkpoint that has no files of its own
            sources = Path(position.location) / "sources"
            if sources.is_dir():
                shutil.copytree(sources, self.location / "sources", dirs_exist_ok=True)

    def progress(self, batch: int) -> Progress:
        """What the batch that is running now reads: Spark has logged it before it calls us."""
        path = self.location / "offsets" / str(batch)
        content: list[Any] = path.read_text().split("\n") if path.exists() else []
        lines = tuple(content[2:])
        progress = Progress(batch, lines, self._before)
        self._before = lines
        return progress

    def position(self, progress: Progress) -> SparkPosition:
        """What a snapshot says of the batch that is running now. For a checkpoint, with the sources' own files: those that no
        earlier one of this query has stored are stored. Without a store, for a savepoint, where they are."""
        if self.store is None:
            return SparkPosition(batch=progress.batch, lines=progress.lines, location=str(self.location))
        files = {}
        for name in self._needed():
            if name not in self._stored:
                state = layout.state_name(f"spark_{name}", 0, self.attempt)
                data = (self.location / "sources" / name).read_bytes()
                self._stored[name] = self.store.write_state(progress.batch + 1, state, data)
            files[name] = self._stored[name]
        self._stored = files
        return SparkPosition(batch=progress.batch, lines=progress.lines, files=dict(files))

    def _needed(self) -> list[str]:
        """A log of files has a file for each batch that found some; from time to time one takes in all before it."""
        sources = self.location / "sources"
        found = sorted(file for file in sources.rglob("*") if file.is_file() and not file.name.startswith("."))
        compacted: dict[Path, int] = {}
        for file in found:
            if file.name.endswith(_COMPACTED):
                compacted[file.parent] = max(_number(file), compacted.get(file.parent, 0))
        return [
            file.relative_to(sources).as_posix() for file in found if _number(file) >= compacted.get(file.parent, 0)
        ]


def _number(file: Path) -> int:
    number = file.name.removesuffix(_COMPACTED)
    return int(number) if number.isdecimal() else _NOT_OF_A_LOG
