"""add_sink: functions that write, at least once and, with transactions of another system, exactly once."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from penstock.common import WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import RuntimeContext, StreamExecutionEnvironment
from penstock.datastream.functions import SinkContext, SinkFunction, TwoPhaseCommitSinkFunction
from penstock.errors import JobDefinitionError
from penstock.runtime.embedded.crash import POINTS
from penstock.testing import CrashPlan, CrashPoint
from tests.kafka.jobs import embedded

RECORDS = 120
IN_ORDER = [point for point in POINTS if "upload" not in point]  # here snapshots are stored at once
OPTIONS = {"penstock.epoch.max-records": "20", "restart-strategy.fixed-delay.delay": "0 ms"}


@dataclass
class Transaction:
    values: list[Any] = field(default_factory=list)
    state: str = "open"


@dataclass
class Elsewhere:
    """Another system: it outlives every simulated crash, and is strict about what may follow what."""

    transactions: dict[int, Transaction] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    fail: dict[str, int] = field(
        default_factory=dict
    )  # the n-th call of a method raises, after its work if it is negative
    ids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def call(self, name: str, transaction: int | None, state: str | None, allowed: set[str]) -> None:
        self.calls[name] += 1
        number = self.calls[name]
        if self.fail.get(name) == number:
            raise OSError(f"{name} failed")
        if transaction is not None and state is not None:
            found = self.transactions[transaction]
            assert found.state in allowed, f"{name} of a transaction that is {found.state}"
            found.state = state
        if self.fail.get(name) == -number:
            raise OSError(f"the answer of {name} was lost")

    @property
    def visible(self) -> list[Any]:
        return sorted(v for t in self.transactions.values() if t.state == "committed" for v in t.values)

    @property
    def states(self) -> set[str]:
        return {transaction.state for transaction in self.transactions.values()}


_systems: dict[str, Elsewhere] = {}


@pytest.fixture
def system(tmp_path: Path) -> Iterator[Elsewhere]:
    _systems[str(tmp_path)] = Elsewhere()
    yield _systems[str(tmp_path)]
    del _systems[str(tmp_path)]


class ToElsewhere(TwoPhaseCommitSinkFunction[int]):
    def __init__(self, name: str) -> None:
        self.name = name
        self.opened = False

    @property
    def system(self) -> Elsewhere:
        return _systems[self.name]

    def open(self, runtime_context: RuntimeContext) -> None:
        self.opened = True

    def begin_transaction(self) -> int:
        assert self.opened
        number = next(self.system.ids)
        self.system.transactions[number] = Transaction()
        self.system.call("begin_transaction", None, None, set())
        return number

    def invoke(self, transaction: int, value: Any, context: SinkContext) -> None:
        assert self.system.transactions[transaction].state == "open"
        self.system.transactions[transaction].values.append(value)

    def pre_commit(self, transaction: int) -> None:
        self.system.call("pre_commit", transaction, "prepared", {"open"})

    def commit(self, transaction: int) -> None:
        self.system.call("commit", transaction, "committed", {"prepared"})

    def abort(self, transaction: int) -> None:
        self.system.call("abort", transaction, "aborted", {"open", "prepared", "aborted"})

    def recover_and_commit(self, transaction: int) -> None:
        self.system.call("recover_and_commit", transaction, "committed", {"prepared", "committed"})

    def recover_and_abort(self, transaction: int) -> None:
        self.system.call("recover_and_abort", transaction, "aborted", {"open", "prepared", "aborted"})


def copying(folder: Path) -> Any:
    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.from_sequence(0, RECORDS - 1).key_by(lambda n: n % 7).map(lambda n: n)
        numbers.add_sink(ToElsewhere(str(folder))).uid("out")

    return build


def assert_exact(system: Elsewhere) -> None:
    assert system.visible == list(range(RECORDS))
    assert system.states <= {"committed", "aborted"}, "a transaction was left behind"


@pytest.mark.parametrize("occurrence", [1, 3])
@pytest.mark.parametrize("point", IN_ORDER)
def test_a_process_that_dies_at_any_point_leaves_every_record_once_and_no_transaction_behind(
    point: CrashPoint, occurrence: int, system: Elsewhere, tmp_path: Path
) -> None:
    first: tuple[CrashPoint, int] = ("process", 9) if point == "during-restore" else (point, occurrence)
    crashes = CrashPlan(
        [first, ("during-restore", occurrence)] if point == "during-restore" else [first, (point, occurrence + 2)]
    )
    embedded(tmp_path, copying(tmp_path), OPTIONS, crashes).run()
    assert crashes.fired
    assert_exact(system)
    if point in ("after-manifest", "after-commit"):
        assert system.calls["recover_and_commit"] > 0
    if point == "before-manifest":
        assert system.calls["recover_and_abort"] > 0


@pytest.mark.parametrize("method", ["begin_transaction", "pre_commit", "commit"])
@pytest.mark.parametrize("number", [2, -2], ids=["before its work", "after its work"])
def test_a_method_that_fails_before_or_after_its_work_is_made_good(
    method: str, number: int, system: Elsewhere, tmp_path: Path
) -> None:
    system.fail[method] = number
    job = embedded(tmp_path, copying(tmp_path), OPTIONS)
    job.run()
    assert job.failures == 1
    assert system.visible == list(range(RECORDS))
    if method == "begin_transaction":
        # The only moment nobody can help: it was begun, and died before it could say so.
        system.transactions.pop(2)
    assert_exact(system)


def test_without_faults_every_transaction_is_committed_once_by_commit(system: Elsewhere, tmp_path: Path) -> None:
    embedded(tmp_path, copying(tmp_path), OPTIONS).run()
    assert_exact(system)
    assert set(system.calls) == {"begin_transaction", "pre_commit", "commit"}
    assert len(set(system.calls.values())) == 1
    assert system.calls["commit"] > 5


def test_a_job_that_is_cancelled_in_the_middle_aborts_what_is_open_when_it_is_resumed(
    system: Elsewhere, tmp_path: Path
) -> None:
    crashes = CrashPlan([("before-manifest", 3)])
    job = embedded(tmp_path, copying(tmp_path), OPTIONS, crashes)
    job._recover = _raise  # type: ignore[method-assign]  # the process is gone: nobody recovers
    with pytest.raises(BaseException, match="simulated crash"):
        job.run()
    assert "prepared" in system.states
    embedded(tmp_path, copying(tmp_path), OPTIONS).run()
    assert_exact(system)


def _raise(error: BaseException) -> None:
    raise error


# ---------------------------------------------------------------- functions without transactions


class Noting(SinkFunction):
    noted: list[Any] = []  # noqa: RUF012 - outlives every copy, as a file would
    life: ClassVar[list[str]] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        self.life.append(f"open {runtime_context.get_index_of_this_subtask()}")

    def invoke(self, value: Any, context: SinkContext) -> None:
        self.noted.append(
            (value, context.timestamp(), context.current_watermark() < 1000, context.current_processing_time() > 0)
        )

    def close(self) -> None:
        self.life.append("close")


class _Stamp(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value) * 10


def test_a_sink_function_is_opened_given_each_record_with_its_context_and_closed(tmp_path: Path) -> None:
    Noting.noted.clear()
    Noting.life.clear()

    def build(env: StreamExecutionEnvironment) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Stamp())
        stamped = env.from_sequence(0, 9).assign_timestamps_and_watermarks(strategy)
        stamped.add_sink(Noting()).set_parallelism(2)

    embedded(tmp_path, build).run()
    assert sorted(Noting.noted) == [(n, n * 10, True, True) for n in range(10)]
    assert sorted(Noting.life) == ["close", "close", "open 0", "open 1"]


def test_add_sink_refuses_what_is_no_sink_function() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(JobDefinitionError, match="add_sink takes a SinkFunction or a TwoPhaseCommitSinkFunction"):
        env.from_collection([1]).add_sink(print)  # type: ignore[arg-type]
