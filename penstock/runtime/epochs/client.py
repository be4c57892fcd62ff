"""The relay's side: find or start the slot of this partition and stream one level's rows through it."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, assert_never

import psutil
import pyarrow as pa

from penstock.engine.exchange_rows import SCHEMA
from penstock.errors import SlotError
from penstock.runtime.connection.handshake import StrangerError
from penstock.runtime.connection.liveness import Pulses, is_loopback
from penstock.runtime.connection.messages import (
    FindSlot,
    Pulse,
    Refused,
    RunLevel,
    SlotAddress,
    SlotFound,
    StartFailed,
    StartSlot,
    StillStarting,
    ToRelay,
)
from penstock.runtime.connection.wire import Frame, Wire, error_in
from penstock.runtime.epochs.registry import START_TIMEOUT_S
from penstock.runtime.epochs.slot import TOKEN_VARIABLE

_pulses = Pulses()  # of this worker: it works with the same slots again and again


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAddress:
    """How a relay or a slot process reaches the driver, and for how long it may wait."""

    host: str
    port: int
    token: str = field(repr=False)
    bind: str | None  # where slots listen; None: the address this host reaches the driver from
    job_attempt: int = 0  # for which the query was made that a relay is of
    epoch_timeout_s: float = (
        600.0  # after which the driver gives the epoch up: waiting longer for anything is for nobody
    )


def executor_pid() -> int:
    """The process a slot must not outlive: the JVM above this Python worker (worker → daemon → executor)."""
    process = psutil.Process()
    for parent in process.parents():
        if "java" in parent.name():
            return int(parent.pid)
    return os.getppid()


def open_slot(registry: RegistryAddress, slot: int, epoch: int) -> tuple[Wire, bytes]:
    """A connection to the slot's process, and the epoch's plan. Starts the process if there is none."""
    directory = Wire.connect(registry.host, registry.port, registry.token)
    timeout_s = min(2 * START_TIMEOUT_S, registry.epoch_timeout_s)
    directory.set_timeout(timeout_s + 30)
    unreachable: SlotAddress | None = None
    starting: _Starting | None = None
    deadline = time.monotonic() + timeout_s
    try:
        while time.monotonic() < deadline:
            directory.send_message(
                FindSlot(
                    slot=slot,
                    epoch=epoch,
                    job_attempt=registry.job_attempt,
                    unreachable=unreachable,
                    starter=starting is not None,
                )
            )
            answer: ToRelay = directory.receive_message()
            match answer:
                case Refused(reason=reason):
                    raise SlotError(f"slot {slot}, epoch {epoch}: {reason}")
                case StartSlot():
                    starting = _Starting(registry, slot, registry.bind or directory.local_host)
                case StillStarting():
                    if starting is not None and starting.ended(directory):
                        starting = None
                case SlotFound(address=address, plan=plan):
                    try:
                        wire = _connect(address.host, address.port, registry.token)
                        wire.set_timeout(registry.epoch_timeout_s)
                        return wire, plan
                    except (OSError, StrangerError):
                        # It died a moment ago, and somebody else may have its port; the driver will see its connection
                        # close. Or its host is gone, and the driver has not noticed: a process started here takes its place.
                        unreachable = address
                case _:
                    assert_never(answer)
        raise SlotError(f"slot {slot} could not be reached or started within {timeout_s:.0f} s")
    finally:
        directory.close()


def _connect(host: str, port: int, token: str) -> Wire:
    """A connection for rows. The slot reads them when it has the time, which may be long after a host counts as gone: a second
    connection, that carries nothing, tells the two apart."""
    wire = Wire.connect(host, port, token)
    if is_loopback(host):
        wire.be_patient()
        return wire  # this host does not go away without us
    try:
        _pulses.watch(wire, host, port, lambda: _pulse(host, port, token))
    except BaseException:
        wire.close()
        raise
    wire.be_patient()
    return wire


def _pulse(host: str, port: int, token: str) -> Wire:
    wire = Wire.connect(host, port, token)
    wire.send_message(Pulse())
    return wire


def _python_path() -> str:
    """What this worker imports from, PySpark's zip files last: importing it from a zip compiles it every time. Zip files that a
    user ships keep their place before what is installed."""
    return os.pathsep.join(sorted(filter(None, sys.path), key=_is_of_pyspark))


def _is_of_pyspark(entry: str) -> bool:
    name = os.path.basename(entry)
    return name == "pyspark.zip" or (name.startswith("py4j-") and name.endswith("-src.zip"))


class _Starting:
    """A slot process this relay has started, until it has registered with the driver."""

    def __init__(self, registry: RegistryAddress, slot: int, bind: str) -> None:
        self._slot = slot
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - the child keeps writing to it
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "penstock.runtime.epochs.slot",
                "--slot", str(slot),
                "--driver", f"{registry.host}:{registry.port}",
                "--bind", bind,
                "--executor", str(executor_pid()),
            ],
            env={**os.environ, TOKEN_VARIABLE: registry.token, "PYTHONPATH": _python_path()},
            stdin=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,  # a signal to the executor's group is not for us: we watch the executor ourselves
        )  # fmt: skip
        threading.Thread(target=self._process.wait, daemon=True).start()  # reap it while we live

    def ended(self, directory: Wire) -> bool:
        """False while it is on its way. Raises with its own words if it could not start."""
        status = self._process.poll()
        if status is None:
            return False
        directory.send_message(StartFailed(slot=self._slot))
        directory.receive_message()
        if status == 0:  # another process serves the slot already
            return True
        self._errors.seek(0)
        text = self._errors.read()[-4000:].decode(errors="replace")
        raise SlotError(f"slot {self._slot} ended with status {status} while starting:\n{text}")


class SlotStream:
    """One level's run: rows are sent by a thread while results are read, so neither side waits for the other.

    The socket's buffers are the bound: when the slot is slow, `send` blocks, Spark's reader behind it waits, and that time is
    this subtask's back pressure.
    """

    def __init__(self, wire: Wire, request: RunLevel, rows: Iterator[pa.RecordBatch]) -> None:
        self._wire = wire
        self._rows = rows
        self._failure: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        wire.send_message(request)
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()

    def _send(self) -> None:
        try:
            for batch in self._rows:
                if not self._sent(Frame.ROWS, batch.serialize()):
                    return
            self._sent(Frame.END)
        except BaseException as error:  # a Spark task that is killed raises here; the reader must not wait for ever
            self._failure.put(error)
            self._wire.close()

    def _sent(self, kind: Frame, payload: Any = b"") -> bool:
        """False: the slot reads no more. Why not may be waiting to be read, so the connection stays open."""
        try:
            self._wire.send(kind, payload)
        except OSError:
            return False
        return True

    def results(self) -> Iterator[pa.RecordBatch]:
        """The rows that the slot sends back; raises what failed there."""
        try:
            while True:
                kind, payload = self._wire.receive()
                if kind is Frame.END:
                    self._sender.join()
                    return
                if kind is Frame.ERROR:
                    raise error_in(payload)
                yield pa.ipc.read_record_batch(pa.py_buffer(payload), SCHEMA)
        except (OSError, ValueError) as error:
            if not self._failure.empty():
                raise self._failure.get() from error
            raise SlotError(
                f"the slot process went away in the middle of its work ({error}); Spark retries the task"
            ) from error
        finally:
            self._wire.close()
