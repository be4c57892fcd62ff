"""What is kept of each key over columns, in whole jobs: whatever the blocks, interleavings, crashes and rescales, each row that
leaves is right for some prefix of its key's records, and the last one for all of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.common import Row, Types
from penstock.common.watermark_strategy import WatermarkStrategy
from penstock.datastream import DataStream, KeyedStream, StreamExecutionEnvironment
from penstock.datastream.aggregates import count, max_, sum_
from penstock.driver.requests import RescaleRequest
from penstock.runtime.embedded.crash import CrashPoint
from penstock.testing import CrashPlan, EmbeddedJob, Epoch, ListSink, ScriptedSource, Split, Stamped, Watermark
from tests.embedded.jobs import master_of, memory_storage
from tests.embedded.jobs import settings as job_settings

EVENT = Types.ROW_NAMED(["key", "value", "id"], [Types.STRING(), Types.LONG(), Types.LONG()])
_names = itertools.count()

Key = str | None
Seen = dict[Key, list[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    parallelism: int = 1
    block_size: int = 100
    seed: int = 0
    crashes: tuple[tuple[CrashPoint, int], ...] = ()
    rescaled_to: int | None = None


_POINTS: st.SearchStrategy[CrashPoint] = st.sampled_from(["process", "after-snapshot", "after-manifest"])
runs = st.builds(
    Run,
    parallelism=st.sampled_from([1, 2, 7]),
    block_size=st.sampled_from([1, 2, 5, 100]),
    seed=st.integers(0, 2**16),
    crashes=st.lists(st.tuples(_POINTS, st.integers(1, 8)), max_size=2).map(tuple),
    rescaled_to=st.sampled_from([None, 1, 2, 3, 7]),
)


@st.composite
def scripts(draw: st.DrawFn) -> list[Any]:
    record = st.builds(
        lambda key, value, time: Stamped((key, value), time),
        st.sampled_from(["a", "b", "c", "d", "e", None]),
        st.one_of(st.none(), st.integers(-9, 9)),
        st.integers(0, 30),
    )
    item = st.one_of(record, record, record, record, st.integers(0, 40).map(Watermark))
    script: list[Any] = []
    for number in range(draw(st.integers(1, 4))):
        script += [Epoch()] if number else []
        script += draw(st.lists(item, max_size=20))
    return script


def numbered(script: list[Any]) -> tuple[list[Any], dict[Key, list[tuple[Any, int, int]]]]:
    """The script with a number in each record, and the records of each key: (value, number, time)."""
    out, records = list[Any](), dict[Key, list[tuple[Any, int, int]]]()
    for item in script:
        if isinstance(item, Stamped):
            key, value = item.value
            entry = (value, len(out), item.timestamp)
            records.setdefault(key, []).append(entry)
            item = Stamped((key, value, len(out)), item.timestamp)
        out.append(item)
    return out, records


def run_job(script: list[Any], verb: Callable[[KeyedStream], DataStream], run: Run) -> Seen:
    """Of every key what left, in order."""
    name = f"keyed-{next(_names)}"
    env = StreamExecutionEnvironment.get_execution_environment().set_max_parallelism(8)
    stream = env.from_source(ScriptedSource([Split("x"), *script]), WatermarkStrategy.no_watermarks(), "source")
    declared = stream.map(lambda v: Row(key=v[0], value=v[1], id=v[2]), EVENT)
    result = verb(declared.key_by("key")).set_parallelism(run.parallelism)
    assert result._node.columnar
    result.sink_to(ListSink(name))
    job = replace(env._describe("keyed"), job_id="job", settings=job_settings(block_size=run.block_size))
    runtime = EmbeddedJob(
        job,
        master_of(job, memory_storage()),
        schedule="random",
        seed=run.seed,
        max_in_flight=2,
        crashes=CrashPlan(list(run.crashes)),
    )
    if run.rescaled_to is not None and not run.crashes:
        asked = RescaleRequest(parallelism=run.rescaled_to)

        def on_report(report: Any) -> None:
            if report.epoch == 1:
                runtime.master.requests.rescale(asked)

        runtime.master.on_report = on_report
    runtime.run()
    seen: Seen = {}
    for row in ListSink.results(name):
        values = tuple(row.values()) if isinstance(row, dict) else tuple(row)
        seen.setdefault(values[0], []).append(values)
    ListSink.clear(name)
    return seen


def aggregates(values: list[Any]) -> tuple[Any, ...]:
    known = [value for value in values if value is not None]
    return len(values), sum(known) if known else None, max(known, default=None)


@settings(max_examples=60)
@given(script=scripts(), run=runs)
def test_every_running_aggregate_is_that_of_a_prefix_and_the_last_that_of_all(script: list[Any], run: Run) -> None:
    script, records = numbered(script)
    seen = run_job(script, lambda keyed: keyed.agg(n=count(), total=sum_("value"), high=max_("value")), run)
    assert set(seen) == set(records)
    for key, rows in seen.items():
        values = [value for value, _, _ in records[key]]
        sizes = [n for _, n, *_ in rows]
        assert sizes == sorted(set(sizes))
        assert sizes[-1] == len(values)
        assert [row[1:] for row in rows] == [aggregates(values[:n]) for n in sizes]


# ---------------------------------------------------------------- first and last


def chosen(records: list[tuple[Any, int, int]], which: str, by: str | None) -> list[tuple[Any, int]]:
    """What is given record by record: (value, id) of each that is better than those before it."""
    given: list[tuple[Any, int]] = []
    best: Any = None
    for value, number, time in records:
        mine = number if by is None else time if by == "time" else value
        order = -math.inf if mine is None else mine if which == "last" else -mine
        if best is None or order > best or (order == best and which == "last"):
            best = order
            given.append((value, number))
    return given


@settings(max_examples=60)
@given(
    script=scripts(), run=runs, which=st.sampled_from(["first", "last"]), by=st.sampled_from([None, "value", "time"])
)
def test_the_first_and_the_last_of_each_key(script: list[Any], run: Run, which: str, by: str | None) -> None:
    script, records = numbered(script)

    def verb(keyed: KeyedStream) -> DataStream:
        choose = keyed.first if which == "first" else keyed.last
        return choose(event_time=True) if by == "time" else choose(by)

    seen = run_job(script, verb, run)
    assert set(seen) == set(records)
    for key, rows in seen.items():
        by_record = chosen(records[key], which, by)
        given = [row[1:] for row in rows]
        assert given[-1] == by_record[-1]
        # Some may be left out where they come together; none is given twice or out of order.
        places = [by_record.index(record) for record in given]
        assert places == sorted(set(places))
        if which == "first" and by is None:
            assert given == by_record[:1]


# ---------------------------------------------------------------- top


@settings(max_examples=60)
@given(script=scripts(), run=runs, number=st.integers(1, 4), descending=st.booleans())
def test_the_best_of_each_key_have_their_ranks(script: list[Any], run: Run, number: int, descending: bool) -> None:
    script, records = numbered(script)
    seen = run_job(script, lambda keyed: keyed.top(number, "value", descending=descending), run)
    assert set(seen) == set(records)

    def order(record: tuple[Any, int, int]) -> tuple[Any, ...]:
        value, arrived, _ = record
        return (value is None, 0 if value is None else -value if descending else value, arrived)

    for key, rows in seen.items():
        best = sorted(records[key], key=order)[:number]
        found = {rank: (value, arrived) for _, value, arrived, rank in rows}
        assert found == {rank: (value, arrived) for rank, (value, arrived, _) in enumerate(best, 1)}
        for rank in found:  # nothing ever becomes worse, and no row is given twice
            at_rank = [(value, arrived, 0) for _, value, arrived, at in rows if at == rank]
            assert at_rank == sorted(set(at_rank), key=order, reverse=True)
