"""What `make soak` calls growth."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.chaos.soak import Sample, growth

STEADY = Sample(
    at_s=0, rss_mib=200, open_files=40, threads=12, jvm_threads=300, processes=1, job_files=20, epoch=0, restarts=0
)


def test_filling_caches_and_a_wave_are_no_growth() -> None:
    samples = [replace(STEADY, rss_mib=100 + 10 * n) for n in range(10)]
    samples += [replace(STEADY, rss_mib=200 + 20 * (n % 2), job_files=20 + 15 * (n % 3)) for n in range(30)]
    assert all(one.within for one in growth(samples))


@pytest.mark.parametrize(
    ("measure", "step"),
    [("rss_mib", 5.0), ("open_files", 1), ("threads", 1), ("jvm_threads", 5), ("processes", 1), ("job_files", 3)],
)
def test_a_slow_leak_of_anything_is_growth(measure: str, step: float) -> None:
    samples = [replace(STEADY, **{measure: getattr(STEADY, measure) + step * n}) for n in range(40)]
    assert [one.measure for one in growth(samples) if not one.within] == [measure]


def test_too_few_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="say nothing"):
        growth([STEADY] * 7)
