"""What clients ask of epochs: accepted between two of them, or refused; and answered when it has come about, or has not."""

from __future__ import annotations

from penstock.checkpoint.storage import CheckpointStorage
from penstock.driver.description import JobDescription
from penstock.driver.requests import CheckpointRequest, Request, Requests, RescaleRequest, SavepointRequest
from penstock.driver.rescaling import PendingRescale
from penstock.driver.savepoints import PendingSavepoint
from penstock.errors import CheckpointFailedError, JobDefinitionError, PenstockError
from penstock.protocol.checkpoint_messages import Asked, Purpose


def next_asked(requests: Requests, job: JobDescription, storage: CheckpointStorage | None) -> Asked | None:
    """The next request that needs an epoch. One that cannot be served is its asker's trouble, not the job's."""
    request = requests.next()
    if request is None:
        return None
    try:
        return _accept(request, job, storage)
    except PenstockError as error:
        request.answer.set_exception(error)
        return None


def _accept(request: Request, job: JobDescription, storage: CheckpointStorage | None) -> Asked | None:
    match request:
        case RescaleRequest():
            rescale = _rescale(request, job, storage)
            return None if rescale is None else Asked(purpose=Purpose.RESCALE, request=rescale)
        case CheckpointRequest():
            if storage is None:
                raise JobDefinitionError(
                    "there is no place for a checkpoint: checkpointing is off; set execution.checkpointing.interval and a job "
                    "folder, or take a savepoint"
                )
            return Asked(purpose=Purpose.CHECKPOINT, request=request)
        case SavepointRequest():
            savepoint = PendingSavepoint(
                request,
                job_id=job.job_id,
                configured=job.settings.savepoint_dir,
                job_folder=None if storage is None else storage.url,
            )
            ends = Purpose.DRAIN if request.drain else Purpose.STOP
            return Asked(purpose=ends if request.stop else Purpose.SAVEPOINT, request=savepoint)


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


def answer_checkpoint(asked: Asked, checkpoint: int) -> None:
    request: CheckpointRequest = asked.request
    request.answer.set_result(checkpoint)


def refuse(asked: Asked, epoch: int, reason: str) -> None:
    """What was asked for with `epoch` did not come about; the job goes on, and it can be asked for again."""
    match asked.request:
        case PendingSavepoint() as savepoint:
            again = f"savepoint {savepoint.folder} was not taken: {reason}. Ask for it again when the cause is gone"
            savepoint.fail(savepoint.problem or CheckpointFailedError(again))
        case PendingRescale() as rescale:
            rescale.fail(CheckpointFailedError(f"the rescaling did not come about: {reason}. Ask for it again"))
        case CheckpointRequest() as request if not request.answer.done():
            request.answer.set_exception(
                CheckpointFailedError(f"checkpoint {epoch} was not completed: {reason}. Ask for it again")
            )
