"""The slot process: `python -m penstock.runtime.epochs.slot`. Holds subtask i of every vertex for the life of the job.

It registers with the driver, is handed the job, and serves relays. The connection to the driver stays open: it is how the
driver learns at once that a slot died, and how a slot learns that the job is over. A slot ends itself when that connection
closes, which it does when the driver's host vanishes, or when its executor is gone; it never outlives the job.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import pickle
import socket
import sys
import threading
import time
import traceback
import uuid
from typing import Any, assert_never

import cloudpickle
import psutil
import pyarrow as pa

from penstock.checkpoint.storage import Storage
from penstock.checkpoint.store import READERS, CheckpointStore
from penstock.engine.exchange_rows import SCHEMA, RowBuffer
from penstock.engine.host import HostJob, TaskHost
from penstock.engine.level_run import LevelRun
from penstock.engine.messages import EpochPlan
from penstock.engine.sampling import take_samples
from penstock.engine.settings import JobSettings
from penstock.engine.uploads import BackgroundUploads, ImmediateUploads, Uploads
from penstock.errors import SlotError, as_text, failed_task
from penstock.runtime.connection.door import Door
from penstock.runtime.connection.messages import (
    AreYouThere,
    FromSlot,
    HostFailed,
    JobGiven,
    JobOver,
    NotNeeded,
    Pulse,
    Reachable,
    Register,
    RunLevel,
    Sampled,
    SlotAddress,
    TakeSamples,
    ToSlot,
)
from penstock.runtime.connection.wire import Frame, Wire
from penstock.runtime.epochs.remote_storage import open_in_slot

TOKEN_VARIABLE = "PENSTOCK_SLOT_TOKEN"
_WATCH_S = 0.25
_JOB_TIMEOUT_S = 60.0
_FAREWELL_S = 10.0  # for functions to close when the job is over


def process_name(port: int) -> str:
    """The pid comes last, and the port tells processes apart whose hosts have the same name: containers often do."""
    return f"{socket.gethostname()}:{port}:{os.getpid()}"


class _RelayGoneError(Exception):
    """The connection to the relay ended, or was closed for a newer one."""


class _Relay:
    """The relay's connection, whose errors can be told from those of the work."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def send(self, kind: Frame, payload: Any = b"") -> None:
        try:
            self._wire.send(kind, payload)
        except (OSError, ValueError) as error:
            raise _RelayGoneError(str(error)) from error

    def receive(self) -> tuple[Frame, bytes]:
        try:
            return self._wire.receive()
        except (OSError, EOFError, ValueError) as error:
            raise _RelayGoneError(str(error)) from error


class _RelayOutbox:
    """Rows go to the relay in batches."""

    def __init__(self, relay: _Relay) -> None:
        self._relay, self._buffer = relay, RowBuffer()
        self.add = self._buffer.add

    def flush(self) -> None:
        batch = self._buffer.take()
        if batch is not None:
            self._relay.send(Frame.ROWS, batch.serialize())


def _receive(run: LevelRun, batch: pa.RecordBatch) -> None:
    vertices, channels, sequences, kinds = (batch.column(index).to_pylist() for index in (2, 3, 4, 5))
    payloads = batch.column(6)
    for index, row in enumerate(zip(vertices, channels, sequences, kinds, strict=True)):
        run.receive(*row, payloads[index].as_py())


