"""From a described job to a running one: storage, JobMaster, runtime, client."""

from __future__ import annotations

import json
import logging
import weakref
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.checkpoint import layout
from penstock.checkpoint.object_storage import DriverStorage
from penstock.checkpoint.storage import Storage, open_storage
from penstock.common.implementations import RUNTIMES
from penstock.common.options import CheckpointingOptions, InternalOptions
from penstock.driver.control import attach
from penstock.driver.control.resource_manager import ResourceManager
from penstock.driver.description import JobDescription, Planned
from penstock.driver.job_master import JobMaster
from penstock.engine.messages import EpochReport
from penstock.errors import ConfigurationError, CorruptSnapshotError, StorageError
from penstock.runtime import console

if TYPE_CHECKING:
    from penstock.driver.client import JobClient, RunningJob

_log = logging.getLogger("penstock")


def tell_errors_briefly() -> None:
    """From now on a program that ends with an error of Penstock's, or by Ctrl-C, says so in few words (`console.install`)."""
    console.install(_interrupted)


def launch(job: JobDescription, configuration: Mapping[str, str], spark_frames: Mapping[str, Any]) -> JobClient:
    """Starts a job in the configured runtime and gives its client. A job of a home takes its slots first."""
    if InternalOptions.PLAN_ONLY.get(configuration):
        raise Planned(job)
    tell_errors_briefly()
    job = replace(job, job_id=attach.given_job_id(configuration) or job.job_id)
    home = attach.home_of(configuration)
    if home is None:
        return _launch(job, configuration, spark_frames, None)
    resources = ResourceManager(home)
    resources.acquire(job.job_id, job.graph.slots)  # before anything is started that takes time
    try:
        return _launch(job, configuration, spark_frames, str(home.job(job.job_id).path / "job"))
    except BaseException:
        resources.release(job.job_id)
        raise


def _launch(
    job: JobDescription, configuration: Mapping[str, str], spark_frames: Mapping[str, Any], managed: str | None
) -> JobClient:
    from penstock.driver.client import JobClient

    if spark_frames and job.settings.mode == "AT_MOST_ONCE":
        raise ConfigurationError(
            f"{CheckpointingOptions.MODE} is AT_MOST_ONCE, but the job reads from_spark streams, whose positions are Spark's: "
            "after a failure they would be read again. Choose EXACTLY_ONCE or AT_LEAST_ONCE, or a source of Penstock's"
        )
    if job.settings.checkpoint_interval_ms is None:
        for forgets in filter(None, (source.forgets for source in spark_frames.values())):
            raise ConfigurationError(
                f"the job reads {forgets} through Spark, which throws away what was read, and takes no checkpoints: after a "
                f"failure it would be lost. Set {CheckpointingOptions.INTERVAL} and {CheckpointingOptions.JOB_DIR}"
            )
    submitted_as = job.job_id
    storage = _storage(job, managed)
    if storage is not None:
        job = replace(job, job_id=_job_id(storage, job.job_id))
        _warn_without_uid(job)
    master = JobMaster(job, storage)
    if storage is not None and storage.url.startswith("file:"):
        master.on_report = _Journal(Path(storage.url.removeprefix("file://")) / "epochs.jsonl")
    running: RunningJob = RUNTIMES.factory(job.settings.runtime)(job, master, configuration, spark_frames)
    client = JobClient(job.job_id, running, master.reports)
    folder = attach.folder_of(configuration, submitted_as, None if storage is None else storage.url)
    if folder is not None:
        attach.Attachment(folder, submitted_as, client, master, job, configuration)
    _started.add(client)
    return client._start()


# Clients of ended jobs go when the program lets go of them; a running one is held by its own thread.
_started: weakref.WeakSet[JobClient] = weakref.WeakSet()


def running_jobs() -> list[JobClient]:
    """The jobs this process started that have not ended."""
    return [client for client in list(_started) if not client.get_job_execution_result().done()]


def _interrupted() -> list[str]:
    """For each job that ends because this process does, whether it can go on."""
    told = []
    for client in running_jobs():
        master = client._job.master
        newest = None if master.storage is None else master.restored
        told.append(
            f"interrupted: job {master.job.graph.job.job_name!r} has ended; "
            + (
                "it has no checkpoint to go on from"
                if newest is None or isinstance(master.storage, DriverStorage)
                else f"started again with its job folder {getattr(master.storage, 'url', '')}, it goes on from checkpoint "
                f"{newest.checkpoint_id}"
            )
        )
    return told


def _storage(job: JobDescription, otherwise: str | None = None) -> Storage | None:
    """The job folder: a fixed one is resumed by itself, one under the checkpoint directory is new for every job. A job
    that names none has its folder where it is managed (`otherwise`)."""
    settings, options = job.settings, CheckpointingOptions
    if settings.checkpoint_interval_ms is None:
        if settings.recovery_path is not None:
            raise ConfigurationError(
                f"{options.RECOVERY_PATH} is {settings.recovery_path!r}, but checkpointing is off: a job that starts from a "
                f"savepoint keeps what it started from in its own job folder. Set {options.INTERVAL} and {options.JOB_DIR} or "
                f"{options.DIR}"
            )
        return None
    if settings.storage == "jobmanager":
        return DriverStorage(settings.driver_max_state_size)
    if settings.job_dir is not None:
        return open_storage(settings.job_dir)
    if settings.checkpoint_dir is not None:
        return open_storage(f"{settings.checkpoint_dir.rstrip('/')}/{job.job_id}")
    if otherwise is not None:
        return open_storage(otherwise)
    _log.warning(
        "job %r keeps its checkpoints in the driver's memory, because nothing says where else: it goes on after a failure, but not "
        "after the end of this process. For that set '%s' (this job's own folder) or '%s' (a folder for all jobs); to mean memory, "
        "'%s' = 'jobmanager'",
        job.graph.job.job_name,
        options.JOB_DIR,
        options.DIR,
        options.STORAGE,
    )
    return DriverStorage(settings.driver_max_state_size)


def _job_id(storage: Storage, fresh: str) -> str:
    """A job folder keeps its job's id: sinks tell by it whose output they find."""
    described = json.dumps({"job_id": fresh}).encode()
    if storage.put_new(layout.JOB, described) and storage.put_new(layout.JOB, described):
        raise StorageError(
            f"{storage.url}/{layout.JOB} could be created twice: this store ignores conditional writes (If-None-Match), so "
            "two drivers could both complete a checkpoint. Use a store that supports them, or a shared folder"
        )
    try:
        return str(json.loads(storage.get(layout.JOB))["job_id"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptSnapshotError(
            f"{storage.url}/{layout.JOB}: does not name a job ({error}); sinks know their output by the job's id. Bring the file "
            "back from a copy; any checkpoint's manifest has the id as well"
        ) from error


def _warn_without_uid(job: JobDescription) -> None:
    """State is found again by uid. A generated one names the operator's position, which changes with the program."""
    unnamed = [node.name for node in job.graph.job.operators().values() if node.stateful and node.uid is None]
    if unnamed:
        _log.warning(
            "job %r: %s keep(s) state without a uid; after a change of the program its state may not be found again. Call "
            ".uid('…') on each",
            job.graph.job.job_name,
            ", ".join(map(repr, unnamed)),
        )


class _Journal:
    """One line of JSON an epoch, for views and reports that outlive the process. Bounded: the newest two parts stay."""

    _PART_BYTES = 32 << 20

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, report: EpochReport) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(report)) + "\n")
            full = file.tell() > self._PART_BYTES
        if full:
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
