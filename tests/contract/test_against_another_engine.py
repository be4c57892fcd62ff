"""Random jobs of windows and aggregates give what an independent engine gives: DuckDB."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.contract import random_jobs

RUNS = 180
SEED = random.SystemRandom().randrange(2**32)


@pytest.mark.parametrize("part", range(6))
def test_random_jobs_give_what_another_engine_gives(part: int) -> None:
    """A failure names its job: `python -m tests.contract.random_jobs --only …` runs it again."""
    print(f"jobs from seed {SEED} on")  # pytest shows it with a failure
    for seed in range(SEED + part, SEED + RUNS, 6):
        random_jobs.check(seed)


def test_these_jobs_are_of_every_kind() -> None:
    jobs = [random_jobs.random_job(seed) for seed in range(1000)]
    assert {kind for job in jobs for kind in (*job.keys, *job.values)} == set(random_jobs.KINDS)
    shapes = Counter((job.what, job.window[0] if job.what == "agg" else "", job.path, job.mode) for job in jobs)
    assert len(shapes) == (4 + 3) * 3 * 2
    asked = Counter(name for job in jobs for name, _ in job.functions)
    assert set(asked) == {"count", "sum", "min", "max", "mean"}


def test_a_difference_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = random_jobs.ours
    seed = next(s for s in range(1000) if random_jobs.random_job(s).what == "agg" and random_jobs.check(s).results)
    monkeypatch.setattr(random_jobs, "ours", lambda job: right(job)[1:])
    with pytest.raises(AssertionError, match="only DuckDB"):
        random_jobs.check(seed)
