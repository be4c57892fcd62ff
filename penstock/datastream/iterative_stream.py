"""Streams that lead back into themselves: `iterate`, a body of operators, `close_with`.

input ──▶ iteration ──▶ body ──┬──▶ output
              ▲                │
              └─ close_with(feedback)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.common.typeinfo import TypeInformation
from penstock.datastream.connected_streams import ConnectedStreams
from penstock.datastream.data_stream import DataStream
from penstock.datastream.program import Origin, what
from penstock.errors import JobDefinitionError
from penstock.graph.iterations import reached
from penstock.graph.stream_graph import StreamNode
from penstock.operators.iteration import IterationHead, IterationTail
from penstock.protocol.ids import NodeId

if TYPE_CHECKING:
    from penstock.datastream.stream_execution_environment import StreamExecutionEnvironment


@dataclass(slots=True)
class OpenIteration:
    """An iteration of the program under construction; closed when it has a tail."""

    head: StreamNode
    max_wait_ms: int
    tail: StreamNode | None = None


def iterate(stream: DataStream, max_wait_time_ms: int) -> IterativeStream:
    """Adds the head of an iteration behind `stream`; a negative wait is refused. Called by `DataStream.iterate`."""
    if max_wait_time_ms < 0:
        raise JobDefinitionError(f"iterate: the max wait time is milliseconds, at least 0, not {max_wait_time_ms!r}")
    parallelism = stream._origins[0].node.parallelism
    head = stream._apply("Iteration", IterationHead(), stream._type, parallelism=parallelism)._node
    iteration = OpenIteration(head, max_wait_time_ms)
    stream._env._iterations.append(iteration)
    return IterativeStream(stream, iteration)


class IterativeStream(DataStream):
    """The input of an iteration together with what comes back to it. `close_with` names what comes back."""

    def __init__(self, stream: DataStream, iteration: OpenIteration) -> None:
        super().__init__(stream._env, [Origin(iteration.head)], stream._type)
        self._input, self._iteration = stream, iteration

    def close_with(self, feedback_stream: DataStream) -> DataStream:
        """The records of `feedback_stream` go through the iteration again, from the next epoch on. Returns that stream.

        It must come from this iteration and have its parallelism and type. Exactly once for an iteration: feedback
        from several places is a `union`.

        Example:

            loop = numbers.iterate()
            smaller = loop.map(lambda n: n - 1)
            loop.close_with(smaller.filter(lambda n: n > 0))
            smaller.filter(lambda n: n == 0)  # gives [0, 0, 0]
        """
        _close(self._env, self._iteration, feedback_stream, self._type)
        return feedback_stream

    def with_feedback_type(self, feedback_type: TypeInformation | None = None) -> ConnectedIterativeStreams:
        """For feedback that is not of the input's type: input and feedback are two connected streams.

        Example:

            loop = numbers.iterate(1000).with_feedback_type(Types.STRING())
        """
        used = any(edge.source == self._iteration.head.id for edge in self._env._edges)
        if used or self._iteration.tail is not None:
            raise JobDefinitionError(
                "with_feedback_type() comes right after iterate(): the iteration is in use already"
            )
        return ConnectedIterativeStreams(self._input, self._iteration, feedback_type)


class ConnectedIterativeStreams(ConnectedStreams):
    """The input of an iteration (first) and what comes back (second), which may have another type."""

    def __init__(
        self, stream: DataStream, iteration: OpenIteration, feedback_type: TypeInformation | None = None
    ) -> None:
        # The feedback's node stands behind the input only for its watermarks and barriers; it lets no record of it pass.
        iteration.head.operator = IterationHead(feedback_only=True)
        iteration.head.output_type = feedback_type
        super().__init__(stream, DataStream(stream._env, [Origin(iteration.head)], feedback_type))
        self._iteration = iteration

    def close_with(self, feedback_stream: DataStream) -> DataStream:
        """The records of `feedback_stream` come again as the second input, from the next epoch on. Returns that stream.

        Example:

            loop = numbers.iterate(1000).with_feedback_type(Types.STRING())
            loop.close_with(loop.map(NumbersAndText()).filter(lambda text: len(text) > 9))
        """
        _close(self.stream1._env, self._iteration, feedback_stream, self.stream2._type)
        return feedback_stream


def _close(
    env: StreamExecutionEnvironment,
    iteration: OpenIteration,
    feedback: DataStream,
    head_type: TypeInformation | None,
) -> None:
    if not isinstance(feedback, DataStream):
        raise JobDefinitionError(f"close_with takes a DataStream, not {what(feedback)}")
    if iteration.tail is not None:
        raise JobDefinitionError(
            f"iteration {iteration.head.where} is closed already: close it once, with the union of all that comes back"
        )
    if feedback._env is not env:
        raise JobDefinitionError("close_with a stream of another environment: build both from the same one")
    following: dict[NodeId, list[NodeId]] = {}
    for edge in env._edges:
        following.setdefault(edge.source, []).append(edge.target)
    inside = reached([iteration.head.id], lambda node: following.get(node, ()))
    outside = [origin.node.where for origin in feedback._origins if origin.node.id not in inside]
    if outside:
        raise JobDefinitionError(
            f"close_with: {', '.join(outside)} does not come from iteration {iteration.head.name!r}, so nothing "
            "would go round; to add another stream to the input, union it before iterate()"
        )
    if head_type is not None and feedback._type is not None and feedback._type != head_type:
        raise JobDefinitionError(
            f"close_with: what comes back is of type {feedback._type}, but the iteration of type {head_type}: map the feedback "
            "to that type, or use with_feedback_type()"
        )
    tail = feedback._apply(
        "Iteration Feedback",
        IterationTail(head_type, feedback._type),
        head_type,
        stateful=True,
        parallelism=iteration.head.parallelism,
    )
    iteration.tail = tail._node


def settle(iteration: OpenIteration, feedback_nodes: list[StreamNode]) -> StreamNode:
    """When the program is complete: the tail as it runs, beside its head and named after it. Raises if the iteration was
    not closed or its ends do not fit."""
    head, tail = iteration.head, iteration.tail
    if tail is None:
        raise JobDefinitionError(
            f"iteration {head.where} has no feedback: call close_with() on it, or leave iterate() out"
        )
    for node in feedback_nodes:
        if node.parallelism != head.parallelism:
            raise JobDefinitionError(
                f"the feedback {node.where} of iteration {head.name!r} has parallelism {node.parallelism}, the iteration "
                f"{head.parallelism}: they must be the same. Call set_parallelism on one of them; an iteration starts with the "
                "parallelism of its input"
            )
    tail.parallelism = head.parallelism
    if head.uid is not None and tail.uid is None:
        tail.uid = f"{head.uid}-feedback"
    return tail
