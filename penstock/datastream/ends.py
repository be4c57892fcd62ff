"""The verbs that end a stream: in a sink, or in this program. Part of DataStream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from penstock.common.typeinfo import TypeInformation
from penstock.connectors.function_sink import FunctionSink
from penstock.connectors.program import CollectSink, PrintSink
from penstock.datastream.data_stream_sink import DataStreamSink
from penstock.datastream.edges import Origin
from penstock.datastream.misuse import what
from penstock.errors import JobDefinitionError
from penstock.functions import SinkFunction, TwoPhaseCommitSinkFunction
from penstock.functions.connectors import Sink
from penstock.operators.sink import SinkOperator

if TYPE_CHECKING:
    from penstock.datastream.collector import CloseableIterator
    from penstock.datastream.data_stream import DataStream
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment


class Ends:
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
        if not isinstance(sink, Sink):
            raise JobDefinitionError(f"sink_to takes a Penstock sink, not {what(sink)}")
        return self._sink(sink, "Sink: " + type(sink).__name__)

    def add_sink(self, sink_func: SinkFunction | TwoPhaseCommitSinkFunction[Any]) -> DataStreamSink:
        """A sink written as a function: `SinkFunction` is at least once, `TwoPhaseCommitSinkFunction` exactly once."""
        if not isinstance(sink_func, SinkFunction | TwoPhaseCommitSinkFunction):
            raise JobDefinitionError(
                f"add_sink takes a SinkFunction or a TwoPhaseCommitSinkFunction, not {what(sink_func)}; connectors go to sink_to"
            )
        return self._sink(FunctionSink(sink_func), "Sink: " + type(sink_func).__name__)

    def print(self, sink_identifier: str | None = None) -> DataStreamSink:
        """Prints every record once it is committed, on the driver."""
        return self._sink(PrintSink(sink_identifier), "Sink: Print to Std. Out")

    def _sink(self, sink: Sink, name: str, parallelism: int | None = None) -> DataStreamSink:
        fixed = parallelism is not None
        if parallelism is None and len(self._origins) == 1:
            origin = self._origins[0].node
            parallelism, fixed = origin.parallelism, origin.fixed_parallelism
        stream = self._apply(name, SinkOperator(sink, self._type), None, kind="sink", parallelism=parallelism)
        stream._node.fixed_parallelism = fixed
        return DataStreamSink(stream._node)

    @overload
    def execute_and_collect(self, job_execution_name: str | None = None, limit: None = None) -> CloseableIterator: ...

    @overload
    def execute_and_collect(self, job_execution_name: str | None = None, *, limit: int) -> list[Any]: ...

    def execute_and_collect(
        self, job_execution_name: str | None = None, limit: int | None = None
    ) -> CloseableIterator | list[Any]:
        """Run the job and iterate over this stream's records as they are committed; with a limit, a list of that many."""
        from penstock.datastream.collector import collect

        sink = CollectSink()
        node = self._sink(sink, "Sink: Collect")._node
        iterator = collect(self._env, node.operator_id, job_execution_name)
        if limit is None:
            return iterator
        with iterator:
            return [value for value, _ in zip(iterator, range(limit), strict=False)]
