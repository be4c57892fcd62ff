"""Driving a sink without an engine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.connectors.base import Sink, WriterContext
from penstock.records import Block


def context(*, subtask: int = 0, parallelism: int = 1, sink_id: str = "sink", job_id: str = "job") -> WriterContext:
    return WriterContext(job_id=job_id, sink_id=sink_id, subtask=subtask, parallelism=parallelism)


def stage(
    sink: Sink, epoch: int, blocks: Iterable[Block], *, attempt: str = "a", where: WriterContext | None = None
) -> list[Any]:
    """Write one epoch with a writer of its own."""
    writer = sink.create_writer(where or context())
    try:
        writer.begin_epoch(epoch, attempt)
        for block in blocks:
            writer.write(block)
        return writer.prepare_commit()
    finally:
        writer.close()
