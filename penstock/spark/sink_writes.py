"""How SparkSink writes an epoch, by format: each is a function of the epoch's rows that may be called again after a crash.

Formats with a history of their own (Delta, Iceberg) keep the name of each commit in it, so that a write that is repeated can
be told from one of an epoch that was run again with other rows, after a job went back to an older checkpoint.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EPOCH_COLUMN = "penstock_epoch"
_LOOK_BACK = 1000  # commits of a table's history that are searched; only the newest of a sink is ever repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One epoch of one sink. `name` is that of these very rows."""

    sink: str  # with the job's id
    epoch: int
    name: str


Write: TypeAlias = "Callable[[DataFrame, Commit], None]"


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteTarget:
    """Where a write goes, and how."""

    format: str
    path: str | None = None
    table: str | None = None
    mode: str = "append"
    partition_by: tuple[str, ...] = ()
    options: dict[str, str]

    def write(self, frame: DataFrame, options: dict[str, str] | None = None) -> None:
        """Writes a frame to the table or path; `options` go over its own."""
        writer = frame.write.format(self.format).mode(self.mode).options(**self.options, **(options or {}))
        writer = writer.partitionBy(*self.partition_by) if self.partition_by else writer
        if self.table is not None:
            writer.saveAsTable(self.table)
        else:
            writer.save(self.path)


@dataclass(frozen=True, slots=True)
class AppendWrite:
    """At least once: nothing tells a repeated write."""

    target: WriteTarget

    def __call__(self, frame: DataFrame, commit: Commit) -> None:
        self.target.write(frame)


@dataclass(frozen=True, slots=True)
class ParquetWrite:
    """Each epoch replaces a folder of its own: a repeated commit changes nothing."""

    path: str
    partition_by: tuple[str, ...]
    options: dict[str, str]

    def __call__(self, frame: DataFrame, commit: Commit) -> None:
        writer = frame.write.mode("overwrite").options(**self.options)
        writer = writer.partitionBy(*self.partition_by) if self.partition_by else writer
        writer.parquet(f"{self.path.rstrip('/')}/{EPOCH_COLUMN}={commit.epoch}")


@dataclass(frozen=True, slots=True)
class DeltaWrite:
    """Delta's transaction ids tell an epoch that is already written."""

    target: WriteTarget

    def __call__(self, frame: DataFrame, commit: Commit) -> None:
        options = delta_options(commit, self._history(frame.sparkSession))
        if options is not None:
            self.target.write(frame, options)

    def _history(self, session: SparkSession) -> list[str | None]:
        from pyspark.errors import AnalysisException

        name = self.target.table if self.target.table is not None else f"delta.`{self.target.path}`"
        try:
            rows = session.sql(f"describe history {name} limit {_LOOK_BACK}").select("userMetadata").collect()
        except AnalysisException as error:
            if error.getCondition() in _NO_TABLE:
                return []  # the first write creates it
            raise
        return [row[0] for row in rows]


_NO_TABLE = (
    "DELTA_TABLE_ONLY_OPERATION",
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_PATH_DOES_NOT_EXIST",
    "TABLE_OR_VIEW_NOT_FOUND",
)


def delta_options(commit: Commit, history: Iterable[str | None]) -> dict[str, str] | None:
    """Options that make an append to a Delta table idempotent; None: it is there already. `history` is the metadata of the
    table's commits.

    Delta leaves out an append whose txnVersion is not higher than the highest it has seen of the txnAppId. That also holds
    off an older driver that is still writing. But it would leave out an epoch that was run again, too: such a one has an id of
    its own.
    """
    seen = [mark for mark in map(_mark, history) if mark.get("sink") == commit.sink]
    if commit.name in [mark["commit"] for mark in seen]:
        return None
    again = any(mark["epoch"] >= commit.epoch for mark in seen)
    return {
        "txnAppId": f"penstock-{commit.sink}" + (f"-{commit.name}" if again else ""),
        "txnVersion": str(commit.epoch),
        "userMetadata": json.dumps({"penstock": {"sink": commit.sink, "epoch": commit.epoch, "commit": commit.name}}),
    }


def _mark(metadata: str | None) -> dict[str, Any]:
    """Ours in a commit's metadata; {} if it is somebody else's."""
    try:
        found = json.loads(metadata or "{}")
    except ValueError:
        return {}
    mark = found.get("penstock") if isinstance(found, dict) else None
    return mark if isinstance(mark, dict) else {}


@dataclass(frozen=True, slots=True)
class IcebergWrite:
    """The snapshot that an append makes carries the commit's name. Only snapshots that the table's present state comes from
    count: one that was rolled back is written again."""

    target: WriteTarget

    def __call__(self, frame: DataFrame, commit: Commit) -> None:
        table, session = self.target.table, frame.sparkSession
        if session.catalog.tableExists(str(table)):
            found = session.sql(
                f"select 1 from {table}.snapshots s join {table}.history h on s.snapshot_id = h.snapshot_id "
                f"where h.is_current_ancestor and s.summary['{_COMMIT}'] = '{commit.name}' limit 1"
            )
            if found.collect():
                return
        marks = {_COMMIT: commit.name, "penstock-sink": commit.sink, "penstock-epoch": str(commit.epoch)}
        self.target.write(frame, {f"snapshot-property.{key}": value for key, value in marks.items()})


_COMMIT = "penstock-commit"


@dataclass(frozen=True, slots=True)
class CallingWrite:
    """A function of the user's writes the epoch; it must make a repeated commit harmless itself."""

    function: Callable[[Any, int], None]

    def __call__(self, frame: DataFrame, commit: Commit) -> None:
        self.function(frame, commit.epoch)
