"""What a host's thread does: it takes rows, messages and the clock, lets tasks work, and sends what they made."""

from __future__ import annotations

import math
import time
from typing import Any, Final, Protocol, assert_never

from penstock.common.time import now_ms
from penstock.engine.exchange_rows import decode_event, encode_event
from penstock.engine.host import TaskHost
from penstock.engine.messages import Splits, TaskAck
from penstock.engine.stream_run import StreamRun
from penstock.errors import ProtocolError, SlotError
from penstock.graph.iterations import Loop
from penstock.operators.iteration import Feedback
from penstock.pickling import dump_by_value
from penstock.protocol.events import Barrier, EndOfData, Event
from penstock.protocol.gate import BarrierMode
from penstock.protocol.ids import TaskId, VertexId
from penstock.runtime.pipelined.frames import FrameBuffer, events_in
from penstock.runtime.pipelined.mailboxes import DriverGone, FrameReceived, HostInbox, HostOutbox, Pace, RowsEnded
from penstock.runtime.pipelined.messages import (
    AbortCheckpoint,
    Acknowledge,
    CheckpointsSettled,
    EndAttempt,
    FeedbackSent,
    FeedbackTaken,
    FromHost,
    GrantRead,
    GrantSources,
    StartHost,
    TriggerBarrier,
)

# What is gathered for all targets before it leaves, whatever else is to come: as much as goes between two flushes of a busy host.
_LEAST_FRAME: Final = 32 << 10
_MOST_FRAME: Final = 1 << 20
_ASYNC_POLL_S: Final = 0.001  # while requests of an asynchronous function are under way
_LONGEST_WAIT_S: Final = 1.0
_TURN_S: Final = 0.01  # how long tasks take records before timers, messages and barriers that overtake have their turn


class ToDriver(Protocol):
    """The connection of the attempt that the host belongs to."""

    job_attempt: int

    def tell(self, message: FromHost) -> None:
        """Sends a message to the driver. Thread-safe."""


class AttemptOverError(SlotError):
    """The driver has ended the attempt, or is gone."""


class HostLoop:
    """The host's thread: takes what has come, lets tasks work, and sends what they made."""

    def __init__(
        self,
        driver: ToDriver,
        host: TaskHost,
        inbox: HostInbox,
        start: StartHost,
        *,
        level: int,
        out: HostOutbox,
    ) -> None:
        self._driver, self._host, self._inbox, self._out = driver, host, inbox, out
        self._level, graph = level, host.graph
        settings = host.job.settings
        self._level_of = {vertex.id: vertex.level for vertex in graph.job.vertices.values()}
        self._sent: dict[tuple[int, int, int], int] = {}
        self._received: dict[tuple[int, int], int] = {}
        self._frames = FrameBuffer(graph.slots)
        self._pace, self._frame_bytes = Pace(), _LEAST_FRAME
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
        self._handed_on = time.monotonic()
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
            job_attempt=driver.job_attempt,
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
        if isinstance(item, FrameReceived):
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
            case RowsEnded():
                self._input_ended = True
                if not self._over and self._level:
                    raise AttemptOverError("the level before this one has ended, and the driver has not said so")
            case DriverGone():
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
        if self._frames.size >= self._frame_bytes:
            self._flush_frames()

    def acknowledge(self, ack: TaskAck) -> None:
        """Takes a task's acknowledgement to the driver."""
        self._driver.tell(Acknowledge(ack=dump_by_value(ack)))

    def feed_back(self, loop: Loop, subtask: int, feedback: Feedback) -> None:
        """To the head of the loop: directly if it is in this host, else through the driver."""
        if self._level_of[loop.head_vertex] == self._level:
            self._run.offer_feedback(loop, feedback)
        else:
            self._driver.tell(FeedbackSent(tail=loop.tail, subtask=subtask, feedback=feedback))

    def feedback_taken(self, loop: Loop, subtask: int, epoch: int, taken: int) -> None:
        """To the tail of the loop, in the same way."""
        if self._level_of[loop.tail_vertex] == self._level:
            self._run.feedback_taken(loop, epoch, taken)
        else:
            self._driver.tell(FeedbackTaken(tail=loop.tail, subtask=subtask, epoch=epoch, taken=taken))

    def grant_read(self, task: TaskId, seconds: float, splits: Splits) -> None:
        """The driver may grant more."""
        self._driver.tell(GrantRead(task=task, seconds=seconds, splits=splits))

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
        size = self._frames.size
        batch = self._frames.take()
        self._flushed, self._urgent, self._passing = time.monotonic(), False, False
        if batch is None:
            return
        self._out.put(batch)
        now = time.monotonic()
        waited = now - self._flushed
        self._pace.went(size, now - self._handed_on)
        self._frame_bytes = self._pace.bytes_in(self._wait_s(True), _LEAST_FRAME, _MOST_FRAME)
        self._handed_on = now
        for held in self._held:
            held.blocked += waited
            if held.working_since is not None:
                held.busy -= waited
