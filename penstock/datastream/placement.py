"""Where records go and operators run: verbs of DataStream and DataStreamSink."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, overload

from penstock.datastream.misuse import check_function
from penstock.datastream.program import captured
from penstock.datastream.slot_sharing_group import SlotSharingGroup
from penstock.errors import JobDefinitionError
from penstock.functions import KeySelector, Partitioner
from penstock.graph import partitioner as p
from penstock.graph.stream_graph import StreamNode
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


class OperatorSettings:
    if TYPE_CHECKING:

        @property
        def _node(self) -> StreamNode: ...

    def name(self, name: str) -> Self:
        self._node.name = name
        return self

    def uid(self, uid: str) -> Self:
        self._node.uid = uid
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        if parallelism < 1:
            raise JobDefinitionError(f"{self._node.where}: the parallelism must be at least 1, not {parallelism}")
        self._node.parallelism = parallelism
        self._node.fixed_parallelism = True
        return self

    def set_uid_hash(self, uid_hash: str) -> Self:
        """The name of this operator's state in the form Flink shows it: the same as `uid` here."""
        self._node.uid = _uid_hash(self._node, uid_hash)
        return self

    def set_description(self, description: str) -> Self:
        self._node.description = description
        return self

    def disable_chaining(self) -> Self:
        self._node.chainable = False
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> Self:
        self._node.slot_sharing_group = _group_name(slot_sharing_group)
        return self


def _uid_hash(node: StreamNode, uid_hash: str) -> str:
    if not re.fullmatch(r"[0-9a-fA-F]{32}", uid_hash):
        raise JobDefinitionError(
            f"{node.name!r}: a uid hash is 32 hexadecimal digits, as Flink's log and web page show it, not {uid_hash!r}"
        )
    return uid_hash.lower()


def _group_name(group: str | SlotSharingGroup) -> str:
    return group.get_name() if isinstance(group, SlotSharingGroup) else group
