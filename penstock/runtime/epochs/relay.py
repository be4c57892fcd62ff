"""What runs in Spark's Python workers: a thin relay between the shuffle and the slot processes.

The same partition lands on another worker in nearly every job, so nothing may live here. A relay finds the slot of its
partition, streams the rows of its level through it, and lets everything meant for a later level pass by.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from penstock.engine.exchange_rows import EventKind, RowBuffer
from penstock.errors import SlotError
from penstock.records.codec import batch_to_bytes
from penstock.runtime.connection.messages import RunLevel
from penstock.runtime.epochs.client import RegistryAddress, SlotStream, open_slot
from penstock.state.keys import key_group

Batches = Iterable[pa.RecordBatch]


_settled = False


def _settle() -> None:
    """PySpark's worker collects garbage after every task and takes no new one meanwhile. With everything that is imported
    here that is tens of milliseconds, and the next stage of the epoch waits for them. What exists now stays for the life of
    the worker anyway: set it aside once, and the collections have next to nothing to look at."""
    global _settled
    if not _settled:
        _settled = True
        gc.freeze()


def _task() -> tuple[int, int, str]:
    """(epoch, partition, attempt) of the Spark task this runs in. Epoch n is Spark's batch n - 1."""
    _settle()
    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    if context is None or batch is None:
        raise SlotError("a relay runs only inside a Spark task of a Penstock query")
    return int(batch) + 1, context.partitionId(), str(context.taskAttemptId())


def level_relay(
    registry: RegistryAddress, level: int, *, heartbeat: bool
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The `mapInArrow` function of one level. `heartbeat`: the input rows only start the sources and carry nothing."""

    def relay(batches: Batches) -> Iterator[pa.RecordBatch]:
        epoch, slot, attempt = _task()
        passing: list[pa.RecordBatch] = []

        def rows() -> Iterator[pa.RecordBatch]:
            for batch in batches:
                if heartbeat:
                    continue
                mine = pc.equal(batch.column(1), level)
                if mine.true_count == batch.num_rows:
                    yield batch
                    continue
                passing.append(batch.filter(pc.invert(mine)))
                if mine.true_count:
                    yield batch.filter(mine)

        wire, plan = open_slot(registry, slot, epoch)
        stream = SlotStream(wire, RunLevel(level=level, attempt=attempt, plan=plan), rows())
        for result in stream.results():
            yield result
            while passing:
                yield passing.pop(0)
        yield from passing

    return relay


def ingest_relay(vertex: int, parallelism: int, split: str | None) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Packs rows Spark read into blocks for level 0. Stateless: no slot is needed.

    With a split column every value is a split of its own and always goes to the same subtask; without one, Spark's partitions
    are spread over the subtasks and each subtask counts as one split.
    """

    def relay(batches: Batches) -> Iterator[pa.RecordBatch]:
        _, partition, _ = _task()
        buffer = RowBuffer()
        seq = 0
        for batch in batches:
            for name, part in _by_split(batch, split):
                if split is None:
                    target = partition % parallelism
                    name, ordinal = f"subtask-{target}", target
                else:
                    ordinal = key_group(name, 1 << 30)
                    target = ordinal % parallelism
                payload = pickle.dumps((str(name), ordinal, batch_to_bytes(part)), protocol=5)
                if buffer.add(target, 0, vertex, partition, seq, EventKind.INGEST, payload):
                    yield from _taken(buffer)
                seq += 1
        yield from _taken(buffer)

    return relay


def _taken(buffer: RowBuffer) -> Iterator[pa.RecordBatch]:
    batch = buffer.take()
    if batch is not None:
        yield batch


def _by_split(batch: pa.RecordBatch, split: str | None) -> Iterator[tuple[Any, pa.RecordBatch]]:
    if split is None:
        yield None, batch
        return
    column = batch.column(batch.schema.get_field_index(split))
    for value in pc.unique(column):
        mask = pc.is_null(column) if value.as_py() is None else pc.equal(column, value)
        yield value.as_py(), batch.filter(mask)


def heartbeat_relay(slots: int) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Heartbeats beside Spark's own sources: one row for every slot, so that each level-0 task has something to run on."""

    def relay(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            buffer = RowBuffer()
            for value in batch.column(batch.schema.get_field_index("value")).to_pylist():
                buffer.add(value % slots, 0, -1, 0, 0, EventKind.HEARTBEAT, b"")
            yield from _taken(buffer)

    return relay
