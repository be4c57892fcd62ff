"""Task hosts that only talk: `python -m benchmarks.scale.hosts PORT TOKEN LEVELS SLOTS`.

Each has a connection of its own to a real driver, reports that it is ready, says after 50 ms that a grant is read, and acknowledges
barriers at once. So what the driver needs for hundreds of hosts can be measured without their work. One process, one thread.
"""

from __future__ import annotations

import functools
import heapq
import pickle
import selectors
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import cloudpickle

from penstock.checkpoint.manifest import FileState
from penstock.engine.messages import TaskAck
from penstock.protocol.ids import TaskId
from penstock.runtime.connection.wire import Wire
from penstock.runtime.pipelined.messages import (
    Acknowledge,
    EndAttempt,
    Enlist,
    GrantRead,
    GrantSources,
    HostId,
    HostReady,
    StartHost,
    TriggerBarrier,
)

_HEADER: Final = struct.Struct("<IB")  # of a frame, see connection/wire.py
READ_S: Final = 0.05  # what a grant takes to read
METRICS = {"records_in": 1000, "records_out": 1000, "late_dropped": 0, "user": {}, "splits": {}, "latency": {}}


class Talker:
    """One host."""

    def __init__(self, port: int, token: str, host: HostId, attempt: int) -> None:
        self.id, self.wire = host, Wire.connect("127.0.0.1", port, token)
        self.wire.send_message(Enlist(host=host, job_attempt=attempt, name=f"talker:{host.level}.{host.index}"))
        start = self.wire.receive_message()
        assert isinstance(start, StartHost), start
        self.version = start.version
        self.start: StartHost | None = start
        self.tasks: list[TaskId] = []
        self.unread = bytearray()

    def tasks_of(self, graph: Any) -> None:
        """Its tasks; then it is ready."""
        self.tasks, self.start = list(graph.tasks_of_slot(self.id.index, self.id.level)), None
        self.operators = {task: graph.job.vertices[task.vertex].nodes for task in self.tasks}
        self.sources = {
            graph.job.vertices[task.vertex].head.operator_id: task
            for task in self.tasks
            if graph.job.vertices[task.vertex].is_source
        }
        self.wire.send_message(HostReady())

    def heard(self) -> Iterator[Any]:
        """The messages that have come whole."""
        data = self.wire._sock.recv(1 << 20)
        if not data:
            raise SystemExit  # the driver has gone
        self.unread += data
        while len(self.unread) >= _HEADER.size:
            size, _ = _HEADER.unpack_from(self.unread)
            end = _HEADER.size + size
            if len(self.unread) < end:
                return
            message = _decoded(bytes(self.unread[_HEADER.size : end]))
            del self.unread[:end]
            yield message

    def acknowledge(self, message: TriggerBarrier) -> None:
        for task in self.tasks:
            ack = TaskAck(
                task=task,
                epoch=message.plan.epoch,
                job_attempt=message.plan.job_attempt,
                attempt=f"{message.plan.epoch}-{self.version}",
                slot=f"talker:{self.id.level}.{self.id.index}",
                handle=FileState(path=f"states/{task}", size=1 << 20, crc32=1) if message.plan.checkpoint else None,
                full=message.plan.full_snapshot(task),
                snapshot_bytes=1 << 20,
                metrics={node.operator_id: METRICS for node in self.operators[task]},
            )
            self.wire.send_message(Acknowledge(ack=pickle.dumps(ack)))


@functools.lru_cache(maxsize=8)
def _decoded(data: bytes) -> Any:
    """Real hosts decode what all are told at the same time; here one process would do it for all."""
    return pickle.loads(data)[1]


def main(port: int, token: str, levels: int, slots: int, attempt: int) -> None:
    talkers = [Talker(port, token, HostId(level, index), attempt) for level in range(levels) for index in range(slots)]
    assert talkers[0].start is not None
    graph = cloudpickle.loads(talkers[0].start.job).graph
    for talker in talkers:
        talker.tasks_of(graph)
    selector = selectors.DefaultSelector()
    for talker in talkers:
        selector.register(talker.wire._sock, selectors.EVENT_READ, talker)
    due: list[tuple[float, int, Talker, GrantRead]] = []
    number = 0
    while True:
        timeout = max(0.0, due[0][0] - time.monotonic()) if due else 1.0
        for key, _ in selector.select(timeout):
            talker = key.data
            for message in talker.heard():
                match message:
                    case GrantSources(sources=sources):
                        for name in sources:
                            read = GrantRead(task=talker.sources[name], seconds=READ_S, splits={})
                            heapq.heappush(due, (time.monotonic() + READ_S, number, talker, read))
                            number += 1
                    case TriggerBarrier():
                        talker.acknowledge(message)
                    case EndAttempt():
                        return
        now = time.monotonic()
        while due and due[0][0] <= now:
            _, _, talker, read = heapq.heappop(due)
            talker.wire.send_message(read)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:6]))
