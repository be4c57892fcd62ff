"""How SparkSink writes an epoch, by format: each is a function of the epoch's rows that may be called again after a crash.

Formats with a history of their own (Delta, Iceberg) keep the name of each commit in it, so that a write that is repeated can
be told from one of an epoch that was run again with other rows, after a job went back to an older checkpoint.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.errors import CommitRefusedError, PenstockError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    """The files of an epoch are written aside, listed in a note, and moved into the table's folder: a repeated commit deletes
    what the note names first. All that is ours is below `_penstock`, which readers of the table leave out."""

    path: str
    partition_by: tuple[str, ...]
    options: dict[str, str]

    def __call__(self, frame: DataFrame, commit: Commit) -> None:
        files = _Files(frame.sparkSession, self.path.rstrip("/"))
        epoch = f"epoch-{commit.epoch:08d}-{hashlib.sha256(commit.sink.encode()).hexdigest()[:8]}"
        aside, note = f"{_OURS}/{epoch}", f"{_OURS}/{epoch}.json"
        if not files.exists(_OURS) and files.exists_any("penstock_epoch=*"):
            raise CommitRefusedError(
                f"{self.path} has a folder penstock_epoch=… for each epoch, as an earlier version of Penstock wrote them, and a "
                "table cannot be laid out in both ways: give the sink another path"
            )
        writer = frame.write.mode("overwrite").options(**self.options)
        writer = writer.partitionBy(*self.partition_by) if self.partition_by else writer
        writer.parquet(files.whole(aside))
        if files.exists(note):  # a driver died here, or the epoch was run again from an older checkpoint
            for name in json.loads(files.read(note))["files"]:
                files.delete(name)
        written = [name for name in files.below(aside) if name.endswith(".parquet")]
        moves = {
            name: _beside(name.removeprefix(f"{aside}/"), f"{epoch}-{n}") for n, name in enumerate(sorted(written))
        }
        files.write(note, json.dumps({"files": sorted(moves.values())}))
        for name, target in moves.items():
            files.move(name, target)
        files.delete(aside)


_OURS = "_penstock"


def _beside(path: str, name: str) -> str:
    folder, slash, _ = path.rpartition("/")
    return f"{folder}{slash}{name}.parquet"


class _Files:
    """Files below a folder, by Hadoop's file systems: the same as Spark's own reads and writes go to. Names are relative."""

    def __init__(self, session: SparkSession, root: str) -> None:
        jvm: Any = session._jvm
        self._path: Any = jvm.org.apache.hadoop.fs.Path
        configuration = session._jsparkSession.sessionState().newHadoopConf()
        self._fs = self._path(root).getFileSystem(configuration)
        self._root = root
        self._listed = str(self._fs.makeQualified(self._path(root)).toString())  # as listings name it

    def whole(self, name: str) -> str:
        return f"{self._root}/{name}"

    def exists(self, name: str) -> bool:
        return bool(self._fs.exists(self._path(self.whole(name))))

    def exists_any(self, pattern: str) -> bool:
        return bool(list(self._fs.globStatus(self._path(self.whole(pattern))) or []))

    def below(self, name: str) -> Iterator[str]:
        found = self._fs.listFiles(self._path(self.whole(name)), True)
        while found.hasNext():
            yield str(found.next().getPath().toString()).removeprefix(f"{self._listed}/")

    def read(self, name: str) -> str:
        stream = self._fs.open(self._path(self.whole(name)))
        try:
            return bytes(stream.readAllBytes()).decode()
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        stream = self._fs.create(self._path(self.whole(name)), True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def move(self, name: str, target: str) -> None:
        to = self._path(self.whole(target))
        self._fs.mkdirs(to.getParent())
        if not self._fs.rename(self._path(self.whole(name)), to):
            raise PenstockError(f"{self.whole(name)} could not be moved to {self.whole(target)}")

    def delete(self, name: str) -> None:
        self._fs.delete(self._path(self.whole(name)), True)


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
