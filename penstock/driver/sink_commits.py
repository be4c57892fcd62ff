"""The committers of a job: which commit when, and on which thread.

A committer that says so commits beside the next epoch. What keeps that exact is one rule: no later manifest is written, and
nothing that ends or moves the job is done, before the commit is over. So until then the newest checkpoint is the one whose
manifest lists the output, and a recovery commits it again.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.checkpoint.manifest import Manifest
from penstock.checkpoint.manifest_file import unpack_committables
from penstock.checkpoint.ownership import StartPermit
from penstock.checkpoint.storage import Storage
from penstock.driver.faults import KillPoint
from penstock.driver.waiting import CommitTime, LatencyTracker
from penstock.errors import FINAL_ERRORS, CheckpointFailedError, FencedError, ProtocolError
from penstock.functions.connectors import Committer, Sink

_log = logging.getLogger("penstock")


class SinkCommits:
    """Commits the output of checkpoints. Belongs to the JobMaster's thread; at most one commit is under way in the
    background.
    """

    def __init__(
        self,
        sinks: Mapping[str, Sink],
        storage: Storage | None,
        *,
        reach: Callable[[KillPoint, int], None],
        timeout_ms: float,
        now_ms: Callable[[], int],
        latency: LatencyTracker,
        job_id: str = "",
    ) -> None:
        self.committers: dict[str, Committer] = {
            sink_id: sink.create_committer(sink_id) for sink_id, sink in sinks.items()
        }
        for committer in self.committers.values():
            committer.job_id = job_id
            committer.open(storage)
        self._reach, self._timeout_s = reach, timeout_ms / 1000
        self._now, self._latency = now_ms, latency
        self._running: _Background | None = None
        self._unchecked = list(self.committers)
        self._times: dict[str, CommitTime] = {}

    def take_times(self) -> dict[str, CommitTime]:
        """The times of the commits that have ended since the last call, by sink."""
        taken, self._times = self._times, {}
        return taken

    def _spent(self, sink_id: str, took_s: float, held_s: float) -> None:
        spent = CommitTime(took_ms=took_s * 1000, held_ms=held_s * 1000)
        self._times[sink_id] = self._times.get(sink_id, CommitTime()).and_(spent)

    def commit(self, epoch: int, committables: Mapping[str, list[Any]], *, beside: bool = False) -> bool:
        """`beside` allows committers to go on when this returns; only for output that a complete checkpoint promises. False:
        they do; `take_committed` says when they are done."""
        behind: list[_Commit] = []
        assert self._running is None, "a commit was begun before the one before it was awaited"
        for index, (sink_id, committer) in enumerate(self.committers.items()):
            made = committables.get(sink_id, [])
            if beside and committer.commits_beside_next_epoch and made:
                behind.append(_Commit(sink_id, committer, made))
                continue
            if index or len(self.committers) == 1:
                self._reach("during-sink-commit", epoch)
            began = time.perf_counter()
            committer.commit(epoch, made)
            took_s = time.perf_counter() - began
            self._spent(sink_id, took_s, took_s)
            self._latency.committed(sink_id, epoch, self._now())
        if not behind:
            self._latency.all_committed(epoch)
            self._reach("after-sink-commit", epoch)
            return True
        self._running = _Background(
            epoch, behind, self._reach, self._now, alone=len(self.committers) == len(behind) == 1
        )
        return False

    def take_committed(self) -> int | None:
        """The epoch whose commit has come to its end beside others. Does not wait."""
        if self._running is None or not self._running.over.is_set():
            return None
        epoch = self._running.epoch
        self.wait()
        return epoch

    def wait(self) -> None:
        """Until nothing is under way. Raises what it failed with."""
        running = self._running
        if running is None:
            return
        began = time.perf_counter()
        if not running.over.wait(self._timeout_s):
            raise CheckpointFailedError(
                f"the sinks' commit of epoch {running.epoch} did not end within {self._timeout_s:.0f} s: the other system hangs, "
                "or a slow one needs a larger penstock.epoch.timeout. The checkpoint has the output; it will be committed again"
            )
        self._running = None
        if running.error is not None:
            raise running.error
        for done in running.committed:
            self._latency.committed(done.sink_id, running.epoch, done.at_ms)
            self._spent(done.sink_id, done.ended - done.began, max(0.0, done.ended - max(done.began, began)))
        self._latency.all_committed(running.epoch)

    def give_up(self) -> None:
        """As `wait`, before a recovery, which commits again what has failed here. Not so if a newer attempt was the reason,
        and not while it hangs: committers are not made for two commits at once."""
        try:
            self.wait()
        except FINAL_ERRORS:
            raise
        except BaseException as error:  # a simulated crash too: it has had its effect
            if self._running is not None:
                raise
            _log.warning("a commit in the background failed; the recovery commits again: %s", error)

    def check_targets(self) -> None:
        """Before the job runs, until it succeeds: what cannot work is better said now than at the first commit."""
        while self._unchecked:
            self.committers[self._unchecked[-1]].check()
            self._unchecked.pop()

    def recover(self, manifest: Manifest | None, epoch: int, start: StartPermit) -> None:
        """The driver may have died between manifest and commit: commit again, it is idempotent. A sink that cannot does not keep
        the others from it: it may be waiting for what they bring.

        Rule 3: what is staged behind `epoch` is discarded, and what earlier drivers have left open is ended, only by who has
        started and is still the newest: a checkpoint of an older one that appears now will not be resumed from."""
        if start.checkpoint > epoch:
            raise ProtocolError(f"output behind epoch {epoch} was to be discarded with {start!r}, which is of later")
        start.check()
        for committer in self.committers.values():
            committer.still_mine = start.check  # type: ignore[method-assign]
            with contextlib.suppress(Exception):  # its commit meets that again, if there is anything to commit
                committer.take_over()
        failed: list[Exception] = []
        for sink_id, committer in self.committers.items():
            try:
                if manifest is not None and sink_id in manifest.committables:
                    committer.commit(epoch, unpack_committables(manifest.committables[sink_id], sink=sink_id))
                committer.discard_after(epoch)
            except FencedError:
                raise
            except Exception as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def close(self) -> None:
        """Waits for the commit in the background and closes the committers. A failure is only logged: the checkpoint
        has the output.
        """
        try:
            self.wait()
        except BaseException as error:
            _log.warning(
                "a commit in the background failed; the checkpoint has the output for the next start: %s", error
            )
        for committer in self.committers.values():
            committer.close()


class _Commit(NamedTuple):
    sink_id: str
    committer: Committer
    committables: Sequence[Any]


class _Committed(NamedTuple):
    sink_id: str
    at_ms: int
    began: float
    ended: float


class _Background:
    """Commits of one epoch, one after the other, in a thread of their own."""

    def __init__(
        self,
        epoch: int,
        commits: Sequence[_Commit],
        reach: Callable[[KillPoint, int], None],
        now_ms: Callable[[], int],
        *,
        alone: bool,
    ) -> None:
        self.epoch, self._commits, self._reach, self._now, self._alone = epoch, commits, reach, now_ms, alone
        self.committed: list[_Committed] = []
        self.over = threading.Event()
        self.error: BaseException | None = None
        # A daemon: what hangs in another system must not keep a driver from ending.
        threading.Thread(target=self._run, name=f"commit-{epoch}", daemon=True).start()

    def _run(self) -> None:
        try:
            for index, commit in enumerate(self._commits):
                if index or self._alone:
                    self._reach("during-sink-commit", self.epoch)
                began = time.perf_counter()
                commit.committer.commit(self.epoch, commit.committables)
                self.committed.append(_Committed(commit.sink_id, self._now(), began, time.perf_counter()))
            self._reach("after-sink-commit", self.epoch)
        except BaseException as error:  # kept for the job's own thread, which waits
            self.error = error
        self.over.set()
