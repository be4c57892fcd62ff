"""One run of one level in one slot: rows in, operators, rows out, acknowledgements at the end."""

from __future__ import annotations

import pickle
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict

import pyarrow as pa

from penstock.engine.exchange_rows import ACK_LEVEL, EventKind, RowBuffer, decode_event, encode_event
from penstock.engine.messages import EpochPlan, TaskAck
from penstock.engine.settings import JobSettings
from penstock.engine.snapshot_writer import SnapshotWriter
from penstock.engine.task import TaskSettings
from penstock.engine.tasks import HeldTask, HeldTasks
from penstock.errors import FailedTask, ProtocolError, blame
from penstock.graph.execution_graph import ExecutionGraph
from penstock.operators.source import SourceOperator
from penstock.pickling import dump_by_value
from penstock.protocol.events import Barrier, Event
from penstock.protocol.ids import TaskId, VertexId
from penstock.records import Columns
from penstock.records.codec import bytes_to_batch
from penstock.runtime.epochs.channel_order import ChannelKey, ChannelOrder

SendBatch = Callable[[pa.RecordBatch], None]


class LevelRun:
    """Feed it batches of rows with `receive`, then call `finish`. Rows it produces go to `send`."""

    def __init__(
        self,
        *,
        graph: ExecutionGraph,
        settings: JobSettings,
        job_id: str,
        job_parameters: Mapping[str, str],
        writer: SnapshotWriter,
        held: HeldTasks,
        plan: EpochPlan,
        level: int,
        slot: int,
        slot_name: str,
        attempt: str,
        send: SendBatch,
    ) -> None:
        self._graph, self._settings, self._writer = graph, settings, writer
        self._plan, self._level, self._slot, self._slot_name = plan, level, slot, slot_name
        self._send_batch = send
        self._buffer = RowBuffer()
        self._sequence: dict[tuple[int, int, int], int] = {}
        self._level_of = {vertex.id: vertex.level for vertex in graph.job.vertices.values()}
        self._attempt = f"{plan.epoch}-{attempt}-{uuid.uuid4().hex[:8]}"
        self._busy: dict[TaskId, float] = {}
        self._blocked: dict[TaskId, float] = {}
        self._current: TaskId | None = None
        self._ingested: dict[TaskId, set[str]] = {}
        self._arrived: list[tuple[int, int, int, bytes]] = []  # Spark's own blocks: put in order before they are used
        subtask_settings = TaskSettings(
            job_id=job_id,
            block_size=settings.block_size,
            attempt=plan.job_attempt,
            job_parameters=dict(job_parameters),
            storage=writer.storage,
            allow_changed_windows=settings.allow_changed_windows,
        )
        self.tasks: dict[TaskId, HeldTask] = {}
        for task in graph.tasks_of_slot(slot, level):
            with self._timed(task):
                held_task = held.prepare(task, plan, subtask_settings, self._emit)
                self.tasks[task] = held_task
                held_task.dirty = True
                subtask = held_task.subtask
                subtask.hand_back(plan.feedback)
                subtask.notify_checkpoints(plan.base_checkpoint, plan.aborted_checkpoints)
                subtask.full_snapshots = plan.full_snapshot(task)
                subtask.in_parts = plan.savepoint is None
                subtask.begin_epoch(plan.epoch, self._attempt, plan.processing_time)
                for loop in graph.loops:
                    if loop.head_vertex == task.vertex:
                        tail = TaskId(loop.tail_vertex, slot)
                        subtask.inject(loop.head, held.feedback(tail, loop.tail, plan, subtask_settings, self._emit))
        channels = [
            (int(task.vertex), channel.channel) for task, h in self.tasks.items() for channel in h.subtask.channels
        ]
        self._order = ChannelOrder(channels, self._deliver) if channels else None

    # ---------------------------------------------------------------- in

    def receive(self, batch: pa.RecordBatch) -> None:
        vertices, channels = batch.column(2).to_pylist(), batch.column(3).to_pylist()
        sequences, kinds = batch.column(4).to_pylist(), batch.column(5).to_pylist()
        payloads = batch.column(6)
        for index, kind in enumerate(kinds):
            payload = payloads[index].as_py()
            if kind == EventKind.INGEST:
                self._arrived.append((vertices[index], channels[index], sequences[index], payload))
            elif kind == EventKind.HEARTBEAT:
                continue
            elif self._order is None:
                raise ProtocolError(f"a row of kind {kind} reached level {self._level}, which has only sources")
            else:
                self._order.add((vertices[index], channels[index]), sequences[index], kind, payload)

    def _deliver(self, key: ChannelKey, kind: int, payload: bytes) -> None:
        vertex, channel = key
        task = TaskId(VertexId(vertex), self._slot)
        event = decode_event(kind, payload)
        with self._timed(task):
            self.tasks[task].subtask.receive(channel, event)
        if isinstance(event, Barrier):
            assert self._order is not None
            self._order.channel_done(key)

    def _ingest(self, vertex: int, payload: bytes) -> None:
        task = TaskId(VertexId(vertex), self._slot)
        split, ordinal, data = pickle.loads(payload)
        head = self.tasks[task].subtask.head
        assert isinstance(head, SourceOperator)
        with self._timed(task):
            head.ingest(split, ordinal, Columns(bytes_to_batch(data)))
            self._ingested.setdefault(task, set()).add(split)

    def finish(self) -> None:
        """All rows are in: sources read their ranges, every gate must be aligned, acknowledgements go out."""
        barrier = Barrier(self._plan.epoch, self._plan.snapshot)
        for vertex, _, _, payload in sorted(self._arrived, key=lambda row: row[:3]):
            self._ingest(vertex, payload)
        self._arrived.clear()
        for task, held in self.tasks.items():
            if held.subtask.vertex.is_source:
                with self._timed(task):
                    self._run_source(task, held, barrier)
        if self._order is not None:
            self._order.finish()
            self._order.close()
        for task, held in self.tasks.items():
            self._acknowledge(task, held, barrier)
        self._flush()

    def _run_source(self, task: TaskId, held: HeldTask, barrier: Barrier) -> None:
        subtask = held.subtask
        source = self._plan.sources[subtask.vertex.head.operator_id]
        head = subtask.head
        assert isinstance(head, SourceOperator)
        if head.source is None:
            ingested = self._ingested.get(task, set())
            for split in sorted(ingested):
                head.close_split(split)
            head.finish_epoch(ingested, [], source.finished)
            if source.finished and not subtask.finished:
                subtask.finish()
        else:
            for _ in subtask.source_steps(source.ranges, source.finished):
                pass
        subtask.take_snapshot(barrier)

    # ---------------------------------------------------------------- out

    def _emit(self, vertex: VertexId, target: int, channel: int, event: Event) -> None:
        key = (int(vertex), target, channel)
        for kind, payload in encode_event(event):
            seq = self._sequence.get(key, 0)
            self._sequence[key] = seq + 1
            if self._buffer.add(target, self._level_of[vertex], int(vertex), channel, seq, kind, payload):
                self._flush()

    def _flush(self) -> None:
        batch = self._buffer.take()
        if batch is None:
            return
        started = time.perf_counter()
        self._send_batch(batch)
        if self._current is not None:
            waited = time.perf_counter() - started
            self._blocked[self._current] = self._blocked.get(self._current, 0.0) + waited

    def _acknowledge(self, task: TaskId, held: HeldTask, barrier: Barrier) -> None:
        subtask = held.subtask
        taken = [s for s in subtask.snapshots if s.barrier.epoch == barrier.epoch and s.complete]
        subtask.snapshots.clear()
        if len(taken) != 1:
            raise ProtocolError(
                f"task {task} ({subtask.vertex.name}) ended epoch {barrier.epoch} with {len(taken)} snapshots: "
                "a barrier did not come on every channel"
            )
        started = time.perf_counter()
        state_id = self._graph.vertex(task).state_id
        try:
            written = self._writer.write(self._plan, task, state_id, self._attempt, taken[0].contents)
        except Exception as error:
            blame(error, self.failed_task(task))
            raise
        held.frozen, held.frozen_checkpoint = self._attempt, barrier.checkpoint
        ack = TaskAck(
            task=task,
            epoch=barrier.epoch,
            attempt=self._attempt,
            job_attempt=self._plan.job_attempt,
            handle=written.handle,
            uploading=written.uploading,
            full=taken[0].contents is None or taken[0].contents.full,
            **written.saved,
            committables=taken[0].committables,
            watermark=subtask.watermark,
            next_processing_timer=subtask.next_processing_timer(),
            feedback=subtask.feedback(),
            accumulators=subtask.accumulators(),
            metrics={name: asdict(m) for name, m in subtask.take_metrics().items()},
            busy_ms=(self._busy.get(task, 0.0) - self._blocked.get(task, 0.0)) * 1000,
            back_pressured_ms=self._blocked.get(task, 0.0) * 1000,
            state_entries=subtask.keyspace.entries(),
            snapshot_bytes=written.size,
            snapshot_ms=(time.perf_counter() - started) * 1000,
            alignment_ms=taken[0].alignment_ms,
            recovered=held.recovered,
            slot=self._slot_name,
        )
        self._buffer.add(self._slot, ACK_LEVEL, int(task.vertex), 0, 0, EventKind.ACK, dump_by_value(ack))

    def failed_task(self, task: TaskId) -> FailedTask:
        vertex = self._graph.vertex(task)
        return FailedTask(
            vertex=vertex.name, subtask=task.subtask, parallelism=vertex.parallelism, process=self._slot_name
        )

    # ---------------------------------------------------------------- time

    def _timed(self, task: TaskId) -> _Timed:
        return _Timed(self, task)


class _Timed:
    __slots__ = ("_run", "_started", "_task")

    def __init__(self, run: LevelRun, task: TaskId) -> None:
        self._run, self._task = run, task

    def __enter__(self) -> None:
        self._run._current = self._task
        self._started = time.perf_counter()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            blame(error, self._run.failed_task(self._task))
        spent = time.perf_counter() - self._started
        self._run._busy[self._task] = self._run._busy.get(self._task, 0.0) + spent
        self._run._current = None
