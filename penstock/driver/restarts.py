"""What every runtime on Spark does between two attempts: ask the restart strategy, wait, go back to the last checkpoint."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.common.time import now_ms
from penstock.driver.description import JobDescription
from penstock.driver.failures import RestartState, is_final
from penstock.driver.job_master import JobMaster
from penstock.errors import FINAL_ERRORS, CorruptSnapshotError

_log = logging.getLogger("penstock")


class RestartingJob:
    """The part of a RunningJob that is about its failures. `cancel` may be called from other threads."""

    def __init__(self, job: JobDescription, master: JobMaster) -> None:
        self._job, self.master = job, master
        self._restarts = RestartState(
            job.settings.restart, checkpointing=job.settings.checkpoint_interval_ms is not None
        )
        self._cancelled = threading.Event()
        self.on_state: Callable[[str], None] = lambda state: None
        self.on_failure: Callable[[BaseException], None] = lambda error: None

    def cancel(self) -> None:
        """Stop soon; nothing more is committed than what is under way commits."""
        self._cancelled.set()

    def restart_or_fail(self, error: BaseException) -> None:
        """Back to the last checkpoint, when the restart strategy says so. What fails on the way there, because storage or a
        sink is away, is one more failure, counted like the others."""
        while True:
            self._wait_or_fail(error)
            if self._cancelled.is_set():
                return
            try:
                self.master.recover()
            except (CorruptSnapshotError, *FINAL_ERRORS):
                raise  # waiting does not mend these
            except Exception as again:  # of storage, a sink, a source: all may be back by the next attempt
                error = again
                continue
            self.on_state("RUNNING")
            return

    def _wait_or_fail(self, error: BaseException) -> None:
        error = self.master.cause_of(error)
        self.on_failure(error)
        self.master.failed(error)
        if is_final(error, self._job.settings):
            raise error
        delay = self._restarts.delay_ms(now_ms())
        if delay is None:
            raise self._restarts.exhausted(self._job.graph.job.job_name, self.master.epoch + 1, error) from error
        _log.warning(
            "job %r failed in epoch %d (failure %d) and goes back to checkpoint %s in %d ms: %s",
            self._job.graph.job.job_name,
            self.master.epoch + 1,
            self._restarts.failures,
            None if self.master.restored is None else self.master.restored.checkpoint_id,
            delay,
            error,
        )
        self.on_state("RESTARTING")
        self._cancelled.wait(delay / 1000)

    def insist(self, step: Callable[[], None]) -> None:
        """Does one step between two attempts; if it fails, the restart strategy decides."""
        try:
            step()
        except (CorruptSnapshotError, *FINAL_ERRORS):
            raise  # waiting does not mend these
        except Exception as error:
            self.restart_or_fail(error)
