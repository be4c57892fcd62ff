"""The exchange of queues: all tasks of a job stream at the same time, as in Flink. One attempt of the random schedule.

Hosts in one process, with bounded channels between their tasks: one for each slot, or one for each level of each slot, as
Spark runs them when a job is pipelined. Then what driver and hosts tell each other takes time: each host has a queue of words
to the driver and one from it, in order, and rows may come before or behind any of them. The exchange only offers steps and
carries them out: who chooses among them is the schedule, and exactly-once has to hold for every choice.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from penstock.engine.exchange_rows import decode_event, encode_event
from penstock.engine.host import HeldTask, TaskHost
from penstock.engine.messages import EpochPlan, SourceRanges, Splits, TaskAck
from penstock.engine.stream_run import StreamRun
from penstock.graph.iterations import Loop
from penstock.operators.iteration import Feedback
from penstock.protocol.events import Event
from penstock.protocol.ids import TaskId, VertexId

Word: TypeAlias = Callable[[], None]  # what is said, as what is done when it is heard


class _Host:
    """A host's run, its tasks' exchange, and the words that are on their way between it and the driver."""

    def __init__(self, host: TaskHost, queues: QueueExchange, levels: Sequence[int] | None) -> None:
        self.host, self._queues, self.levels = host, queues, levels
        self.to_driver: deque[Word] = deque()
        self.from_driver: deque[Word] = deque()
        self.run: StreamRun

    def send(self, vertex: VertexId, target: int, channel: int, event: Event) -> None:
        """Takes an event to a subtask of `vertex`, on one of its channels."""
        # Through bytes, as between two processes: nobody shares objects, and what cannot travel fails here too.
        task = TaskId(vertex, target)
        for encoded in encode_event(event):
            self._queues.of(task).run.offer(task, channel, decode_event(*encoded), len(encoded[1]))

    def acknowledge(self, ack: TaskAck) -> None:
        """Takes a task's acknowledgement to the driver."""
        self._queues.tell_driver(self, partial(self._queues.acknowledge, ack))

    def feed_back(self, loop: Loop, subtask: int, feedback: Feedback) -> None:
        """Takes records from the tail of a loop to its head: directly if it is here, else through the driver."""
        head = self._queues.of(TaskId(loop.head_vertex, subtask))
        self._pass_on(head, lambda: head.run.offer_feedback(loop, feedback))

    def feedback_taken(self, loop: Loop, subtask: int, epoch: int, taken: int) -> None:
        """Tells the tail what its head had taken when an epoch ended there, in the same way."""
        tail = self._queues.of(TaskId(loop.tail_vertex, subtask))
        self._pass_on(tail, lambda: tail.run.feedback_taken(loop, epoch, taken))

    def _pass_on(self, other: _Host, word: Word) -> None:
        if other is self:
            word()
        else:
            self._queues.tell_driver(self, lambda: self._queues.tell_host(other, word))

    def grant_read(self, task: TaskId, seconds: float, splits: Splits) -> None:
        """Who grants here does not wait for it."""


class QueueExchange:
    """Built from a checkpoint or from nothing. Not thread-safe."""

    def __init__(
        self,
        hosts: Sequence[tuple[TaskHost, Sequence[int] | None]],
        *,
        version: str,
        checkpoint: int | None,
        epoch: int,
        now: int,
        job_attempt: int,
        capacity: int | None,
        acknowledge: Callable[[TaskAck], None],
        apart: bool = False,
    ) -> None:
        """`hosts`: each with the levels whose tasks it has, None: all. `apart`: words take time, and time follows the clock."""
        self._capacity, self._apart = capacity, apart
        self.acknowledge = acknowledge
        self._hosts = [_Host(host, self, levels) for host, levels in hosts]
        for host in self._hosts:
            host.run = StreamRun(
                host.host,
                host,
                version=version,
                checkpoint=checkpoint,
                epoch=epoch,
                job_attempt=job_attempt,
                levels=host.levels,
            )
        self._blocked_since: dict[TaskId, float] = {}
        self._host_of = {held.id: host for host in self._hosts for held in host.run.tasks}
        self._held = [held for host in self._hosts for held in host.run.tasks]
        self._held.sort(key=lambda held: (held.task.vertex.level, held.id.subtask))
        graph = hosts[0][0].graph
        self._behind: dict[TaskId, list[tuple[TaskId, int]]] = {
            held.id: [
                (TaskId(edge.target, target), graph.channel_of(edge, held.id.subtask))
                for edge in held.task.vertex.outputs
                for target in graph.targets_of(edge, held.id.subtask)
            ]
            for held in self._held
        }
        for host in self._hosts:
            host.run.start(now)

    def of(self, task: TaskId) -> _Host:
        """The host of a task."""
        return self._host_of[task]

    # ---------------------------------------------------------------- words

    def tell_driver(self, host: _Host, word: Word) -> None:
        """A host says something to the driver."""
        if self._apart:
            host.to_driver.append(word)
        else:
            word()

    def tell_host(self, host: _Host, word: Word) -> None:
        """The driver says something to a host."""
        if self._apart:
            host.from_driver.append(word)
        else:
            word()

    def grant(self, sources: Mapping[str, SourceRanges]) -> None:
        """Sources may read this."""
        for host in self._hosts:
            self.tell_host(host, partial(host.run.grant, sources))

    def trigger(self, plan: EpochPlan) -> None:
        """A barrier for every source, behind what it was granted."""
        for host in self._hosts:
            if not self._apart:
                host.run.advance(plan.processing_time)
            self.tell_host(host, partial(host.run.trigger, plan))

    def abort(self, epoch: int) -> None:
        """Nobody waits for this barrier any more."""
        for host in self._hosts:
            self.tell_host(host, partial(host.run.abort, epoch))

    def tick(self, rng: random.Random, now: int, completed: int | None) -> None:
        """Time goes by in one host: it may look at its clock, send what it has gathered, hear of a checkpoint, and do all there is
        to do for a task at once."""
        host = rng.choice(self._hosts)
        match rng.randrange(5):
            case 0:
                host.run.advance(now)
            case 1:
                host.run.emit_watermarks()
                if host.host.job.settings.latency_interval_ms:
                    host.run.send_markers()
            case 2:
                host.run.poll()
                for held in host.run.tasks:
                    with host.host.working(held):
                        held.task.flush()
            case 3:
                self.tell_host(host, partial(host.run.notify, completed))
            case _:
                for held in host.run.tasks:
                    if not held.task.vertex.is_source and not self._is_blocked(held):
                        host.run.run_through(held.id)

    # ---------------------------------------------------------------- steps

    def runnable(self) -> list[Word]:
        """Every step that could be next. A task behind which a channel is full waits: that is back pressure."""
        steps: list[Word] = []
        for held in self._held:
            if not self._is_blocked(held):
                run = self._host_of[held.id].run
                steps += [partial(run.step, step) for step in run.runnable(held.id)]
        for host in self._hosts:
            steps += [partial(_hear, words) for words in (host.to_driver, host.from_driver) if words]
        return steps

    def _is_blocked(self, held: HeldTask) -> bool:
        if self._capacity is None:
            return False
        full = any(
            self._host_of[task].run.waiting(task, channel) >= self._capacity for task, channel in self._behind[held.id]
        )
        now = time.perf_counter()
        held.blocked += now - self._blocked_since.pop(held.id, now)
        if full:
            self._blocked_since[held.id] = now
        return full


def _hear(words: deque[Word]) -> None:
    words.popleft()()
