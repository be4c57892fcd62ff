"""At most once: after a failure nothing is read again. The job goes on behind the last epoch that was planned."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.storage import CheckpointStorage
from penstock.checkpoint.store import CheckpointStore, Fenced
from penstock.driver.plan_log import PlanLog
from penstock.errors import FencedError
from penstock.protocol.ids import CheckpointId, Epoch, Generation


def skip_ahead(
    store: CheckpointStore,
    storage: CheckpointStorage,
    newest: Manifest | None,
    *,
    job_id: str,
    job_name: str,
    max_parallelism: int,
    generation: Generation,
    now_ms: int,
) -> Manifest | None:
    """The checkpoint to go on from: the newest if no epoch was planned since, else a new one, without state, at the
    position of the last planned epoch. Whether that epoch's output became visible is unknown, so it may not run again; and
    state of before it would not fit the position. It is a checkpoint like any other, so that a driver that dies now finds
    the same position."""
    plans = PlanLog(storage, generation)
    plans.load(0 if newest is None else int(newest.epoch))
    last = plans.last_left()
    if last is None:
        return newest
    epoch, logged = last
    positions: Mapping[str, dict[str, object]] = {
        operator_id: {"state": entry["state"], "finished": entry["finished"]}
        for operator_id, entry in logged["sources"].items()
    }
    manifest = Manifest(
        job_id=job_id,
        job_name=job_name,
        checkpoint_id=CheckpointId(epoch),
        epoch=Epoch(epoch),
        generation=generation,
        created_ms=now_ms,
        processing_time_ms=int(logged["processing_time"]),
        max_parallelism=max_parallelism,
        sources=positions,
        finished=bool(positions) and all(position["finished"] for position in positions.values()),
        statistics={"bytes": 0, "skipped_ahead": True},
    )
    outcome = store.commit(manifest)
    if isinstance(outcome, Fenced):
        raise FencedError(
            f"job {job_id}: checkpoint {epoch} was written by generation {outcome.by_generation} meanwhile: another driver "
            "runs this job; this one stops and changes nothing"
        )
    store.subsume()
    plans.forget(epoch)
    return manifest
