"""Completed checkpoints of one job folder: committing, finding, verifying and subsuming them. Begin to read here.

A checkpoint is complete when its manifest exists, and a manifest is created exclusively: that is the instant of
commit. Drivers that do not know of each other are told apart by generation. A manifest of an older generation behind
the checkpoint that a newer one started from is an *orphan* (`history`): written by a driver that had already been replaced,
or carried out late by the store, on a history that was abandoned. Orphans are never resumed from.

The way of a driver through this folder of the code, each step with what the one before it gave:

    acquire         ownership.py       the next generation is this driver's: an Ownership
    latest_readable store.py           which manifest to go on from, by history.py; its bytes are manifest_file.py's
    begin           store.py           where it starts is noted: a StartPermit, with which it may discard what older drivers left
    contents_for    restore.py         what of the files of a manifest one subtask needs, at this or another parallelism
    write_state     store.py           snapshots, by layout.py's names, into storage.py: local_storage.py or object_storage.py
    commit          store.py           the manifest (manifest.py), with a permit: the checkpoint is complete
    subsume         store.py           older ones go, if nobody has replaced the driver

Beside it: savepoint.py is a snapshot in a folder of its own; state_data.py shows any snapshot as rows, and savepoint_writer.py
makes one of rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from penstock.checkpoint import history, layout, manifest_file, savepoint
from penstock.checkpoint.local_copies import LocalCopies
from penstock.checkpoint.manifest import WHAT_TO_DO, FileState, InlineState, Manifest, StateHandle
from penstock.checkpoint.ownership import SEAL, Ownership, StartPermit
from penstock.checkpoint.storage import FileMissingError, Storage
from penstock.errors import CorruptSnapshotError, FencedError, ProtocolError
from penstock.protocol.checkpoint_messages import ManifestPermit
from penstock.protocol.ids import CheckpointId, Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """The manifest was created: the checkpoint is complete."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True, kw_only=True)
class AlreadyCommitted:
    """Exactly this manifest is there already: an earlier call succeeded although its answer was lost. Success."""

    checkpoint_id: CheckpointId


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """Not committed. `by_generation` > ours: we were replaced and must stop. Smaller: the driver we replaced completed
    this checkpoint after we had resumed from an earlier one; start again from it."""

    checkpoint_id: CheckpointId
    by_generation: Generation


CommitOutcome: TypeAlias = Committed | AlreadyCommitted | Fenced


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestReadable:
    """`manifest` is None only if no checkpoint was ever completed. `problems` says, per skipped checkpoint, why."""

    manifest: Manifest | None
    problems: tuple[str, ...] = ()
    skipped: tuple[CheckpointId, ...] = ()  # the checkpoints that have them


@dataclass(frozen=True, slots=True, kw_only=True)
class Subsumed:
    """The checkpoints and files that retention removed; maybe none."""

    checkpoints: tuple[CheckpointId, ...] = ()
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAll:
    """Retention removed nothing, because it could not be sure what is still needed."""

    reason: str


READERS: Final = 4  # of one subtask that restores: a store may be slow to answer


