"""What `make soak` calls growth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chaos.soak import Sample, growth

STEADY = Sample(
    at_s=0,
    rss_mib=700,
    driver_mib=100,
    jvm_mib=400,
    workers_mib=200,
    open_files=40,
    threads=12,
    jvm_threads=300,
    processes=1,
    job_files=20,
    local_files=10,
    files_mib=3,
    epoch=0,
    restarts=0,
)


def test_filling_caches_and_a_wave_are_no_growth() -> None:
    samples = [replace(STEADY, rss_mib=600 + 10 * n) for n in range(10)]
    samples += [replace(STEADY, rss_mib=700 + 20 * (n % 2), job_files=20 + 15 * (n % 3)) for n in range(30)]
    assert all(one.within for one in growth(samples))


@pytest.mark.parametrize(
    ("measure", "step"),
    [
        ("rss_mib", 10.0),
        ("driver_mib", 5.0),
        ("jvm_mib", 10.0),
        ("workers_mib", 5.0),
        ("local_files", 2),
        ("files_mib", 0.5),
        ("open_files", 1),
        ("threads", 1),
        ("jvm_threads", 5),
        ("processes", 1),
        ("job_files", 3),
    ],
)
def test_a_slow_leak_of_anything_is_growth(measure: str, step: float) -> None:
    samples = [replace(STEADY, **{measure: getattr(STEADY, measure) + step * n}) for n in range(40)]
    assert [one.measure for one in growth(samples) if not one.within] == [measure]


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="say nothing"):
        growth([STEADY] * 7)
