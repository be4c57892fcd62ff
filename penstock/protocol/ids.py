"""Every id is its own type, so that two ints cannot be swapped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

NodeId = NewType("NodeId", int)  # a node of the StreamGraph: one operator
VertexId = NewType("VertexId", int)  # a vertex of the JobGraph: one chain of operators
CheckpointId = NewType("CheckpointId", int)  # the epoch whose end it records
Generation = NewType("Generation", int)  # one more for every driver that takes a job folder over


@dataclass(frozen=True, slots=True, order=True)
class TaskId:
    """One subtask of one vertex."""

    vertex: VertexId
    subtask: int

    def __str__(self) -> str:
        return f"{self.vertex}/{self.subtask}"