class CheckpointStore:
    """Used by one driver; every method may be repeated after a failure at any point."""

    def __init__(self, storage: Storage, retained: int, local: LocalCopies | None = None, *, readers: int = 1) -> None:
        """`local`: where copies of state files are that need not be fetched. `readers`: from how many threads a restore reads."""
        if retained < 1:
            raise ValueError(f"at least one checkpoint must be retained, not {retained}")
        self.storage = storage
        self.retained, self.local, self.readers = retained, local, readers
        # A write that decides about the history has failed, and the store may still carry it out: whoever goes on must do so as
        # another generation, for which it is an orphan.
        self.in_doubt = False
        self._known: dict[str, tuple[bytes, Manifest]] = {}  # by path: files as they were seen, and what is in them

    def begin(self, ownership: Ownership, checkpoint: CheckpointId | None) -> StartPermit:
        """The owner goes on behind `checkpoint`, None: from nothing. From now on nobody resumes from a later checkpoint of
        an older generation, so what such a one would need may be discarded; nor runs a plan of theirs that is not there yet.
        Repeatable: the first call counts. FencedError if another driver has come."""
        start = layout.generation_starts(self.storage.list(layout.GENERATIONS)).get(ownership.generation)
        if start is None:
            planned = max(layout.planned_epochs(self.storage.list(layout.EPOCHS)), default=0)
            start = layout.GenerationStart(checkpoint=checkpoint or CheckpointId(0), planned=planned)
            self._decide(layout.generation_start(ownership.generation, start), b"{}")
        ownership.check()  # whoever comes from now on knows where this one began
        return StartPermit(checkpoint=start.checkpoint, ownership=ownership, seal=SEAL)

    def _decide(self, path: str, data: bytes) -> bool:
        self.in_doubt = True
        created = self.storage.put_new(path, data)
        self.in_doubt = False
        return created

    def commit(self, manifest: Manifest, permit: ManifestPermit[Any] | StartPermit) -> CommitOutcome:
        """Make a checkpoint complete. Retry with the same manifest, not with one built anew. Rule 5: the checkpoint machine permits
        the one whose turn it is; a driver that has started may go on from another one than it found, from a savepoint for one."""
        _check_permit(manifest, permit)
        checkpoint = manifest.checkpoint_id
        path = layout.checkpoint_manifest(checkpoint)
        data = manifest_file.encode(manifest)
        # A replaced driver is stopped here already. It could still pass just before its successor appears; then
        # exclusive creation decides about equal ids, and the orphan rule about others.
        newest = self._newest_generation()
        if newest is not None and newest > manifest.generation:
            return Fenced(checkpoint_id=checkpoint, by_generation=newest)
        while not self._decide(path, data):
            present = self.storage.get(path)
            if present == data:
                return AlreadyCommitted(checkpoint_id=checkpoint)
            other = manifest_file.decode(present, source=self._source(path))
            if other.generation == manifest.generation:
                raise ProtocolError(
                    f"checkpoint {checkpoint} of generation {manifest.generation} was committed before with other content "
                    f"({self._source(path)}): a commit must be retried with the same manifest; resume from that checkpoint"
                )
            if other.generation > manifest.generation or checkpoint not in self._orphans(self._readable_generations()):
                return Fenced(checkpoint_id=checkpoint, by_generation=other.generation)
            # Nobody resumes from an orphan, and only the current generation gets here: its number may be used again.
            self.storage.delete(path)
        return Committed(checkpoint_id=checkpoint)

    def completed(self) -> list[CheckpointId]:
        """Ids with a manifest, ascending, orphans and unreadable ones included."""
        return layout.completed_checkpoints(self.storage.list(layout.CHECKPOINTS))

    def load(self, checkpoint: CheckpointId | int) -> Manifest:
        """CorruptSnapshotError naming the file if it is missing, damaged or in the wrong place."""
        path = layout.checkpoint_manifest(checkpoint)
        try:
            data = self.storage.get(path)
        except FileMissingError as error:
            raise CorruptSnapshotError(
                f"{self._source(path)}: there is no such checkpoint; completed are {self.completed()}"
            ) from error
        seen, manifest = self._known.get(path, (b"", None))
        if manifest is None or seen != data:  # decoding those of a thousand tasks takes a tenth of a second
            manifest = manifest_file.decode(data, source=self._source(path))
            self._known[path] = data, manifest
        if manifest.checkpoint_id != checkpoint:
            raise CorruptSnapshotError(
                f"{self._source(path)}: is the manifest of checkpoint {manifest.checkpoint_id}; put the files back "
                "where they were, or resume from another checkpoint"
            )
        return manifest

    def latest(self) -> Manifest | None:
        """The newest checkpoint to resume from; None if there is none; an error, not an older one, if it is damaged."""
        return self.latest_readable(fall_back=False).manifest

    def latest_readable(self, *, fall_back: bool) -> LatestReadable:
        """With `fall_back`, the newest checkpoint whose manifest and state files are all whole, and what was wrong with
        newer ones; an error if none is. Falling back repeats output that was committed since: only on request.

        Without it state files are not read here; `read_state` verifies each when it is restored.
        """
        completed = self.completed()
        orphans = self._orphans(self._readable_generations(completed))
        problems: list[str] = []
        skipped: list[CheckpointId] = []
        for checkpoint in reversed(completed):
            if checkpoint in orphans:
                continue
            try:
                manifest = self.load(checkpoint)
                if fall_back:
                    self.verify(manifest)
                return LatestReadable(manifest=manifest, problems=tuple(problems), skipped=tuple(skipped))
            except CorruptSnapshotError as error:
                if not fall_back:
                    raise
                problems.append(str(error))
                skipped.append(checkpoint)
        if problems:
            raise CorruptSnapshotError(
                f"none of the {len(problems)} completed checkpoints in {self.storage.url} can be read: "
                f"{'; '.join(problems)}"
            )
        return LatestReadable(manifest=None)

    def set_aside(self, checkpoint: CheckpointId, ownership: Ownership) -> None:
        """A damaged checkpoint that the job has gone back behind: it will not be resumed from any more, so its number is
        free again. What is left of it stays beside, for people to look at. FencedError if another driver has come."""
        ownership.check()
        path = layout.checkpoint_manifest(checkpoint)
        try:
            data = self.storage.get(path)
        except FileMissingError:
            return
        self.storage.put(f"{path}.damaged", data)
        self.storage.delete(path)

    def verify(self, manifest: Manifest) -> None:
        """Read every state file of a checkpoint; CorruptSnapshotError naming the first that is not whole."""
        for handle in dict.fromkeys(manifest.file_states()):
            self.read_state(handle)

    def read_state(self, handle: StateHandle) -> bytes:
        """A snapshot's bytes, exactly as written; CorruptSnapshotError naming the file otherwise."""
        if isinstance(handle, InlineState) or savepoint.is_external(handle):
            return savepoint.read_absolute(handle)
        if self.local is not None and (copy := self.local.get(handle)) is not None:
            return copy
        try:
            data = self.storage.get(handle.path)
        except FileMissingError as error:
            raise CorruptSnapshotError(
                f"{self._source(handle.path)}: the state file is missing: {WHAT_TO_DO}"
            ) from error
        handle.verify(data, source=self._source(handle.path))
        return data

    def write_state(self, checkpoint: CheckpointId | int, name: str, data: bytes) -> FileState:
        """Store a snapshot under the checkpoint that will be the first to refer to it. `name` carries the attempt
        (`layout.state_name`), so two attempts never share a file; FencedError if they do."""
        path = layout.checkpoint_state(checkpoint, name)
        if not self.storage.put_new(path, data) and self.storage.get(path) != data:
            raise FencedError(
                f"{self._source(path)} exists with other content: another attempt uses the same name; "
                "this attempt must give up and a new one, with its own name, start again"
            )
        if self.local is not None:
            self.local.put(path, data)
        return FileState(path=path, size=len(data), crc32=zlib.crc32(data))

    def subsume(self, start: StartPermit) -> Subsumed | KeptAll:
        """Delete checkpoints beyond the retained ones, and state files up to the newest that none of them refers to.

        Manifests go first, oldest first, so that no visible checkpoint ever lacks a file; a crash in between leaves
        unreferenced files, which the next call finds. Files above the newest checkpoint may belong to one in progress
        and stay. If any manifest cannot be read, or a new driver has not committed yet, nothing is deleted; nor by a driver
        that was replaced, whose retention is not the one that counts.
        """
        paths = self.storage.list(layout.CHECKPOINTS)
        completed = layout.completed_checkpoints(paths)
        if not completed:
            return Subsumed()
        try:
            manifests = {checkpoint: self.load(checkpoint) for checkpoint in completed}
        except CorruptSnapshotError as error:
            return KeptAll(reason=str(error))
        known = self.storage.list(layout.GENERATIONS)
        current = max(layout.generations(known), default=None)
        if current is not None and current > start.generation:
            return _replaced(start, current)
        starts = layout.generation_starts(known)
        orphans = history.orphans([(c, manifests[c].generation) for c in completed], starts)
        own = [c for c in completed if c not in orphans]
        if not own:
            return KeptAll(reason="the newest generation has not completed a checkpoint yet")
        newest = own[-1]
        if current is not None and current > manifests[newest].generation:
            # It resumed from one of these, perhaps not the newest: files with any id may be its checkpoint in progress.
            return KeptAll(reason=f"generation {current} has not completed a checkpoint yet")
        retained = own[-self.retained :]
        needed = {state.path for c in retained for state in manifests[c].file_states()}
        # An orphan above the newest stays as well: its number may be about to be used again.
        subsumed = [c for c in completed if c < newest and c not in retained]
        for checkpoint in subsumed:
            self.storage.delete(layout.checkpoint_manifest(checkpoint))
            self._known.pop(layout.checkpoint_manifest(checkpoint), None)
            claimed = manifests[checkpoint].claimed_savepoint
            # The job was given it to keep: it goes with the last checkpoint that needs it. An orphan's may be another's as well.
            if claimed is not None and checkpoint not in orphans:
                savepoint.dispose(claimed)
        unneeded = [p for p in paths if p not in needed and _written_up_to(p, newest)]
        for path in unneeded:
            self.storage.delete(path)
        return Subsumed(checkpoints=tuple(subsumed), files=tuple(unneeded))

    def discard_all(self, start: StartPermit) -> KeptAll | None:
        """The job is over and nobody shall resume it: newest manifests last, so that what is visible is always whole. Stops
        where another driver has come, to which the rest belongs."""
        paths = self.storage.list(layout.CHECKPOINTS)
        plans = [layout.epoch_plan(epoch) for epoch in layout.planned_epochs(self.storage.list(layout.EPOCHS))]
        for checkpoint in layout.completed_checkpoints(paths):
            if (newest := self._newest_generation()) is not None and newest > start.generation:
                return _replaced(start, newest)
            self.storage.delete(layout.checkpoint_manifest(checkpoint))
        if (newest := self._newest_generation()) is not None and newest > start.generation:
            return _replaced(start, newest)
        for path in (*paths, *plans):
            self.storage.delete(path)
        return None

    def _newest_generation(self) -> Generation | None:
        known = layout.generations(self.storage.list(layout.GENERATIONS))
        return known[-1] if known else None

    def _readable_generations(
        self, completed: Sequence[CheckpointId] | None = None
    ) -> list[tuple[CheckpointId, Generation]]:
        found = []
        for checkpoint in self.completed() if completed is None else completed:
            try:
                found.append((checkpoint, self.load(checkpoint).generation))
            except CorruptSnapshotError:
                continue  # says nothing about its generation; whoever loads it gets the error
        return found

    def _orphans(self, committed: Sequence[tuple[CheckpointId, Generation]]) -> frozenset[CheckpointId]:
        return history.orphans(committed, layout.generation_starts(self.storage.list(layout.GENERATIONS)))

    def _source(self, path: str) -> str:
        return path if "://" in path else f"{self.storage.url.rstrip('/')}/{path}"


def _check_permit(manifest: Manifest, permit: ManifestPermit[Any] | StartPermit) -> None:
    """ProtocolError if this manifest is not the one that may be written."""
    what = f"the manifest of checkpoint {manifest.checkpoint_id} of generation {manifest.generation}"
    match permit:
        case ManifestPermit():
            permitted = permit.epoch == manifest.epoch and permit.committables.keys() == manifest.committables.keys()
        case StartPermit():
            own = permit.generation == manifest.generation and permit.checkpoint < manifest.checkpoint_id
            permitted = own and not manifest.committables  # only an epoch makes output
        case _:
            raise ProtocolError(f"{what} was to be written without permission, with {permit!r}")
    if not permitted:
        raise ProtocolError(f"{what} was to be written, but {permit!r:.200} is for another one")


def _replaced(start: StartPermit, newest: Generation) -> KeptAll:
    return KeptAll(reason=f"generation {newest} has replaced {start.generation}: the checkpoints are its")


def _written_up_to(path: str, newest: CheckpointId) -> bool:
    checkpoint = layout.checkpoint_of_state(path)
    return checkpoint is not None and checkpoint <= newest
