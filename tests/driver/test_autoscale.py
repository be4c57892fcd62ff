"""A job is scaled up while it cannot keep up, down when it idles, within bounds and without swinging."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.common.configuration import Configuration
from penstock.driver.rescaling import Autoscaler, busy_ratio, decide
from penstock.engine.messages import EpochReport
from penstock.engine.settings import AutoscaleSettings, JobSettings
from penstock.errors import ConfigurationError

SETTINGS = AutoscaleSettings(least=1, most=8, target_ms=100, up_after=3, down_after=4, cooldown=2)


def report(duration: float, busy: float, parallelism: int, *, held_back: float = 0.0) -> EpochReport:
    time = duration * parallelism
    vertex: dict[str, Any] = {"parallelism": parallelism, "busy_ms": busy * time, "blocked_ms": held_back * time}
    return EpochReport(
        epoch=1, wall_ms=0, checkpoint=False, duration_ms=duration, records_in=0, records_out=0, watermark=None,
        vertices=[vertex],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("recent", "parallelism", "wanted"),
    [
        ([(1.5, 0.9)] * 3, 2, 3),  # half too slow: half as many more
        ([(9.0, 0.9)] * 3, 2, 4),  # far too slow: doubled, not more
        ([(1.1, 0.9)] * 3, 4, 5),
        ([(9.0, 0.9)] * 3, 8, None),  # at the upper bound
        ([(9.0, 0.9)] * 2, 2, None),  # not for long enough
        ([(9.0, 0.1)] * 3, 2, None),  # slow, but not because of its operators
        ([(1.5, 0.9), (0.9, 0.9), (1.5, 0.9)], 2, None),  # not every time
        ([(0.1, 0.1)] * 4, 6, 1),  # idle
        ([(0.25, 0.5)] * 4, 6, 3),  # to where it would be at 60 %
        ([(0.1, 0.1)] * 3, 6, None),
        ([(0.1, 0.1)] * 4, 1, None),  # at the lower bound
        ([(0.7, 0.9)] * 9, 4, None),  # between the two: hysteresis
        ([], 12, 8),  # the bounds hold from the start
    ],
)
def test_the_decision_follows_the_latest_epochs(
    recent: list[tuple[float, float]], parallelism: int, wanted: int | None
) -> None:
    assert decide(recent, parallelism, SETTINGS) == wanted


def test_after_a_change_nothing_is_decided_for_a_while() -> None:
    scaler = Autoscaler(SETTINGS)
    decided = [scaler.observe(report(150, 0.9, 2), 2) for _ in range(8)]
    assert decided == [None, None, 3, None, None, None, None, 3]


def test_being_held_back_counts_as_busy() -> None:
    assert busy_ratio(report(100, 0.2, 3, held_back=0.5)) == pytest.approx(0.7)
    assert busy_ratio(report(0, 0.2, 3)) == 0


def test_the_settings_turn_it_on() -> None:
    config = Configuration()
    assert JobSettings.of(config.to_dict()).autoscale is None
    config.set_string("execution.checkpointing.interval", "1 s")
    for key, value in {"enabled": "true", "min": "2", "max": "6", "target": "50 ms"}.items():
        config.set_string(f"penstock.rescale.auto.{key}", value)
    autoscale = JobSettings.of(config.to_dict()).autoscale
    assert autoscale is not None
    assert (autoscale.least, autoscale.most, autoscale.target_ms) == (2, 6, 50)
    assert (autoscale.up_after, autoscale.down_after, autoscale.cooldown) == (5, 30, 10)


def test_a_job_that_cannot_be_rescaled_says_so() -> None:
    config = {"penstock.rescale.auto.enabled": "true", "penstock.epoch.interval": "90 ms"}
    with pytest.raises(ConfigurationError, match=r"set execution\.checkpointing\.interval"):
        JobSettings.of(config)
    config["execution.checkpointing.interval"] = "0"
    autoscale = JobSettings.of(config).autoscale
    assert autoscale is not None
    assert (autoscale.least, autoscale.target_ms) == (1, 90)
    with pytest.raises(ConfigurationError, match=r"auto\.max is 2, which is less than .*auto\.min, which is 3"):
        JobSettings.of({**config, "penstock.rescale.auto.min": "3", "penstock.rescale.auto.max": "2"})
