"""execute_and_collect: the records of a stream, in the order of their commits, while the job runs."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from penstock.connectors import program

if TYPE_CHECKING:
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.driver.client import JobClient


class CloseableIterator:
    """Iterate to the end, or close early: closing cancels the job."""

    def __init__(self, client: JobClient, sink_id: str, batches: queue.SimpleQueue[list[Any] | None]) -> None:
        self._client, self._sink_id, self._batches = client, sink_id, batches
        self._current: Iterator[Any] = iter(())
        self._closed = False

    def __iter__(self) -> CloseableIterator:
        return self

    def __next__(self) -> Any:
        while True:
            for value in self._current:
                return value
            if self._closed:
                raise StopIteration
            batch = self._batches.get()
            if batch is None:
                self._finish()
                self._client.get_job_execution_result().result()  # raises what made the job fail
                raise StopIteration
            self._current = iter(batch)

    def next(self) -> Any:
        return next(self)

    def close(self) -> None:
        if not self._closed:
            future = self._client.get_job_execution_result()
            if not future.done():
                self._client.cancel().result()
            self._finish()

    def _finish(self) -> None:
        self._closed = True
        program.deliveries.pop(self._sink_id, None)

    def __enter__(self) -> CloseableIterator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def collect(env: StreamExecutionEnvironment, sink_id: str, job_name: str | None) -> CloseableIterator:
    batches: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
    program.deliveries[sink_id] = lambda epoch, values: batches.put(values)
    client = env.execute_async(job_name or "collect")
    client._result.add_done_callback(lambda _: batches.put(None))
    return CloseableIterator(client, sink_id, batches)
