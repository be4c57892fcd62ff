"""Output that tasks have pre-committed and no checkpoint promises yet: committed with the next that completes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.engine.messages import TaskAck
from penstock.protocol.ids import TaskId


class PreCommitted:
    """Committables by sink, in the order of epochs and, within one, of subtasks."""

    def __init__(self) -> None:
        self._made: dict[str, list[Any]] = {}

    def add(self, acks: Mapping[TaskId, TaskAck]) -> None:
        for _, ack in sorted(acks.items()):
            for sink_id, made in ack.committables.items():
                self._made.setdefault(sink_id, []).extend(made)

    def take(self) -> dict[str, list[Any]]:
        taken, self._made = dict(sorted(self._made.items())), {}
        return taken

    def give_back(self, committables: Mapping[str, list[Any]]) -> None:
        """Of a checkpoint that was declined: older than all that is here."""
        for sink_id, made in committables.items():
            self._made[sink_id] = [*made, *self._made.get(sink_id, [])]
