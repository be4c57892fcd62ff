"""How many records an epoch may read."""

from __future__ import annotations

import random

import pytest

from penstock.common import Configuration, WatermarkStrategy
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.driver.admission import FIRST_RECORDS, Admission
from penstock.engine.settings import JobSettings
from penstock.errors import ConfigurationError
from penstock.testing import ListSink


def run(
    admission: Admission, epochs: int, *, ms_per_record: float, fixed_ms: float = 100.0, noise: float = 0.0
) -> list[float]:
    """Epochs with an endless backlog; their durations."""
    durations, luck = [], random.Random(7)
    for _ in range(epochs):
        assert admission.max_records is not None
        exactly = fixed_ms + ms_per_record * admission.max_records
        durations.append(exactly * (1 + luck.uniform(-noise, noise)))
        admission.observe(records=admission.max_records, duration_ms=durations[-1])
    return durations


def test_without_a_target_the_limit_is_the_one_that_was_set() -> None:
    for most in (None, 7):
        admission = Admission(most=most, target_ms=None)
        admission.observe(records=1000, duration_ms=10_000)
        assert admission.max_records == most


@pytest.mark.parametrize("ms_per_record", [0.002, 0.02, 0.5, 5.0])
def test_epochs_converge_to_the_target_time(ms_per_record: float) -> None:
    durations = run(Admission(most=None, target_ms=2000), 20, ms_per_record=ms_per_record)
    assert all(1500 <= duration <= 2500 for duration in durations[-5:]), durations


def test_a_job_that_becomes_slower_gets_less_at_once() -> None:
    admission = Admission(most=None, target_ms=1000)
    run(admission, 15, ms_per_record=0.01)
    before = admission.max_records
    durations = run(admission, 10, ms_per_record=0.1)
    assert before is not None
    assert durations[-1] <= 1300
    assert admission.max_records is not None
    assert admission.max_records < before / 5


@pytest.mark.parametrize("noise", [0.0, 0.2])
def test_an_epoch_that_takes_its_time_whatever_it_brings_is_not_starved(noise: float) -> None:
    """A commit of 3 s with a target of 1 s: less to read would not make it shorter."""
    admission = Admission(most=None, target_ms=1000)
    run(admission, 15, ms_per_record=0.05)
    slow = run(admission, 60, ms_per_record=0.05, fixed_ms=3000.0, noise=noise)
    assert admission.max_records is not None
    assert admission.max_records > 3000  # at least 5 % of the time is for records; it was 0.2 %
    assert max(slow[20:]) < 3000 * 1.34 * (1 + noise) + 1000  # and it stays at about a third on top
    assert all(duration < 1500 for duration in run(admission, 15, ms_per_record=0.05)[-5:])  # and back


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.2])
def test_a_sink_that_becomes_slow_in_the_middle_of_an_epoch_is_not_taken_for_a_fixed_cost(noise: float) -> None:
    """As seen on a loaded machine: of the first slow epoch only a part was slow, so less then took as long."""
    admission = Admission(most=None, target_ms=1000)
    run(admission, 20, ms_per_record=0.03, fixed_ms=600, noise=noise)
    run(admission, 1, ms_per_record=0.25, fixed_ms=600)
    slow = run(admission, 20, ms_per_record=0.5, fixed_ms=650, noise=noise)
    assert max(slow[3:]) < 2000
    assert sorted(slow[3:])[8] < 1300
    after = run(admission, 20, ms_per_record=0.03, fixed_ms=600, noise=noise)
    assert admission.max_records is not None
    assert admission.max_records > 8000
    assert max(after[10:]) < 2000


def test_the_set_maximum_holds_whatever_the_target_would_allow() -> None:
    admission = Admission(most=20_000, target_ms=60_000)
    assert admission.max_records == FIRST_RECORDS
    run(admission, 10, ms_per_record=0.001)
    assert admission.max_records == 20_000


def test_a_quiet_time_does_not_shrink_the_epochs_that_follow() -> None:
    admission = Admission(most=None, target_ms=1000)
    run(admission, 15, ms_per_record=0.01)
    before = admission.max_records
    for _ in range(20):
        admission.observe(records=0, duration_ms=100)
        admission.observe(records=500, duration_ms=105)
    assert before is not None
    assert admission.max_records is not None
    assert admission.max_records > before / 3


def test_growth_from_one_epoch_to_the_next_is_bounded() -> None:
    admission = Admission(most=None, target_ms=10_000)
    admission.observe(records=FIRST_RECORDS, duration_ms=1)
    assert admission.max_records == FIRST_RECORDS * 2


def test_the_target_is_read_from_the_configuration() -> None:
    assert JobSettings.of({"penstock.epoch.target": "2 s"}).epoch_target_ms == 2000
    assert JobSettings.of({}).epoch_target_ms is None
    with pytest.raises(ConfigurationError, match=r"penstock.epoch.target"):
        JobSettings.of({"penstock.epoch.target": "0 ms"})


def test_a_jobs_first_epoch_is_small_when_it_has_a_target() -> None:
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    config.set_string("penstock.epoch.target", "60 s")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    source = DataGeneratorSource(lambda index: index, FIRST_RECORDS * 3)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").sink_to(ListSink("admitted"))
    client = env.execute_async()
    client.get_job_execution_result().result()
    assert [report.records_in for report in client.epoch_reports()] == [FIRST_RECORDS, FIRST_RECORDS * 2]
