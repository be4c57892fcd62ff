"""A task host inside a Spark task's Python worker, for the life of the attempt.

Four threads. Spark's own calls the generator and carries away what it yields; one takes rows from Spark, one messages from the
driver; the fourth is the host's and does all the work. Rows and messages meet in one inbox, so tasks never see two things at
once. What the tasks send waits in a bounded outbox for Spark's thread: while that is full, the host is back-pressured.
"""

from __future__ import annotations

import contextlib
import gc
import math
import os
import queue
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, assert_never

import cloudpickle
import pyarrow as pa

from penstock.checkpoint.local_copies import LocalCopies
from penstock.checkpoint.store import READERS, CheckpointStore
from penstock.common.time import now_ms
from penstock.engine.exchange_rows import decode_event, encode_event
from penstock.engine.host import HostJob, TaskHost
from penstock.engine.messages import Splits, TaskAck
from penstock.engine.sampling import take_samples
from penstock.engine.stream_run import StreamRun
from penstock.engine.uploads import BackgroundUploads, ImmediateUploads, Uploads
from penstock.errors import ProtocolError, SlotError, as_text, failed_task
from penstock.graph.iterations import Loop
from penstock.operators.iteration import Feedback
from penstock.pickling import dump_by_value
from penstock.protocol.events import Barrier, EndOfData, Event
from penstock.protocol.gate import BarrierMode
from penstock.protocol.ids import TaskId, VertexId
from penstock.runtime.connection.messages import HostFailed, Sampled, TakeSamples
from penstock.runtime.connection.wire import Wire
from penstock.runtime.epochs.remote_storage import open_in_slot
from penstock.runtime.pipelined.frames import FrameBuffer, events_in
from penstock.runtime.pipelined.messages import (
    AbortCheckpoint,
    Acknowledge,
    CheckpointsSettled,
    EndAttempt,
    Enlist,
    FeedbackSent,
    FeedbackTaken,
    FromHost,
    GrantRead,
    GrantSources,
    HostId,
    HostReady,
    NotWanted,
    StartHost,
    ToHost,
    TriggerBarrier,
)

ATTEMPT: Final = "penstock.attempt"  # the property of Spark's job that says of which attempt its tasks are

_START_S: Final = 60.0
_LEAVE_S: Final = 5.0  # for the host's thread to come to its end when the driver is gone
_FRAME_BYTES: Final = 1 << 20  # what is gathered for all targets before it leaves, whatever else is to come
_OUTBOX: Final = 4  # batches that wait for Spark's thread
_ASYNC_POLL_S: Final = 0.001  # while requests of an asynchronous function are under way
_LONGEST_WAIT_S: Final = 1.0
_SWITCH_S: Final = (
    0.0005  # a thread that has rows to hand on waits so long for one that computes; by default 5 ms, each time
)
_TURN_S: Final = 0.01  # how long tasks take records before timers, messages and barriers that overtake have their turn


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverAddress:
    """Where a host finds its driver. It travels with the plan, which serves all attempts at one parallelism."""

    host: str
    port: int
    token: str


class _Frame:
    __slots__ = ("payload",)

    def __init__(self, payload: memoryview) -> None:
        self.payload = payload


class _InputEnded:
    """Nothing more comes from Spark."""


class _DriverGone:
    """The connection to the driver has ended: so does the attempt."""


class AttemptOverError(SlotError):
    """The driver has ended the attempt, or is gone."""


class _Inbox:
    """Rows and messages in the order in which they come. Rows wait outside while too many bytes are in here."""

    def __init__(self, limit: int) -> None:
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._limit, self._bytes = limit, 0
        self._taken = 0  # bytes that were taken and are not done with
        self._open = False
        self._room = threading.Condition()

    def put(self, item: Any, size: int = 0) -> None:
        if size:
            with self._room:
                while self._bytes > self._limit and not self._open:
                    self._room.wait(1.0)
                self._bytes += size
        self._items.put(item)

    def take(self, timeout_s: float) -> list[Any]:
        """All that has come; if nothing has, waits so long for the first."""
        items: list[Any] = []
        try:
            items.append(self._items.get(timeout=timeout_s) if timeout_s > 0 else self._items.get_nowait())
            while len(items) < 64:
                items.append(self._items.get_nowait())
        except queue.Empty:
            pass
        self._taken += sum(len(item.payload) for item in items if isinstance(item, _Frame))
        return items

    def done(self) -> None:
        """What was taken has been worked off, as far as it can be now."""
        if self._taken:
            with self._room:
                self._bytes -= self._taken
                self._room.notify_all()
            self._taken = 0

    def let_all_in(self, all_in: bool) -> None:
        """Whether rows come in however many bytes are in here: a barrier is to be found that overtakes them."""
        if all_in != self._open:
            with self._room:
                self._open = all_in
                self._room.notify_all()

    @property
    def empty(self) -> bool:
        return self._items.empty()


