"""A loop in slots that lose attempts, shuffle files and whole processes: what Spark would do, done by hand in one process.

    level 0 of slot 0, 1, …  ═ rows by target ═▶  level 1 of slot 0, 1, …  ═▶  …  ═▶  acknowledgements

Before, between and after the runs that count, a seeded demon repeats runs whose output is thrown away (a relay died, a shuffle
file was lost) and replaces slots by empty ones (a process died).
"""

from __future__ import annotations

import itertools
import pickle
import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.checkpoint.snapshot_writer import SnapshotWriter
from penstock.checkpoint.upload import ImmediateUploads
from penstock.common import WatermarkStrategy
from penstock.datastream import StreamExecutionEnvironment
from penstock.errors import StateLostError
from penstock.jobmanager.description import JobDescription
from penstock.jobmanager.epoch import EpochPlan, TaskAck
from penstock.jobmanager.job_master import JobMaster
from penstock.slot.exchange_rows import _END, _IDLE, _WATERMARK, ACK_LEVEL
from penstock.slot.level_run import LevelRun
from penstock.slot.tasks import HeldTasks
from penstock.testing import ListSink, ScriptedSource
from tests.embedded import jobs
from tests.embedded.test_iterations import build_tokens, check, scripts, tokens_of

_names = itertools.count()


class Cluster:
    """As many slots as the job needs. `demon` decides what goes wrong; `recovered` counts what a task said about itself."""

    def __init__(self, job: JobDescription, master: JobMaster, demon: random.Random, mischief: float) -> None:
        self._job, self._master, self._demon, self._mischief = job, master, demon, mischief
        self._attempts = itertools.count()
        self._slots = [self._new_slot() for _ in range(job.graph.slots)]
        self.recovered: Counter[str] = Counter()
        self.restarts = 0

    def _new_slot(self) -> HeldTasks:
        return HeldTasks(self._job.graph, self._master.store)

    def run(self) -> None:
        self._master.start()
        while not self._master.finished:
            plan = self._master.plan_epoch(self._master.epoch + 1)
            self._master.clock.advance(200)  # type: ignore[attr-defined]
            if plan is None:
                continue
            try:
                acks = self._epoch(plan)
            except StateLostError:
                self.restarts += 1
                self._master.recover()
                continue
            self.recovered.update(ack.recovered for ack in acks)
            self._master.complete_epoch(plan.epoch, acks)

    def _epoch(self, plan: EpochPlan) -> list[TaskAck]:
        graph = self._job.graph
        rows: list[pa.RecordBatch] = []
        ran: list[tuple[int, int, list[pa.RecordBatch], list[pa.RecordBatch]]] = []
        for level in range(graph.levels):
            passing = [self._where(batch, "level", level, keep=False) for batch in rows]
            out = []
            for slot in range(graph.slots):
                mine = [self._where(self._where(batch, "level", level), "target", slot) for batch in rows]
                if self._strikes():
                    self._run(plan, level, slot, mine[: self._demon.randint(0, len(mine))], lost=True)
                if self._strikes():
                    self._slots[slot] = self._new_slot()
                made = self._run(plan, level, slot, mine)
                ran.append((level, slot, mine, made))
                out += made
            rows = [*passing, *out]
            if self._strikes():  # a shuffle file is lost: an earlier run is repeated, after later levels have run
                earlier, slot, mine, made = self._demon.choice(ran)
                assert _said_again(made, self._run(plan, earlier, slot, mine))
        assert all(level == ACK_LEVEL for batch in rows for level in batch.column(1).to_pylist())
        return [pickle.loads(payload) for batch in rows for payload in batch.column(6).to_pylist()]

    def _strikes(self) -> bool:
        return self._demon.random() < self._mischief

    @staticmethod
    def _where(batch: pa.RecordBatch, name: str, value: int, *, keep: bool = True) -> pa.RecordBatch:
        column = batch.column(batch.schema.get_field_index(name)).to_pylist()
        return batch.filter(pa.array([(cell == value) is keep for cell in column], pa.bool_()))

    def _run(
        self, plan: EpochPlan, level: int, slot: int, rows: list[pa.RecordBatch], *, lost: bool = False
    ) -> list[pa.RecordBatch]:
        out: list[pa.RecordBatch] = []
        run = LevelRun(
            graph=self._job.graph,
            settings=self._job.settings,
            job_id=self._job.job_id,
            job_parameters={},
            writer=SnapshotWriter(
                self._master.store, self._job.settings, ImmediateUploads(self._master.uploads.inbox.put)
            ),
            held=self._slots[slot],
            plan=pickle.loads(pickle.dumps(plan)),
            level=level,
            slot=slot,
            slot_name=f"slot-{slot}",
            attempt=str(next(self._attempts)),
            send=out.append,
        )
        for batch in rows:
            run.receive(batch)
        if not lost:
            run.finish()
        return out


