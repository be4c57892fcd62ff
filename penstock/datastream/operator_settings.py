"""What can be set of the operator behind a stream, or behind its end. Part of DataStream and DataStreamSink."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Self

from penstock.datastream.slot_sharing_group import SlotSharingGroup
from penstock.errors import JobDefinitionError
from penstock.graph.stream_graph import StreamNode


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
