"""The loop of a host, without Spark: what leaves it, and when."""

from __future__ import annotations

import time
from typing import Any

import pyarrow as pa
import pytest

from penstock.common import WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.description import JobDescription
from penstock.engine.exchange_rows import encode_event
from penstock.engine.host import HostJob, TaskHost
from penstock.engine.uploads import ImmediateUploads
from penstock.protocol.events import Barrier, Data, EndOfData, Event
from penstock.protocol.gate import BarrierMode
from penstock.records import Rows
from penstock.runtime.pipelined.frames import FrameBuffer, events_in
from penstock.runtime.pipelined.host_loop import HostLoop
from penstock.runtime.pipelined.mailboxes import FrameReceived, HostInbox
from penstock.runtime.pipelined.messages import HostId, StartHost
from penstock.runtime.pipelined.worker import DriverAddress, Worker
from penstock.testing import ListSink


def past_a_level(timeout: int) -> JobDescription:
    """Records of the source go through the middle level, or past it; the middle's second host has no task."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2).set_buffer_timeout(timeout)
    numbers = env.from_source(DataGeneratorSource(lambda i: i, 100), WatermarkStrategy.no_watermarks(), "numbers")
    middle = numbers.rebalance().map(lambda i: i).set_parallelism(1)
    numbers.union(middle).rebalance().map(str).sink_to(ListSink("host loop"))
    return env._describe("host loop")


class Outbox:
    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def put(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)


def frame_of(level: int, event: Event) -> memoryview:
    frames = FrameBuffer(2)
    for kind, payload in encode_event(event):
        frames.add(1, level, 7, 0, 0, kind, payload)
    batch = frames.take()
    assert batch is not None
    return memoryview(batch.column(1)[0].as_buffer())


@pytest.mark.parametrize("timeout", [-1, 60_000])
@pytest.mark.parametrize("event", [Barrier(1), EndOfData(), Data(Rows([1], None))])
def test_what_is_on_its_way_to_a_later_level_does_not_wait_in_a_host_that_sends_nothing(
    timeout: int, event: Event
) -> None:
    """It has waited where it was sent, and nothing else may ever leave here."""
    job = past_a_level(timeout)
    told = HostJob(job_id="job", graph=job.graph, settings=job.settings, storage_url=None, job_parameters={})
    host = TaskHost(told, None, ImmediateUploads(lambda report: None), name="host", index=1, by_clock=True)
    start = StartHost(
        job=b"", version="1.0", checkpoint=None, epoch=1, processing_time=0, mode=BarrierMode.EXACTLY_ONCE
    )
    worker, out = Worker(DriverAddress(host="127.0.0.1", port=0, token=""), 1, 1, 0), Outbox()
    unknown: Any = out
    loop = HostLoop(worker, host, HostInbox(1 << 20), start, level=1, out=unknown)
    assert worker._id == HostId(1, 1)
    assert loop._run.tasks == [], "this host has something to send"
    loop._flushed = time.monotonic()  # just now
    loop._take(FrameReceived(frame_of(2, event)))
    loop._flush_if_due(working=False)
    (batch,) = out.batches
    assert batch.column(0).to_pylist() == [1]
    ((level, vertex, channel, *_),) = events_in(memoryview(batch.column(1)[0].as_buffer()))
    assert (level, vertex, channel) == (2, 7, 0)
    host.release()
