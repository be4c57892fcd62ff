"""The rescaling of a running job, from the driver's side: which one is due, which one waits for its first epoch.

When a job should change its parallelism by itself. Pure: reports of epochs in, a parallelism or nothing out.

The one measure is how long an epoch takes against the time it should take: a job that cannot keep up with its sources
takes longer, because records gather while an epoch runs or because every epoch is as full as it may be. It is asked
for more only while its operators are really busy or held back: an epoch that is slow for other reasons (a slow store, a
slow sink) would not gain from more subtasks.

A job that was rescaled stays so when its driver dies.

Its checkpoints say which parallelism the program had given it and which it has now. A driver that finds the program as it
was goes on at the parallelism of the checkpoint; a program that asks for another one by now gets what it asks for. What is
started from a savepoint is another job and begins as its program says.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace

from penstock.checkpoint.manifest import Manifest, Rescaled
from penstock.driver.description import JobDescription
from penstock.driver.requests import JobEndedError, PendingRescale, Requests, RescaleRequest, RescaleResult
from penstock.engine.messages import EpochReport
from penstock.engine.settings import AutoscaleSettings
from penstock.graph.execution_graph import ExecutionGraph
from penstock.graph.job_graph import adjustable_parallelism, rescaled


class Autoscaler:
    """Feed it every epoch's report."""

    def __init__(self, settings: AutoscaleSettings) -> None:
        self._settings = settings
        self._recent: deque[tuple[float, float]] = deque(maxlen=max(settings.up_after, settings.down_after))
        self._cooldown = 0

    def observe(self, report: EpochReport, parallelism: int) -> int | None:
        """The parallelism to go to, or None to stay."""
        if self._cooldown:
            self._cooldown -= 1
            return None
        self._recent.append((report.duration_ms / self._settings.target_ms, busy_ratio(report)))
        wanted = decide(list(self._recent), parallelism, self._settings)
        if wanted is not None:
            self._recent.clear()
            self._cooldown = self._settings.cooldown
        return wanted


def decide(recent: list[tuple[float, float]], parallelism: int, settings: AutoscaleSettings) -> int | None:
    """`recent`: (duration against the target, busy ratio) of the latest epochs, oldest first. At most doubles, so that one
    bad measurement cannot take the whole cluster; goes down to where the job would be at 60 % of the target."""
    if not settings.least <= parallelism <= settings.most:
        return min(max(parallelism, settings.least), settings.most)
    latest = recent[-settings.up_after :]
    if len(latest) == settings.up_after and all(load > 1 and busy >= settings.busy for load, busy in latest):
        load = min(load for load, _ in latest)
        wanted = min(settings.most, parallelism * 2, max(parallelism + 1, math.ceil(round(parallelism * load, 6))))
        return wanted if wanted > parallelism else None
    latest = recent[-settings.down_after :]
    if len(latest) == settings.down_after and all(load < settings.idle for load, _ in latest):
        load = max(load for load, _ in latest)
        wanted = max(settings.least, min(parallelism - 1, math.ceil(round(parallelism * load / 0.6, 6))))
        return wanted if wanted < parallelism else None
    return None


def busy_ratio(report: EpochReport) -> float:
    """The share of time in which the subtasks of the busiest vertex computed or waited for space."""
    ratios = [
        (vertex["busy_ms"] + vertex["blocked_ms"]) / (vertex["parallelism"] * report.duration_ms)
        for vertex in report.vertices
        if report.duration_ms > 0
    ]
    return max(ratios, default=0.0)


_log = logging.getLogger("penstock")


