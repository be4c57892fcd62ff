"""After a failure: may the job start again, and when; does it fail alike again and again; what should a person know?

A restart strategy is a frozen policy and the state that is asked. The default strategy has no end, and would hide that a job
fails with the same error at the same place each time. So that is said: in the log, in the job's facts and on the page.
"""

from __future__ import annotations

import logging
import random
import re
import threading
from collections import deque
from datetime import timedelta
from typing import Any, Final

from penstock.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from penstock.common.time import now_ms
from penstock.engine.settings import JobSettings
from penstock.errors import FINAL_ERRORS, CorruptSnapshotError, JobFailedError, failed_task

_log = logging.getLogger("penstock")


class Notices:
    """Each is there for as long as it is true. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: dict[str, dict[str, Any]] = {}

    def say(self, key: str, text: str) -> None:
        """Logged once, until it was over."""
        with self._lock:
            known = key in self._now
            since = self._now[key]["since_ms"] if known else now_ms()
            self._now[key] = {"key": key, "text": text, "since_ms": since}
        if not known:
            _log.warning("%s", text)

    def over(self, key: str) -> None:
        """Takes back what was said under this key."""
        with self._lock:
            was = self._now.pop(key, None)
        if was is not None:
            _log.warning("no longer: %s", was["text"])

    def to_json(self) -> list[dict[str, Any]]:
        """The notices that are true now, for the facts."""
        with self._lock:
            return [dict(notice) for notice in self._now.values()]


_KEY: Final = "same-failure"
_FEW: Final = 3  # in a row: what a hiccup of a network or a disk does not reach with the delays of a restart strategy
_NUMBERS: Final = re.compile(r"0x[0-9a-f]+|[0-9]+")  # addresses, ports, attempts: no two errors agree on them


class RepeatedFailures:
    """Notices when a job fails again and again with the same error. Belongs to the JobMaster's thread."""

    def __init__(self, notices: Notices) -> None:
        self._notices = notices
        self._same: tuple[str, ...] = ()
        self._epoch = 0
        self._in_a_row = 0

    def failed(self, error: BaseException, epoch: int, checkpoint: int | None) -> None:
        """`epoch` was not completed because of `error`, and the job goes back to `checkpoint`."""
        text = next(iter(str(error).splitlines()), "")
        same = (type(error).__qualname__, str(failed_task(error)), _NUMBERS.sub("#", text))
        if (same, epoch) != (self._same, self._epoch):
            self._forget()
            self._same, self._epoch = same, epoch
        self._in_a_row += 1
        if self._in_a_row >= _FEW:
            back = "its beginning" if checkpoint is None else f"checkpoint {checkpoint}"
            self._notices.say(
                _KEY,
                f"epoch {epoch} has failed {self._in_a_row} times in a row with the same error, and the job goes back to {back} "
                "each time: trying again will hardly help. Mend what the error names, or catch it in the function and put the "
                "record aside; then cancel the job and start it again: it goes on from its checkpoint. A restart-strategy.type of "
                f"fixed-delay or failure-rate ends such a job by itself. The error: {text[:500]}",
            )

    def epoch_completed(self, epoch: int) -> None:
        """Forgets the failures: the job has passed the place."""
        if self._in_a_row and epoch >= self._epoch:
            self._forget()

    def _forget(self) -> None:
        self._same, self._epoch, self._in_a_row = (), 0, 0
        self._notices.over(_KEY)


# What Flink does when checkpointing is on and nothing is configured: exponential delay, 1 s to 1 min.
DEFAULT = RestartStrategies.exponential_delay_restart(1000, 60_000, 1.5, 3_600_000, 0.1)


def is_final(error: BaseException, settings: JobSettings) -> bool:
    """Whether trying again cannot mend what ended an attempt. A damaged checkpoint stays damaged, unless the next attempt may
    go on from an older one: then recovery reads all files, finds out, and sets it aside."""
    if isinstance(error, CorruptSnapshotError):
        return not settings.fall_back_to_older
    return isinstance(error, FINAL_ERRORS)


def _ms(interval: timedelta) -> int:
    return int(interval.total_seconds() * 1000)


class RestartState:
    """Counts failures. `delay_ms` returns how long to wait before the next attempt, or None to give up."""

    def __init__(
        self, policy: RestartStrategyConfiguration | None, *, checkpointing: bool, rng: random.Random | None = None
    ) -> None:
        if policy is None or isinstance(policy, RestartStrategies.FallbackRestartStrategyConfiguration):
            policy = DEFAULT if checkpointing else RestartStrategies.no_restart()
        self.policy = policy
        self.failures = 0
        self._rng = rng or random.Random()
        self._recent: deque[int] = deque()
        self._backoff: float | None = None
        self._last_failure: int | None = None

    def delay_ms(self, now_ms: int) -> int | None:
        """Counts a failure: the milliseconds until the next attempt, or None to give up."""
        self.failures += 1
        match self.policy:
            case RestartStrategies.FixedDelayRestartStrategyConfiguration() as fixed:
                allowed = self.failures <= fixed.restart_attempts
                return _ms(fixed.delay_between_attempts_interval) if allowed else None
            case RestartStrategies.FailureRateRestartStrategyConfiguration() as rate:
                self._recent.append(now_ms)
                while self._recent[0] <= now_ms - _ms(rate.failure_interval):
                    self._recent.popleft()
                allowed = len(self._recent) <= rate.max_failure_rate
                return _ms(rate.delay_between_attempts_interval) if allowed else None
            case RestartStrategies.ExponentialDelayRestartStrategyConfiguration() as exponential:
                return self._exponential(exponential, now_ms)
            case _:
                return None

    def _exponential(self, policy: RestartStrategies.ExponentialDelayRestartStrategyConfiguration, now_ms: int) -> int:
        last, self._last_failure = self._last_failure, now_ms
        quiet = last is not None and now_ms - last >= _ms(policy.reset_backoff_threshold)
        if self._backoff is None or quiet:
            self._backoff = float(_ms(policy.initial_backoff))
        else:
            self._backoff = min(self._backoff * policy.backoff_multiplier, float(_ms(policy.max_backoff)))
        spread = policy.jitter_factor * (2 * self._rng.random() - 1)
        return max(0, int(self._backoff * (1 + spread)))

    def exhausted(self, job_name: str, epoch: int, error: BaseException) -> JobFailedError:
        """The error that the job ends with when `delay_ms` gave None."""
        return JobFailedError(
            f"{error}\njob {job_name!r} failed in epoch {epoch} and is not started again: its restart strategy "
            f"({self.policy.get_description().rstrip('.')}) allows no further attempt after {self.failures} failure(s)"
        )
