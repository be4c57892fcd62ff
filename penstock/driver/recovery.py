"""Which checkpoint a job goes on from: the newest of its folder that can be read, or a savepoint.

A savepoint becomes the first checkpoint of the job folder, with its files left where they are. From then on the folder is
like any other: a driver that dies goes on from the folder's own checkpoints, although it is started with the same settings
again. The first checkpoint of its own is full, so a savepoint is needed no longer than until retention lets that first one
go.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from penstock.checkpoint import layout, savepoint
from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.manifest_file import unpack_committables
from penstock.checkpoint.ownership import Ownership, StartPermit
from penstock.checkpoint.store import CheckpointStore, Fenced
from penstock.common.options import CheckpointingOptions
from penstock.driver.description import JobDescription
from penstock.driver.plan_log import skip_ahead
from penstock.errors import ConfigurationError, FencedError, JobDefinitionError
from penstock.functions.connectors import Committer
from penstock.graph.job_graph import JobGraph
from penstock.protocol.ids import CheckpointId

_log = logging.getLogger("penstock")


def find_checkpoint(
    store: CheckpointStore,
    job: JobDescription,
    *,
    ownership: Ownership,
    now_ms: int,
    committers: Mapping[str, Committer],
) -> tuple[StartPermit, Manifest | None]:
    """None: the job starts from nothing. Damaged checkpoints are set aside if the settings allow an older one. FencedError if a
    newer driver has the folder; if not, the caller may discard what is staged behind the checkpoint: no older driver's later
    one will ever be resumed from."""
    settings = job.settings
    ownership.check()
    found = store.latest_readable(fall_back=settings.fall_back_to_older)
    own = found.manifest
    for checkpoint, problem in zip(found.skipped, found.problems, strict=True):
        _log.warning("checkpoint %d is damaged and an older one is used instead: %s", checkpoint, problem)
        store.set_aside(checkpoint, ownership)
    start = store.begin(ownership, None if own is None else own.checkpoint_id)
    path = settings.recovery_path
    if path is not None and (own is None or own.restored_from != path):
        own = import_savepoint(
            path,
            store,
            start,
            own=own,
            job_id=job.job_id,
            claim=settings.claim,
            now_ms=now_ms,
            committers=committers,
            check=lambda manifest: check_claims(
                manifest, job.graph.job, ignore_unclaimed=settings.ignore_unclaimed_state
            ),
        )
    elif settings.mode == "AT_MOST_ONCE":
        own = skip_ahead(
            store,
            start,
            own,
            job_id=job.job_id,
            job_name=job.graph.job.job_name,
            max_parallelism=job.graph.job.max_parallelism,
            now_ms=now_ms,
        )
    return start, own


def import_savepoint(
    path: str,
    store: CheckpointStore,
    start: StartPermit,
    *,
    own: Manifest | None,
    job_id: str,
    claim: bool,
    now_ms: int,
    committers: Mapping[str, Committer],
    check: Callable[[Manifest], None],
) -> Manifest:
    """Make the savepoint at `path` the newest checkpoint of this job folder. `own` is the newest there was: sinks know
    epochs by number, so numbers go on from there and no epoch of the folder is ever used twice."""
    found = savepoint.load(path)
    if claim and found.kind != "savepoint":
        raise ConfigurationError(
            f"{CheckpointingOptions.CLAIM} is CLAIM, but {path} is a checkpoint that other checkpoints of its job may "
            "share files with: resume from it with NO_CLAIM"
        )
    check(found)
    for committer in committers.values():
        committer.adopt(found.job_id)
    for sink_id, packed in found.committables.items():  # of a checkpoint: its driver may have died before it committed
        if sink_id in committers:
            committers[sink_id].commit(int(found.epoch), unpack_committables(packed, sink=sink_id))
    planned = layout.planned_epochs(store.storage.list(layout.EPOCHS))
    number = max(int(found.epoch), *(int(epoch) for epoch in planned), 0 if own is None else int(own.epoch) + 1)
    manifest = replace(
        found,
        job_id=job_id,
        checkpoint_id=CheckpointId(number),
        epoch=number,
        generation=start.generation,
        kind="checkpoint",
        created_ms=now_ms,
        committables={},
        rescaled=None,  # it is another job and begins as its program says
        restored_from=path,
        claimed_savepoint=path if claim else None,  # what another job has claimed is not ours to delete
    )
    outcome = store.commit(manifest, start)
    if isinstance(outcome, Fenced):
        raise FencedError(
            f"{path} could not become checkpoint {number} of {store.storage.url}: generation {outcome.by_generation} owns that "
            "folder. Give this job another folder"
        )
    return manifest


def check_claims(manifest: Manifest, graph: JobGraph, *, ignore_unclaimed: bool) -> None:
    """State that no operator of this job would pick up is refused, not dropped."""
    if manifest.max_parallelism != graph.max_parallelism:
        raise JobDefinitionError(
            f"{manifest.kind} {manifest.checkpoint_id} was taken with max parallelism {manifest.max_parallelism}, this job has "
            f"{graph.max_parallelism}: keys would belong to other key groups. Call env.set_max_parallelism"
            f"({manifest.max_parallelism})"
        )
    unclaimed = sorted(set(manifest.stateful) - set(graph.operators()))
    if unclaimed and not ignore_unclaimed:
        raise JobDefinitionError(
            f"{manifest.kind} {manifest.checkpoint_id} holds state of operators {unclaimed} that this job does not have (it has "
            f"{sorted(graph.operators())}). Give the operators their old uids, or set "
            "execution.state-recovery.ignore-unclaimed-state to true to drop that state"
        )
