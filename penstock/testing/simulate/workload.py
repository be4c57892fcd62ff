"""The job of a program: a few branches over two inputs, in one driver's version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from penstock.common import Configuration, Duration, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.driver.description import JobDescription
from penstock.testing.simulate import outside
from penstock.testing.simulate.branches import BRANCHES
from penstock.testing.simulate.inputs import ArrivingSource
from penstock.testing.simulate.program import Program, Version


def sinks_of(branches: tuple[str, ...]) -> list[str]:
    """The sinks of a job: one for each branch, and one for what is late in its windows."""
    return [*branches, *(f"late {branch}" for branch in branches if branch in ("windows", "sessions"))]


def job_of(
    program: Program, version: Version, *, lineage: str, path: str | None, local_dir: str | None
) -> JobDescription:
    """`lineage`: what is committed under one name. `path`: a savepoint that the job starts from."""
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    config.set_string("state.backend.type", program.backend)
    if local_dir is not None:
        config.set_string("state.backend.rocksdb.localdir", local_dir)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(version.parallelism).set_max_parallelism(8)
    if not version.chained:
        env.disable_operator_chaining()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Stamp())
    if program.idleness_ms is not None:
        strategy = strategy.with_idleness(Duration.of_millis(program.idleness_ms))
    inputs = [
        env.from_source(ArrivingSource(program.world, brings), strategy, brings.name).uid(brings.name)
        for brings in program.inputs
        if not (version.removed and brings.name == "b")
    ]
    streams = inputs[::-1] if version.turned else inputs
    stream = streams[0].union(*streams[1:]) if streams[1:] else streams[0]
    if version.added:
        stream = stream.map(_same).uid("added")
    if version.mistyped:
        stream = stream.map(_mistyped, output_type=_DECLARED).uid("declared").map(list).uid("undeclared")

    def sink(results: DataStream, name: str) -> None:
        results.sink_to(outside.OutsideSink(program.world, f"{lineage} {name}", program.bulky)).uid(f"{name}-out")

    for branch in program.branches:
        BRANCHES[branch](program, version, stream, inputs, sink)
    job = env._describe("simulated")
    settings = replace(
        job.settings,
        recovery_path=path,
        epoch_max_records=version.max_records,
        ignore_unclaimed_state=version.removed,
        **program.settings,
    )
    return replace(job, job_id=lineage, settings=settings)


class _Stamp(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[2])


def _same(record: Any) -> Any:
    return record


_DECLARED: Final = Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG()])


def _mistyped(record: Any) -> Any:
    return record[0], record[1], float(record[2])