class Rescales:
    """The change of parallelism that is under way, and the autoscaler that may ask for one."""

    def __init__(self, autoscale: AutoscaleSettings | None) -> None:
        self._autoscaler = None if autoscale is None else Autoscaler(autoscale)
        self.due: PendingRescale | None = None  # its checkpoint is complete: now it is the runtime's turn
        self._begun: PendingRescale | None = None  # waits for its first epoch

    def epoch_ended(self) -> None:
        """If it is the first one at another parallelism, who asked for that hears of it."""
        if self._begun is not None:
            self._begun.done()
            self._begun = None

    def run_ended(self, epoch: int, rescale: PendingRescale, *, finished: bool) -> None:
        """With the checkpoint of `epoch`, from which the job goes on at another parallelism, unless it has `finished`."""
        if finished:
            rescale.fail(JobEndedError("the rescaling did not come about: the job has ended"))
        else:
            rescale.stopped(epoch)
            self.due = rescale

    def begin(self) -> ExecutionGraph:
        """The graph to go on with."""
        assert self.due is not None
        self._begun, self.due = self.due, None
        return self._begun.graph

    def refused(self, why: Exception) -> None:
        """The job cannot run at the parallelism that was asked for."""
        if self._begun is not None:
            self._begun.fail(why)
            self._begun = None

    def follow(self, report: EpochReport, graph: ExecutionGraph, requests: Requests) -> None:
        """Ask for another parallelism if the load asks for it."""
        now = adjustable_parallelism(graph.job)
        if self._autoscaler is None or now is None or self.due is not None:
            return
        wanted = self._autoscaler.observe(report, now)
        if wanted is None or wanted == now:
            return
        if wanted > now:
            got = requests.claim_slots(max(wanted, graph.slots))
            if got < wanted:
                _log.info(
                    "job %r would go from parallelism %d to %d, but may have only %d slots: the dispatcher offers no more "
                    "(--slots), or other jobs have them", graph.job.job_name, now, wanted, got,
                )  # fmt: skip
            wanted = max(now, min(wanted, got))
        if wanted == now:
            return
        _log.info("job %r goes from parallelism %d to %d", graph.job.job_name, now, wanted)
        request = RescaleRequest(parallelism=wanted)
        after = ExecutionGraph(rescaled(graph.job, wanted)).slots

        def keep_what_is_needed(done: Future[RescaleResult]) -> None:
            requests.claim_slots(after if done.exception() is None else graph.slots)

        request.answer.add_done_callback(keep_what_is_needed)
        requests.rescale(request)

    def job_ended(self) -> None:
        """Tells who asked for a rescale that the job has ended before."""
        for rescale in (self.due, self._begun):
            if rescale is not None:
                rescale.fail(
                    JobEndedError("the job or its driver ended before an epoch had run at the new parallelism")
                )


def rescaled_job(job: JobDescription, graph: ExecutionGraph) -> JobDescription:
    """The job with the graph of another parallelism; it remembers the parallelism the program gave."""
    given = adjustable_parallelism(job.graph.job) if job.rescaled_from is None else job.rescaled_from
    return replace(job, graph=graph, rescaled_from=given)


def noted_parallelism(job: JobDescription) -> Rescaled | None:
    """The parallelism that a checkpoint of the job notes."""
    given, now = job.rescaled_from, adjustable_parallelism(job.graph.job)
    return None if given is None or now is None or given == now else Rescaled(given=given, now=now)


def kept_parallelism(
    job: JobDescription, checkpoint: Manifest | None, claim_slots: Callable[[int], int]
) -> JobDescription:
    """The job as `checkpoint` left it, or with fewer slots if there are no more: it had better run than wait."""
    noted = None if checkpoint is None else checkpoint.rescaled
    if noted is None or noted.given != adjustable_parallelism(job.graph.job):
        return job
    now = noted.now
    graph = ExecutionGraph(rescaled(job.graph.job, now))
    got = claim_slots(graph.slots)  # those of the program's parallelism it has already
    if got < graph.slots:
        now = max(noted.given, min(now, got))
        graph = ExecutionGraph(rescaled(job.graph.job, now))
        _log.warning(
            "job %r was rescaled to more than the %d slots it may have now: the dispatcher offers no more (--slots), or other "
            "jobs have them", job.graph.job.job_name, got,
        )  # fmt: skip
    _log.info("job %r goes on at parallelism %d, because it was rescaled", job.graph.job.job_name, now)
    return rescaled_job(job, graph)
