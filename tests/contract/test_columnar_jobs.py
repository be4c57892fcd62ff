"""Whole jobs on both paths: the same results under crashes, cuts and any parallelism; and columns stay columns."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Row, Types
from penstock.common.watermark_strategy import ColumnTimestampAssigner, WatermarkStrategy
from penstock.connectors.base import (
    Committer,
    Sink,
    SinkWriter,
    Source,
    SourcePlan,
    SplitEnumerator,
    SplitRange,
    SplitReader,
    WriterContext,
)
from penstock.datastream import DataStream, OutputTag, StreamExecutionEnvironment
from penstock.datastream.aggregates import count, max_, sum_
from penstock.datastream.window import (
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from penstock.records import Block, Columns, convert
from penstock.runtime.embedded.crash import CrashPoint
from penstock.testing import CrashPlan, EmbeddedJob, Epoch, ListSink, ScriptedSource, Split, Stamped, Watermark
from tests.embedded.jobs import master_of, memory_storage
from tests.embedded.jobs import settings as job_settings

EVENT = Types.ROW_NAMED(["key", "value"], [Types.STRING(), Types.LONG()])
_names = itertools.count()


@st.composite
def scripts(draw: st.DrawFn) -> list[Any]:
    """Two splits over up to three epochs, with watermarks anywhere: many records are late."""
    record = st.builds(
        lambda key, value, time: Stamped((key, value), time),
        st.sampled_from(["a", "b", None]),
        st.one_of(st.none(), st.integers(-9, 9)),
        st.integers(0, 30),
    )
    item = st.one_of(record, record, record, st.integers(0, 40).map(Watermark))
    script: list[Any] = []
    for number in range(draw(st.integers(1, 3))):
        script += [Epoch()] if number else []
        for split in "xy":
            script += [Split(split), *draw(st.lists(item, max_size=8))]
    return script


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    parallelism: int
    block_size: int
    seed: int
    crashes: list[tuple[CrashPoint, int]]


_POINTS: st.SearchStrategy[CrashPoint] = st.sampled_from(["process", "after-snapshot", "after-manifest"])
runs = st.builds(
    Run,
    parallelism=st.integers(1, 3),
    block_size=st.sampled_from([1, 2, 5, 100]),
    seed=st.integers(0, 2**16),
    crashes=st.lists(st.tuples(_POINTS, st.integers(1, 8)), max_size=2),
)


def run_job(script: list[Any], assigner: Any, lateness: int, path: str, run: Run) -> tuple[Any, int]:
    """Of every key its results in order, and its late records in order; and how often the job crashed."""
    fired, late, tag = f"fired-{next(_names)}", f"late-{next(_names)}", OutputTag("late")
    env = StreamExecutionEnvironment.get_execution_environment().set_max_parallelism(8)
    stream = env.from_source(ScriptedSource(script), WatermarkStrategy.no_watermarks(), "source")
    # One source subtask: then the order of records and watermarks of a key is the script's, whatever the interleaving.
    declared = stream.map(lambda v: Row(key=v[0], value=v[1]), EVENT if path == "columns" else None)
    windows = declared.key_by("key").window(assigner).allowed_lateness(lateness).side_output_late_data(tag)
    result = windows.agg(n=count(), total=sum_("value"), high=max_("value")).set_parallelism(run.parallelism)
    again = isinstance(assigner, EventTimeSessionWindows) and lateness > 0  # sessions that fire again are rows
    assert result._node.columnar is (path == "columns" and not again)
    result.sink_to(ListSink(fired))
    result.get_side_output(tag).sink_to(ListSink(late))
    job = replace(env._describe("paths"), job_id="job", settings=job_settings(block_size=run.block_size))
    runtime = EmbeddedJob(
        job,
        master_of(job, memory_storage()),
        schedule="random",
        seed=run.seed,
        max_in_flight=2,
        crashes=CrashPlan(run.crashes),
    )
    runtime.run()
    seen: list[dict[Any, list[Any]]] = []
    for name in (fired, late):
        seen.append({})
        for row in ListSink.results(name):
            values = tuple(row.values()) if isinstance(row, dict) else tuple(row)
            seen[-1].setdefault(values[0], []).append(values)
        ListSink.clear(name)
    return seen, runtime.crashes


@settings(max_examples=80)
@given(
    script=scripts(),
    assigner=st.sampled_from(
        [
            TumblingEventTimeWindows(5, 0),
            SlidingEventTimeWindows(10, 5, 0),
            CumulativeEventTimeWindows(12, 4),
            EventTimeSessionWindows(3),
        ]
    ),
    lateness=st.sampled_from([0, 4, 20]),
    by_rows=runs,
    by_columns=runs,
)
def test_a_job_fires_the_same_for_every_key_over_rows_and_over_columns_however_it_is_run(
    script: list[Any], assigner: Any, lateness: int, by_rows: Run, by_columns: Run
) -> None:
    rows, _ = run_job(script, assigner, lateness, "rows", by_rows)
    columns, _ = run_job(script, assigner, lateness, "columns", by_columns)
    assert columns == rows


def test_late_firings_late_records_and_crashes_do_happen_in_these_jobs() -> None:
    script = [
        Stamped(("a", 1), 1),
        Watermark(6),
        Stamped(("a", 2), 2),
        Stamped(("a", 4), 3),
        Epoch(),
        Watermark(20),
        Stamped(("a", 8), 2),
    ]
    run = Run(parallelism=2, block_size=100, seed=3, crashes=[("process", 2), ("after-manifest", 1)])
    for path in ("rows", "columns"):
        (fired, late), crashes = run_job(script, TumblingEventTimeWindows(5, 0), 4, path, run)
        assert fired == {"a": [("a", 0, 5, 1, 1, 1), ("a", 0, 5, 2, 3, 2), ("a", 0, 5, 3, 7, 4)]}
        assert late == {"a": [("a", 8)]}
        assert crashes == 2


# -------------------------------------------------------------------- columns stay columns


class Sealed(pa.ExtensionType):  # type: ignore[misc]
    """Integers that cannot become Python objects."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "penstock.tests.sealed")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: pa.DataType, serialized: bytes) -> Sealed:
        return cls()

    def __arrow_ext_scalar_class__(self) -> type:
        return SealedScalar