class _Outbox:
    """What waits for Spark's thread, at most so many: `put` waits for room. `queue.Queue` does the same in Python, and slower."""

    def __init__(self, most: int) -> None:
        self._items: queue.SimpleQueue[pa.RecordBatch | BaseException | None] = queue.SimpleQueue()
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(most):
            self._room.put(None)

    def put(self, item: pa.RecordBatch | BaseException | None) -> None:
        self._room.get()
        self._items.put(item)

    def get(self) -> pa.RecordBatch | BaseException | None:
        item = self._items.get()
        self._room.put(None)
        return item


class Worker:
    """One host. `run` is the body of the Spark task."""

    def __init__(self, address: DriverAddress, level: int, index: int, job_attempt: int) -> None:
        self._address, self._id, self.job_attempt = address, HostId(level, index), job_attempt
        self._name = f"{socket.gethostname()}:{level}.{index}:{os.getpid()}"
        self._job_id = ""  # until the driver has given the job
        self._driver: Wire | None = None
        self._sending = threading.Lock()
        self._done = threading.Event()
        self._out = _Outbox(_OUTBOX)

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
        inbox = _Inbox(settings.in_flight_bytes)
        gc.disable()  # nothing of what is restored is garbage
        loop = _HostLoop(self, host, inbox, start, level=self._id.level, out=self._out)
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

    def _follow_rows(self, batches: Iterator[pa.RecordBatch], inbox: _Inbox) -> None:
        with contextlib.suppress(Exception):  # Spark ends the task, or we do
            for batch in batches:
                if self._id.level == 0:
                    continue
                for payload in batch.column(0):
                    if payload.is_valid:  # else one that only follows
                        frame = memoryview(payload.as_buffer())
                        inbox.put(_Frame(frame), len(frame))
        inbox.put(_InputEnded())

    def _follow_driver(self, inbox: _Inbox) -> None:
        assert self._driver is not None
        with contextlib.suppress(Exception):
            while True:
                message: ToHost = self._driver.receive_message()
                if isinstance(message, TakeSamples):
                    threading.Thread(target=self._sample, args=(message,), daemon=True).start()
                else:
                    inbox.put(message)
        inbox.put(_DriverGone())
        if not self._done.wait(_LEAVE_S):
            os._exit(1)  # a user's function hangs; Spark, which has cancelled the task, does not always end its process

    def _sample(self, asked: TakeSamples) -> None:
        found = take_samples(self._job_id, seconds=asked.seconds)
        self._tell_if_there(Sampled(number=asked.number, slot=self._id.index, samples=found))


