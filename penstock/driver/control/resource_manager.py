"""The ResourceManager: slots on offer, slots taken, and a clear answer when there are too few.

Who has which slots is in one file of the home folder, changed under a lock. A claim names the driver process that made it:
when that process is gone, so is the claim. So no daemon has to live for the count to be right.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from penstock.driver.control.home import JobHome, is_running, read_json, this_process, write_json
from penstock.errors import NoResourceAvailableError


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotCount:
    """`offered` None: as many as anybody asks for."""

    offered: int | None
    taken: int

    @property
    def free(self) -> int | None:
        """How many slots may still be taken; None: any number."""
        return None if self.offered is None else max(0, self.offered - self.taken)


class ResourceManager:
    """Counts the slots of all jobs of a home, in a file that its processes lock."""

    def __init__(self, home: JobHome) -> None:
        self._home = home
        self._path = home.root / "slots.json"

    def offer(self, slots: int | None) -> None:
        """How many slots all jobs of this home may have together."""
        with self._locked() as state:
            state["offered"] = slots

    def acquire(self, job_id: str, slots: int) -> None:
        """Take slots for a job of this process, or NoResourceAvailableError. Asking again replaces the claim."""
        with self._locked() as state:
            others = {job: claim for job, claim in state["claims"].items() if job != job_id}
            taken = sum(claim["slots"] for claim in others.values())
            offered = state["offered"]
            if offered is not None and taken + slots > offered:
                holders = ", ".join(f"{job[:8]} has {claim['slots']}" for job, claim in others.items())
                own = ", its own included" if job_id in state["claims"] else ""
                free = max(0, offered - taken)  # they may have been offered more, before
                lower = f"lower the parallelism to at most {free}, " if free else ""
                raise NoResourceAvailableError(
                    f"job {job_id} needs {slots} slots (its largest parallelism), but {free} of {offered} are free{own}"
                    f"{f' ({holders})' if holders else ''}: {lower}wait for or cancel another job, or start "
                    "`penstock jobmanager` with more --slots"
                )
            state["claims"] = {**others, job_id: {"slots": slots, **this_process()}}

    def acquire_up_to(self, job_id: str, slots: int) -> int:
        """As `acquire`, but with fewer slots if that is what there are, though not fewer than it has; how many it has then.
        Asking for fewer gives the others back."""
        with self._locked() as state:
            others = {job: claim for job, claim in state["claims"].items() if job != job_id}
            if state["offered"] is not None:
                has = state["claims"].get(job_id, {}).get("slots", 0)
                free = state["offered"] - sum(claim["slots"] for claim in others.values())
                slots = min(slots, max(has, free))
            state["claims"] = {**others, job_id: {"slots": slots, **this_process()}}
            return slots

    def release(self, job_id: str) -> None:
        """Gives the slots of a job back; nothing happens if it has none."""
        with self._locked() as state:
            state["claims"].pop(job_id, None)

    def count(self) -> SlotCount:
        """The slots that are offered and taken now."""
        state = self._read()
        return SlotCount(offered=state["offered"], taken=sum(claim["slots"] for claim in state["claims"].values()))

    def claims(self) -> dict[str, int]:
        """Slots by job."""
        return {job: int(claim["slots"]) for job, claim in self._read()["claims"].items()}

    def _read(self) -> dict[str, Any]:
        state = read_json(self._path) or {"offered": None, "claims": {}}
        state["claims"] = {job: claim for job, claim in state["claims"].items() if is_running(claim)}
        return state

    @contextmanager
    def _locked(self) -> Iterator[dict[str, Any]]:
        self._home.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # held for the moment it takes to change one small file
            state = self._read()
            yield state
            write_json(self._path, state)
        finally:
            os.close(descriptor)
