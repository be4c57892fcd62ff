"""Where records go and operators run: verbs of DataStream and DataStreamSink."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Self, overload

from penstock.datastream.program import Record, captured, check_function
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


class PartitioningVerbs(Generic[Record]):
    """The verbs of a DataStream that say how its records reach the subtasks of the next operator."""

    if TYPE_CHECKING:

        def _partitioned(self, partitioner: p.Partitioner) -> DataStream[Record]: ...

    def rebalance(self) -> DataStream[Record]:
        """Deals the records round robin to all subtasks of the next operator: an even load.

        Example:

            words.rebalance().map(len)  # gives [2, 2, 2]
        """
        return self._partitioned(p.Rebalance())

    def rescale(self) -> DataStream[Record]:
        """Deals the records round robin to a group of the next subtasks: an even load without all-to-all traffic.

        Example:

            words.rescale().map(len)  # gives [2, 2, 2]
        """
        return self._partitioned(p.Rescale())

    def shuffle(self) -> DataStream[Record]:
        """Sends each record to a subtask chosen at random.

        Example:

            words.shuffle().map(len)  # gives [2, 2, 2]
        """
        return self._partitioned(p.Shuffle())

    def forward(self) -> DataStream[Record]:
        """Sends records to the subtask with the same index. Refused when the job is built if the parallelisms
        differ.

        Example:

            words.forward().map(len)  # gives [2, 2, 2]
        """
        return self._partitioned(p.Forward())

    @overload
    def broadcast(self) -> DataStream[Record]: ...

    @overload
    def broadcast(
        self, broadcast_state_descriptor: MapStateDescriptor, *other_broadcast_state_descriptors: MapStateDescriptor
    ) -> BroadcastStream: ...

    def broadcast(
        self,
        broadcast_state_descriptor: MapStateDescriptor | None = None,
        *other_broadcast_state_descriptors: MapStateDescriptor,
    ) -> DataStream[Record] | BroadcastStream:
        """Every record to every subtask; with descriptors, for the broadcast state of the stream this one is connected
        with.

        Example:

            words.broadcast().map(len)  # gives [2, 2, 2]
        """
        partitioned = self._partitioned(p.Broadcast())
        if broadcast_state_descriptor is None:
            return partitioned
        from penstock.datastream.connected_streams import BroadcastStream

        return BroadcastStream(partitioned, [broadcast_state_descriptor, *other_broadcast_state_descriptors])

    def global_(self) -> DataStream[Record]:
        """Sends all records to the first subtask of the next operator.

        Example:

            words.global_().map(len)  # gives [2, 2, 2]
        """
        return self._partitioned(p.Global())

    def partition_custom(
        self,
        partitioner: Callable[[Any, int], int] | Partitioner,
        key_selector: Callable[[Any], Any] | KeySelector,
    ) -> DataStream[Record]:
        """Sends each record to subtask `partitioner(key, number of subtasks)`. Both functions must always give the
        same answer for the same record.

        Example:

            pairs.partition_custom(lambda key, partitions: hash(key) % partitions, lambda pair: pair[0]).map(len)  # gives [2, 2, 2]
        """
        check_function(partitioner, Partitioner, "partition_custom")
        function = partitioner.partition if isinstance(partitioner, Partitioner) else partitioner
        custom = p.Custom(function, as_selector(key_selector))
        return self._partitioned(captured(custom, "the partitioner or key selector of partition_custom"))


class OperatorSettings:
    """The settings of the operator a stream comes from: its name, uid, parallelism and chaining."""

    if TYPE_CHECKING:

        @property
        def _node(self) -> StreamNode: ...

    def name(self, name: str) -> Self:
        """Names the operator: in the page, the metrics, the logs and error messages.

        Example:

            words.map(len).name("lengths")
        """
        self._node.name = name
        return self

    def uid(self, uid: str) -> Self:
        """Gives the operator an identity that survives changes of the program: its state in a savepoint is found by
        it. Two operators of a job cannot share one.

        Example:

            words.map(len).uid("lengths")
        """
        self._node.uid = uid
        return self

    def set_parallelism(self, parallelism: int) -> Self:
        """Sets the number of subtasks of this operator; at least 1.

        Example:

            words.map(len).set_parallelism(4)
        """
        if parallelism < 1:
            raise JobDefinitionError(f"{self._node.where}: the parallelism must be at least 1, not {parallelism}")
        self._node.parallelism = parallelism
        self._node.fixed_parallelism = True
        return self

    def set_uid_hash(self, uid_hash: str) -> Self:
        """The name of this operator's state in the form Flink shows it: the same as `uid` here.

        Example:

            words.map(len).set_uid_hash("0123456789abcdef0123456789abcdef")
        """
        self._node.uid = _uid_hash(self._node, uid_hash)
        return self

    def set_description(self, description: str) -> Self:
        """A longer text than the name, for the page.

        Example:

            words.map(len).set_description("how long each word is")
        """
        self._node.description = description
        return self

    def disable_chaining(self) -> Self:
        """Runs this operator in a task of its own.

        Example:

            words.map(str.upper).disable_chaining().map(len)
        """
        self._node.chainable = False
        return self

    def slot_sharing_group(self, slot_sharing_group: str | SlotSharingGroup) -> Self:
        """Puts the operator into a group of this name. Operators of different groups are not chained; slots themselves
        are Spark's and shared by all groups.

        Example:

            words.map(len).slot_sharing_group("heavy")
        """
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