class SlotProcess:
    """A process that holds tasks and their state for the life of the job and runs one epoch at a time for its relay."""

    def __init__(self, slot: int, driver: Wire, job: HostJob, storage: Storage | None, *, port: int = 0) -> None:
        self._slot, self._driver, self._job = slot, driver, job
        self._driver_lock = threading.Lock()
        self._store = None if storage is None else CheckpointStore(storage, job.settings.retained, readers=READERS)
        self.host = TaskHost(job, self._store, self._uploads(job.settings), name=process_name(port), index=slot)
        self._running = threading.Lock()
        self._job_changed = threading.Condition()
        self._choosing = threading.Lock()  # of the connection that is served
        self._active: Wire | None = None
        self._newest = (-1, -1)  # the newest plan this slot was asked to run, by its fence

    def _uploads(self, settings: JobSettings) -> Uploads:
        return BackgroundUploads(self.tell) if settings.asynchronous else ImmediateUploads(self.tell)

    def tell(self, message: FromSlot) -> None:
        """Sends a message to the driver. Thread-safe; a driver that is gone is not an error."""
        # If the driver cannot be told it is gone, and so is this slot in a moment.
        with contextlib.suppress(OSError), self._driver_lock:
            self._driver.send_message(message)

    def serve(self, wire: Wire) -> None:
        """Runs what one connection of a relay asks for, and reports how it went."""
        try:
            request: RunLevel | Pulse = wire.receive_message()
            if isinstance(request, Pulse):
                wire.receive()  # until the relay's process, or its host, is gone
                return
            wire.be_patient()  # with a relay that is gone nobody waits: its work is done again by another
            plan: EpochPlan = pickle.loads(request.plan)
            with self._choosing:
                if plan.fence < self._newest:
                    wire.send_error(
                        SlotError(f"slot {self._slot} runs a later attempt or epoch than {plan.fence} by now")
                    )
                    return
                # A newer attempt at the same work replaces an older one: its relay is gone or will be ignored.
                self._newest = plan.fence
                previous, self._active = self._active, wire
            if previous is not None:
                previous.close()
            self._wait_for_job(plan.graph_version)
            with self._running:
                self._run(wire, request, plan)
        except (OSError, EOFError, ValueError, _RelayGoneError):
            pass  # the relay went away; Spark will retry and the next attempt rolls back
        finally:
            if self._active is wire:
                self._active = None
            wire.close()

    def change_job(self, job: HostJob) -> None:
        """The job runs at another parallelism now. Nothing runs: the driver says so between two epochs."""
        with self._running, self._job_changed:
            self.host.change_job(job)
            self._job = job
            self._job_changed.notify_all()

    def _wait_for_job(self, version: int) -> None:
        """The driver's word and the relay's come on different connections."""
        with self._job_changed:
            timeout_s = min(_JOB_TIMEOUT_S, self._job.settings.epoch_timeout_ms / 1000)
            if not self._job_changed.wait_for(lambda: self._job.graph_version == version, timeout=timeout_s):
                raise SlotError(
                    f"slot {self._slot} knows version {self._job.graph_version} of the job's graph and was asked to run version "
                    f"{version}; the driver did not send it within {timeout_s:.0f} s"
                )

    def sample(self, number: int, seconds: float) -> None:
        """Look for a while where this slot spends its time, and tell the driver."""
        found = take_samples(self._job.job_id, seconds=seconds)
        self.tell(Sampled(number=number, slot=self._slot, samples=found))

    def finish(self, completed: int | None) -> None:
        """The job is over: tell listeners of its last checkpoint, and close functions."""
        if self._running.acquire(timeout=1.0):  # else something hangs, and is left to hang
            try:
                self.host.finish(completed)
            except Exception:  # nobody is left to tell but the process's own output
                traceback.print_exc()

    def _run(self, wire: Wire, request: RunLevel, plan: EpochPlan) -> None:
        relay = _Relay(wire)
        try:
            attempt = f"{plan.epoch}-{request.attempt}-{uuid.uuid4().hex[:8]}"
            run = LevelRun(self.host, plan, request.level, attempt, _RelayOutbox(relay))
            while True:
                kind, payload = relay.receive()
                if kind is Frame.END:
                    break
                _receive(run, pa.ipc.read_record_batch(pa.py_buffer(payload), SCHEMA))
            run.finish()
            relay.send(Frame.END)
        except _RelayGoneError:
            raise
        except Exception as error:  # also of the disk, or for want of files: no trouble of the connection
            self._report(wire, request, plan, error)

    def _report(self, wire: Wire, request: RunLevel, plan: EpochPlan, error: Exception) -> None:
        """Tell the driver first: it holds the job's fate. The relay gets the same text and fails the Spark task."""
        crossing = as_text(error)
        report = HostFailed(
            epoch=plan.epoch,
            job_attempt=plan.job_attempt,
            slot=self._slot,
            type=crossing["type"],
            message=crossing["message"],
            traceback="".join(traceback.format_exception(error)),
            task=failed_task(error),
        )
        with self._driver_lock:
            self._driver.send_message(report)
        wire.send_error(error)


