"""Plans of epochs, logged before they run: an epoch that did not complete is run again with the same offsets.

Each names the plan it follows. One whose predecessor is not here (a fall-back to an older checkpoint, a file that is
gone) starts at other positions than the job now has: it and all later ones are dropped and planned anew. So are plans that
an older driver logs when a newer one has taken over: they are written exclusively, and say whose they are.

At most once: after a failure nothing is read again. The job goes on behind the last epoch that was planned.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from penstock.checkpoint import layout
from penstock.checkpoint.history import plan_counts
from penstock.checkpoint.manifest import Manifest, SourcePosition
from penstock.checkpoint.ownership import StartPermit
from penstock.checkpoint.storage import FileMissingError, Storage
from penstock.checkpoint.store import CheckpointStore, Fenced
from penstock.engine.messages import EpochPlan
from penstock.errors import FencedError
from penstock.functions.connectors import Json
from penstock.protocol.ids import CheckpointId, Generation


class PlanLog:
    """The plans of one attempt, and those an earlier one left. Without storage there is neither. FencedError where one would be
    deleted, and another driver has come, whose it may be."""

    def __init__(self, storage: Storage | None, start: StartPermit) -> None:
        self._storage, self._start = storage, start
        self._files: set[int] = set()
        self._left: dict[int, dict[str, Json]] = {}  # by epoch: still to be run again
        self._last = 0

    def load(self, completed: int) -> None:
        """Find what was logged after epoch `completed`."""
        self._last = completed
        if self._storage is None:
            return
        last = completed
        starts = layout.generation_starts(self._storage.list(layout.GENERATIONS))
        self._files = {int(epoch) for epoch in layout.planned_epochs(self._storage.list(layout.EPOCHS))}
        stale = []
        for epoch in sorted(e for e in self._files if e > completed):
            try:
                logged = _from_bytes(self._storage.get(layout.epoch_plan(epoch)))
            except (FileMissingError, ValueError):
                logged = {}
            by = Generation(int(logged.get("generation", 0)))  # not said by earlier releases
            if logged.get("after") == last and plan_counts(epoch, by, starts):
                self._left[epoch] = logged
                last = epoch
            else:
                stale.append(epoch)
        self._delete(stale)

    def _delete(self, epochs: Sequence[int]) -> None:
        if epochs and self._storage is not None:
            self._start.check()
            for epoch in epochs:
                self._storage.delete(layout.epoch_plan(epoch))

    @property
    def replaying(self) -> bool:
        """True while plans of an earlier attempt are still to be run again."""
        return bool(self._left)

    def last_left(self) -> tuple[int, dict[str, Json]] | None:
        """The newest epoch that was planned and is in no checkpoint."""
        return max(self._left.items(), default=None, key=lambda entry: entry[0])

    def take(self, epoch: int) -> dict[str, Json] | None:
        """The plan that an earlier attempt logged for this epoch; None if there is none."""
        return self._left.pop(epoch, None)

    def drop(self) -> None:
        """Drops the plans that are left: they cannot be run again any more."""
        self._delete(sorted(self._left, reverse=True))
        self._left.clear()

    def add(self, plan: EpochPlan, states: Mapping[str, SourcePosition], *, known: bool) -> None:
        """Epoch `plan.epoch` is about to run; `known`: its plan was taken from here."""
        if not known and self._storage is not None:
            self._files.add(plan.epoch)
            self._write(plan.epoch, _to_bytes(plan, states, after=self._last, generation=self._start.generation))
        self._last = plan.epoch

    def _write(self, epoch: int, data: bytes) -> None:
        """Exclusively: neither this driver nor the store for it, late, may write over a newer one's plan. What is there already
        is of an older driver, or of an attempt of this one that failed."""
        assert self._storage is not None
        path = layout.epoch_plan(epoch)
        if self._storage.put_new(path, data) or (present := self._storage.get(path)) == data:
            return
        with contextlib.suppress(ValueError):
            by = int(_from_bytes(present).get("generation", 0))
            if by > (own := self._start.generation):
                raise FencedError(
                    f"epoch {epoch} was planned by generation {by} while this driver is generation {own}: another "
                    "driver runs this job; this one stops and changes nothing"
                )
        self._storage.put(path, data)

    def forget(self, epoch: int) -> None:
        """Plans up to a checkpoint are in it: nobody will replay them."""
        done = sorted(planned for planned in self._files if planned <= epoch)
        self._delete(done)
        self._files.difference_update(done)


def _from_bytes(data: bytes) -> dict[str, Json]:
    """ValueError if one byte differs: a plan with another offset would read a record twice, or never."""
    content = json.loads(data)
    if not isinstance(content, dict):
        raise ValueError("not a plan")
    if "crc32" not in content:  # as first released: without a checksum
        return content if "after" in content else {}
    if zlib.crc32(_canonical(content["plan"])) != content["crc32"]:
        raise ValueError("a damaged plan")
    plan: dict[str, Json] = content["plan"]
    return plan


def _canonical(plan: Json) -> bytes:
    return json.dumps(plan, sort_keys=True).encode()


def _to_bytes(plan: EpochPlan, states: Mapping[str, SourcePosition], *, after: int, generation: Generation) -> bytes:
    content = {
        "epoch": plan.epoch,
        "after": after,
        "generation": generation,
        "processing_time": plan.processing_time,
        "sources": {
            operator_id: {
                "ranges": [asdict(r) for r in ranges.ranges],
                "finished": states[operator_id].finished,
                "state": states[operator_id].state,
            }
            for operator_id, ranges in plan.sources.items()
        },
    }
    return json.dumps({"version": 2, "crc32": zlib.crc32(_canonical(content)), "plan": content}).encode()


def skip_ahead(
    store: CheckpointStore,
    start: StartPermit,
    newest: Manifest | None,
    *,
    job_id: str,
    job_name: str,
    max_parallelism: int,
    now_ms: int,
) -> Manifest | None:
    """The checkpoint to go on from: the newest if no epoch was planned since, else a new one, without state, at the
    position of the last planned epoch. Whether that epoch's output became visible is unknown, so it may not run again; and
    state of before it would not fit the position. It is a checkpoint like any other, so that a driver that dies now finds
    the same position."""
    plans = PlanLog(store.storage, start)
    plans.load(0 if newest is None else int(newest.epoch))
    last = plans.last_left()
    if last is None:
        return newest
    epoch, logged = last
    positions = {
        operator_id: SourcePosition(state=entry["state"], finished=entry["finished"])
        for operator_id, entry in logged["sources"].items()
    }
    manifest = Manifest(
        job_id=job_id,
        job_name=job_name,
        checkpoint_id=CheckpointId(epoch),
        epoch=epoch,
        generation=start.generation,
        created_ms=now_ms,
        processing_time_ms=int(logged["processing_time"]),
        max_parallelism=max_parallelism,
        sources=positions,
        finished=bool(positions) and all(position.finished for position in positions.values()),
    )
    outcome = store.commit(manifest, start)
    if isinstance(outcome, Fenced):
        raise FencedError(
            f"job {job_id}: checkpoint {epoch} was written by generation {outcome.by_generation} meanwhile: another driver "
            "runs this job; this one stops and changes nothing"
        )
    store.subsume(start)
    plans.forget(epoch)
    return manifest
