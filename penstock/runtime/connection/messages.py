"""Messages between the driver's registry, relays and slots.

    relay ── FindSlot, StartFailed ──▶ registry ── SlotFound, Refused, StartSlot, StillStarting, Noted ──▶ relay
    slot ── Register, then Uploaded, Sampled, Reachable, HostFailed ──▶ registry
    registry ── JobGiven or NotNeeded, then JobGiven, AreYouThere, TakeSamples, JobOver ──▶ slot
    slot ── StorageCall ──▶ registry ── StorageAnswer ──▶ slot
    relay ── RunLevel, or Pulse ──▶ slot

Each travels with `VERSION`: two processes that speak different versions say so instead of misunderstanding each other.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from penstock.engine.sampling import Sample
from penstock.errors import FailedTask
from penstock.protocol.checkpoint_messages import Uploaded

VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class SlotAddress:
    """One process among those of all hosts: a pid, or a port, is somebody else's on another one."""

    host: str
    port: int
    pid: int


# ---------------------------------------------------------------- a relay and the registry


@dataclass(frozen=True, slots=True, kw_only=True)
class FindSlot:
    """A relay asks the driver where its slot process is."""

    slot: int
    epoch: int
    job_attempt: int
    unreachable: SlotAddress | None = None  # a process that the relay could not reach
    starter: bool = False  # it has started one, and waits for that


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFailed:
    """The process that the relay started has ended without registering."""

    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFound:
    """The slot process, and the plan of the epoch that runs."""

    address: SlotAddress
    plan: bytes  # of the epoch that runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The task should not run at all."""

    reason: str


@dataclass(frozen=True, slots=True)
class StartSlot:
    """The relay, and no other, is to start the slot's process."""


@dataclass(frozen=True, slots=True)
class StillStarting:
    """Nothing has changed: ask again."""


@dataclass(frozen=True, slots=True)
class Noted:
    """A message was received; there is nothing else to say."""


FromRelay: TypeAlias = FindSlot | StartFailed
ToRelay: TypeAlias = SlotFound | Refused | StartSlot | StillStarting

# ---------------------------------------------------------------- a slot and the registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Register:
    """The first word of a slot's process. The connection stays open for as long as it lives."""

    slot: int
    address: SlotAddress
    name: str  # by which acknowledgements name it
    executor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobGiven:
    """The job, for a slot process that has just registered."""

    job: bytes  # a HostJob


@dataclass(frozen=True, slots=True, kw_only=True)
class NotNeeded:
    """The slot process may end: another serves its slot, or the job is over."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AreYouThere:
    """The driver asks whether a slot process can still be reached."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeSamples:
    """The driver asks for samples of what the tasks do."""

    number: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOver:
    """The job has ended; a slot process ends, too."""

    completed: int | None  # the last checkpoint of a job that ended well


@dataclass(frozen=True, slots=True, kw_only=True)
class Reachable:
    """The answer to `AreYouThere`."""

    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """The answer to `TakeSamples`."""

    number: int
    slot: int
    samples: Counter[Sample]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFailed:
    """A task of the slot has failed. `type` and `message` are the error's, as it crosses (`penstock.errors.as_text`)."""

    epoch: int
    job_attempt: int
    slot: int
    type: str
    message: str
    traceback: str
    task: FailedTask | None = None


ToSlot: TypeAlias = JobGiven | AreYouThere | TakeSamples | JobOver
FromSlot: TypeAlias = Uploaded | Sampled | Reachable | HostFailed

# ---------------------------------------------------------------- checkpoint storage in the driver


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageCall:
    """A slot process calls the driver's storage."""

    call: str
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageAnswer:
    """The result of a call of the driver's storage, or its error."""

    result: Any = None
    error: dict[str, str] | None = None  # as `penstock.errors.as_text` has it


# ---------------------------------------------------------------- a relay and a slot


@dataclass(frozen=True, slots=True)
class Pulse:
    """The first message on a connection that will carry nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLevel:
    """Rows follow."""

    level: int
    attempt: str
    plan: bytes
