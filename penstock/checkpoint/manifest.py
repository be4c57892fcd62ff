"""The manifest: the one file whose existence makes a checkpoint complete, and all one needs to resume from it.

It is JSON, `{"penstock":"manifest","version":2,"crc32":"…","body":{…}}`, with the checksum taken over the version and
the body's bytes as they stand in the file, so that any changed byte is noticed.

Versions: 2 lists the operators of every task, so that state finds its operator when chains are built differently; 1 did
not, and all files are looked through for an operator whose vertex is not found by name.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import cloudpickle

from penstock.errors import CorruptSnapshotError, StorageError
from penstock.pickling import load_stored
from penstock.protocol.ids import CheckpointId, Epoch, Generation

Json: TypeAlias = Any  # what json.dumps accepts

FORMAT_VERSION = 2
_HEAD = re.compile(rb'\{"penstock":"manifest","version":([1-9][0-9]{0,5}),"crc32":"([0-9a-f]{8})","body":')
_TAIL = b"}\n"
_WHAT_TO_DO = "resume from an older checkpoint or a savepoint, or bring this file back from a copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineState:
    """Small state, kept in the manifest itself: saves a file and a round trip."""

    data: bytes

    @property
    def inline(self) -> bool:
        return True

    @property
    def size(self) -> int:
        return len(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """State in a file of its own; size and checksum are known before it is read."""

    path: str
    size: int
    crc32: int

    @property
    def inline(self) -> bool:
        return False


StateHandle: TypeAlias = InlineState | FileState


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """One subtask's state: a full snapshot, then the deltas since, in the order to apply them."""

    vertex: str  # uid
    subtask: int
    parallelism: int
    key_group_range: range | None = None  # None: the vertex has no keyed state
    handles: tuple[StateHandle, ...] = ()
    operators: tuple[str, ...] | None = None  # uids of those whose state is in here; None: not known (version 1)

    def __post_init__(self) -> None:
        if not 0 <= self.subtask < self.parallelism:
            raise ValueError(f"vertex {self.vertex!r} has no subtask {self.subtask} of {self.parallelism}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A complete checkpoint or savepoint. Immutable once written; the same manifest always gives the same bytes."""

    job_id: str
    job_name: str
    checkpoint_id: CheckpointId
    epoch: Epoch
    generation: Generation
    kind: Literal["checkpoint", "savepoint"] = "checkpoint"
    created_ms: int
    processing_time_ms: int
    max_parallelism: int
    sources: Mapping[str, Json] = field(default_factory=dict)  # source uid -> enumerator state
    spark_offsets: Json = None
    tasks: tuple[TaskState, ...] = ()
    committables: Mapping[str, bytes] = field(default_factory=dict)  # sink uid -> pack_committables(...)
    finished: bool = False
    statistics: Mapping[str, Json] = field(default_factory=dict)
    format_version: int = FORMAT_VERSION

    @property
    def state_bytes(self) -> int:
        """How much state it holds, wherever that is."""
        return sum(handle.size for task in self.tasks for handle in task.handles)

    def file_states(self) -> list[FileState]:
        """Every file this manifest needs."""
        states = [h for task in self.tasks for h in task.handles if isinstance(h, FileState)]
        return [*states, *self.spark_files().values()]

    def spark_files(self) -> dict[str, FileState]:
        """What Spark's own sources keep beside their offsets, by the name they know it by."""
        listed = self.spark_offsets.get("files", []) if isinstance(self.spark_offsets, dict) else []
        return {file["name"]: FileState(path=file["path"], size=file["size"], crc32=file["crc32"]) for file in listed}

    def to_bytes(self) -> bytes:
        body = json.dumps(_body_v2(self), sort_keys=True, separators=(",", ":")).encode()
        head = f'{{"penstock":"manifest","version":{FORMAT_VERSION},"crc32":"{_crc(FORMAT_VERSION, body):08x}","body":'
        return head.encode() + body + _TAIL

    @staticmethod
    def from_bytes(data: bytes, *, source: str) -> Manifest:
        """CorruptSnapshotError naming `source` if one byte differs or the version is unknown."""
        head = _HEAD.match(data)
        if head is None or not data.endswith(_TAIL):
            raise CorruptSnapshotError(f"{source}: is not a whole Penstock manifest ({len(data)} bytes): {_WHAT_TO_DO}")
        version, expected = int(head[1]), int(head[2], 16)
        body = data[head.end() : -len(_TAIL)]
        found = _crc(version, body)
        if found != expected:
            raise CorruptSnapshotError(
                f"{source}: checksum {found:08x} instead of {expected:08x}; the manifest is damaged: {_WHAT_TO_DO}"
            )
        reader = _READERS.get(version)
        if reader is None:
            raise CorruptSnapshotError(
                f"{source}: is whole but has manifest version {version}, and this Penstock reads {sorted(_READERS)}: "
                "use the Penstock release that wrote it, or a newer one"
            )
        try:
            return reader(json.loads(body))
        except (KeyError, TypeError, ValueError, AttributeError, binascii.Error) as error:
            raise CorruptSnapshotError(
                f"{source}: the manifest's content makes no sense ({type(error).__name__}: {error}): {_WHAT_TO_DO}"
            ) from error


def pack_committables(committables: Sequence[Any]) -> bytes:
    """Kept as bytes in the manifest, so that reading it does not need the sinks' classes."""
    return bytes(cloudpickle.dumps(list(committables), 5))


def unpack_committables(data: bytes, *, sink: str) -> list[Any]:
    try:
        unpacked = load_stored(data)
    except Exception as error:
        raise StorageError(
            f"the committables of sink {sink!r} cannot be rebuilt ({type(error).__name__}: {error}); make the classes "
            "they were written with importable, then resume again: their output is not committed yet"
        ) from error
    return list(unpacked)


def _crc(version: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(b"%d\n" % version))


def _body_v2(manifest: Manifest) -> dict[str, Json]:
    return {
        "job_id": manifest.job_id,
        "job_name": manifest.job_name,
        "checkpoint_id": manifest.checkpoint_id,
        "epoch": manifest.epoch,
        "generation": manifest.generation,
        "kind": manifest.kind,
        "created_ms": manifest.created_ms,
        "processing_time_ms": manifest.processing_time_ms,
        "max_parallelism": manifest.max_parallelism,
        "sources": dict(manifest.sources),
        "spark_offsets": manifest.spark_offsets,
        "tasks": [_task_v2(task) for task in manifest.tasks],
        "committables": {sink: base64.b64encode(data).decode() for sink, data in manifest.committables.items()},
        "finished": manifest.finished,
        "statistics": dict(manifest.statistics),
    }


def _task_v2(task: TaskState) -> dict[str, Json]:
    groups = task.key_group_range
    return {
        "vertex": task.vertex,
        "subtask": task.subtask,
        "parallelism": task.parallelism,
        "key_groups": None if groups is None else [groups.start, groups.stop],
        "handles": [_handle_v1(handle) for handle in task.handles],
        "operators": None if task.operators is None else list(task.operators),
    }


def _handle_v1(handle: StateHandle) -> dict[str, Json]:
    match handle:
        case InlineState(data=data):
            return {"inline": base64.b64encode(data).decode()}
        case FileState(path=path, size=size, crc32=crc32):
            return {"file": path, "size": size, "crc32": crc32}


def _read_v1(body: dict[str, Json]) -> Manifest:
    if body["kind"] not in ("checkpoint", "savepoint"):
        raise ValueError(f"kind {body['kind']!r}")
    return Manifest(
        job_id=body["job_id"],
        job_name=body["job_name"],
        checkpoint_id=CheckpointId(body["checkpoint_id"]),
        epoch=Epoch(body["epoch"]),
        generation=Generation(body["generation"]),
        kind=body["kind"],
        created_ms=body["created_ms"],
        processing_time_ms=body["processing_time_ms"],
        max_parallelism=body["max_parallelism"],
        sources=body["sources"],
        spark_offsets=body["spark_offsets"],
        tasks=tuple(_read_task_v1(task) for task in body["tasks"]),
        committables={sink: base64.b64decode(data, validate=True) for sink, data in body["committables"].items()},
        finished=body["finished"],
        statistics=body["statistics"],
        format_version=1,
    )


def _read_v2(body: dict[str, Json]) -> Manifest:
    return replace(_read_v1(body), format_version=2)


def _read_task_v1(task: dict[str, Json]) -> TaskState:
    groups = task["key_groups"]
    return TaskState(
        vertex=task["vertex"],
        subtask=task["subtask"],
        parallelism=task["parallelism"],
        key_group_range=None if groups is None else range(*groups),
        handles=tuple(_read_handle_v1(handle) for handle in task["handles"]),
        operators=None if task.get("operators") is None else tuple(task["operators"]),
    )


def _read_handle_v1(handle: dict[str, Json]) -> StateHandle:
    if "inline" in handle:
        return InlineState(data=base64.b64decode(handle["inline"], validate=True))
    return FileState(path=handle["file"], size=handle["size"], crc32=handle["crc32"])


# One reader for each version ever released: old savepoints stay readable.
_READERS: dict[int, Callable[[dict[str, Json]], Manifest]] = {1: _read_v1, 2: _read_v2}
