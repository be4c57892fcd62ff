"""The JobMaster: plans epochs, completes checkpoints, commits sinks, takes a job back to its last checkpoint.

It knows neither Spark nor threads: a runtime asks `plan_epoch`, runs the plan, and hands the acknowledgements to
`complete_epoch`, or one by one to `acknowledge` when several epochs are under way. The order there is the protocol of the
design's §4: manifest (the instant of commit), then sinks, and only then may the runtime log the epoch as done.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.checkpoint import layout, ownership
from penstock.checkpoint.manifest import Manifest, StateHandle, TaskState, pack_committables, unpack_committables
from penstock.checkpoint.storage import CheckpointStorage, FileMissingError
from penstock.checkpoint.store import AlreadyCommitted, CheckpointStore, Committed, Fenced
from penstock.connectors.base import Committer, Json, Sink, Source, SourcePlan, SplitEnumerator, SplitRange
from penstock.errors import FencedError, JobDefinitionError, ProtocolError
from penstock.graph.execution_graph import ExecutionGraph
from penstock.jobmanager import faults
from penstock.jobmanager.epoch import EpochPlan, EpochReport, SourceRanges, TaskAck
from penstock.jobmanager.reporting import epoch_report
from penstock.jobmanager.settings import JobSettings
from penstock.protocol.coordinator import CheckpointCoordinator, CompletedEpoch, Duplicate, Unknown
from penstock.protocol.ids import CheckpointId, Epoch, Generation, TaskId
from penstock.state.key_groups import key_group_range


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDescription:
    """A job as submitted: its graph, and what the driver itself runs of its sources and sinks."""

    job_id: str
    graph: ExecutionGraph
    sources: Mapping[str, Source]  # by operator id; Spark's own sources are not in here
    sinks: Mapping[str, Sink]
    settings: JobSettings
    job_parameters: Mapping[str, str] = field(default_factory=dict)


class JobMaster:
    def __init__(
        self,
        job: JobDescription,
        storage: CheckpointStorage | None,
        *,
        clock: Callable[[], int] = lambda: int(time.time() * 1000),
        reach: Callable[[faults.CrashPoint, int], None] = faults.reach,
    ) -> None:
        self.reach = reach  # called at the named points where a test may kill the driver
        self.job = job
        self.settings = job.settings
        self.storage = storage
        self.store = None if storage is None else CheckpointStore(storage, job.settings.retained)
        self.clock = clock
        self._tasks = list(job.graph.tasks())
        self._committers: dict[str, Committer] = {
            sink_id: sink.create_committer(sink_id) for sink_id, sink in job.sinks.items()
        }
        self.generation = Generation(0)
        self.job_attempt = -1
        self.epoch = 0  # the last epoch that completed
        self.finished = False
        self.restored: Manifest | None = None
        self.reports: list[EpochReport] = []
        self.on_report: Callable[[EpochReport], None] | None = None
        self._enumerators: dict[str, SplitEnumerator] = {}
        self._reset_volatile()

    def _reset_volatile(self) -> None:
        self._coordinator: CheckpointCoordinator[TaskAck] = CheckpointCoordinator(self._tasks)
        self._accepted: dict[TaskId, str] = {}
        self._chains: dict[TaskId, tuple[StateHandle, ...]] = {}
        self._source_states: dict[str, Json] = {}
        self._source_done: set[str] = set()
        self._pending: dict[int, tuple[EpochPlan, dict[str, Json], Json, float]] = {}
        self._uncommitted: dict[str, list[Any]] = {}  # pre-committed since the last checkpoint, by sink
        self._last_checkpoint_ms = self.clock()
        self._last_run_ms = 0
        self._known_splits: dict[str, set[str]] = {}
        self._plan_files: set[int] = set()
        self._dirty = False
        self._processing_time = 0
        self._next_timer: int | None = None
        self._logged_plans: dict[int, dict[str, Json]] = {}
        self._last_planned = 0

    # ---------------------------------------------------------------- start and recovery

    def start(self) -> None:
        """Take the job folder over; the first attempt. Raises FencedError if a live driver owns it."""
        if self.storage is not None:
            self.generation = ownership.acquire(self.storage, ownership.OwnerInfo.current())
        self.recover()

    def recover(self) -> None:
        """Go (back) to the newest checkpoint: state, positions, and output that was promised but perhaps not made."""
        self.job_attempt += 1
        self._reset_volatile()
        self._close_enumerators()
        manifest = None
        if self.store is not None:
            found = self.store.latest_readable(fall_back=self.settings.fall_back_to_older)
            manifest = found.manifest
        self.restored = manifest
        self.epoch = 0 if manifest is None else int(manifest.epoch)
        self._last_planned = self.epoch
        self._coordinator.reset(self.epoch)
        version = self.base_version
        self._accepted = dict.fromkeys(self._tasks, version)
        if manifest is not None:
            self._adopt(manifest)
        for sink_id, committer in self._committers.items():
            if manifest is not None and sink_id in manifest.committables:
                # The driver may have died between manifest and commit: commit again, it is idempotent.
                committer.commit(self.epoch, unpack_committables(manifest.committables[sink_id], sink=sink_id))
            committer.discard_after(self.epoch)
        self.finished = manifest is not None and manifest.finished
        for operator_id, source in self.job.sources.items():
            enumerator = self._enumerators[operator_id] = source.create_enumerator()
            if operator_id in self._source_states:
                enumerator.restore(self._source_states[operator_id])
        self._load_logged_plans()

    @property
    def base_version(self) -> str:
        return f"{self.generation}.{self.job_attempt}@{self.epoch if self.restored else 0}"

    def _adopt(self, manifest: Manifest) -> None:
        self._check_claims(manifest)
        self._source_states = {k: v["state"] for k, v in manifest.sources.items()}
        self._source_done = {k for k, v in manifest.sources.items() if v["finished"]}
        self._processing_time = manifest.processing_time_ms
        vertices = {v.state_id: v for v in self.job.graph.job.vertices.values()}
        for state in manifest.tasks:
            vertex = vertices.get(state.vertex)
            if vertex is not None and vertex.parallelism == state.parallelism:
                self._chains[TaskId(vertex.id, state.subtask)] = state.handles

    def _check_claims(self, manifest: Manifest) -> None:
        """State that no operator of this job would pick up is refused, not dropped."""
        graph = self.job.graph.job
        if manifest.max_parallelism != graph.max_parallelism:
            raise JobDefinitionError(
                f"checkpoint {manifest.checkpoint_id} was taken with max parallelism {manifest.max_parallelism}, this job has "
                f"{graph.max_parallelism}: keys would belong to other key groups. Call env.set_max_parallelism"
                f"({manifest.max_parallelism})"
            )
        unclaimed = sorted(set(manifest.statistics.get("stateful", ())) - set(graph.operators()))
        if unclaimed and not self.settings.ignore_unclaimed_state:
            raise JobDefinitionError(
                f"checkpoint {manifest.checkpoint_id} holds state of operators {unclaimed} that this job does not have (it has "
                f"{sorted(graph.operators())}). Give the operators their old uids, or set "
                "execution.state-recovery.ignore-unclaimed-state to true to drop that state"
            )

    def _load_logged_plans(self) -> None:
        """Plans of epochs that were logged but did not complete: the same offsets are read again.

        Each names the plan it follows. One whose predecessor is not here (a fall-back to an older checkpoint, a file that
        is gone) starts at other positions than the job now has: it and all later ones are dropped and planned anew.
        """
        if self.storage is None:
            return
        last = self.epoch
        self._plan_files = {int(epoch) for epoch in layout.planned_epochs(self.storage.list(layout.EPOCHS))}
        for epoch in sorted(e for e in self._plan_files if e > self.epoch):
            try:
                logged = json.loads(self.storage.get(layout.epoch_plan(epoch)))
            except (FileMissingError, ValueError):
                logged = {}
            if logged.get("after") == last:
                self._logged_plans[epoch] = logged
                last = epoch
            else:
                self.storage.delete(layout.epoch_plan(epoch))

    def _drop_logged_plans(self) -> None:
        for epoch in sorted(self._logged_plans, reverse=True):
            assert self.storage is not None
            self.storage.delete(layout.epoch_plan(epoch))
        self._logged_plans.clear()

    @property
    def replaying(self) -> bool:
        """Plans of an earlier attempt are still to be run again: epochs skipped then are skipped now, so nothing may be
        pending when the next one is planned."""
        return bool(self._logged_plans)

    # ---------------------------------------------------------------- planning

    def plan_epoch(
        self,
        epoch: int,
        *,
        stop: bool = False,
        spark_finished: Mapping[str, bool] | None = None,
        spark_data: bool = False,
    ) -> EpochPlan | None:
        """Decide and log what epoch `epoch` reads; None if there is nothing to do and the epoch may be skipped.

        `stop` makes it a checkpoint whatever the interval says. `spark_finished` names the sources Spark reads and
        whether they have ended; `spark_data` says that they bring something in this epoch.
        """
        if epoch != self.epoch + 1 + len(self._pending):
            raise ProtocolError(f"epoch {epoch} was planned after {self.epoch} with {len(self._pending)} pending")
        now = max(self.clock(), self._processing_time)
        logged = self._logged_plans.pop(epoch, None)
        if logged is None and self._logged_plans:
            # This epoch brought nothing and was skipped, and later ones were planned from where it started.
            if not (stop or spark_data or self._pending):
                self._skip(epoch)
                return None
            self._drop_logged_plans()
        if logged is not None:
            now = max(int(logged["processing_time"]), self._processing_time)
        sources: dict[str, SourceRanges] = {}
        states: dict[str, Json] = {}
        for operator_id, enumerator in self._enumerators.items():
            plan = self._plan_source(operator_id, enumerator, now, logged)
            sources[operator_id] = SourceRanges(ranges=plan.ranges, finished=plan.finished)
            states[operator_id] = {"state": plan.state, "finished": plan.finished}
            self._source_states[operator_id] = plan.state
            if plan.finished:
                self._source_done.add(operator_id)
        for operator_id, done in (spark_finished or {}).items():
            sources[operator_id] = SourceRanges(ranges=(), finished=done)
            states[operator_id] = {"state": None, "finished": done}
        finished = all(ranges.finished for ranges in sources.values())
        has_data = spark_data or self._brings_something(sources)
        if not (stop or finished or has_data or logged is not None or self._due(now)) and not self._pending:
            self._skip(epoch)
            return None
        self._processing_time = now
        self._last_run_ms = now
        restorable, self._dirty = not self._dirty, True
        plan_ = EpochPlan(
            epoch=epoch,
            checkpoint=self.store is not None and (stop or finished or self._checkpoint_due()),
            processing_time=now,
            sources=sources,
            accepted=dict(self._accepted),
            chain_lengths={task: len(self._chains.get(task, ())) for task in self._tasks},
            base_checkpoint=None if self.restored is None else int(self.restored.checkpoint_id),
            restorable=restorable,
            job_attempt=self.job_attempt,
        )
        if logged is None and self.storage is not None:
            self._plan_files.add(epoch)
            self.storage.put(layout.epoch_plan(epoch), _plan_bytes(plan_, states, after=self._last_planned))
        self._last_planned = epoch
        self._coordinator.begin(epoch, checkpoint=plan_.checkpoint)
        self._pending[epoch] = (plan_, states, None, time.perf_counter())
        self.reach("before-run", epoch)
        return plan_

    def _skip(self, epoch: int) -> None:
        self.epoch = epoch
        self._coordinator.reset(epoch)

    def _brings_something(self, sources: Mapping[str, SourceRanges]) -> bool:
        """Data, the end of a split, or a split that is new: its reader must hear of it even if it is empty."""
        found = False
        for operator_id, source in sources.items():
            known = self._known_splits.setdefault(operator_id, set())
            for part in source.ranges:
                found = found or part.start != part.end or part.last or part.split not in known
                known.add(part.split)
        return found

    def _checkpoint_due(self) -> bool:
        """By the clock, not by the epoch's processing time: a replayed epoch has that of its first run. A clock that was
        set back must not put checkpoints off until it has caught up."""
        interval = self.settings.checkpoint_interval_ms
        elapsed = self.clock() - self._last_checkpoint_ms
        return interval is not None and (elapsed >= interval or elapsed < 0)

    def _due(self, now: int) -> bool:
        """Reasons to run an epoch that brings no data: a timer, a checkpoint owed, idleness to be noticed."""
        timer = self._next_timer is not None and self._next_timer <= now
        owed = self._dirty and self.store is not None and self._checkpoint_due()
        return timer or owed or now - self._last_run_ms >= self.settings.quiet_interval_ms

    def _plan_source(
        self, operator_id: str, enumerator: SplitEnumerator, now: int, logged: dict[str, Json] | None
    ) -> SourcePlan:
        if operator_id in self._source_done:
            return SourcePlan(ranges=(), state=self._source_states[operator_id], finished=True, records=0)
        if logged is not None and operator_id in logged["sources"]:
            entry = logged["sources"][operator_id]
            plan = SourcePlan(
                ranges=tuple(SplitRange(**r) for r in entry["ranges"]), state=entry["state"], finished=entry["finished"]
            )
            fresh = self.job.sources[operator_id].create_enumerator()
            fresh.restore(plan.state)
            self._enumerators[operator_id] = fresh
            return plan
        return enumerator.plan(now_ms=now, max_records=self.settings.epoch_max_records)

    # ---------------------------------------------------------------- completion

    def complete_epoch(self, epoch: int, acks: Iterable[TaskAck], *, spark_offsets: Json = None) -> EpochReport:
        """All tasks have run `epoch`: manifest, then sinks. A missing acknowledgement is an error."""
        plan, states, _, started = self._pending[epoch]
        self._pending[epoch] = (plan, states, spark_offsets, started)
        reports = [report for ack in acks for report in self.acknowledge(ack)]
        if not reports or reports[-1].epoch != epoch:
            missing = ", ".join(str(task) for task in self._coordinator.missing(epoch))
            raise ProtocolError(f"epoch {epoch} ended without the acknowledgement of tasks {missing}")
        return reports[-1]

    def acknowledge(self, ack: TaskAck) -> list[EpochReport]:
        """One task has run its part of an epoch, durably. Completes, oldest first, the epochs that now lack nothing:
        usually none or one, more when an older one was awaited."""
        reports = []
        for outcome in self._coordinator.acknowledge(ack.epoch, ack.task, ack):
            match outcome:
                case CompletedEpoch():
                    reports.append(self._complete(outcome))
                case Unknown() | Duplicate():
                    raise ProtocolError(
                        f"task {ack.task} acknowledged epoch {ack.epoch} as {type(outcome).__name__} while epochs "
                        f"{list(self._coordinator.pending)} were pending: two attempts of one task reached the driver"
                    )
        return reports

    def _complete(self, completed: CompletedEpoch[TaskAck]) -> EpochReport:
        epoch = completed.epoch
        plan, states, spark_offsets, started = self._pending.pop(epoch)
        for task, ack in sorted(completed.acks.items()):  # committables are handed over in the order of subtasks
            self._accepted[task] = ack.attempt
            for sink_id, made in ack.committables.items():
                self._uncommitted.setdefault(sink_id, []).extend(made)
        timers = [t for ack in completed.acks.values() if (t := ack.next_processing_timer) is not None]
        self._next_timer = min(timers, default=None)
        self.epoch = epoch
        self.finished = plan.finished
        size, manifest_ms, commit_ms = self._make_durable(plan, states, completed, spark_offsets)
        report = epoch_report(
            self.job.graph,
            plan,
            completed.acks,
            wall_ms=self.clock(),
            duration_ms=(time.perf_counter() - started) * 1000,
            checkpoint_bytes=size,
            manifest_ms=manifest_ms,
            commit_ms=commit_ms,
            generation=int(self.generation),
        )
        self.reports.append(report)
        del self.reports[:-1000]
        if self.on_report is not None:
            self.on_report(report)
        self.reach("before-spark-log", epoch)
        return report

    def _make_durable(
        self, plan: EpochPlan, states: dict[str, Json], completed: CompletedEpoch[TaskAck], spark_offsets: Json
    ) -> tuple[int, float, float]:
        committables = dict(sorted(self._uncommitted.items()))
        size = manifest_ms = 0
        started = time.perf_counter()
        if self.store is not None:
            if not plan.checkpoint:
                return 0, 0.0, 0.0
            size = self._write_manifest(plan, states, completed, committables, spark_offsets)
            manifest_ms = (time.perf_counter() - started) * 1000  # type: ignore[assignment]
            self.reach("after-manifest", plan.epoch)
        self._uncommitted = {}
        started = time.perf_counter()
        for index, (sink_id, committer) in enumerate(self._committers.items()):
            if index or len(self._committers) == 1:
                self.reach("during-sink-commit", plan.epoch)
            committer.commit(plan.epoch, committables.get(sink_id, []))
        commit_ms = (time.perf_counter() - started) * 1000
        if self.store is not None:
            self.store.subsume()
            self._forget_plans(plan.epoch)
        return size, manifest_ms, commit_ms

    def _write_manifest(
        self,
        plan: EpochPlan,
        states: dict[str, Json],
        completed: CompletedEpoch[TaskAck],
        committables: dict[str, list[Any]],
        spark_offsets: Json,
    ) -> int:
        assert self.store is not None
        assert self.storage is not None
        graph, size = self.job.graph, 0
        tasks = []
        for task, ack in sorted(completed.acks.items()):
            if ack.handle is None:
                raise ProtocolError(f"task {task} acknowledged checkpoint {plan.epoch} without a state handle")
            chain = (ack.handle,) if ack.full else (*self._chains.get(task, ()), ack.handle)
            self._chains[task] = chain
            size += ack.snapshot_bytes
            vertex = graph.vertex(task)
            tasks.append(
                TaskState(
                    vertex=vertex.state_id,
                    subtask=task.subtask,
                    parallelism=vertex.parallelism,
                    key_group_range=key_group_range(task.subtask, vertex.parallelism, graph.job.max_parallelism),
                    handles=chain,
                )
            )
        manifest = Manifest(
            job_id=self.job.job_id,
            job_name=graph.job.job_name,
            checkpoint_id=CheckpointId(plan.epoch),
            epoch=Epoch(plan.epoch),
            generation=self.generation,
            created_ms=self.clock(),
            processing_time_ms=plan.processing_time,
            max_parallelism=graph.job.max_parallelism,
            sources=states,
            spark_offsets=spark_offsets,
            tasks=tuple(tasks),
            committables={sink: pack_committables(made) for sink, made in committables.items()},
            finished=plan.finished,
            statistics={
                "bytes": size,
                "stateful": sorted(n.operator_id for v in graph.job.vertices.values() for n in v.nodes if n.stateful),
            },
        )
        ownership.check_current(self.storage, self.generation)
        self.reach("before-manifest", plan.epoch)
        match self.store.commit(manifest):
            case Committed() | AlreadyCommitted():
                pass
            case Fenced(by_generation=other):
                raise FencedError(
                    f"checkpoint {plan.epoch} of job {self.job.job_id} was written by generation {other} while this driver "
                    f"is generation {self.generation}: another driver runs this job; this one stops and changes nothing"
                )
        self.restored = manifest
        self._last_checkpoint_ms = self.clock()
        self._dirty = False
        return size

    def _forget_plans(self, epoch: int) -> None:
        """Plans up to a checkpoint are in it: nobody will replay them."""
        assert self.storage is not None
        for done in sorted(planned for planned in self._plan_files if planned <= epoch):
            self.storage.delete(layout.epoch_plan(done))
            self._plan_files.discard(done)

    def close(self) -> None:
        self._close_enumerators()
        for committer in self._committers.values():
            committer.close()
        if self.storage is not None and self.generation:
            ownership.release(self.storage, self.generation)

    def _close_enumerators(self) -> None:
        for enumerator in self._enumerators.values():
            enumerator.close()
        self._enumerators = {}


def _plan_bytes(plan: EpochPlan, states: Mapping[str, Json], *, after: int) -> bytes:
    return json.dumps(
        {
            "epoch": plan.epoch,
            "after": after,
            "processing_time": plan.processing_time,
            "sources": {
                operator_id: {
                    "ranges": [asdict(r) for r in ranges.ranges],
                    "finished": ranges.finished,
                    "state": states[operator_id]["state"],
                }
                for operator_id, ranges in plan.sources.items()
            },
        }
    ).encode()
