"""Random jobs of windows and rolling aggregates, each run by Penstock and by DuckDB, which knows nothing of ours.

    python -m tests.contract.random_jobs --runs 2000 --seed 1

A job is one number: its records, types, windows, path (columns, rows of a declared type, plain objects), mode, blocks and
parallelism follow from it, and `--only` runs one again. Nothing in these jobs is late, so that a query over all records is
their answer. Where the types of both engines mean different things, the query says what we promise: NaN counts as smallest or
largest only where there is nothing else, -0.0 is less than 0.0 and another key.
"""

from __future__ import annotations

import argparse
import datetime
import math
import random
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from penstock.common import Configuration, Duration, Row
from penstock.common.typeinfo import row_type_of
from penstock.common.watermark_strategy import ColumnTimestampAssigner, WatermarkStrategy
from penstock.connectors.base import Source, SourcePlan, SplitEnumerator, SplitRange, SplitReader
from penstock.datastream import AggregateFunction, DataStream, RuntimeExecutionMode, StreamExecutionEnvironment
from penstock.datastream.aggregates import Aggregate, count, max_, mean, min_, sum_
from penstock.datastream.window import (
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from penstock.errors import PenstockError
from penstock.records import Block, Columns

# ---------------------------------------------------------------------------------------------------- types and values

UTC = datetime.UTC
EPOCH = datetime.datetime(1970, 1, 1)


@dataclass(frozen=True)
class Kind:
    """A type: how its values are made, and what can be asked of them."""

    arrow: pa.DataType
    make: Callable[[random.Random], Any]
    sums: bool = False  # sum and mean
    limits: tuple[int, int] | None = None  # of a sum

    @property
    def is_float(self) -> bool:
        return bool(pa.types.is_floating(self.arrow))


def _integers(bits: int, signed: bool) -> Kind:
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    arrow = getattr(pa, f"{'' if signed else 'u'}int{bits}")()
    extreme = 0.4 if bits == 64 else 0.15

    def make(rng: random.Random) -> int:
        return rng.choice([low, low + 1, high, high - 1]) if rng.random() < extreme else rng.randint(max(low, -9), 9)

    return Kind(arrow, make, True, (-(2**63), 2**63 - 1) if signed else (0, 2**64 - 1))


def _quarters(rng: random.Random) -> float:
    """Floats whose sums do not depend on their order."""
    special = [0.0, -0.0, math.nan, math.inf, -math.inf]
    return rng.choice(special) if rng.random() < 0.3 else rng.randint(-40, 40) / 4


def _wild(rng: random.Random) -> float:
    special = [0.0, -0.0, math.nan, -math.nan, math.inf, -math.inf, 5e-324, -5e-324, sys.float_info.max, -1e-310]
    return rng.choice(special) if rng.random() < 0.6 else rng.uniform(-1e9, 1e9)


def _text(rng: random.Random) -> str:
    return rng.choice(["", "a", "A", "b", "é", "\x00", "zz", "a string longer than twelve bytes", "日本", "\U0001f600"])


def _decimal(digits: int, scale: int) -> Callable[[random.Random], Decimal]:
    def make(rng: random.Random) -> Decimal:
        largest = 10**digits - 1
        unscaled = rng.choice([largest, -largest, 1]) if rng.random() < 0.2 else rng.randint(-300, 300)
        return Decimal(f"{unscaled}E-{scale}")

    return make


def _moment(rng: random.Random) -> datetime.datetime:
    if rng.random() < 0.2:
        return rng.choice([datetime.datetime.min, datetime.datetime(9999, 12, 31, 23, 59, 59, 999999), EPOCH])
    autumn = datetime.datetime(2026, 10, 25)  # the hour that comes twice in Paris
    minutes = rng.choice([0, 30, 60, 90]) if rng.random() < 0.5 else rng.randint(-90, 150)
    return autumn + datetime.timedelta(minutes=minutes, microseconds=rng.choice([0, 0, 1]))


def _zoned(rng: random.Random) -> datetime.datetime:
    moment = _moment(rng)
    return max(min(moment, datetime.datetime(9990, 1, 1)), datetime.datetime(10, 1, 1)).replace(tzinfo=UTC)


def _length(rng: random.Random) -> datetime.timedelta:
    return datetime.timedelta(days=rng.randint(-99, 99), microseconds=rng.randint(-5, 5))


def _bytes(rng: random.Random) -> bytes:
    return rng.choice([b"", b"\x00", b"\xff\xfe", b"ab", b"more than twelve bytes of it"])


KINDS: dict[str, Kind] = {
    **{f"int{bits}": _integers(bits, True) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": _integers(bits, False) for bits in (8, 16, 32, 64)},
    "double": Kind(pa.float64(), _quarters, True),
    "float": Kind(pa.float32(), _quarters, True),
    "half": Kind(pa.float16(), _quarters, True),
    "large": Kind(pa.int64(), lambda rng: rng.choice([2**63 - 1, 2**62, -3]), True, (-(2**63), 2**63 - 1)),
    "large unsigned": Kind(pa.uint64(), lambda rng: rng.choice([2**64 - 1, 2**63, 3]), True, (0, 2**64 - 1)),
    "zeros": Kind(pa.float64(), lambda rng: rng.choice([0.0, -0.0, math.nan, -math.nan])),
    "wild double": Kind(pa.float64(), _wild),
    "decimal": Kind(pa.decimal128(12, 2), _decimal(12, 2), True),
    "long decimal": Kind(pa.decimal128(36, 4), _decimal(36, 4), True),
    "narrow decimal": Kind(pa.decimal32(6, 2), _decimal(6, 2), True),
    "boolean": Kind(pa.bool_(), lambda rng: rng.random() < 0.5, True, (0, 2**64 - 1)),
    "string": Kind(pa.string(), _text),
    "large string": Kind(pa.large_string(), _text),
    "string view": Kind(pa.string_view(), _text),
    "dictionary": Kind(pa.dictionary(pa.int32(), pa.string()), _text),
    "binary": Kind(pa.binary(), _bytes),
    "binary view": Kind(pa.binary_view(), _bytes),
    "date": Kind(pa.date32(), lambda rng: _moment(rng).date()),
    "time": Kind(pa.time64("us"), lambda rng: _moment(rng).time()),
    "timestamp": Kind(pa.timestamp("us"), _moment),
    "UTC": Kind(pa.timestamp("us", "UTC"), _zoned),
    "Paris": Kind(pa.timestamp("us", "Europe/Paris"), _zoned),
    "duration": Kind(pa.duration("us"), _length),
}


# ---------------------------------------------------------------------------------------------------- a job


@dataclass(frozen=True)
class Job:
    seed: int
    keys: tuple[str, ...]  # kinds of k0, k1
    values: tuple[str, ...]  # kinds of v0, v1
    batch: pa.RecordBatch  # seq, at, k…, v…
    what: str  # agg, reduce, count, rolling
    window: tuple[Any, ...]
    functions: tuple[tuple[str, int], ...]  # agg: (function, number of the value)
    path: str
    mode: RuntimeExecutionMode
    block_size: int
    parallelism: int
    epochs: int
    watermarks: bool

    def __str__(self) -> str:
        asked = ", ".join(f"{name}(v{number})" for name, number in self.functions) or self.what
        return (
            f"job {self.seed}: {self.batch.num_rows} records with keys {self.keys} and values {self.values}, {self.what} "
            f"{self.window}: {asked}; {self.path}, {self.mode.name}, blocks of {self.block_size}, parallelism "
            f"{self.parallelism}, {self.epochs} epochs, watermarks {self.watermarks}\n{self.batch.to_pydict()}"
        )


def random_job(seed: int) -> Job:
    rng = random.Random(seed)
    keys = tuple(rng.choice(list(KINDS)) for _ in range(rng.choice([1, 1, 1, 2])))
    what = rng.choice(["agg"] * 6 + ["reduce", "count", "rolling", "rolling"])
    values = tuple(rng.choice(list(KINDS)) for _ in range(rng.choice([1, 1, 2])))
    edge = rng.random() if what == "agg" else 1.0
    if edge < 0.25:  # sums around the end of 64 bits, or which of two zeros
        values = (rng.choice(["large", "large unsigned", "int64", "uint64"]),) if edge < 0.15 else ("zeros",)
        keys = (rng.choice(["zeros", "string"]),)
    if what == "rolling":
        values = (rng.choice([name for name, kind in KINDS.items() if kind.sums and name not in ("boolean", "half")]),)
    rows = rng.choice([0, 1, 2, 3, 5, 8, 13, 20, 40])
    nulls = 0.0 if what == "rolling" else rng.choice([0, 0.2, 0.2, 1])
    pools = [[KINDS[key].make(rng) for _ in range(rng.randint(1, 4))] + [None] for key in keys]
    start = rng.choice([0, 0, -50, 1_700_000_000_000])
    columns: dict[str, pa.Array] = {
        "seq": pa.array(range(rows), pa.int64()),
        "at": pa.array([start + rng.randint(0, 90) for _ in range(rows)], pa.int64()),
    }
    for number, key in enumerate(keys):
        columns[f"k{number}"] = pa.array([rng.choice(pools[number]) for _ in range(rows)], KINDS[key].arrow)
    for number, value in enumerate(values):
        kind = KINDS[value]
        made = [None if rng.random() < nulls else kind.make(rng) for _ in range(rows)]
        columns[f"v{number}"] = pa.array(made, kind.arrow)
    return Job(
        seed=seed,
        keys=keys,
        values=values,
        batch=pa.record_batch(columns),
        what=what,
        window=_random_window(rng, what),
        functions=_random_functions(rng, values, edge) if what == "agg" else (),
        path=rng.choice(["columns", "columns", "typed", "objects"]),
        mode=rng.choice([RuntimeExecutionMode.BATCH, RuntimeExecutionMode.STREAMING]),
        block_size=rng.choice([1, 2, 3, 7, 1000]),
        parallelism=rng.choice([1, 2, 3]),
        epochs=rng.choice([1, 1, 2, 4]),
        watermarks=rng.random() < 0.5,
    )


def _random_window(rng: random.Random, what: str) -> tuple[Any, ...]:
    if what == "count":
        size = rng.randint(1, 4)
        return (size, rng.choice([0, 0, rng.randint(1, 5)]))
    if what == "rolling":
        return (rng.choice(["sum", "min", "max"]),)
    size = rng.choice([1, 7, 10, 30, 200])
    match rng.choice(["tumbling", "sliding", "cumulating", "session"]) if what == "agg" else "tumbling":
        case "tumbling":
            return ("tumbling", size, rng.randint(-size + 1, size - 1))
        case "sliding":
            slide = rng.choice([1, 3, 5, 10, 12]) if size <= 30 else rng.choice([50, 70])
            return ("sliding", size, slide, rng.randint(-slide + 1, slide - 1))
        case "cumulating":
            return ("cumulating", size * (steps := rng.randint(1, 4)), size, rng.randint(-size * steps + 1, size - 1))
        case _:
            return ("session", rng.choice([1, 4, 20]))


def _random_functions(rng: random.Random, values: tuple[str, ...], edge: float) -> tuple[tuple[str, int], ...]:
    if edge < 0.25:
        return (("sum", 0), ("mean", 0)) if edge < 0.15 else (("min", 0), ("max", 0))
    found = []
    for _ in range(rng.randint(1, 5)):
        number = rng.randrange(len(values))
        kind = KINDS[values[number]]
        choice = ["count", "min", "max", *(["sum", "mean"] if kind.sums else [])]
        if values[number] == "duration":
            choice.append("sum")
        found.append((rng.choice(choice), number))
    return tuple(dict.fromkeys(found))


# ---------------------------------------------------------------------------------------------------- Penstock's answer


class TableSource(Source):
    """A table as columns, one split, cut into epochs."""

    bounded = True
    gives_columns = True

    def __init__(self, batch: pa.RecordBatch, epochs: int) -> None:
        self.batch, self.epochs = batch, epochs

    def create_enumerator(self) -> SplitEnumerator:
        return _Epochs(self.batch.num_rows, self.epochs)

    def create_reader(self) -> SplitReader:
        return _TableReader(self.batch)


class _Epochs(SplitEnumerator):
    def __init__(self, rows: int, epochs: int) -> None:
        self._rows, self._epochs, self._done = rows, epochs, 0

    def restore(self, state: Any) -> None:
        self._done = state

    def plan(self, *, now_ms: int, max_records: int | None) -> SourcePlan:
        start, end = (self._rows * n // self._epochs for n in (self._done, self._done + 1))
        ordinal, self._done = self._done, self._done + 1
        last = self._done == self._epochs
        part = SplitRange(split="0", ordinal=ordinal, start=start, end=end, last=last)
        return SourcePlan(ranges=(part,), state=self._done, finished=last)


class _TableReader(SplitReader):
    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch

    def read(self, split: SplitRange, block_size: int) -> Iterator[Block]:
        start, end = int(split.start), int(split.end or 0)
        for row in range(start, end, block_size):
            yield Columns(self.batch.slice(row, min(block_size, end - row)))


class Ends(AggregateFunction):
    """How many records, and the numbers of the first and the last."""

    def create_accumulator(self) -> Any:
        return []

    def add(self, value: Any, accumulator: Any) -> Any:
        return [*accumulator, value.seq]

    def get_result(self, accumulator: Any) -> Any:
        return (len(accumulator), accumulator[0], accumulator[-1])

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a + acc_b


def _stream(job: Job) -> DataStream:
    config = {"penstock.runtime": "embedded", "penstock.block.size": str(job.block_size)}
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(config))
    env.set_runtime_mode(job.mode).set_parallelism(1)
    strategy = WatermarkStrategy.no_watermarks()
    if job.watermarks:  # nothing is further behind
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(100))
    strategy = strategy.with_timestamp_assigner(ColumnTimestampAssigner("at"))
    if job.path == "columns":
        return env.from_source(TableSource(job.batch, job.epochs), strategy, "table")
    names = job.batch.schema.names
    records = [Row(**dict(zip(names, row.values(), strict=True))) for row in job.batch.to_pylist()]
    declared = row_type_of(job.batch.schema) if job.path == "typed" else None
    return env.from_collection(records, declared).assign_timestamps_and_watermarks(strategy)


def _assigner(window: tuple[Any, ...]) -> Any:
    makers = {
        "tumbling": TumblingEventTimeWindows,
        "sliding": SlidingEventTimeWindows,
        "cumulating": CumulativeEventTimeWindows,
        "session": EventTimeSessionWindows,
    }
    return makers[window[0]](*window[1:])


_AGGREGATES: dict[str, Callable[[str], Aggregate]] = {
    "count": lambda column: count(),
    "sum": sum_,
    "min": min_,
    "max": max_,
    "mean": mean,
}


def ours(job: Job) -> list[tuple[Any, ...]]:
    """What Penstock gives: (keys, results) of every window; of rolling aggregates of every record."""
    names = [f"k{number}" for number in range(len(job.keys))]
    keyed = _stream(job).key_by(*names)
    match job.what:
        case "agg":
            asked = {f"a{i}": _AGGREGATES[name](f"v{number}") for i, (name, number) in enumerate(job.functions)}
            result = keyed.window(_assigner(job.window)).agg(**asked)
        case "reduce":
            result = keyed.window(_assigner(job.window)).reduce(lambda a, b: b)
        case "count":
            result = keyed.count_window(*job.window).aggregate(Ends())
        case _:
            result = getattr(keyed, job.window[0])("v0")
    with result.set_parallelism(job.parallelism).execute_and_collect() as results:
        rows = [tuple(row) for row in results]
    match job.what:
        case "reduce":
            return [row[:1] for row in rows]  # the number of the last record says it all
        case "rolling":
            return [(*row[2:-1], row[-1]) for row in rows]
    return rows


# ---------------------------------------------------------------------------------------------------- DuckDB's answer


def _known_to_duckdb(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_duration(kind):
        return column.cast(pa.int64())
    if pa.types.is_dictionary(kind):
        return column.dictionary_decode()
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_decimal32(kind):
        return column.cast(pa.decimal128(kind.precision, kind.scale))
    if pa.types.is_string_view(kind):
        return column.cast(pa.string())
    return column.cast(pa.binary()) if pa.types.is_binary_view(kind) else column


_START = "({time} - (({time} - {offset}) % {size} + {size}) % {size})"


def _windows_sql(job: Job) -> str:
    """r with a row for every window of a record: ws and we."""
    by = ", ".join(_group(job))
    match job.window:
        case ("tumbling", size, offset):
            start = _START.format(time='"at"', offset=offset, size=size)
            return f"select *, {start} ws, {start} + {size} we from r"
        case ("sliding", size, slide, offset):
            start = _START.format(time='"at"', offset=offset, size=slide)
            found = f"select *, {start} - i * {slide} ws from r, range({size // slide + 2}) t(i)"
            return f'select *, ws + {size} we from ({found}) where ws > "at" - {size}'
        case ("cumulating", size, step, offset):
            start = _START.format(time='"at"', offset=offset, size=size)
            found = f"select *, {start} ws, i from r, range(1, {size // step + 1}) t(i)"
            return f'select *, ws + i * {step} we from ({found}) where ws + i * {step} > "at"'
        case (_, gap):
            before = f'lag("at") over (partition by {by} order by "at")'
            opened = f'select *, coalesce(("at" - {before} > {gap})::int, 1) opens from r'
            numbered = f'select *, sum(opens) over (partition by {by} order by "at" range unbounded preceding) s from ({opened})'
            ends = f'min("at") over (partition by {by}, s) ws, max("at") over (partition by {by}, s) + {gap} we'
            return f"select *, {ends} from ({numbered})"
    raise AssertionError(job.window)


def _group(job: Job) -> list[str]:
    """What records of one key have in common: of floats also whether they are negative zeros."""
    found = []
    for number, key in enumerate(job.keys):
        found.append(f"k{number}")
        if KINDS[key].is_float:
            found.append(f"z{number}")
    return found


def _key(job: Job, number: int) -> str:
    """The key itself: where DuckDB groups, -0.0 may have become 0.0."""
    if not KINDS[job.keys[number]].is_float:
        return f"k{number}"
    return f"case when z{number} then '-0.0'::double else k{number} end"


def _aggregate_sql(name: str, column: str, kind: Kind) -> str:
    if name == "count":
        return "count(*)"
    if pa.types.is_boolean(kind.arrow) and name in ("sum", "mean"):
        column = f"{column}::int"
    if name == "sum" and (kind.limits or pa.types.is_duration(kind.arrow)):
        return f"sum({column}::hugeint)::varchar"
    if name == "mean":
        return f"avg({column}::double)" if kind.is_float else f"avg({column})"
    if name in ("min", "max") and kind.is_float:
        sign = f"bool_or(signbit({column}))" if name == "min" else f"bool_and(signbit({column}))"
        zero = f"{sign} filter (where {column} = 0)"
        number = f"{name}({column}) filter (where not isnan({column}))"
        return f"case when {number} = 0 then (case when {zero} then '-0.0'::double else 0.0::double end) " + (
            f"when {number} is null and count({column}) > 0 then 'nan'::double else {number} end"
        )
    return f"{name}({column})"


def theirs(job: Job) -> list[tuple[Any, ...]]:
    table = pa.table({name: _known_to_duckdb(job.batch.column(name)) for name in job.batch.schema.names})
    by, keys = ", ".join(_group(job)), ", ".join(f"any_value({_key(job, n)}) k{n}" for n in range(len(job.keys)))
    # In batch a key's records come in the order of time, in a stream in that of arrival.
    order = '"at", seq' if job.mode is RuntimeExecutionMode.BATCH else "seq"
    match job.what:
        case "agg":
            asked = [_aggregate_sql(name, f"v{n}", KINDS[job.values[n]]) for name, n in job.functions]
            results = ", ".join(f"{sql} a{i}" for i, sql in enumerate(asked))
            query = f"select {keys}, ws, we, {results} from ({_windows_sql(job)}) group by {by}, ws, we"
        case "reduce":
            numbered = f"select *, row_number() over (order by {order}) n from ({_windows_sql(job)})"
            query = f"select arg_max(seq, n) seq from ({numbered}) group by {by}, ws"
        case "count":
            size, slide = job.window
            slide = slide or size
            numbered = f"select *, row_number() over (partition by {by} order by {order}) - 1 n from r"
            place = f"select *, w from ({numbered}), range({job.batch.num_rows}) t(w)"
            query = (
                f"select count(*) c, arg_min(seq, n) a, arg_max(seq, n) b from ({place}) where n >= w * {slide} and "
                f"n < w * {slide} + {size} group by {by}, w having count(*) = {size}"
            )
        case _:
            (name,) = job.window
            kind = KINDS[job.values[0]]
            value = "v0::hugeint" if kind.limits and name == "sum" else "v0::double" if kind.is_float else "v0"
            text = "::varchar" if kind.limits and name == "sum" else ""
            plain = ", ".join(f"{_key(job, n)} k{n}" for n in range(len(job.keys)))
            running = f"{name}({value}) over (partition by {by} order by {order} rows unbounded preceding)"
            if job.mode is RuntimeExecutionMode.BATCH:
                last = f"row_number() over (partition by {by} order by {order.replace('seq', 'seq desc')})"
                last = last.replace('"at",', '"at" desc,')
                query = f"select * exclude l from (select {plain}, ({running}){text} a, {last} l from r) where l = 1"
            else:
                query = f"select {plain}, ({running}){text} a from r"
    with duckdb.connect() as connection:
        connection.execute("set TimeZone = 'UTC'")
        connection.register("arrow_r", table)
        zeros = [f", k{n} = 0 and signbit(k{n}) z{n}" for n, key in enumerate(job.keys) if KINDS[key].is_float]
        connection.execute(f"create table r as select *{''.join(zeros)} from arrow_r")
        found = connection.execute(query).to_arrow_table()
    return [_from_duckdb(job, tuple(row.values())) for row in found.to_pylist()]


def _from_duckdb(job: Job, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Durations are their microseconds there, long integers text."""
    if job.what in ("reduce", "count"):
        return row
    kinds = [KINDS[key] for key in job.keys]
    if job.what == "agg":
        kinds += [KINDS["int64"]] * 2
        kinds += [KINDS["int64"] if name in ("count", "mean") else KINDS[job.values[n]] for name, n in job.functions]
    else:
        kinds.append(KINDS[job.values[0]])
    out = []
    for value, kind in zip(row, kinds, strict=True):
        value = int(value) if isinstance(value, str) and (kind.limits or pa.types.is_duration(kind.arrow)) else value
        if pa.types.is_duration(kind.arrow) and value is not None:
            value = datetime.timedelta(microseconds=int(value))
        out.append(value)
    return tuple(out)


# ---------------------------------------------------------------------------------------------------- the comparison


def _shown(job: Job, row: tuple[Any, ...]) -> tuple[str, ...]:
    """Comparable: one NaN, zeros with their signs, one zone; means by their first twelve digits."""
    means = set()
    if job.what == "agg":
        means = {len(job.keys) + 2 + i for i, (name, _) in enumerate(job.functions) if name == "mean"}
    if job.what == "rolling" and row[-1] == 0:
        row = (*row[:-1], 0)  # DuckDB does not say which zero is the smaller
    return tuple(_one(value, position in means) for position, value in enumerate(row))


def _one(value: Any, rounded: bool) -> str:
    match value:
        case bool():
            return str(int(value))
        case float():
            if value != value:
                return "nan"
            return f"{value:.11e}" if rounded else repr(value)
        case Decimal():
            return "0" if value == 0 else format(value.normalize(), "f")
        case datetime.datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).isoformat()
    return repr(value)


def _must_fail(job: Job, answer: list[tuple[Any, ...]]) -> bool:
    """Whether a sum is too large for the type that the path gives it. Python's integers have none."""
    if not (job.path == "typed" or (job.path == "columns" and job.what == "agg")):
        return False
    if job.what == "rolling":
        low, high = _bounds(KINDS[job.values[0]].arrow) or (None, None)
        return low is not None and high is not None and any(not low <= row[-1] <= high for row in answer)
    for position, (name, number) in enumerate(job.functions, len(job.keys) + 2):
        limits = KINDS[job.values[number]].limits
        if name == "sum" and limits is not None:
            low, high = limits
            if any(row[position] is not None and not low <= row[position] <= high for row in answer):
                return True
    return False


def _bounds(kind: pa.DataType) -> tuple[Any, Any] | None:
    """Of a rolling sum, which is a value of the field itself."""
    if pa.types.is_signed_integer(kind):
        return -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
    if pa.types.is_unsigned_integer(kind):
        return 0, 2**kind.bit_width - 1
    if pa.types.is_decimal(kind):
        largest = Decimal(f"{10**kind.precision - 1}E-{kind.scale}")
        return -largest, largest
    return None


@dataclass(frozen=True)
class Outcome:
    failed: bool  # as it must
    results: int


def check(seed: int) -> Outcome:
    """Run the job of this number on both engines; an AssertionError that shows the job if they differ."""
    job = random_job(seed)
    expected = theirs(job)
    if _must_fail(job, expected):
        try:
            found = ours(job)
        except PenstockError as error:
            if "too large" in str(error) or "is not exactly a value of" in str(error):
                return Outcome(True, 0)
            raise AssertionError(f"a sum is too large, but this failed: {error}\n{job}") from error
        raise AssertionError(f"a sum is too large and nothing failed: {found}\n{job}")
    try:
        found = ours(job)
    except PenstockError as error:
        raise AssertionError(f"Penstock failed: {error}\n{job}") from error
    here, there = Counter(_shown(job, row) for row in found), Counter(_shown(job, row) for row in expected)
    assert here == there, f"only Penstock: {here - there}\nonly DuckDB: {there - here}\n{job}"
    return Outcome(False, sum(here.values()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    parser.add_argument("--only", type=int, help="the number of one job")
    arguments = parser.parse_args()
    if arguments.only is not None:
        print(random_job(arguments.only))
        print(check(arguments.only))
        return 0
    print(f"{arguments.runs} jobs from --seed {arguments.seed} on", flush=True)
    different, failed, results = [], 0, 0
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        try:
            outcome = check(seed)
        except Exception:
            different.append(seed)
            print(f"--only {seed}")
            traceback.print_exc(limit=3)
            continue
        failed += outcome.failed
        results += outcome.results
    print(
        f"{arguments.runs} jobs: {results} results alike, {failed} sums refused by both, {len(different)} differ: {different}"
    )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
