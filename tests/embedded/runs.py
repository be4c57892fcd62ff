"""How a job is run in a property test: parallelism, interleaving, barriers and crashes, which must not matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from penstock.driver.description import JobDescription
from penstock.driver.job_master import JobMaster
from penstock.runtime.embedded.crash import CrashPoint
from penstock.testing import BarrierMode, CrashPlan, EmbeddedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    sources: int = 1
    parallelism: int = 1
    seed: int = 0
    mode: BarrierMode = BarrierMode.EXACTLY_ONCE
    capacity: int | None = None
    in_flight: int = 2
    crashes: list[tuple[CrashPoint, int]] = field(default_factory=list)
    schedule: Any = "random"
    checkpoint_every_ms: int = 0
    apart: bool = False

    def of(self, job: JobDescription, master: JobMaster) -> EmbeddedJob:
        return EmbeddedJob(
            job,
            master,
            schedule=self.schedule,
            seed=self.seed,
            mode=self.mode,
            channel_capacity=self.capacity,
            max_in_flight=self.in_flight,
            apart=self.apart,
            crashes=CrashPlan(self.crashes),
        )


def runs_with(
    points: Sequence[CrashPoint], *, latest: int, most: int, **more: st.SearchStrategy[Any]
) -> st.SearchStrategy[Run]:
    """Up to `most` crashes, each when one of the points is reached for up to the `latest`-th time."""
    return st.builds(
        Run,
        sources=st.integers(1, 3),
        parallelism=st.integers(1, 3),
        seed=st.integers(0, 2**16),
        mode=st.sampled_from([BarrierMode.EXACTLY_ONCE, BarrierMode.UNALIGNED]),
        capacity=st.sampled_from([1, 3, None]),
        apart=st.booleans(),
        crashes=st.lists(st.tuples(st.sampled_from(points), st.integers(1, latest)), max_size=most),
        **more,
    )
