"""The committing half of `FileSink`: which staged files make a file now, their places, and the list of what was committed.

A commit that joins files or lets some wait writes down what it will do (`plan`) before it does any of it, so that one that is
repeated does the same whatever the clock says. What waits is named in the list of the commit, `_commits/<epoch>-<run>.json`, whose
appearance is the end of the commit; staged files are deleted after it.

Several jobs, one after the other or at once, may write into a folder: names of files, lists and staged files have the `run` in
them, which stands for one sink of one job over all its restarts.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import IO, Any
from urllib.parse import quote

from penstock.connectors.files.folders import Folder, open_folder
from penstock.connectors.files.rolling import RollRule, due
from penstock.connectors.files.rolling import StagedFile as StagedFile  # manifests of before know it by this module
from penstock.connectors.files.write_formats import WriteFormat
from penstock.errors import FileMissingError, StorageError
from penstock.functions.connectors import Committer

_log = logging.getLogger("penstock")

_COMMITS = "_commits"
_STAGING = ".staging"
_ADOPTED = "goes-on-from.json"
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class InputEnded:
    """A committable: a subtask will write nothing more, so nothing has to wait for it."""

    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What one commit does: each group becomes a file, the others wait."""

    staged: list[str]  # what the checkpoint brought: the plan is for these very files
    groups: list[list[StagedFile]]
    waiting: list[StagedFile]
    ended: bool


