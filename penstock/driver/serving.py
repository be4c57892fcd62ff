"""Requests on their way: accepted between two epochs, or refused to who asked; given up when their epoch fails."""

from __future__ import annotations

from typing import TypeAlias

from penstock.checkpoint.storage import CheckpointStorage
from penstock.driver.asked_checkpoints import CheckpointRequest, PendingCheckpointRequest
from penstock.driver.description import JobDescription
from penstock.driver.requests import Requests
from penstock.driver.rescaling import PendingRescale, RescaleRequest
from penstock.driver.savepoints import PendingSavepoint
from penstock.errors import JobDefinitionError, PenstockError

Asked: TypeAlias = PendingSavepoint | PendingRescale | PendingCheckpointRequest


def next_asked(requests: Requests, job: JobDescription, storage: CheckpointStorage | None) -> Asked | None:
    """The next request that needs an epoch. One that cannot be served is its asker's trouble, not the job's."""
    request = requests.next()
    if request is None:
        return None
    try:
        if isinstance(request, RescaleRequest):
            return _rescale(request, job, storage)
        if isinstance(request, CheckpointRequest):
            return _checkpoint(request, storage)
        return PendingSavepoint(
            request,
            job_id=job.job_id,
            configured=job.settings.savepoint_dir,
            job_folder=None if storage is None else storage.url,
        )
    except PenstockError as error:
        request.answer.set_exception(error)
        return None


def _checkpoint(request: CheckpointRequest, storage: CheckpointStorage | None) -> PendingCheckpointRequest:
    if storage is None:
        raise JobDefinitionError(
            "there is no place for a checkpoint: checkpointing is off; set execution.checkpointing.interval and a job folder, or "
            "take a savepoint"
        )
    return PendingCheckpointRequest(request)


def _rescale(request: RescaleRequest, job: JobDescription, storage: CheckpointStorage | None) -> PendingRescale | None:
    if storage is None:
        raise JobDefinitionError(
            "a running job is rescaled through a checkpoint, and checkpointing is off: set execution.checkpointing.interval "
            "and a job folder"
        )
    rescale = PendingRescale(request, job.graph)
    if rescale.changes_nothing:
        rescale.done()
        return None
    return rescale


def give_up(asked: Asked, epoch: int) -> None:
    match asked:
        case PendingSavepoint():
            what = "savepoint"
        case PendingCheckpointRequest():
            what = "checkpoint"
        case _:
            what = "rescaling"
    asked.fail(
        PenstockError(
            f"the {what} did not come about: epoch {epoch} failed, and the job goes back to its last checkpoint. Ask for it again"
        )
    )
