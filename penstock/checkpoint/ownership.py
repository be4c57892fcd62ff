"""Who owns a job folder. Every driver that takes it over gets the next generation, by exclusive creation.

On one host a live owner is recognised and the newcomer is refused. Across hosts nobody can tell a dead driver from an
unreachable one, so the newcomer takes over and the old driver is fenced: it finds the newer generation at its next
`Ownership.check`, and its commits are refused.

Permission is an object. A driver has an `Ownership` from `acquire` on, and whoever deletes what drivers share asks it first. An
owner has a `StartPermit` when it is noted where it starts (`CheckpointStore.begin`): then, and not before, may it discard.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import psutil

from penstock.checkpoint import layout
from penstock.checkpoint.storage import FileMissingError, Storage
from penstock.errors import CorruptSnapshotError, FencedError, ProtocolError, StorageError
from penstock.protocol.ids import CheckpointId, Generation

_FORMAT_VERSION = 1
# A process's start time is derived from the boot time, which moves a little when the clock is adjusted.
_START_TOLERANCE_S = 2.0
_MAX_RACES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerInfo:
    """A driver process. pid and start time together name a process of one host for good; pids alone are reused."""

    host: str
    pid: int
    process_start_time: float  # seconds since 1970
    acquired_ms: int
    token: str = field(default_factory=lambda: uuid.uuid4().hex)  # one acquisition; tells our own write from another's

    @staticmethod
    def current() -> OwnerInfo:
        """This process, now."""
        return OwnerInfo(
            host=socket.gethostname(),
            pid=os.getpid(),
            process_start_time=psutil.Process().create_time(),
            acquired_ms=time.time_ns() // 1_000_000,
        )

    def same_process(self, other: OwnerInfo) -> bool:
        """True if both name the same process: host, pid and start time."""
        same_pid = (self.host, self.pid) == (other.host, other.pid)
        return same_pid and abs(self.process_start_time - other.process_start_time) <= _START_TOLERANCE_S


SEAL: Any = object()  # whoever has it can make the two below: `acquire` and `renew`, `CheckpointStore.begin`, and tests


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """A driver has the job folder in `storage`, as `generation`, until a newer one appears. `acquire` and `renew` give it."""

    storage: Storage
    generation: Generation
    owner: OwnerInfo
    seal: Any = field(repr=False)

    def __post_init__(self) -> None:
        if self.seal is not SEAL:
            raise ProtocolError("a job folder belongs to who has acquired it, and to nobody else")

    def check(self) -> None:
        """FencedError if another driver's newer generation exists; then this driver must stop without committing or deleting
        anything more. One of its own is a renewal that was carried out and not answered: the next `renew` finds it."""
        storage, generation = self.storage, self.generation
        known = layout.generations(storage.list(layout.GENERATIONS))
        if generation not in known:
            raise FencedError(
                f"generation {generation} of the job folder {storage.url} is gone; found {known}: the folder was deleted "
                "or replaced while the job ran. Stop this driver and start the job again"
            )
        found = _recorded(storage, known[-1]) if known[-1] > generation else (self.owner, None)
        if found is None or found[0] != self.owner:
            newest, since = (None, "") if found is None else (found[0], _when(found[0].acquired_ms))
            who = "" if newest is None else f" (process {newest.pid} on host {newest.host}, since {since})"
            raise FencedError(
                f"generation {generation} of the job folder {storage.url} was replaced by {known[-1]}{who}: this driver must stop; "
                "the newer one carries the job on"
            )

    def release(self, *, now_ms: int | None = None) -> None:
        """Mark the generation as ended, so that the next driver need not ask whether its process lives. Repeatable."""
        path = layout.generation(self.generation)
        owner, ended_ms = _decode(self.storage.get(path), path)
        if ended_ms is None:
            ended = time.time_ns() // 1_000_000 if now_ms is None else now_ms
            self.storage.put(path, _encode(owner, ended_ms=ended))


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPermit:
    """A generation has noted behind which checkpoint it goes on, and was the newest after that: no older driver's later checkpoint
    will ever be resumed from. Rule 3: with this, and not without, staged output is discarded and a savepoint becomes a checkpoint.
    Rule 4: what drivers share is deleted with this, and `check` is asked first."""

    checkpoint: CheckpointId  # 0: from nothing
    ownership: Ownership | None  # None: there is no job folder, so nobody else
    seal: Any = field(repr=False)

    def __post_init__(self) -> None:
        if self.seal is not SEAL:
            raise ProtocolError("a generation has started when its store has noted that, and not before")

    @staticmethod
    def without_folder() -> StartPermit:
        """The permit of a job without a folder: there is no history that anybody could go on from."""
        return StartPermit(checkpoint=CheckpointId(0), ownership=None, seal=SEAL)

    @property
    def generation(self) -> Generation:
        """The number of the generation; 0 in a job without a folder."""
        return Generation(0) if self.ownership is None else self.ownership.generation

    def check(self) -> None:
        """FencedError if another driver has come."""
        if self.ownership is not None:
            self.ownership.check()


def process_is_alive(owner: OwnerInfo) -> bool:
    """Whether that very process, not another with its pid, runs on this host."""
    try:
        process = psutil.Process(owner.pid)
        started = process.create_time()
        zombie = process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True  # it exists and is another user's: better to refuse than to run two drivers
    return not zombie and abs(started - owner.process_start_time) <= _START_TOLERANCE_S


def acquire(
    storage: Storage, owner: OwnerInfo, *, is_alive: Callable[[OwnerInfo], bool] = process_is_alive
) -> Ownership:
    """Take the job folder over. FencedError if a live process on `owner`'s host, other than `owner`, has it.

    Of any number of concurrent callers each number goes to exactly one. The caller must be on `owner.host`.
    """
    for _ in range(_MAX_RACES):
        known = layout.generations(storage.list(layout.GENERATIONS))
        if known:
            _refuse_if_owned(storage, known[-1], owner, is_alive)
        generation = Generation(known[-1] + 1 if known else 1)
        path = layout.generation(generation)
        data = _encode(owner, ended_ms=None)
        # False may also mean that a repeated request found what its first try wrote: then the bytes are ours.
        if storage.put_new(path, data) or storage.get(path) == data:
            return Ownership(storage=storage, generation=generation, owner=owner, seal=SEAL)
    raise StorageError(
        f"gave up taking over the job folder {storage.url} after losing {_MAX_RACES} races for the next generation; "
        "stop the other drivers that keep starting on it"
    )


def renew(ownership: Ownership) -> Ownership:
    """The next generation, for the same driver. FencedError if another has come meanwhile, who then keeps the folder. Repeatable:
    what an earlier call wrote is found."""
    following = replace(ownership, generation=Generation(ownership.generation + 1))
    path, data = layout.generation(following.generation), _encode(ownership.owner, ended_ms=None)
    if ownership.storage.put_new(path, data) or ownership.storage.get(path) == data:
        following.check()
        return following
    ownership.check()
    raise ProtocolError(f"{path} is there, but {ownership.generation} is the newest generation")


def _refuse_if_owned(
    storage: Storage, generation: Generation, newcomer: OwnerInfo, is_alive: Callable[[OwnerInfo], bool]
) -> None:
    found = _recorded(storage, generation)
    if found is None:
        return  # the owner cannot be known, as with one on another host; taking over fences it either way
    owner, ended_ms = found
    if ended_ms is not None or owner.host != newcomer.host or owner.same_process(newcomer) or not is_alive(owner):
        return
    raise FencedError(
        f"the job folder {storage.url} belongs to a running driver: process {owner.pid} on host {owner.host}, "
        f"generation {generation}, since {_when(owner.acquired_ms)}. Stop that process first (a savepoint keeps its "
        "state), or give this job another folder"
    )


def _recorded(storage: Storage, generation: Generation) -> tuple[OwnerInfo, int | None] | None:
    """None: its file is damaged or gone, so it is not ours."""
    try:
        return _decode(storage.get(layout.generation(generation)), layout.generation(generation))
    except (CorruptSnapshotError, FileMissingError):
        return None


def _when(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, tz=UTC).isoformat(timespec="seconds")


def _encode(owner: OwnerInfo, *, ended_ms: int | None) -> bytes:
    content = {"version": _FORMAT_VERSION, "ended_ms": ended_ms, **asdict(owner)}
    return json.dumps(content, sort_keys=True).encode()


def _decode(data: bytes, path: str) -> tuple[OwnerInfo, int | None]:
    try:
        content: dict[str, Any] = json.loads(data)
        owner = OwnerInfo(
            host=str(content["host"]),
            pid=int(content["pid"]),
            process_start_time=float(content["process_start_time"]),
            acquired_ms=int(content["acquired_ms"]),
            token=str(content["token"]),
        )
        return owner, content["ended_ms"]
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptSnapshotError(
            f"{path} does not describe the owner of a generation ({error}); a driver that starts now takes over"
        ) from error
