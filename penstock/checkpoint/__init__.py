"""Checkpoints of one job folder: storage, layout, manifests, retention and ownership. `store` says where to begin to read."""

from __future__ import annotations

from penstock.checkpoint.manifest import (
    FileState,
    InlineState,
    Manifest,
    StateHandle,
    TaskState,
)
from penstock.checkpoint.manifest_file import pack_committables, unpack_committables
from penstock.checkpoint.ownership import OwnerInfo, Ownership, StartPermit, acquire
from penstock.checkpoint.storage import (
    FileMissingError,
    LocalStorage,
    ObjectStorage,
    Storage,
    open_storage,
)
from penstock.checkpoint.store import (
    AlreadyCommitted,
    CheckpointStore,
    CommitOutcome,
    Committed,
    Fenced,
    KeptAll,
    LatestReadable,
    Subsumed,
)

__all__ = [
    "AlreadyCommitted",
    "CheckpointStore",
    "CommitOutcome",
    "Committed",
    "Fenced",
    "FileMissingError",
    "FileState",
    "InlineState",
    "KeptAll",
    "LatestReadable",
    "LocalStorage",
    "Manifest",
    "ObjectStorage",
    "OwnerInfo",
    "Ownership",
    "StartPermit",
    "StateHandle",
    "Storage",
    "Subsumed",
    "TaskState",
    "acquire",
    "open_storage",
    "pack_committables",
    "unpack_committables",
]
