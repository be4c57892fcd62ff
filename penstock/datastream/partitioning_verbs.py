"""The verbs that say which subtask gets a record. Part of DataStream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from penstock.datastream.capture import captured
from penstock.datastream.misuse import check_function
from penstock.functions import KeySelector, Partitioner
from penstock.graph import partitioner as p
from penstock.operators.selectors import as_selector

if TYPE_CHECKING:
    from penstock.datastream.connected_streams import BroadcastStream
    from penstock.datastream.data_stream import DataStream
    from penstock.functions.state import MapStateDescriptor


class PartitioningVerbs:
    if TYPE_CHECKING:

        def _partitioned(self, partitioner: p.Partitioner) -> DataStream: ...

    def rebalance(self) -> DataStream:
        return self._partitioned(p.Rebalance())

    def rescale(self) -> DataStream:
        return self._partitioned(p.Rescale())

    def shuffle(self) -> DataStream:
        return self._partitioned(p.Shuffle())

    def forward(self) -> DataStream:
        return self._partitioned(p.Forward())

    @overload
    def broadcast(self) -> DataStream: ...

    @overload
    def broadcast(
        self, broadcast_state_descriptor: MapStateDescriptor, *other_broadcast_state_descriptors: MapStateDescriptor
    ) -> BroadcastStream: ...

    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> DataStream | BroadcastStream:
        """Every record to every subtask; with descriptors, for the broadcast state of the stream this one is connected
        with."""
        partitioned = self._partitioned(p.Broadcast())
        if broadcast_state_descriptor is None:
            return partitioned
        from penstock.datastream.connected_streams import BroadcastStream

        return BroadcastStream(partitioned, [broadcast_state_descriptor, *other_broadcast_state_descriptors])

    def global_(self) -> DataStream:
        return self._partitioned(p.Global())

    def partition_custom(
        self,
        partitioner: Callable[[Any, int], int] | Partitioner,
        key_selector: Callable[[Any], Any] | KeySelector,
    ) -> DataStream:
        check_function(partitioner, Partitioner, "partition_custom")
        function = partitioner.partition if isinstance(partitioner, Partitioner) else partitioner
        custom = p.Custom(function, as_selector(key_selector))
        return self._partitioned(captured(custom, "the partitioner or key selector of partition_custom"))
