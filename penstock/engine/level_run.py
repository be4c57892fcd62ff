"""One level of one epoch in one host: rows in, operators, rows out, acknowledgements at the end."""

from __future__ import annotations

import pickle
import time
from typing import Protocol

from penstock.engine.channel_order import ChannelKey, ChannelOrder
from penstock.engine.exchange_rows import ACK_LEVEL, EventKind, decode_event, encode_event
from penstock.engine.host import Exchange, HeldTask, TaskHost
from penstock.engine.messages import EpochPlan, TaskAck
from penstock.errors import ProtocolError
from penstock.operators.source import SourceOperator
from penstock.pickling import dump_by_value
from penstock.protocol.events import Barrier, Event
from penstock.protocol.ids import TaskId, VertexId
from penstock.records import Columns
from penstock.records.codec import bytes_to_batch


class Outbox(Protocol):
    """Takes the rows that a run makes."""

    def add(self, target: int, level: int, vertex: int, channel: int, seq: int, kind: int, payload: bytes) -> bool:
        """True when it is time to flush."""
        ...

    def flush(self) -> None:
        """Hand on what was gathered; as long as this takes, the host is back-pressured."""
        ...


class LevelRun(Exchange):
    """Feed it rows with `receive`, then call `finish`. It may be given up at any point: the next run rolls back."""

    def __init__(self, host: TaskHost, plan: EpochPlan, level: int, attempt: str, out: Outbox) -> None:
        self._host, self._plan, self._level, self._out = host, plan, level, out
        self._sequence: dict[tuple[int, int, int], int] = {}
        self._level_of = {vertex.id: vertex.level for vertex in host.graph.job.vertices.values()}
        self._ingested: dict[TaskId, set[str]] = {}
        self._arrived: list[tuple[int, int, int, bytes]] = []  # Spark's own blocks: put in order before they are used
        self._tasks: dict[TaskId, HeldTask] = {}
        self._current: HeldTask | None = None
        host.exchange = self
        for task in host.graph.tasks_of_slot(host.index, level):
            self._tasks[task] = host.begin(task, plan, attempt)
        channels = [
            (int(task.vertex), channel.channel) for task, held in self._tasks.items() for channel in held.task.channels
        ]
        self._order = ChannelOrder(channels, self._deliver) if channels else None

    # ---------------------------------------------------------------- in

    def receive(self, vertex: int, channel: int, seq: int, kind: int, payload: bytes) -> None:
        """Takes a row of the exchange. Rows may come in any order of channels."""
        if kind == EventKind.INGEST:
            self._arrived.append((vertex, channel, seq, payload))
        elif kind == EventKind.HEARTBEAT:
            return
        elif self._order is None:
            raise ProtocolError(f"a row of kind {kind} reached level {self._level}, which has only sources")
        else:
            self._order.add((vertex, channel), seq, kind, payload)

    def _deliver(self, key: ChannelKey, kind: int, payload: bytes) -> None:
        vertex, channel = key
        event = decode_event(kind, payload)
        self._current = self._tasks[TaskId(VertexId(vertex), self._host.index)]
        self._host.receive(self._current, channel, event)
        if isinstance(event, Barrier):
            assert self._order is not None
            self._order.channel_done(key)

    def finish(self) -> None:
        """All rows are in: sources read their ranges, every gate must be aligned, acknowledgements go out."""
        for vertex, _, _, payload in sorted(self._arrived, key=lambda row: row[:3]):
            self._ingest(self._tasks[TaskId(VertexId(vertex), self._host.index)], payload)
        self._arrived.clear()
        for held in self._tasks.values():
            if held.task.vertex.is_source:
                self._current = held
                self._run_source(held)
        self._current = None
        if self._order is not None:
            self._order.finish()
            self._order.close()
        for held in self._tasks.values():
            if (acknowledged := self._host.acknowledge(held)) != 1:
                raise ProtocolError(
                    f"task {held.id} ({held.task.vertex.name}) ended epoch {self._plan.epoch} with {acknowledged} snapshots: "
                    "a barrier did not come on every channel"
                )
        self._out.flush()

    def _ingest(self, held: HeldTask, payload: bytes) -> None:
        split, ordinal, data = pickle.loads(payload)
        head = held.task.head
        assert isinstance(head, SourceOperator)
        self._current = held
        with self._host.working(held):
            head.ingest(split, ordinal, Columns(bytes_to_batch(data)))
            self._ingested.setdefault(held.id, set()).add(split)

    def _run_source(self, held: HeldTask) -> None:
        head = held.task.head
        assert isinstance(head, SourceOperator)
        planned, barrier = (
            self._plan.sources[held.task.vertex.head.operator_id],
            Barrier(self._plan.epoch, self._plan.snapshot),
        )
        if head.source is not None:
            for _ in self._host.read(held, planned):
                pass
            self._host.end_source(held, barrier)
            return
        ingested = self._ingested.get(held.id, set())
        with self._host.working(held):
            for split in sorted(ingested):
                head.close_split(split)
            head.finish_epoch(ingested, [], planned.finished)
            if planned.finished and not held.task.finished:
                held.task.finish()
        self._host.end_source(held, barrier)

    # ---------------------------------------------------------------- out, as the host's exchange

    def send(self, vertex: VertexId, target: int, channel: int, event: Event) -> None:
        key = (int(vertex), target, channel)
        for kind, payload in encode_event(event, self._host.job.settings.record_bytes):
            seq = self._sequence.get(key, 0)
            self._sequence[key] = seq + 1
            if self._out.add(target, self._level_of[vertex], int(vertex), channel, seq, kind, payload):
                self._flush()

    def acknowledge(self, ack: TaskAck) -> None:
        self._out.add(self._host.index, ACK_LEVEL, int(ack.task.vertex), 0, 0, EventKind.ACK, dump_by_value(ack))

    def _flush(self) -> None:
        started = time.perf_counter()
        self._out.flush()
        if self._current is not None:
            waited = time.perf_counter() - started
            self._current.blocked += waited
            self._current.busy -= waited
