"""The end of a stream."""

from __future__ import annotations

from penstock.datastream.operator_settings import OperatorSettings
from penstock.graph.stream_graph import StreamNode


class DataStreamSink(OperatorSettings):
    def __init__(self, node: StreamNode) -> None:
        self._sink_node = node

    @property
    def _node(self) -> StreamNode:
        return self._sink_node