def _watch(slot: SlotProcess, executor_pid: int, executor_started: float) -> None:
    """End with the executor that started us. Who asks for nothing, or waits for long work, is no reason to end: a driver that
    is gone is noticed by its connection."""
    while True:
        time.sleep(_WATCH_S)
        try:
            alive = psutil.Process(executor_pid).create_time() == executor_started
        except psutil.NoSuchProcess:
            alive = False
        if not alive:
            _end(slot)


def _follow_driver(driver: Wire, slot: SlotProcess) -> None:
    """The driver sends the job again when it is rescaled, asks what the slot is doing, and says when the job is over; a closed
    connection means that at once, without farewell."""
    with contextlib.suppress(Exception):
        over = False
        while not over:
            message: ToSlot = driver.receive_message()
            match message:
                case JobGiven(job=job):
                    slot.change_job(cloudpickle.loads(job))
                case AreYouThere(number=number):
                    slot.tell(Reachable(number=number))
                case TakeSamples(number=number, seconds=seconds):
                    threading.Thread(target=slot.sample, args=(number, seconds), daemon=True).start()
                case JobOver(completed=completed):
                    over = True
                    threading.Timer(_FAREWELL_S, _end, args=(slot,)).start()
                    slot.finish(completed)
                case _:
                    assert_never(message)
    _end(slot)


def _end(slot: SlotProcess) -> None:
    """At once, whatever other threads are doing; only local state is cleared away."""
    slot.host.folder.remove()
    os._exit(0)


def main(argv: list[str] | None = None) -> None:
    """Registers with the driver and serves until the job or the executor ends."""
    parser = argparse.ArgumentParser(prog="penstock.runtime.epochs.slot")
    parser.add_argument("--slot", type=int, required=True)
    parser.add_argument("--driver", required=True, help="host:port of the driver's slot registry")
    parser.add_argument("--bind", required=True, help="address to listen on")
    parser.add_argument("--executor", type=int, required=True, help="pid to end with")
    args = parser.parse_args(argv)
    token = os.environ.pop(TOKEN_VARIABLE)
    executor_started = psutil.Process(args.executor).create_time()
    listener = socket.create_server((args.bind, 0))
    own_port: int = listener.getsockname()[1]
    host, _, port = args.driver.rpartition(":")
    driver = Wire.connect(host, int(port), token)
    driver.set_timeout(30.0)
    driver.send_message(
        Register(
            slot=args.slot,
            address=SlotAddress(args.bind, own_port, os.getpid()),
            name=process_name(own_port),
            executor=args.executor,
        )
    )
    answer: JobGiven | NotNeeded = driver.receive_message()
    if isinstance(answer, NotNeeded):
        print(f"penstock slot {args.slot}: not needed: {answer.reason}", file=sys.stderr)
        return
    job: HostJob = cloudpickle.loads(answer.job)
    driver.set_timeout(None)
    os.dup2(1, 2)  # stderr was the starter's, for errors while starting; from now on it is the executor's output
    # State is millions of long-lived objects: the collector's default pace would walk them over and over.
    gc.set_threshold(100_000, 20, 50)
    timeout_s = job.settings.epoch_timeout_ms / 1000
    storage = None if job.storage_url is None else open_in_slot(job.storage_url, host, int(port), token, timeout_s)
    slot = SlotProcess(args.slot, driver, job, storage, port=own_port)
    threading.Thread(target=_watch, args=(slot, args.executor, executor_started), daemon=True).start()
    threading.Thread(target=_follow_driver, args=(driver, slot), daemon=True).start()
    Door(listener, token, slot.serve).keep()


if __name__ == "__main__":
    main()
