"""The exchange of queues: all tasks of a job stream at the same time, as in Flink. One attempt of the random schedule.

Hosts in one process, one for each slot, with bounded channels between their tasks. The exchange only offers steps and carries them
out: who chooses among them is the schedule, and exactly-once has to hold for every choice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from penstock.engine.exchange_rows import decode_event, encode_event
from penstock.engine.host import HeldTask, TaskHost
from penstock.engine.messages import EpochPlan, SourceRanges, TaskAck
from penstock.engine.stream_run import Step, StreamRun
from penstock.graph.iterations import Loop
from penstock.operators.iteration import Feedback
from penstock.protocol.events import Event
from penstock.protocol.ids import TaskId, VertexId


class QueueExchange:
    """Built from a checkpoint or from nothing. Not thread-safe."""

    def __init__(
        self,
        hosts: Sequence[TaskHost],
        *,
        version: str,
        checkpoint: int | None,
        epoch: int,
        now: int,
        job_attempt: int,
        capacity: int | None,
        acknowledge: Callable[[TaskAck], None],
    ) -> None:
        self._hosts, self._capacity = hosts, capacity
        self.acknowledge = acknowledge
        self._runs = [
            StreamRun(host, self, version=version, checkpoint=checkpoint, epoch=epoch, job_attempt=job_attempt)
            for host in hosts
        ]
        self._blocked_since: dict[TaskId, float] = {}
        self._held = [held for run in self._runs for held in run.tasks]
        self._held.sort(key=lambda held: (held.task.vertex.level, held.id.subtask))
        graph = hosts[0].graph
        self._behind: dict[TaskId, list[tuple[TaskId, int]]] = {
            held.id: [
                (TaskId(edge.target, target), graph.channel_of(edge, held.id.subtask))
                for edge in held.task.vertex.outputs
                for target in graph.targets_of(edge, held.id.subtask)
            ]
            for held in self._held
        }

        for run in self._runs:
            run.start(now)

    def grant(self, sources: Mapping[str, SourceRanges]) -> None:
        """Sources may read this."""
        for run in self._runs:
            run.grant(sources)

    def trigger(self, plan: EpochPlan) -> None:
        """A barrier for every source, behind what it was granted."""
        for run in self._runs:
            run.advance(plan.processing_time)
            run.trigger(plan)

    def runnable(self) -> list[Step]:
        """Every step that could be next. A task behind which a channel is full waits: that is back pressure."""
        return [
            step
            for held in self._held
            if not self._is_blocked(held)
            for step in self._runs[held.id.subtask].runnable(held.id)
        ]

    def _is_blocked(self, held: HeldTask) -> bool:
        if self._capacity is None:
            return False
        full = any(
            self._runs[task.subtask].waiting(task, channel) >= self._capacity for task, channel in self._behind[held.id]
        )
        now = time.perf_counter()
        held.blocked += now - self._blocked_since.pop(held.id, now)
        if full:
            self._blocked_since[held.id] = now
        return full

    def step(self, step: Step) -> None:
        """Does one thing in the run it belongs to."""
        self._runs[step[0].subtask].step(step)

    def send(self, vertex: VertexId, target: int, channel: int, event: Event) -> None:
        """Takes an event to a subtask of `vertex`, on one of its channels."""
        # Through bytes, as between two processes: nobody shares objects, and what cannot travel fails here too.
        for encoded in encode_event(event):
            self._runs[target].offer(TaskId(vertex, target), channel, decode_event(*encoded))

    def feed_back(self, loop: Loop, subtask: int, feedback: Feedback) -> None:
        """Takes records from the tail of a loop to its head."""
        self._runs[subtask].offer_feedback(loop, feedback)

    def feedback_taken(self, loop: Loop, subtask: int, epoch: int, taken: int) -> None:
        """Tells the tail what its head had taken when an epoch ended there."""
        self._runs[subtask].feedback_taken(loop, epoch, taken)

    def grant_read(self, task: TaskId, seconds: float) -> None:
        """Who grants here does not wait for it."""
