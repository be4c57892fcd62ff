"""A task host inside a Spark task's Python worker, for the life of the attempt.

Four threads. Spark's own calls the generator and carries away what it yields; one takes rows from Spark, one messages from the
driver; the fourth is the host's and does all the work. Rows and messages meet in one inbox, so tasks never see two things at
once. What the tasks send waits in a bounded outbox for Spark's thread: while that is full, the host is back-pressured.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import cloudpickle
import pyarrow as pa

from penstock.checkpoint.local_copies import LocalCopies
from penstock.checkpoint.store import READERS, CheckpointStore
from penstock.engine.host import HostJob, TaskHost
from penstock.engine.sampling import take_samples
from penstock.engine.uploads import BackgroundUploads, ImmediateUploads, Uploads
from penstock.errors import as_text, failed_task
from penstock.runtime.connection.messages import HostFailed, Sampled, TakeSamples
from penstock.runtime.connection.wire import Wire
from penstock.runtime.epochs.remote_storage import open_in_slot
from penstock.runtime.pipelined.host_loop import AttemptOverError, HostLoop
from penstock.runtime.pipelined.mailboxes import DriverGone, FrameReceived, HostInbox, HostOutbox, RowsEnded
from penstock.runtime.pipelined.messages import (
    Enlist,
    FromHost,
    HostId,
    HostReady,
    NotWanted,
    StartHost,
    ToHost,
)

ATTEMPT: Final = "penstock.attempt"  # the property of Spark's job that says of which attempt its tasks are

_START_S: Final = 60.0
_LEAVE_S: Final = 5.0  # for the host's thread to come to its end when the driver is gone
_OUTBOX: Final = 4  # batches that wait for Spark's thread
_SWITCH_S: Final = (
    0.0005  # a thread that has rows to hand on waits so long for one that computes; by default 5 ms, each time
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverAddress:
    """Where a host finds its driver. It travels with the plan, which serves all attempts at one parallelism."""

    host: str
    port: int
    token: str


class Worker:
    """One host. `run` is the body of the Spark task."""

    def __init__(self, address: DriverAddress, level: int, index: int, job_attempt: int) -> None:
        self._address, self._id, self.job_attempt = address, HostId(level, index), job_attempt
        self._name = f"{socket.gethostname()}:{level}.{index}:{os.getpid()}"
        self._job_id = ""  # until the driver has given the job
        self._driver: Wire | None = None
        self._sending = threading.Lock()
        self._done = threading.Event()
        self._out = HostOutbox(_OUTBOX)

    # ---------------------------------------------------------------- Spark's thread

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yields what the tasks send, until the attempt ends."""
        sys.setswitchinterval(_SWITCH_S)
        self._driver = Wire.connect(self._address.host, self._address.port, self._address.token)
        try:
            self._driver.set_timeout(_START_S)
            enlist = Enlist(host=self._id, job_attempt=self.job_attempt, name=self._name)
            self._driver.send_message(enlist)
            answer: StartHost | NotWanted = self._driver.receive_message()
            if isinstance(answer, NotWanted):
                raise AttemptOverError(f"host {self._name} is not wanted: {answer.reason}")
            self._driver.set_timeout(None)
            worker = threading.Thread(target=self._work, args=(answer, batches), name="penstock-host", daemon=True)
            worker.start()
            while (item := self._out.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
            worker.join(_START_S)
        finally:
            self._driver.close()

    # ---------------------------------------------------------------- the host's thread

    def _work(self, start: StartHost, batches: Iterator[pa.RecordBatch]) -> None:
        try:
            self._host_tasks(start, batches)
        except BaseException as error:
            self._done.set()
            self._report(error)
            self._out.put(error)
        else:
            self._done.set()
            self._out.put(None)

    def _report(self, error: BaseException) -> None:
        """Tell the driver first: it holds the job's fate. Then the Spark task fails with the same words."""
        if isinstance(error, AttemptOverError):
            return
        crossing = as_text(error)
        with contextlib.suppress(OSError):
            self.tell(
                HostFailed(
                    epoch=0,
                    job_attempt=self.job_attempt,
                    slot=self._id.index,
                    type=crossing["type"],
                    message=crossing["message"],
                    traceback="".join(traceback.format_exception(error)),
                    task=failed_task(error),
                )
            )

    def tell(self, message: FromHost) -> None:
        """Sends a message to the driver. Thread-safe."""
        assert self._driver is not None
        with self._sending:
            self._driver.send_message(message)

    def _tell_if_there(self, message: FromHost) -> None:
        with contextlib.suppress(OSError):
            self.tell(message)

    def _host_tasks(self, start: StartHost, batches: Iterator[pa.RecordBatch]) -> None:
        job: HostJob = cloudpickle.loads(start.job)
        self._job_id = job.job_id
        gc.set_threshold(100_000, 20, 50)  # state is millions of long-lived objects
        settings = job.settings
        storage = None
        if job.storage_url is not None:
            address = self._address
            storage = open_in_slot(job.storage_url, address.host, address.port, address.token)
        local = None
        if storage is not None and settings.from_local:
            local = LocalCopies(job.job_id, parent=settings.local_dir, most_bytes=settings.local_bytes)
            local.keep(0, newest=start.checkpoint or 0)  # attempts that are over may have left more
        store = None if storage is None else CheckpointStore(storage, settings.retained, local, readers=READERS)
        uploads: Uploads = (
            BackgroundUploads(self._tell_if_there) if settings.asynchronous else ImmediateUploads(self._tell_if_there)
        )
        host = TaskHost(
            job,
            store,
            uploads,
            name=self._name,
            index=self._id.index,
            mode=start.mode,
            by_clock=True,
            clock_ms=_clock_ms,
        )
        inbox = HostInbox(settings.in_flight_bytes)
        gc.disable()  # nothing of what is restored is garbage
        loop = HostLoop(self, host, inbox, start, level=self._id.level, out=self._out)
        gc.freeze()
        gc.enable()
        try:
            self.tell(HostReady())
            for target, args in ((self._follow_rows, (batches, inbox)), (self._follow_driver, (inbox,))):
                threading.Thread(target=target, args=args, daemon=True).start()
            loop.run()
            if local is not None and loop.job_over:
                local.remove()
        finally:
            host.folder.remove()

    def _follow_rows(self, batches: Iterator[pa.RecordBatch], inbox: HostInbox) -> None:
        with contextlib.suppress(Exception):  # Spark ends the task, or we do
            for batch in batches:
                if self._id.level == 0:
                    continue
                for payload in batch.column(0):
                    if payload.is_valid:  # else one that only follows
                        frame = memoryview(payload.as_buffer())
                        inbox.put(FrameReceived(frame), len(frame))
        inbox.put(RowsEnded())

    def _follow_driver(self, inbox: HostInbox) -> None:
        assert self._driver is not None
        with contextlib.suppress(Exception):
            while True:
                message: ToHost = self._driver.receive_message()
                if isinstance(message, TakeSamples):
                    threading.Thread(target=self._sample, args=(message,), daemon=True).start()
                else:
                    inbox.put(message)
        inbox.put(DriverGone())
        if not self._done.wait(_LEAVE_S):
            os._exit(1)  # a user's function hangs; Spark, which has cancelled the task, does not always end its process

    def _sample(self, asked: TakeSamples) -> None:
        found = take_samples(self._job_id, seconds=asked.seconds)
        self._tell_if_there(Sampled(number=asked.number, slot=self._id.index, samples=found))


def _clock_ms() -> float:
    return time.time() * 1000


def level_host(address: DriverAddress, level: int) -> Any:
    """The function that Spark runs for every partition of a level."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        attempt = context.getLocalProperty(ATTEMPT)
        assert attempt is not None
        yield from Worker(address, level, context.partitionId(), int(attempt)).run(batches)

    return run
