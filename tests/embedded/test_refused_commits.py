"""Sinks whose target refuses: before the job runs, or when a checkpoint has promised the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.base import Committer, Sink, SinkWriter, WriterContext
from penstock.connectors.staging import StagedCommitter, StagedOutput, StagingWriter
from penstock.datastream import StreamExecutionEnvironment
from penstock.errors import CommitRefusedError, ConfigurationError, PenstockError
from penstock.records import Block
from penstock.records.convert import to_rows
from penstock.testing import EmbeddedJob
from tests.kafka.jobs import embedded


@dataclass
class Target:
    """Another system, and what it thinks of commits."""

    refuses: list[BaseException] = field(default_factory=list)
    unready: list[BaseException] = field(default_factory=list)
    committed: dict[str, int] = field(default_factory=dict)
    tries: int = 0


TARGETS: dict[str, Target] = {}  # a job's sinks are pickled


class RefusingSink(Sink):
    def __init__(self, name: str) -> None:
        self._name = name

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _Writer(context)

    def create_committer(self, sink_id: str) -> Committer:
        return _Committer(sink_id, self._name)


class _Writer(StagingWriter[int]):
    def encode(self, block: Block) -> int:
        return len(to_rows(block))

    def pack(self, parts: list[int]) -> bytes:
        return str(sum(parts)).encode()


class _Committer(StagedCommitter):
    def __init__(self, sink_id: str, name: str) -> None:
        super().__init__(sink_id)
        self._target = TARGETS[name]

    def check(self) -> None:
        if self._target.unready:
            raise self._target.unready.pop(0)

    def commit_staged(self, epoch: int, name: str, staged: Sequence[StagedOutput]) -> None:
        self._target.tries += 1
        if epoch == 2 and self._target.refuses:
            raise self._target.refuses.pop(0)
        self._target.committed[name] = sum(int(output.data or b"0") for output in staged)


def _job(folder: Path, *names: str) -> EmbeddedJob:
    def build(env: StreamExecutionEnvironment) -> None:
        numbers: Any = env.from_sequence(0, 99)
        for name in names:
            numbers.sink_to(RefusingSink(name)).uid(name)

    return embedded(folder, build, {"penstock.epoch.max-records": "40"})


@pytest.fixture
def targets() -> tuple[Target, Target]:
    TARGETS.clear()
    TARGETS.update(first=Target(), second=Target())
    return TARGETS["first"], TARGETS["second"]


def test_the_third_refusal_ends_the_job_which_goes_on_when_it_is_started_again(
    targets: tuple[Target, Target], tmp_path: Path
) -> None:
    first, second = targets
    first.refuses = [CommitRefusedError("no room")] * 3
    job = _job(tmp_path, "first", "second")
    with pytest.raises(CommitRefusedError, match="no room"):
        job.run()
    assert job.failures == 2
    assert sum(first.committed.values()) == 40
    assert sum(second.committed.values()) == 80, "one sink does not keep the other from committing"
    _job(tmp_path, "first", "second").run()
    assert [sum(target.committed.values()) for target in targets] == [100, 100]


def test_a_refusal_that_passes_and_other_errors_are_for_the_restart_strategy(
    targets: tuple[Target, Target], tmp_path: Path
) -> None:
    first, _ = targets
    first.refuses = [
        CommitRefusedError("not yet"),
        CommitRefusedError("not yet"),
        *(PenstockError(f"away {n}") for n in range(5)),
    ]
    job = _job(tmp_path, "first")
    job.run()
    assert job.failures == 7
    assert sum(first.committed.values()) == 100


def test_targets_are_checked_before_the_job_runs_until_they_are_ready(
    targets: tuple[Target, Target], tmp_path: Path
) -> None:
    first, second = targets
    second.unready = [PenstockError("away"), PenstockError("away")]
    job = _job(tmp_path, "first", "second")
    job.run()
    assert job.failures == 2
    assert sum(second.committed.values()) == 100
    first.unready = [ConfigurationError("no such table")]
    never = _job(tmp_path / "never", "first", "second")
    with pytest.raises(ConfigurationError, match="no such table"):
        never.run()
    assert (never.failures, never.master.epoch) == (0, 0)