class SealedScalar(pa.ExtensionScalar):  # type: ignore[misc]
    def as_py(self, **options: Any) -> Any:
        raise AssertionError("a Python object was made of a column")


class BatchSource(Source):
    """One batch, one split, one epoch."""

    bounded = True
    gives_columns = True

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def create_enumerator(self) -> SplitEnumerator:
        return _OneEpoch()

    def create_reader(self) -> SplitReader:
        return _BatchReader(self.batch)


class _OneEpoch(SplitEnumerator):
    def restore(self, state: Any) -> None:
        raise AssertionError("the job has one epoch")

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        whole = SplitRange(split="0", ordinal=0, start=0, end=1, last=True)
        return SourcePlan(ranges=(whole,), state=1, finished=True)


class _BatchReader(SplitReader):
    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def read(self, split: SplitRange, block_size: int) -> Iterator[Block]:
        for start in range(0, self.batch.num_rows, block_size):
            yield Columns(self.batch.slice(start, block_size))


class BatchSink(Sink):
    accepts_columns = True
    written: list[pa.RecordBatch]

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _BatchWriter()

    def create_committer(self, sink_id: str) -> Committer:
        return _NoCommitter()


class _BatchWriter(SinkWriter):
    def begin_epoch(self, epoch: int, attempt: str) -> None:
        pass

    def write(self, block: Block) -> None:
        assert isinstance(block, Columns)
        BatchSink.written.append(block.batch)

    def prepare_commit(self) -> list[Any]:
        return []


class _NoCommitter(Committer):
    def commit(self, epoch: int, committables: Any) -> None:
        pass


@pytest.fixture
def sealed() -> Iterator[pa.DataType]:
    """While it lasts, nothing in Penstock can turn columns into rows."""
    kind = Sealed()
    pa.register_extension_type(kind)
    with pytest.MonkeyPatch.context() as patch:
        for function in (convert.to_rows, convert.column_values):
            for name, module in list(sys.modules.items()):
                if name.startswith("penstock.") and getattr(module, function.__name__, None) is function:
                    patch.setattr(module, function.__name__, _refuse)
        yield kind
    pa.unregister_extension_type(kind.extension_name)


def _refuse(*arguments: Any) -> Any:
    raise AssertionError("columns were turned into rows")


def columnar_job(kind: pa.DataType, *, extra: Any = None) -> DataStream:
    size = 1000
    batch = pa.record_batch(
        {
            "user": pa.array([f"u{n % 7}" for n in range(size)]),
            "page": pa.array([n % 3 for n in range(size)], pa.int32()),
            "amount": pa.array([n % 11 for n in range(size)]),
            "sealed": pa.ExtensionArray.from_storage(kind, pa.array(range(size))),
            "at": pa.array(np.arange(size) * 10, pa.timestamp("ms")),
        }
    )
    by_column = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ColumnTimestampAssigner("at"))
    env = StreamExecutionEnvironment.get_execution_environment().set_max_parallelism(8).set_parallelism(2)
    stream = env.from_source(BatchSource(batch), by_column, "source").filter(pc.field("amount") > 2)
    double = batch.schema.append(pa.field("double", pa.int64()))
    result = (
        stream.map_batches(lambda b: b.append_column("double", pc.multiply(b["amount"], 2)), double)
        .with_column("more", pc.field("double") + 1)
        .rebalance()
        .select("user", "page", "more", "sealed")
        .key_by("user", "page")
        .window(TumblingEventTimeWindows(1000, 0))
        .agg(n=count(), total=sum_("more"))
        .filter(pc.field("n") > 0)
    )
    return result if extra is None else result.map(extra)


def run_sealed(stream: DataStream) -> None:
    BatchSink.written = []
    stream.sink_to(BatchSink())
    job = replace(stream._env._describe("sealed"), job_id="job", settings=job_settings(block_size=64))
    EmbeddedJob(job, master_of(job, memory_storage())).run()


def test_a_chain_of_columnar_operators_makes_no_python_object_of_a_record(sealed: pa.DataType) -> None:
    run_sealed(columnar_job(sealed))
    result = pa.Table.from_batches(BatchSink.written)
    amounts = [n % 11 for n in range(1000)]
    assert pc.sum(result["n"]).as_py() == sum(1 for amount in amounts if amount > 2)
    assert pc.sum(result["total"]).as_py() == sum(2 * amount + 1 for amount in amounts if amount > 2)
    assert result.num_rows == len(
        set(zip(*(result[c].to_pylist() for c in ("user", "page", "window_start")), strict=True))
    )


def test_the_seal_breaks_as_soon_as_one_operator_works_on_rows(sealed: pa.DataType) -> None:
    with pytest.raises(Exception, match=r"columns were turned into rows|a Python object was made"):
        run_sealed(columnar_job(sealed, extra=lambda row: row))
