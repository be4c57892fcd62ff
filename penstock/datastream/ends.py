"""The verbs that end a stream, in a sink or in this program (part of DataStream), and what they give back."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, overload

from penstock.common.typeinfo import TypeInformation
from penstock.connectors import program
from penstock.connectors.function_sink import FunctionSink
from penstock.connectors.program import CollectSink, PrintSink
from penstock.datastream.placement import OperatorSettings
from penstock.datastream.program import Origin, Record, what
from penstock.errors import JobDefinitionError
from penstock.functions import SinkFunction, TwoPhaseCommitSinkFunction
from penstock.functions.connectors import Sink
from penstock.graph.stream_graph import StreamNode
from penstock.operators.simple import SinkOperator

if TYPE_CHECKING:
    from penstock.datastream.data_stream import DataStream
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment
    from penstock.driver.client import JobClient


class DataStreamSink(OperatorSettings):
    """The end of a stream in a sink. It can be named and placed like any operator, and has no output."""

    def __init__(self, node: StreamNode) -> None:
        self._sink_node = node

    @property
    def _node(self) -> StreamNode:
        return self._sink_node


class Ends(Generic[Record]):
    """The verbs of a DataStream that end it, in a sink or in this program."""

    _env: StreamExecutionEnvironment
    _origins: list[Origin]
    _type: TypeInformation | None

    if TYPE_CHECKING:

        def _apply(
            self,
            name: str,
            operator: SinkOperator,
            output_type: TypeInformation | None = None,
            *,
            kind: str = "operator",
            parallelism: int | None = None,
        ) -> DataStream: ...

    def sink_to(self, sink: Sink) -> DataStreamSink:
        """Writes every record to a connector's sink. What the sink promises (exactly once or less) is on the sink's
        page.

        Example:

            words.sink_to(FileSink.for_row_format("out", Encoder.simple_string_encoder()).build()).uid("files")
        """
        if not isinstance(sink, Sink):
            raise JobDefinitionError(f"sink_to takes a Penstock sink, not {what(sink)}")
        return self._sink(sink, "Sink: " + type(sink).__name__)

    def add_sink(self, sink_func: SinkFunction | TwoPhaseCommitSinkFunction[Any] | Sink) -> DataStreamSink:
        """A sink written as a function: `SinkFunction` is at least once, `TwoPhaseCommitSinkFunction` exactly once. Connectors'
        sinks are taken, too, as Flink's older ones were.

        Example:

            words.add_sink(DiscardingSink())
        """
        if isinstance(sink_func, Sink):
            return self.sink_to(sink_func)
        if not isinstance(sink_func, SinkFunction | TwoPhaseCommitSinkFunction):
            raise JobDefinitionError(
                f"add_sink takes a SinkFunction or a TwoPhaseCommitSinkFunction, not {what(sink_func)}; connectors go to sink_to"
            )
        return self._sink(FunctionSink(sink_func), "Sink: " + type(sink_func).__name__)

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Prints every record once it is committed, on the driver; one of a declared type as Flink does: `+I[a, 1]`, `(a,1)`.

        Example:

            words.print("words")
            env.execute("to the terminal")
        """
        return self._sink(PrintSink(sink_identifier, self._type), "Sink: Print to Std. Out")

    def _sink(self, sink: Sink, name: str, parallelism: int | None = None) -> DataStreamSink:
        fixed = parallelism is not None
        if parallelism is None and len(self._origins) == 1:
            origin = self._origins[0].node
            parallelism, fixed = origin.parallelism, origin.fixed_parallelism
        stream = self._apply(name, SinkOperator(sink, self._type), None, kind="sink", parallelism=parallelism)
        stream._node.fixed_parallelism = fixed
        return DataStreamSink(stream._node)

    @overload
    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: None = None
    ) -> CloseableIterator[Record]: ...

    @overload
    def execute_and_collect(self, job_execution_name: str | None = None, *, limit: int) -> list[Record]: ...

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator[Record] | list[Record]:
        """Run the job and iterate over this stream's records as they are committed; with a limit, a list of that many.

        Example:

            with words.map(len).execute_and_collect() as results:
                lengths = list(results)
            lengths  # gives [2, 2, 2]
        """
        sink = CollectSink()
        node = self._sink(sink, "Sink: Collect")._node
        iterator: CloseableIterator[Record] = collect(self._env, node.operator_id, job_execution_name)
        if limit is None:
            return iterator
        with iterator:
            return [value for value, _ in zip(iterator, range(limit), strict=False)]


class CloseableIterator(Generic[Record]):
    """Iterate to the end, or close early: closing cancels the job."""

    def __init__(self, client: JobClient, sink_id: str, batches: queue.SimpleQueue[list[Record] | None]) -> None:
        self._client, self._sink_id, self._batches = client, sink_id, batches
        self._current: Iterator[Record] = iter(())
        self._closed = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Record:
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

    def next(self) -> Record:
        """The next record; waits for it, and raises StopIteration at the end of the job.

        Example:

            with words.execute_and_collect() as results:
                first = results.next()
            first  # gives "to"
        """
        return next(self)

    def close(self) -> None:
        """Cancels the job if it still runs and waits until it has ended. Closing twice does nothing.

        Example:

            results = words.execute_and_collect()
            first = next(results)
            results.close()
        """
        if not self._closed:
            future = self._client.get_job_execution_result()
            if not future.done():
                self._client.cancel().result()
            self._finish()

    def _finish(self) -> None:
        self._closed = True
        program.deliveries.pop(self._sink_id, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def collect(env: StreamExecutionEnvironment, sink_id: str, job_name: str | None) -> CloseableIterator[Any]:
    """Starts the program and iterates over the records that the CollectSink `sink_id` delivers."""
    batches: queue.SimpleQueue[list[Any] | None] = queue.SimpleQueue()
    program.deliveries[sink_id] = lambda epoch, values: batches.put(values)
    client = env.execute_async(job_name or "collect")
    client._result.add_done_callback(lambda _: batches.put(None))
    return CloseableIterator(client, sink_id, batches)
