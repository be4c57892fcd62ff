"""Restart strategies: a policy, a count of failures, and a delay or the end."""

from __future__ import annotations

import random

import pytest

from penstock.common import RestartStrategies
from penstock.common.option_types import DurationMs
from penstock.driver.failures import RestartState
from penstock.engine.settings import JobSettings
from penstock.errors import ConfigurationError


def test_no_restart_gives_up_at_once() -> None:
    assert RestartState(RestartStrategies.no_restart(), checkpointing=True).delay_ms(0) is None


def test_fixed_delay_allows_so_many_attempts() -> None:
    state = RestartState(RestartStrategies.fixed_delay_restart(2, 50), checkpointing=True)
    assert [state.delay_ms(t) for t in (0, 1, 2)] == [50, 50, None]


def test_failure_rate_counts_only_recent_failures() -> None:
    state = RestartState(RestartStrategies.failure_rate_restart(2, 1000, 10), checkpointing=True)
    assert [state.delay_ms(t) for t in (0, 500, 1200, 1300)] == [10, 10, 10, None]


def test_exponential_delay_grows_to_its_limit_and_starts_over_after_quiet() -> None:
    policy = RestartStrategies.exponential_delay_restart(100, 400, 2.0, 10_000, 0.0)
    state = RestartState(policy, checkpointing=True, rng=random.Random(0))
    assert [state.delay_ms(t) for t in (0, 1, 2, 3, 20_000)] == [100, 200, 400, 400, 100]


def test_without_a_policy_checkpointing_decides() -> None:
    assert RestartState(None, checkpointing=False).delay_ms(0) is None
    assert RestartState(None, checkpointing=True).delay_ms(0) is not None


@pytest.mark.parametrize(
    ("text", "ms"), [("250", 250), ("250 ms", 250), ("1 s", 1000), ("1.5 min", 90_000), ("2 h", 7_200_000)]
)
def test_durations_are_read_as_people_write_them(text: str, ms: int) -> None:
    assert DurationMs().read("key", text) == ms


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("penstock.runtime", "flink"),
        ("penstock.block.size", "0"),
        ("penstock.block.size", "many"),
        ("execution.checkpointing.interval", "soon"),
        ("restart-strategy.type", "hope"),
    ],
)
def test_a_bad_setting_is_named_with_its_value(key: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{key}.*{value}"):
        JobSettings.of({key: value})


def test_a_strategy_is_read_with_its_own_options() -> None:
    fixed = {"restart-strategy": "fixeddelay", "restart-strategy.fixed-delay.attempts": "4"}
    assert JobSettings.of(fixed).restart == RestartStrategies.fixed_delay_restart(4, 1000)
    rate = {"restart-strategy.type": "failure-rate", "restart-strategy.failure-rate.delay": "2 s"}
    assert JobSettings.of(rate).restart == RestartStrategies.failure_rate_restart(1, 60_000, 2000)
    exponential = {
        "restart-strategy.type": "exponential-delay",
        "restart-strategy.exponential-delay.jitter-factor": "0.5",
        "restart-strategy.exponential-delay.max-backoff": "5 s",
    }
    expected = RestartStrategies.exponential_delay_restart(1000, 5000, 1.5, 3_600_000, 0.5)
    assert JobSettings.of(exponential).restart == expected
    assert JobSettings.of({"restart-strategy": "off"}).restart == RestartStrategies.no_restart()
    assert JobSettings.of({}).restart is None
