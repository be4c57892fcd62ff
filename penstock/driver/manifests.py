"""From a completed epoch to its manifest, whose appearance in the job folder is the instant of commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.checkpoint import ownership
from penstock.checkpoint.manifest import Manifest, TaskState, pack_committables
from penstock.checkpoint.store import AlreadyCommitted, CheckpointStore, Committed, Fenced
from penstock.driver import kept_parallelism
from penstock.driver.description import JobDescription
from penstock.driver.planning import PendingEpoch
from penstock.errors import FencedError
from penstock.protocol.ids import CheckpointId, Epoch, Generation


def epoch_manifest(
    job: JobDescription,
    pending: PendingEpoch,
    tasks: tuple[TaskState, ...],
    *,
    committables: Mapping[str, list[Any]],
    size: int,
    finished: bool,
    previous: Manifest | None,
    generation: Generation,
    now_ms: int,
) -> Manifest:
    """`previous` is the job's newest checkpoint: where that came from is where this one comes from."""
    graph, plan = job.graph, pending.plan
    origin = None if previous is None else previous.statistics.get("restored_from")
    return Manifest(
        job_id=job.job_id,
        job_name=graph.job.job_name,
        checkpoint_id=CheckpointId(plan.epoch),
        epoch=Epoch(plan.epoch),
        generation=generation,
        created_ms=now_ms,
        processing_time_ms=plan.processing_time,
        max_parallelism=graph.job.max_parallelism,
        sources=pending.states,
        spark_offsets=pending.spark_offsets,
        tasks=tasks,
        committables={sink: pack_committables(made) for sink, made in committables.items()},
        finished=finished,
        statistics={
            "bytes": size,
            **({} if origin is None else {"restored_from": origin}),
            **kept_parallelism.noted(job),
            "stateful": sorted(n.operator_id for v in graph.job.vertices.values() for n in v.nodes if n.stateful),
        },
    )


def commit_manifest(store: CheckpointStore, manifest: Manifest, *, about_to: Callable[[], None]) -> None:
    """Raises FencedError if another driver owns the job folder: then nothing of this checkpoint may be committed. `about_to` is
    called when all that is left to do is to write."""
    ownership.check_current(store.storage, manifest.generation)
    about_to()
    match store.commit(manifest):
        case Committed() | AlreadyCommitted():
            # The store may have taken its time. A driver that came meanwhile did not see this checkpoint and makes its output
            # itself; one that comes from now on sees it, and commits what is staged for it.
            ownership.check_current(store.storage, manifest.generation)
        case Fenced(by_generation=other):
            raise FencedError(
                f"checkpoint {manifest.checkpoint_id} of job {manifest.job_id} was written by generation {other} while this "
                f"driver is generation {manifest.generation}: another driver runs this job; this one stops and changes nothing"
            )
