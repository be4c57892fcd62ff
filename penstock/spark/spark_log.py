"""Spark's own checkpoint folder: seeded from ours on every start, read for the positions of Spark's own sources.

A folder with `metadata`, `offsets/n-1`, `offsets/n` and `commits/n` makes a new query go on at batch n + 1. Batch b is
epoch b + 1. The first line of offsets in every file is the heartbeat's, then one a Spark source, in plan order.
"""

from __future__ import annotations

import json
import shutil
import uuid
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.savepoint import read_external
from penstock.connectors.base import Json
from penstock.errors import CorruptSnapshotError, PenstockError


@dataclass(frozen=True, slots=True)
class Progress:
    """Offsets of Spark's own sources at the end of a batch and of the one before."""

    location: str
    batch: int
    lines: tuple[str, ...]
    before: tuple[str, ...]

    def changed(self, index: int) -> bool:
        """Source `index` (0 = the first Spark source) has something new in this batch."""
        now = self.lines[index + 1]
        return now != "-" and (len(self.before) <= index + 1 or self.before[index + 1] != now)

    def to_json(self) -> Json:
        return {"location": self.location, "batch": self.batch, "lines": list(self.lines)}


class SparkLog:
    def __init__(self, location: Path) -> None:
        self._location = location
        self._before: tuple[str, ...] = ()

    def seed(self, manifest: Manifest | None, slots: int, sources: int) -> None:
        """Prepare the folder so that the next batch is the one after the checkpoint's epoch."""
        if manifest is None:
            return
        batch = int(manifest.epoch) - 1
        heartbeat = json.dumps({"offset": slots * int(manifest.epoch), "timestamp": int(manifest.epoch)})
        lines = [heartbeat]
        if sources:
            if manifest.spark_offsets is None or len(manifest.spark_offsets["lines"]) != sources + 1:
                raise PenstockError(
                    f"checkpoint {manifest.checkpoint_id} has no positions for the {sources} source(s) this job reads through "
                    "Spark: it was taken by a job with other sources. Resume the job it belongs to, or start in a new folder"
                )
            lines += manifest.spark_offsets["lines"][1:]
            self._copy_sources(manifest.spark_offsets)
        head = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": manifest.created_ms, "conf": {}})
        text = "\n".join(["v1", head, *lines])
        (self._location / "offsets").mkdir(exist_ok=True)
        (self._location / "commits").mkdir(exist_ok=True)
        (self._location / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        for number in (batch - 1, batch):
            if number >= 0:
                (self._location / "offsets" / str(number)).write_text(text)
        (self._location / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        self._before = tuple(lines)

    def _copy_sources(self, offsets: Json) -> None:
        """File sources keep a log of what they have listed under `sources/`; the new query needs it. A savepoint brings
        it along, a checkpoint names the folder of the query that took it."""
        if "files" in offsets:
            for file in offsets["files"]:
                data = read_external(file["path"])
                if (len(data), zlib.crc32(data)) != (file["size"], file["crc32"]):
                    raise CorruptSnapshotError(
                        f"{file['path']}: is damaged: resume from another savepoint, or bring the file back from a copy"
                    )
                target = self._location / "sources" / file["name"]
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
            return
        old = Path(offsets["location"])
        if (old / "sources").is_dir() and old != self._location:
            shutil.copytree(old / "sources", self._location / "sources", dirs_exist_ok=True)

    def progress(self, batch: int) -> Progress:
        """What the batch that is running now reads: Spark has logged it before it calls us."""
        path = self._location / "offsets" / str(batch)
        content: list[Any] = path.read_text().split("\n") if path.exists() else []
        lines = tuple(content[2:])
        progress = Progress(str(self._location), batch, lines, self._before)
        self._before = lines
        return progress
