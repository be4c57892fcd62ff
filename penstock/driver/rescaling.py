"""A running job changes its parallelism: at the end of an epoch that is a checkpoint, with what that checkpoint holds."""

from __future__ import annotations

import time

from penstock.driver.requests import RescaleRequest, RescaleResult
from penstock.errors import JobDefinitionError
from penstock.graph.execution_graph import ExecutionGraph
from penstock.graph.rescale import adjustable_parallelism, rescaled


class PendingRescale:
    """From the request to the first epoch at the new parallelism."""

    def __init__(self, request: RescaleRequest, graph: ExecutionGraph) -> None:
        before = adjustable_parallelism(graph.job)
        if before is None:
            raise JobDefinitionError(
                f"job {graph.job.job_name!r} cannot be rescaled: every operator has a parallelism of its own; leave "
                "set_parallelism away from those that may change"
            )
        self.request, self.before = request, before
        self.graph = ExecutionGraph(rescaled(graph.job, request.parallelism))
        self.checkpoint = 0
        self._stopped_at = 0.0

    @property
    def changes_nothing(self) -> bool:
        return self.before == self.request.parallelism

    def stopped(self, checkpoint: int) -> None:
        self.checkpoint, self._stopped_at = checkpoint, time.perf_counter()

    def done(self) -> None:
        self.request.answer.set_result(
            RescaleResult(
                before=self.before,
                after=self.request.parallelism,
                checkpoint=self.checkpoint,
                pause_ms=(time.perf_counter() - self._stopped_at) * 1000 if self.checkpoint else 0.0,
            )
        )

    def fail(self, error: Exception) -> None:
        if not self.request.answer.done():
            self.request.answer.set_exception(error)
