"""A job that was rescaled stays so when its driver dies.

Its checkpoints say which parallelism the program had given it and which it has now. A driver that finds the program as it
was goes on at the parallelism of the checkpoint; a program that asks for another one by now gets what it asks for. What is
started from a savepoint is another job and begins as its program says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.checkpoint.manifest import Manifest
from penstock.driver.description import JobDescription
from penstock.graph.execution_graph import ExecutionGraph
from penstock.graph.rescale import adjustable_parallelism, rescaled

_NOTE = "rescaled"  # among a manifest's statistics: [given by the program, now]

_log = logging.getLogger("penstock")


def rescaled_job(job: JobDescription, graph: ExecutionGraph) -> JobDescription:
    given = adjustable_parallelism(job.graph.job) if job.rescaled_from is None else job.rescaled_from
    return replace(job, graph=graph, rescaled_from=given)


def noted(job: JobDescription) -> dict[str, Any]:
    """For the statistics of a job's checkpoint."""
    now = adjustable_parallelism(job.graph.job)
    return {} if job.rescaled_from in (None, now) else {_NOTE: [job.rescaled_from, now]}


def forget(statistics: dict[str, Any]) -> None:
    statistics.pop(_NOTE, None)


def kept(job: JobDescription, checkpoint: Manifest | None, claim_slots: Callable[[int], int]) -> JobDescription:
    """The job as `checkpoint` left it, or with fewer slots if there are no more: it had better run than wait."""
    given, now = (None, None) if checkpoint is None else checkpoint.statistics.get(_NOTE, (None, None))
    if now is None or given != adjustable_parallelism(job.graph.job):
        return job
    graph = ExecutionGraph(rescaled(job.graph.job, now))
    got = claim_slots(graph.slots)  # those of the program's parallelism it has already
    if got < graph.slots:
        now = max(given, min(now, got))
        graph = ExecutionGraph(rescaled(job.graph.job, now))
        _log.warning(
            "job %r was rescaled to more than the %d slots it may have now: the dispatcher offers no more (--slots), or other "
            "jobs have them", job.graph.job.job_name, got,
        )  # fmt: skip
    _log.info("job %r goes on at parallelism %d, because it was rescaled", job.graph.job.job_name, now)
    return rescaled_job(job, graph)
