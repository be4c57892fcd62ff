"""What happens after a failure: how often and how soon the job is tried again. Configuration only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from penstock.errors import ConfigurationError


class RestartStrategyConfiguration(ABC):
    """One restart strategy with its settings. Immutable, equal by value."""

    __slots__ = ()

    @abstractmethod
    def get_description(self) -> str:
        """For people: shown with the job."""


def _interval(strategy: Any, name: str) -> None:
    """Settings accept milliseconds or a timedelta, as in PyFlink, and keep a timedelta."""
    given = getattr(strategy, name)
    if isinstance(given, bool) or not isinstance(given, (int, timedelta)):
        raise TypeError(f"{name} must be milliseconds (int) or a datetime.timedelta, not {given!r}")
    value = given if isinstance(given, timedelta) else timedelta(milliseconds=given)
    if value < timedelta(0):
        raise ConfigurationError(f"{name} of a restart strategy cannot be negative, but is {given}")
    object.__setattr__(strategy, name, value)


def _at_least(strategy: Any, name: str, least: float) -> None:
    if getattr(strategy, name) < least:
        raise ConfigurationError(
            f"{name} of a restart strategy must be at least {least}, but is {getattr(strategy, name)}"
        )


class RestartStrategies:
    """The factory of restart strategies."""

    @dataclass(frozen=True, slots=True)
    class NoRestartStrategyConfiguration(RestartStrategyConfiguration):
        """The first failure ends the job."""

        def get_description(self) -> str:
            return "Restart deactivated."

    @dataclass(frozen=True, slots=True)
    class FallbackRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Leaves the choice to the configuration."""

        def get_description(self) -> str:
            return "Cluster level default restart strategy"

    @dataclass(frozen=True, slots=True)
    class FixedDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
        """At most `restart_attempts` restarts in the job's life, each after the same delay."""

        restart_attempts: int
        delay_between_attempts_interval: timedelta

        def __post_init__(self) -> None:
            _at_least(self, "restart_attempts", 0)
            _interval(self, "delay_between_attempts_interval")

        def get_restart_attempts(self) -> int:
            """The most restarts in the job's life."""
            return self.restart_attempts

        def get_delay_between_attempts_interval(self) -> timedelta:
            """The time between a failure and the restart."""
            return self.delay_between_attempts_interval

        def get_description(self) -> str:
            delay = self.delay_between_attempts_interval
            return f"Restart with fixed delay ({delay}). #{self.restart_attempts} restart attempts."

    @dataclass(frozen=True, slots=True)
    class FailureRateRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Gives up when there are more than `max_failure_rate` failures within `failure_interval`."""

        max_failure_rate: int
        failure_interval: timedelta
        delay_between_attempts_interval: timedelta

        def __post_init__(self) -> None:
            _at_least(self, "max_failure_rate", 1)
            _interval(self, "failure_interval")
            _interval(self, "delay_between_attempts_interval")

        def get_max_failure_rate(self) -> int:
            """The most failures within the interval."""
            return self.max_failure_rate

        def get_failure_interval(self) -> timedelta:
            """The time within which failures are counted."""
            return self.failure_interval

        def get_delay_between_attempts_interval(self) -> timedelta:
            """The time between a failure and the restart."""
            return self.delay_between_attempts_interval

        def get_description(self) -> str:
            return (
                f"Failure rate restart with maximum of {self.max_failure_rate} failures within interval "
                f"{self.failure_interval} and fixed delay {self.delay_between_attempts_interval}."
            )

    @dataclass(frozen=True, slots=True)
    class ExponentialDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Each restart waits `backoff_multiplier` times longer than the one before, from `initial_backoff` up to
        `max_backoff`, spread by ± `jitter_factor`; after `reset_backoff_threshold` without a failure it starts over.
        Never gives up."""

        initial_backoff: timedelta
        max_backoff: timedelta
        backoff_multiplier: float
        reset_backoff_threshold: timedelta
        jitter_factor: float

        def __post_init__(self) -> None:
            for name in ("initial_backoff", "max_backoff", "reset_backoff_threshold"):
                _interval(self, name)
            _at_least(self, "backoff_multiplier", 1.0)
            _at_least(self, "jitter_factor", 0.0)
            if self.jitter_factor > 1.0:
                raise ConfigurationError(f"jitter_factor must be between 0 and 1, but is {self.jitter_factor}")
            if self.initial_backoff <= timedelta(0) or self.max_backoff < self.initial_backoff:
                raise ConfigurationError(
                    "The back-off of a restart strategy must satisfy 0 < initial_backoff <= max_backoff, but "
                    f"initial_backoff is {self.initial_backoff} and max_backoff is {self.max_backoff}"
                )

        def get_initial_backoff(self) -> timedelta:
            """The time between the first failure and the restart."""
            return self.initial_backoff

        def get_max_backoff(self) -> timedelta:
            """The longest time between a failure and the restart."""
            return self.max_backoff

        def get_backoff_multiplier(self) -> float:
            """The factor from one wait to the next."""
            return self.backoff_multiplier

        def get_reset_backoff_threshold(self) -> timedelta:
            """How long the job must run before waits start from the first again."""
            return self.reset_backoff_threshold

        def get_jitter_factor(self) -> float:
            """The share of a wait by which it is varied at random."""
            return self.jitter_factor

        def get_description(self) -> str:
            return (
                f"Restart with exponential delay: starting at {self.initial_backoff}, increasing by "
                f"{self.backoff_multiplier}, with maximum {self.max_backoff}. Delay resets after "
                f"{self.reset_backoff_threshold} with jitter {self.jitter_factor}"
            )

    @staticmethod
    def no_restart() -> NoRestartStrategyConfiguration:
        """The first failure ends the job."""
        return RestartStrategies.NoRestartStrategyConfiguration()

    @staticmethod
    def fall_back_restart() -> FallbackRestartStrategyConfiguration:
        """The strategy of the configuration (`restart-strategy.type`)."""
        return RestartStrategies.FallbackRestartStrategyConfiguration()

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: int | timedelta
    ) -> FixedDelayRestartStrategyConfiguration:
        """Intervals here and below: milliseconds or a `timedelta`."""
        return RestartStrategies.FixedDelayRestartStrategyConfiguration(
            restart_attempts, _as_timedelta(delay_between_attempts)
        )

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: int | timedelta, delay_interval: int | timedelta
    ) -> FailureRateRestartStrategyConfiguration:
        """Starts the job again after `delay_interval`, unless it failed more than `failure_rate` times within
        `failure_interval`. Intervals are milliseconds or timedeltas.
        """
        return RestartStrategies.FailureRateRestartStrategyConfiguration(
            failure_rate, _as_timedelta(failure_interval), _as_timedelta(delay_interval)
        )

    @staticmethod
    def exponential_delay_restart(
        initial_backoff: int | timedelta,
        max_backoff: int | timedelta,
        backoff_multiplier: float,
        reset_backoff_threshold: int | timedelta,
        jitter_factor: float,
    ) -> ExponentialDelayRestartStrategyConfiguration:
        """The strategy and the order of its arguments are the Java API's; PyFlink has no name for it."""
        return RestartStrategies.ExponentialDelayRestartStrategyConfiguration(
            _as_timedelta(initial_backoff),
            _as_timedelta(max_backoff),
            backoff_multiplier,
            _as_timedelta(reset_backoff_threshold),
            jitter_factor,
        )


def _as_timedelta(value: int | timedelta) -> timedelta:
    return value if isinstance(value, timedelta) else timedelta(milliseconds=value)
