"""A loop in hosts that lose attempts, shuffle files and whole processes: what Spark would do, in one process.

Before, between and after the runs that count, a seeded demon repeats runs whose output is thrown away (a relay died, a shuffle
file was lost) and replaces hosts by empty ones (a process died).
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import RestartStrategies, WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.runtime.embedded.levels import Mischief, Row
from penstock.testing import EmbeddedJob, ListSink, ScriptedSource
from tests.embedded import jobs
from tests.embedded.test_iterations import build_tokens, check, scripts, tokens_of

_names = itertools.count()


class Demon(Mischief):
    def __init__(self, seed: int, often: float) -> None:
        self._rng, self._often = random.Random(seed), often
        self.done: Counter[str] = Counter()

    def _strikes(self, what: str) -> bool:
        struck = self._rng.random() < self._often
        self.done[what] += struck
        return struck

    def mixed(self, rows: list[Row]) -> list[Row]:
        channels: dict[tuple[int, int], list[Row]] = {}
        for row in rows:
            channels.setdefault((row[2], row[3]), []).append(row)
        order = [channel for channel, its in channels.items() for _ in its]
        self._rng.shuffle(order)
        taken = {channel: iter(its) for channel, its in channels.items()}
        return [next(taken[channel]) for channel in order]

    def breaks_off(self, level: int, host: int, rows: int) -> int | None:
        return self._rng.randint(0, rows) if self._strikes("breaks off") else None

    def repeats(self, level: int, host: int) -> bool:
        return self._strikes("repeats")

    def loses_host(self, level: int, host: int) -> bool:
        return self._strikes("loses host")

    def loses_output(self, runs: int) -> int | None:
        return self._rng.randrange(runs) if self._strikes("loses output") else None


def run_tokens(
    script: list[Any], parallelism: int, seed: int, mischief: float, checkpoint_every_ms: int
) -> tuple[list[Any], EmbeddedJob, Demon]:
    name = f"slots-{next(_names)}"
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_max_parallelism(8)
    stream = env.from_source(ScriptedSource(script), WatermarkStrategy.no_watermarks(), "source")
    build_tokens(stream, parallelism, "rebalance").sink_to(ListSink(name)).set_parallelism(parallelism)
    chosen = jobs.settings(
        checkpoint_interval_ms=checkpoint_every_ms, restart=RestartStrategies.fixed_delay_restart(10_000, 10)
    )
    job = replace(env._describe("slots"), job_id="job", settings=chosen)
    demon = Demon(seed, mischief)
    runtime = EmbeddedJob(job, jobs.master_of(job, jobs.memory_storage()), mischief=demon)
    runtime.run()
    results = ListSink.results(name)
    ListSink.clear(name)
    return results, runtime, demon


@settings(max_examples=30)
@given(scripts(), st.integers(1, 3), st.integers(0, 2**16), st.sampled_from([0, 0, 700]))
def test_lost_attempts_shuffle_files_and_slots_do_not_change_what_a_loop_does(
    script: list[Any], parallelism: int, seed: int, checkpoint_every_ms: int
) -> None:
    results, _, _ = run_tokens(script, parallelism, seed, 0.05, checkpoint_every_ms)
    check(results, tokens_of(script))


def test_a_lost_host_gets_its_part_of_the_feedback_from_the_checkpoint() -> None:
    results, runtime, demon = run_tokens([("a", 0, 9), ("b", 1, 9)], 2, 3, 0.1, 0)
    check(results, [("a", 0, 9), ("b", 1, 9)])
    assert demon.done["loses host"] > 0
    assert sum(report.restored_tasks for report in runtime.master.reports) > 0
    assert sum(report.replayed_tasks for report in runtime.master.reports) > 0


def test_with_epochs_since_the_checkpoint_a_lost_host_takes_the_loop_back_to_it() -> None:
    results, runtime, demon = run_tokens([("a", 0, 9), ("b", 1, 9)], 2, 5, 0.05, 700)
    check(results, [("a", 0, 9), ("b", 1, 9)])
    assert demon.done["loses host"] > 0
    assert runtime.failures > 0