class _HostLoop:
    """The host's thread: takes what has come, lets tasks work, and sends what they made."""

    def __init__(
        self,
        worker: Worker,
        host: TaskHost,
        inbox: _Inbox,
        start: StartHost,
        *,
        level: int,
        out: _Outbox,
    ) -> None:
        self._worker, self._host, self._inbox, self._out = worker, host, inbox, out
        self._level, graph = level, host.graph
        settings = host.job.settings
        self._level_of = {vertex.id: vertex.level for vertex in graph.job.vertices.values()}
        self._sent: dict[tuple[int, int, int], int] = {}
        self._received: dict[tuple[int, int], int] = {}
        self._frames = FrameBuffer(graph.slots)
        self._loops = {loop.tail: loop for loop in graph.loops}
        self._gap_s = start.flush_gap_ms / 1000
        self._timeout_s = None if settings.buffer_timeout_ms is None else settings.buffer_timeout_ms / 1000
        if not settings.buffer_timeout_enabled:
            self._timeout_s = math.inf
        self._urgent = False  # something is gathered that must not wait, however long other things may
        self._passing = False  # something on its way to a later level is gathered: it has waited where it was sent
        self._interval_s = settings.watermark_interval_ms / 1000
        self._next_watermarks = time.monotonic() + self._interval_s
        self._markers_s = settings.latency_interval_ms / 1000  # 0: none
        self._next_markers = time.monotonic() + self._markers_s if self._markers_s and level == 0 else math.inf
        self._flushed = 0.0
        self._input_ended = self._over = self.job_over = False
        self._more = False  # the last turn was over before the work was
        self._unaligned = host.mode is BarrierMode.UNALIGNED
        self._clock_floor = start.processing_time
        self._run = StreamRun(
            host,
            self,
            version=start.version,
            checkpoint=start.checkpoint,
            epoch=start.epoch,
            job_attempt=worker.job_attempt,
            levels=(level,),
        )
        self._held = self._run.tasks
        self._sources = [held for held in self._held if held.task.vertex.is_source]
        self._others = [held for held in self._held if not held.task.vertex.is_source]
        self._timed = [held for held in self._held if held.task.timed]
        self._asynchronous = any(operator.waits for held in self._held for operator in held.task.chain)

    # ---------------------------------------------------------------- the loop

    def run(self) -> None:
        """Until the driver says that the attempt is over, and Spark that nothing more comes."""
        self._run.start(self._now())
        while not (self._over and (self._input_ended or self._level == 0)):
            began = time.perf_counter()
            items = self._inbox.take(self._patience())
            waited = time.perf_counter() - began
            for held in self._held:
                held.idle += waited
            for item in items:
                self._take(item)
            if self._over:
                self._inbox.done()
                continue
            working = self._work()
            if not self._more:
                self._inbox.done()
            if self._unaligned:
                self._inbox.let_all_in(self._run.awaits_barriers)
            self._keep_time()
            self._flush_if_due(working)
        self._flush()

    def _now(self) -> int:
        """Milliseconds; not behind the checkpoint's, and never back."""
        self._clock_floor = max(self._clock_floor, now_ms())
        return self._clock_floor

    def _work(self) -> bool:
        """What can be done now, for a turn. Whether there is more."""
        until = time.perf_counter() + _TURN_S
        self._more = False
        for held in self._others:
            self._more = self._run.run_through(held.id, until) or self._more
        for held in self._sources:
            while steps := self._run.runnable(held.id):
                self._run.step(steps[0])
                if not self._inbox.empty or time.perf_counter() >= until:
                    break
        return self._more or any(self._run.runnable(held.id) for held in self._sources) or not self._inbox.empty

    def _keep_time(self) -> None:
        """Timers that are due, periodic watermarks, answers of asynchronous requests."""
        now = self._now()
        timers = [t for held in self._held if (t := held.task.next_processing_timer()) is not None]
        if timers and min(timers) <= now:
            self._run.advance(now)
        else:
            for held in self._held:
                held.task.processing_time = now
        if self._asynchronous:
            self._run.poll()
        if self._interval_s > 0 and time.monotonic() >= self._next_watermarks:
            self._next_watermarks = time.monotonic() + self._interval_s
            self._run.emit_watermarks()
        if time.monotonic() >= self._next_markers:
            self._next_markers = time.monotonic() + self._markers_s
            self._run.send_markers()

    def _patience(self) -> float:
        """How long nothing need be done, if nothing comes."""
        if self._more or any(self._run.runnable(held.id) for held in self._sources):
            return 0.0
        waits = [_LONGEST_WAIT_S]
        if self._frames.waiting or self._gathered():
            waits.append(self._flushed + self._wait_s(False) - time.monotonic())
        if self._asynchronous:
            waits.append(_ASYNC_POLL_S)
        if self._interval_s > 0:
            waits.append(self._next_watermarks - time.monotonic())
        waits.append(self._next_markers - time.monotonic())
        waits += [due - time.monotonic() for held in self._timed if (due := held.task.next_flush()) is not None]
        timers = [t for held in self._held if (t := held.task.next_processing_timer()) is not None]
        if timers:
            waits.append((min(timers) - self._now()) / 1000)
        return max(0.0, min(waits))

    def _take(self, item: Any) -> None:
        if isinstance(item, _Frame):
            self._take_frame(item.payload)
            return
        match item:
            case GrantSources(sources=sources):
                self._run.grant(sources)
            case TriggerBarrier(plan=plan):
                self._run.trigger(plan)
            case AbortCheckpoint(epoch=epoch):
                self._run.abort(epoch)
            case CheckpointsSettled(completed=completed, oldest=oldest):
                self._run.notify(completed)
                if self._host.store is not None and self._host.store.local is not None:
                    self._host.store.local.keep(oldest)
            case FeedbackSent(tail=tail, feedback=feedback):
                self._run.offer_feedback(self._loops[tail], feedback)
            case FeedbackTaken(tail=tail, epoch=epoch, taken=taken):
                self._run.feedback_taken(self._loops[tail], epoch, taken)
            case EndAttempt(completed=completed, over=over):
                self._over, self.job_over = True, over
                self._host.finish(completed)
            case _InputEnded():
                self._input_ended = True
                if not self._over and self._level:
                    raise AttemptOverError("the level before this one has ended, and the driver has not said so")
            case _DriverGone():
                if not self._over:
                    raise AttemptOverError("the driver has ended the attempt, or is gone")
            case _:
                assert_never(item)

    def _take_frame(self, frame: memoryview) -> None:
        index = self._host.index
        for level, vertex, channel, seq, kind, payload in events_in(frame):
            if level != self._level:  # on its way to a later one
                self._frames.add(index, level, vertex, channel, seq, kind, payload)
                self._passing = True
                continue
            expected = self._received.get((vertex, channel), 0)
            if seq != expected:
                raise ProtocolError(
                    f"event {seq} came on channel {channel} of vertex {vertex}, subtask {index}, where {expected} was next: "
                    "Spark's exchange has lost, repeated or reordered rows"
                )
            self._received[vertex, channel] = expected + 1
            self._run.offer(TaskId(VertexId(vertex), index), channel, decode_event(kind, payload), len(payload))

    # ---------------------------------------------------------------- out

    def send(self, vertex: VertexId, target: int, channel: int, event: Event) -> None:
        """Takes an event to a subtask of `vertex`, on one of its channels."""
        key = (int(vertex), target, channel)
        last = isinstance(event, Barrier | EndOfData)  # nothing may follow for long
        self._urgent = self._urgent or (last and self._timeout_s is not None)
        for kind, payload in encode_event(event, self._host.job.settings.record_bytes):
            seq = self._sent.get(key, 0)
            self._sent[key] = seq + 1
            self._frames.add(target, self._level_of[vertex], int(vertex), channel, seq, kind, payload)
        if self._frames.size >= _FRAME_BYTES:
            self._flush_frames()

    def acknowledge(self, ack: TaskAck) -> None:
        """Takes a task's acknowledgement to the driver."""
        self._worker.tell(Acknowledge(ack=dump_by_value(ack)))

    def feed_back(self, loop: Loop, subtask: int, feedback: Feedback) -> None:
        """To the head of the loop: directly if it is in this host, else through the driver."""
        if self._level_of[loop.head_vertex] == self._level:
            self._run.offer_feedback(loop, feedback)
        else:
            self._worker.tell(FeedbackSent(tail=loop.tail, subtask=subtask, feedback=feedback))

    def feedback_taken(self, loop: Loop, subtask: int, epoch: int, taken: int) -> None:
        """To the tail of the loop, in the same way."""
        if self._level_of[loop.tail_vertex] == self._level:
            self._run.feedback_taken(loop, epoch, taken)
        else:
            self._worker.tell(FeedbackTaken(tail=loop.tail, subtask=subtask, epoch=epoch, taken=taken))

    def grant_read(self, task: TaskId, seconds: float, splits: Splits) -> None:
        """The driver may grant more."""
        self._worker.tell(GrantRead(task=task, seconds=seconds, splits=splits))

    def _gathered(self) -> bool:
        return any(held.task.gathered for held in self._held)

    def _flush_if_due(self, working: bool) -> None:
        """At once when there is nothing else to do, but not more often than every gap; when busy, what is gathered grows."""
        if self._timed or (self._passing and self._timeout_s is not None):
            self._flush_timed()
        if not (self._frames.waiting or self._gathered()):
            return
        if self._urgent or time.monotonic() >= self._flushed + self._wait_s(working):
            self._flush()

    def _flush_timed(self) -> None:
        """Streams with a time-out of their own, and what has waited elsewhere; what else is in the frames goes along, what is not
        waits for its own time."""
        left = self._passing and self._timeout_s is not None
        for held in self._timed:
            with self._host.working(held):
                left = held.task.flush_timed(time.monotonic()) or left
        if left:
            flushed = self._flushed
            self._flush_frames()
            self._flushed = flushed

    def _wait_s(self, working: bool) -> float:
        """The least time between two flushes."""
        if self._timeout_s is not None:
            return self._timeout_s
        return self._gap_s * 4 if working else self._gap_s

    def _flush(self) -> None:
        for held in self._held:
            with self._host.working(held):
                held.task.flush()
        self._flush_frames()

    def _flush_frames(self) -> None:
        batch = self._frames.take()
        self._flushed, self._urgent, self._passing = time.monotonic(), False, False
        if batch is None:
            return
        began = time.perf_counter()
        self._out.put(batch)
        waited = time.perf_counter() - began
        for held in self._held:
            held.blocked += waited
            if held.working_since is not None:
                held.busy -= waited


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