def _said_again(made: list[pa.RecordBatch], again: list[pa.RecordBatch]) -> bool:
    """A run that is repeated sends the same records and barriers, and says at least as much of event time on every channel. A task
    that was restored meanwhile says once more where it stands, which changes nothing."""
    return _records(made) == _records(again) and _time(made).items() <= _time(again).items()


def _rows(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Those for other tasks: acknowledgements name their attempt, so two are never the same."""
    return [row for batch in batches for row in batch.to_pylist() if row["level"] != ACK_LEVEL]


def _records(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [{**row, "seq": None} for row in _rows(batches) if row["kind"] not in (_WATERMARK, _IDLE, _END)]


def _time(batches: list[pa.RecordBatch]) -> dict[tuple[int, ...], bytes]:
    """The last word of each kind on each channel."""
    where = ("target", "vertex", "channel", "kind")
    kinds = (_WATERMARK, _IDLE, _END)
    return {tuple(row[name] for name in where): row["payload"] for row in _rows(batches) if row["kind"] in kinds}


def run_tokens(
    script: list[Any], parallelism: int, seed: int, mischief: float, checkpoint_every_ms: int
) -> tuple[list[Any], Cluster]:
    name = f"slots-{next(_names)}"
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_max_parallelism(8)
    stream = env.from_source(ScriptedSource(script), WatermarkStrategy.no_watermarks(), "source")
    build_tokens(stream, parallelism, "rebalance").sink_to(ListSink(name)).set_parallelism(parallelism)
    chosen = jobs.settings(checkpoint_interval_ms=checkpoint_every_ms)
    job = replace(env._describe("slots"), job_id="job", settings=chosen)
    cluster = Cluster(job, jobs.master_of(job, jobs.memory_storage()), random.Random(seed), mischief)
    cluster.run()
    results = ListSink.results(name)
    ListSink.clear(name)
    return results, cluster


@settings(max_examples=30)
@given(scripts(), st.integers(1, 3), st.integers(0, 2**16), st.sampled_from([0, 0, 700]))
def test_lost_attempts_shuffle_files_and_slots_do_not_change_what_a_loop_does(
    script: list[Any], parallelism: int, seed: int, checkpoint_every_ms: int
) -> None:
    results, _ = run_tokens(script, parallelism, seed, 0.05, checkpoint_every_ms)
    check(results, tokens_of(script))


def test_a_lost_slot_gets_its_part_of_the_feedback_from_the_checkpoint() -> None:
    results, cluster = run_tokens([("a", 0, 9), ("b", 1, 9)], 2, 3, 0.1, 0)
    check(results, [("a", 0, 9), ("b", 1, 9)])
    assert cluster.recovered["restored"] > 0
    assert cluster.recovered["replayed"] > 0


def test_with_epochs_since_the_checkpoint_a_lost_slot_takes_the_loop_back_to_it() -> None:
    results, cluster = run_tokens([("a", 0, 9), ("b", 1, 9)], 2, 5, 0.05, 700)
    check(results, [("a", 0, 9), ("b", 1, 9)])
    assert cluster.restarts > 0