class FileCommitter(Committer):
    """Puts staged files in their places, joined where the rule says so, then writes `_commits/<epoch>-<run>.json`.

    May die anywhere and be called again: a move that was done shows as a final file without a staged one. Neither
    of them means that output was lost, which is an error, unless the epoch's list shows that it had been committed
    (its reader may have moved the file on since).
    """

    def __init__(
        self,
        folder: Folder,
        sink_id: str,
        write_format: WriteFormat,
        rule: RollRule,
        *,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._folder = folder
        self._sink_id = sink_id
        self._format = write_format
        self._rule = rule
        self._now = now_ms
        self._before: tuple[int, dict[str, Any] | None] | None = None  # this committer's newest list, and its epoch
        # Joining what checkpoints have left takes its time; a plain move does not.
        self.commits_beside_next_epoch = rule.checkpoints != 1 or rule.across_subtasks

    @property
    def _staging(self) -> str:
        return staging_folder(self._sink_id, self.job_id)

    def adopt(self, job_id: str) -> None:
        if job_id != self.job_id:
            self._folder.write(f"{self._staging}/{_ADOPTED}", json.dumps({"job_id": job_id}).encode())

    def _as(self, job_id: str) -> FileCommitter:
        """The committer that the other job has, or had."""
        other = FileCommitter(self._folder, self._sink_id, self._format, self._rule, now_ms=self._now)
        other.job_id = job_id
        return other

    def commit(self, epoch: int, committables: Sequence[Any]) -> None:
        fresh = [item for item in committables if isinstance(item, StagedFile)]
        if fresh and not self.job_id:  # without a driver, or inside another committer
            self.job_id = fresh[0].job_id
        if fresh and fresh[0].job_id != self.job_id:
            # Of the checkpoint that this job starts from. The other job may have committed it, or is about to.
            self._as(fresh[0].job_id).commit(epoch, committables)
            return
        before = self._list_before(epoch)
        waiting = _waiting(before)
        ended = (before is not None and before.get("ended", False)) or len(fresh) < len(committables)
        if not fresh and not waiting:
            return
        manifest = self._manifest(epoch)
        plan = self._read_plan(epoch, fresh)
        if plan is None:
            if manifest is not None and self._is_done(manifest, fresh):
                self._before = epoch, manifest
                return
            plan = self._new_plan(waiting, fresh, ended)
            if not plan.groups and not fresh and self._rule.checkpoints is None:
                return  # nothing has changed
            if plan.waiting or any(len(group) > 1 for group in plan.groups):
                self._write(self._plan_path(epoch), asdict(plan))
        listed = {entry["path"] for entry in manifest["files"]} if manifest else set()
        files = [self._publish(group, listed, epoch) for group in plan.groups]
        if files:
            self._folder.settle(file.final for file in files)
        written = self._write_manifest(epoch, files, plan)
        self._drop_staged(plan)
        self._before = epoch, written

    def discard_after(self, epoch: int) -> None:
        behind = [path for staged_epoch, path in self._staged_files() if staged_epoch > epoch]
        later = [manifest for number, manifest in self._own_lists(self.job_id) if number > epoch]
        if behind or later:
            self.still_mine()
        for manifest in later:  # the job has gone back behind these: what waits is what waited before them
            if not manifest.get("left"):
                self._write(self._manifest_path(manifest["epoch"]), {**manifest, "waiting": [], "left": True})
        for path in behind:
            self._folder.remove(path)
        self._before = None

    def _new_plan(self, waiting: list[StagedFile], fresh: list[StagedFile], ended: bool) -> _Plan:
        kept = []
        for file in waiting:
            if self._folder.size(file.staged) is None:
                _log.warning(
                    "FileSink %s: %s, which waited at the checkpoint that the job went back to, was committed since: its %d "
                    "records are in a file already",
                    self._sink_id,
                    file.staged,
                    file.rows,
                )
            else:
                kept.append(replace(file, waited=file.waited + 1))
        groups, held = due([*kept, *fresh], self._rule, self._now(), ended=ended)
        alike = [part for group in groups for part in self._alike(group)]
        return _Plan(staged=[file.staged for file in fresh], groups=alike, waiting=held, ended=ended)

    def _alike(self, group: list[StagedFile]) -> list[list[StagedFile]]:
        """The group cut where the format cannot join: other columns than before."""
        if len(group) == 1:
            return [group]
        parts: list[list[StagedFile]] = []
        kind: object = None
        for file in group:
            with self._folder.open(file.staged) as opened:
                own = self._format.kind_of(opened)
            if not parts or own != kind:
                parts.append([])
            parts[-1].append(file)
            kind = own
        return parts

    def _publish(self, group: list[StagedFile], listed: set[str], epoch: int) -> StagedFile:
        """Puts what a group has become in its place."""
        first = group[0]
        file = first
        if len(group) > 1:
            joined = f"{self._staging}/{epoch}-joined-{quote(first.final, safe='')}"
            if all(self._folder.size(part.staged) is not None for part in group):
                size = self._join(group, joined)
            else:  # they are deleted after the commit: it was done
                size = self._folder.size(first.final) or 0
            file = replace(first, staged=joined, rows=sum(part.rows for part in group), size=size)
        self._move(file, listed)
        return file

    def _join(self, group: list[StagedFile], path: str) -> int:
        target = self._folder.create(path)
        try:
            self._format.join(self._opened(group), target)
            return self._folder.seal(path, target)
        except BaseException:
            self._folder.abandon(path, target)
            raise

    def _opened(self, group: list[StagedFile]) -> Iterator[IO[bytes]]:
        for part in group:
            with self._folder.open(part.staged) as file:
                yield file

    def _move(self, file: StagedFile, listed: set[str]) -> None:
        staged, final = self._folder.address(file.staged), self._folder.address(file.final)
        there = self._folder.size(file.final)
        try:
            self._folder.move(file.staged, file.final)
        except FileMissingError as error:
            if there is None:
                if file.final in listed:
                    return
                raise StorageError(
                    f"FileSink {self._sink_id}: cannot commit epoch {file.epoch}: neither the staged file {staged} nor "
                    f"the committed file {final} exists, so {file.rows} records are lost. If they were removed by "
                    "hand, put one of them back; otherwise go back to a checkpoint before this epoch."
                ) from error
            if there != file.size:
                raise StorageError(
                    f"FileSink {self._sink_id}: cannot commit epoch {file.epoch}: the staged file {staged} is gone and "
                    f"{final} has {there} bytes instead of {file.size}. Something else wrote there; "
                    "go back to a checkpoint before this epoch."
                ) from error

    # ---------------------------------------------------------------- lists and plans

    def _list_before(self, epoch: int) -> dict[str, Any] | None:
        """The newest list before this epoch's, of this sink, in the history that the job is in."""
        if self._before is not None and self._before[0] < epoch:
            return self._before[1]
        adopted = self._folder.read(f"{self._staging}/{_ADOPTED}")
        for job_id in (self.job_id, *([] if adopted is None else [json.loads(adopted)["job_id"]])):
            for number, manifest in self._own_lists(job_id, newest_first=True):
                if number < epoch and not manifest.get("left"):
                    self._before = number, manifest
                    return manifest
        self._before = -1, None
        return None

    def _own_lists(self, job_id: str, *, newest_first: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
        """The lists of this sink in a job. Those of earlier versions are known only by what is in them."""
        run = run_name(self._sink_id, job_id)
        for number, path in sorted(_lists(self._folder), reverse=newest_first):
            if path.endswith((f"-{run}.json", f"/{number}.json")):
                manifest = _read_manifest(self._folder, path)
                if manifest is not None and (manifest["sink_id"], manifest["job_id"]) == (self._sink_id, job_id):
                    yield number, manifest

    def _manifest_path(self, epoch: int) -> str:
        return f"{_COMMITS}/{epoch}-{run_name(self._sink_id, self.job_id)}.json"

    def _manifest(self, epoch: int) -> dict[str, Any] | None:
        found = _read_manifest(self._folder, self._manifest_path(epoch))
        if found is not None:
            return found
        older = _read_manifest(self._folder, f"{_COMMITS}/{epoch}.json")  # as earlier versions named it
        mine = older is not None and (older["sink_id"], older["job_id"]) == (self._sink_id, self.job_id)
        return older if mine else None

    def _is_done(self, manifest: dict[str, Any], fresh: list[StagedFile]) -> bool:
        names = {file.staged for file in fresh}
        waits = {file.staged for file in _waiting(manifest)}
        return names == set(manifest.get("staged", [None])) and not any(
            self._folder.size(name) is not None for name in names - waits
        )

    def _write_manifest(self, epoch: int, files: Sequence[StagedFile], plan: _Plan) -> dict[str, Any]:
        manifest = {
            "version": _VERSION,
            "epoch": epoch,
            "job_id": self.job_id,
            "sink_id": self._sink_id,
            "files": [{"path": file.final, "rows": file.rows, "size": file.size} for file in files],
            "staged": plan.staged,
            "waiting": [asdict(file) for file in plan.waiting],
            "ended": plan.ended,
        }
        self._write(self._manifest_path(epoch), manifest)
        return manifest

    def _write(self, path: str, content: dict[str, Any]) -> None:
        self._folder.write(path, json.dumps(content, indent=1).encode())

    def _plan_path(self, epoch: int) -> str:
        return f"{self._staging}/plan-{epoch}.json"

    def _read_plan(self, epoch: int, fresh: list[StagedFile]) -> _Plan | None:
        """The plan of a commit of these files that did not come to its end."""
        data = self._folder.read(self._plan_path(epoch))
        found = None if data is None else json.loads(data)
        if found is None or found["staged"] != [file.staged for file in fresh]:
            return None
        return _Plan(
            staged=found["staged"],
            groups=[[StagedFile(**part) for part in group] for group in found["groups"]],
            waiting=[StagedFile(**part) for part in found["waiting"]],
            ended=found["ended"],
        )

    # ---------------------------------------------------------------- staged files

    def _drop_staged(self, plan: _Plan) -> None:
        """What is still staged for epochs that are now committed was joined, or left by attempts that failed."""
        waits = {file.staged for file in plan.waiting}
        published = [file for group in plan.groups for file in group]
        epochs = {file.epoch for file in published} | {file.epoch for file in plan.waiting}
        for file in published:
            if not file.staged.startswith(f"{self._staging}/"):  # of the job that this one goes on from
                self._folder.remove(file.staged)
        for epoch, path in self._staged_files():
            if path not in waits and (epoch in epochs or "-joined-" in path):
                self._folder.remove(path)
        for name in self._folder.names(self._staging):  # last: they say what to do with files that are partly gone
            if name.startswith("plan-"):
                self._folder.remove(f"{self._staging}/{name}")

    def _staged_files(self) -> Iterator[tuple[int, str]]:
        for name in self._folder.names(self._staging):
            epoch, dash, _ = name.partition("-")
            if dash and epoch.isdigit():
                yield int(epoch), f"{self._staging}/{name}"


def committed_files(base: str | os.PathLike[str], *, after_epoch: int = 0) -> list[str]:
    """Full paths (urls, in an object store) of the files of all commits later than `after_epoch`, in their order."""
    folder = open_folder(base)
    lists = (_read_manifest(folder, path) for epoch, path in sorted(_lists(folder)) if epoch > after_epoch)
    manifests = (manifest for manifest in lists if manifest is not None)
    paths = (entry["path"] for manifest in manifests for entry in manifest["files"])
    return [folder.address(path) for path in dict.fromkeys(paths)]


def run_name(sink_id: str, job_id: str) -> str:
    """What the names of a sink's files have for the job: short, and another for every other job."""
    return hashlib.sha256(f"{job_id}/{sink_id}".encode()).hexdigest()[:8]


def staging_folder(sink_id: str, job_id: str) -> str:
    """The folder, below the sink's, for what a sink of a job has written and not yet committed."""
    # A name of dots only would leave the folder.
    return f"{_STAGING}/{quote(sink_id, safe='').replace('.', '%2E')}-{run_name(sink_id, job_id)}"


def _waiting(manifest: dict[str, Any] | None) -> list[StagedFile]:
    return [] if manifest is None else [StagedFile(**entry) for entry in manifest.get("waiting", ())]


def _lists(folder: Folder) -> Iterator[tuple[int, str]]:
    """The epoch and the path of each list of a folder."""
    for name in folder.names(_COMMITS):
        epoch = name.removesuffix(".json").partition("-")[0]
        if name.endswith(".json") and epoch.isdigit():
            yield int(epoch), f"{_COMMITS}/{name}"


def _read_manifest(folder: Folder, name: str) -> dict[str, Any] | None:
    data = folder.read(name)
    if data is None:
        return None
    path = folder.address(name)
    try:
        manifest: dict[str, Any] = json.loads(data)
    except ValueError as error:
        raise StorageError(
            f"FileSink: {path} is not a list of committed files: {error}. Restore or remove it."
        ) from error
    if manifest.get("version") != _VERSION:
        raise StorageError(
            f"FileSink: {path} has version {manifest.get('version')}, this Penstock reads {_VERSION}. Use the Penstock "
            "that wrote it, or another folder."
        )
    return manifest
