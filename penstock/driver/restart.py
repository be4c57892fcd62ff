"""Restart strategies: a frozen policy and the state that is asked "may the job start again, and when?"."""

from __future__ import annotations

import random
from collections import deque
from datetime import timedelta

from penstock.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from penstock.engine.settings import JobSettings
from penstock.errors import FINAL_ERRORS, CorruptSnapshotError, JobFailedError

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
        """For who got None from `delay_ms`: what the job ends with."""
        return JobFailedError(
            f"job {job_name!r} failed in epoch {epoch} and its restart strategy ({self.policy.get_description()}) allows no "
            f"further attempt after {self.failures} failure(s): {error}"
        )
