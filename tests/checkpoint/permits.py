"""Permits for tests of what needs one: made by hand, where the product gets them from who may give them."""

from __future__ import annotations

from typing import Any

from penstock.checkpoint import layout, ownership
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.ownership import OwnerInfo, Ownership, StartPermit
from penstock.checkpoint.storage import Storage
from penstock.checkpoint.store import CheckpointStore, CommitOutcome
from penstock.protocol.checkpoint_messages import SEAL, ManifestPermit
from penstock.protocol.ids import CheckpointId, Generation


def owned(storage: Storage, generation: int) -> Ownership:
    """The folder is ours as this generation, whatever is in it."""
    owner = OwnerInfo(host="here", pid=generation, process_start_time=1.0, acquired_ms=0)
    return Ownership(storage=storage, generation=Generation(generation), owner=owner, seal=ownership.SEAL)


def started(storage: Storage, generation: int, checkpoint: int = 0) -> StartPermit:
    """The same, and it has said so, but not where it starts: as a driver of an earlier release."""
    storage.put_new(layout.generation(generation), b"")
    return StartPermit(
        checkpoint=CheckpointId(checkpoint), ownership=owned(storage, generation), seal=ownership.SEAL
    )  # fmt: skip


def permit_for(manifest: Manifest) -> ManifestPermit[Any]:
    """As the checkpoint machine gives it when it is this checkpoint's turn."""
    return ManifestPermit(
        epoch=int(manifest.epoch), planned=None, acks={}, chains={}, size=0, seal=SEAL, finished=manifest.finished,
        committables={sink: [] for sink in manifest.committables},
    )  # fmt: skip


def commit(store: CheckpointStore, manifest: Manifest) -> CommitOutcome:
    return store.commit(manifest, permit_for(manifest))


def subsume(store: CheckpointStore) -> object:
    """By a driver that nobody has replaced, and that needs no file to say so."""
    newest = owned(store.storage, 10**6)
    return store.subsume(StartPermit(checkpoint=CheckpointId(0), ownership=newest, seal=ownership.SEAL))
