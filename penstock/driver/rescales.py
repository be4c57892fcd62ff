"""The rescaling of a running job, from the driver's side: which one is due, which one waits for its first epoch."""

from __future__ import annotations

import logging
from concurrent.futures import Future

from penstock.driver.autoscale import Autoscaler
from penstock.driver.requests import JobEndedError, Requests, RescaleRequest, RescaleResult
from penstock.driver.rescaling import PendingRescale
from penstock.engine.messages import EpochReport
from penstock.engine.settings import AutoscaleSettings
from penstock.graph.execution_graph import ExecutionGraph
from penstock.graph.rescale import adjustable_parallelism, rescaled

_log = logging.getLogger("penstock")


class Rescales:
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
        for rescale in (self.due, self._begun):
            if rescale is not None:
                rescale.fail(
                    JobEndedError("the job or its driver ended before an epoch had run at the new parallelism")
                )
