"""A program with other aggregates, windows, keys or types under the same uid goes on from an old checkpoint: migrated where
that is exact, else refused with what differs; never a wrong result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.checkpoint.storage import Storage
from penstock.common import Row, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.datastream import DataStream, StreamExecutionEnvironment, windowed_stream
from penstock.datastream.aggregates import count, max_, mean, min_, sum_
from penstock.datastream.functions import KeyedProcessFunction, ProcessJoinFunction
from penstock.datastream.window import (
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from penstock.driver.description import JobDescription
from penstock.errors import JobDefinitionError
from penstock.testing import EmbeddedJob, Epoch, ListSink, ScriptedSource, Split
from tests.embedded.jobs import master_of, memory_storage, settings

TYPE = Types.ROW_NAMED(["k", "v", "w", "t"], [Types.STRING(), Types.LONG(), Types.LONG(), Types.LONG()])
FLOATS = Types.ROW_NAMED(["k", "v", "w", "t"], [Types.STRING(), Types.DOUBLE(), Types.LONG(), Types.LONG()])
EPOCHS, STOPPED_AFTER = 4, 2

# Uneven: one key in three quarters of the records; v goes up and down; the stop is in the middle of a window.
RECORDS = [("a" if n % 4 else "b", (n * 37) % 101 - 50, n % 5, n * 100) for n in range(200)]

Build = Callable[[DataStream], DataStream]


class InT(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[3])


def describe(build: Build, sink: str, type_info: Any, more: dict[str, Any], parallelism: int = 1) -> JobDescription:
    script: list[Any] = [Split("only")]
    for epoch in range(EPOCHS):
        script += [Row(**dict(zip("kvwt", record, strict=True))) for record in _part(epoch)]
        script += [Epoch()] if epoch < EPOCHS - 1 else []
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_max_parallelism(8)
    env.set_parallelism(parallelism)
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(InT())
    source = env.from_source(ScriptedSource(script), strategy, "source").uid("source").set_parallelism(1)
    rows = source.map(_same if type_info is not FLOATS else _with_floats, type_info).uid("typed")
    build(rows).uid("tested").sink_to(ListSink(sink)).uid("sink")
    return replace(env._describe(sink), settings=replace(settings(block_size=7), **more))


def _part(epoch: int) -> list[Any]:
    """Epochs end in the middle of a window."""
    ends = [0, 37, 88, 133, len(RECORDS)]
    return RECORDS[ends[epoch] : ends[epoch + 1]]


def _same(row: Any) -> Any:
    return row


def _with_floats(row: Any) -> Any:
    return Row(k=row.k, v=float(row.v), w=row.w, t=row.t)


def stopped(build: Build, sink: str, type_info: Any = None) -> Storage:
    """A job folder after some epochs of a program."""
    ListSink.clear(sink)
    storage = memory_storage()
    job = describe(build, sink, type_info, {})
    runtime = EmbeddedJob(job, master_of(job, storage))
    runtime.master.on_report = lambda report: runtime.cancel() if report.epoch == STOPPED_AFTER else None
    runtime.run()
    assert not runtime.master.finished
    return storage


def results(build: Build, then: Build, sink: str, *, typed: Any = None, then_typed: Any = "same", **more: Any) -> Any:
    """What comes out of one program, stopped, and another that goes on where it was."""
    storage = stopped(build, sink, typed)
    parallelism = more.pop("parallelism", 1)
    job = describe(then, sink, typed if then_typed == "same" else then_typed, more, parallelism)
    EmbeddedJob(job, master_of(job, storage)).run()
    return told(sink)


def told(sink: str) -> list[Any]:
    """Rows and columns alike."""
    return sorted(tuple(row.values() if isinstance(row, dict) else row) for row in ListSink.results(sink))


def windows(assigner: Any, lateness: int = 0, keys: str = "k", **aggregates: Any) -> Build:
    return lambda rows: rows.key_by(keys).window(assigner).allowed_lateness(lateness).agg(**aggregates)


def tumbling(size: int, offset: int = 0) -> Any:
    return TumblingEventTimeWindows(size, offset)


def expected(fold: Callable[[list[int]], tuple[Any, ...]], before: Callable[..., Any] | None = None) -> list[Any]:
    """Over windows of 3 s; those that ended before the stop were made by the program of `before`."""
    panes: dict[tuple[str, int], list[int]] = {}
    for key, v, _, t in RECORDS:
        panes.setdefault((key, t // 3000 * 3000), []).append(v)
    reached = _part(STOPPED_AFTER - 1)[-1][3]  # the watermark at the stop, or a little more
    return sorted(
        (key, start, start + 3000, *(before or fold if start + 3000 <= reached else fold)(values))
        for (key, start), values in panes.items()
    )


PATHS = pytest.mark.parametrize("typed", [TYPE, None], ids=["columns", "rows"])
LO_HI: dict[str, Any] = {"lo": min_("v"), "hi": max_("v")}

# ---------------------------------------------------------------- migrated


@PATHS
@pytest.mark.parametrize("parallelism", [1, 3])
def test_reordered_aggregates_keep_their_own_values(
    typed: Any, parallelism: int, request: pytest.FixtureRequest
) -> None:
    found = results(
        windows(tumbling(3000), **LO_HI),
        windows(tumbling(3000), hi=max_("v"), lo=min_("v")),
        request.node.name,
        typed=typed,
        parallelism=parallelism,
    )
    assert found == expected(lambda v: (max(v), min(v)), lambda v: (min(v), max(v)))


@PATHS
def test_an_aggregate_that_is_left_out_or_made_of_what_others_kept_is_exact(
    typed: Any, request: pytest.FixtureRequest
) -> None:
    found = results(
        windows(tumbling(3000), n=count(), average=mean("v"), hi=max_("v")),
        windows(tumbling(3000), highest=max_("v"), total=sum_("v")),
        request.node.name,
        typed=typed,
    )
    assert found == expected(lambda v: (max(v), sum(v)), lambda v: (len(v), sum(v) / len(v), max(v)))


def test_assigners_that_make_the_same_windows_are_the_same(request: pytest.FixtureRequest) -> None:
    found = results(
        windows(tumbling(3000), **LO_HI),
        windows(SlidingEventTimeWindows(3000, 3000, 0), **LO_HI),
        request.node.name,
        typed=TYPE,
    )
    assert found == expected(lambda v: (min(v), max(v)))


@PATHS
def test_the_same_program_goes_on_and_a_second_time(typed: Any, request: pytest.FixtureRequest) -> None:
    build = windows(tumbling(3000), lateness=1000, **LO_HI)
    storage = stopped(build, request.node.name, typed)
    for _ in range(2):
        job = describe(build, request.node.name, typed, {})
        EmbeddedJob(job, master_of(job, storage)).run()
    assert told(request.node.name) == expected(lambda v: (min(v), max(v)))


def sessions(gap: int, **aggregates: Any) -> Build:
    return windows(EventTimeSessionWindows(gap), **aggregates)


@pytest.mark.parametrize("over", ["columns", "rows"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_open_sessions_keep_what_they_have_under_aggregates_in_another_order(
    parallelism: int, over: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of b are over between its records; that of a lasts to the end, and begins with the first program. In older releases
    all sessions were those of rows."""
    name = request.node.name
    with monkeypatch.context() as patched:
        if over == "rows":
            patched.setattr(windowed_stream, "_why_rows", lambda windowed: "of an older release")
        storage = stopped(sessions(300, n=count(), average=mean("v"), **LO_HI), name, TYPE)
    then = sessions(300, hi=max_("v"), total=sum_("v"), lo=min_("v"))
    job = describe(then, name, TYPE, {}, parallelism)
    EmbeddedJob(job, master_of(job, storage)).run()
    found = told(name)
    whole = {key: [v for k, v, _, _ in RECORDS if k == key] for key in "ab"}
    assert [row for row in found if row[0] == "a"] == [
        ("a", 100, 20_200, max(whole["a"]), sum(whole["a"]), min(whole["a"]))
    ]
    reached = _part(STOPPED_AFTER - 1)[-1][3]
    by_time = {t: v for k, v, _, t in RECORDS if k == "b"}
    before = [(t, v) for t, v in by_time.items() if t + 300 <= reached]
    after = [(t, v) for t, v in by_time.items() if t + 300 > reached]
    assert [row for row in found if row[0] == "b"] == sorted(
        [("b", t, t + 300, 1, float(v), v, v) for t, v in before] + [("b", t, t + 300, v, v, v) for t, v in after]
    )


# ---------------------------------------------------------------- refused

OTHERS: dict[str, tuple[Build, str]] = {
    "count for min": (windows(tumbling(3000), lo=count(), hi=max_("v")), r"min\(v\), max\(v\) are kept.*count_all\(\)"),
    "one more": (windows(tumbling(3000), n=count(), **LO_HI), r"now count_all\(\) would be needed"),
    "of another column": (windows(tumbling(3000), lo=min_("w"), hi=max_("v")), r"now min\(w\) would be needed"),
    "twice the size": (windows(tumbling(6000), **LO_HI), r"3000.*now.*6000"),
    "half the size": (windows(tumbling(1500), **LO_HI), r"3000.*now.*1500"),
    "another offset": (windows(tumbling(3000, 1000), **LO_HI), r"now.*1000"),
    "sliding": (windows(SlidingEventTimeWindows(3000, 1000, 0), **LO_HI), r"now.*1000"),
    "cumulating": (windows(CumulativeEventTimeWindows(3000, 1000, 0), **LO_HI), r"now.*1000"),
    "longer lateness": (windows(tumbling(3000), lateness=5000, **LO_HI), r"lateness: 0 ms, now 5000 ms"),
    "other keys": (windows(tumbling(3000), keys="w", **LO_HI), r"key columns: k, now w"),
    "a reduce": (lambda rows: rows.key_by("k").reduce(lambda a, b: a), r"now a rolling aggregate"),
    "sessions": (windows(EventTimeSessionWindows(700), **LO_HI), r"now sessions of partial aggregates|merging"),
    "another clock": (windows(TumblingProcessingTimeWindows(3000, 0), **LO_HI), r"processing|windows of records"),
}


@PATHS
@pytest.mark.parametrize("other", OTHERS)
def test_another_program_under_the_same_uid_is_refused_with_what_differs(
    other: str, typed: Any, request: pytest.FixtureRequest
) -> None:
    build, difference = OTHERS[other]
    with pytest.raises(JobDefinitionError, match=rf"'tested' cannot go on.*{difference}.*another uid"):
        results(windows(tumbling(3000), **LO_HI), build, request.node.name, typed=typed)


@pytest.mark.parametrize("over", ["columns", "rows, then columns"])
def test_sessions_that_have_begun_keep_their_gap_if_that_is_allowed(
    over: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = request.node.name
    with monkeypatch.context() as patched:
        if over != "columns":
            patched.setattr(windowed_stream, "_why_rows", lambda windowed: "of an older release")
        storage = stopped(sessions(350, n=count()), name, TYPE)
    job = describe(sessions(450, n=count()), name, TYPE, {})
    with pytest.raises(JobDefinitionError, match=r"350.*now.*450.*allow-changed-windows"):
        EmbeddedJob(job, master_of(job, storage)).run()
    job = describe(sessions(450, n=count()), name, TYPE, {"allow_changed_windows": True})
    EmbeddedJob(job, master_of(job, storage)).run()
    open_, expected = [0, 0, 0], []
    first_new = _part(STOPPED_AFTER)[0][3]
    for t in (t for k, _, _, t in RECORDS if k == "b"):
        start, end, n = open_
        if n and t <= end:
            open_ = [start, t, n + 1]
        else:
            expected += [("b", *open_)] if n else []
            open_ = [t, t, 1]
        open_[1] = t + (350 if t < first_new else 450)
    assert [row for row in told(name) if row[0] == "b"] == [*expected, ("b", *open_)]
    assert len(expected) > 10


@PATHS
@pytest.mark.parametrize(
    ("then", "difference"),
    [
        (EventTimeSessionWindows(400), r"300.*now.*400"),
        (tumbling(3000), r"sessions of partial aggregates, and now panes|300.*now.*3000"),
    ],
    ids=["another gap", "tumbling"],
)
def test_open_sessions_are_refused_under_other_windows(
    then: Any, difference: str, typed: Any, request: pytest.FixtureRequest
) -> None:
    with pytest.raises(JobDefinitionError, match=rf"'tested' cannot go on.*{difference}"):
        results(sessions(300, **LO_HI), windows(then, **LO_HI), request.node.name, typed=typed)


@pytest.mark.parametrize(("typed", "then"), [(TYPE, None), (None, TYPE)], ids=["to rows", "to columns"])
def test_windows_over_columns_and_over_rows_do_not_take_each_others_state(
    typed: Any, then: Any, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = windows(tumbling(3000), **LO_HI)
    with pytest.raises(JobDefinitionError, match=r"'tested' cannot go on.*panes of partial aggregates"):
        results(build, build, request.node.name, typed=typed, then_typed=then)
    # The same for a checkpoint that was written before specifications were.
    with monkeypatch.context() as patched:
        patched.setattr("penstock.engine.task.specification.settle", lambda *args, **more: None)
        storage = stopped(build, request.node.name, typed)
    job = describe(build, request.node.name, then, {})
    with pytest.raises(JobDefinitionError, match=r"'tested' cannot go on.*panes of partial aggregates"):
        EmbeddedJob(job, master_of(job, storage)).run()


def test_a_checkpoint_without_specification_is_taken_for_what_the_program_says(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = windows(tumbling(3000), **LO_HI)
    with monkeypatch.context() as patched:
        patched.setattr("penstock.engine.task.specification.settle", lambda *args, **more: None)
        storage = stopped(build, request.node.name, TYPE)
    job = describe(build, request.node.name, TYPE, {})
    EmbeddedJob(job, master_of(job, storage)).run()
    assert told(request.node.name) == expected(lambda v: (min(v), max(v)))


def test_a_column_of_another_type_is_refused(request: pytest.FixtureRequest) -> None:
    build = windows(tumbling(3000), **LO_HI)
    with pytest.raises(JobDefinitionError, match=r"column 'v': Long, now Double"):
        results(build, build, request.node.name, typed=TYPE, then_typed=FLOATS)


ROLLING: dict[str, tuple[Build, Any, str]] = {
    "max for sum": (lambda rows: rows.key_by("k").max("v"), TYPE, r"function: sum\('v'\), now max\('v'\)"),
    "another field": (lambda rows: rows.key_by("k").sum("w"), TYPE, r"sum\('v'\), now sum\('w'\)"),
    "max_by for sum": (lambda rows: rows.key_by("k").max_by("v"), TYPE, r"now max_by\('v'\)"),
    "a reduce": (lambda rows: rows.key_by("k").reduce(lambda a, b: b), TYPE, r"now reduce"),
    "another type": (lambda rows: rows.key_by("k").sum("v"), FLOATS, r"type of values: .*v: Long.*now.*v: Double"),
    "windows": (windows(tumbling(3000), **LO_HI), TYPE, r"a rolling aggregate, and now panes"),
    "a process": (lambda rows: rows.key_by("k").process(Nothing()), TYPE, r"keeps nothing of that kind"),
}


class Nothing(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value


@pytest.mark.parametrize("other", ROLLING)
def test_another_rolling_aggregate_is_refused(other: str, request: pytest.FixtureRequest) -> None:
    build, type_info, difference = ROLLING[other]
    with pytest.raises(JobDefinitionError, match=rf"'tested' cannot go on.*{difference}"):
        results(lambda rows: rows.key_by("k").sum("v"), build, request.node.name, typed=TYPE, then_typed=type_info)


# ---------------------------------------------------------------- on request, as in Flink


def keyed_times(row: Any) -> tuple[Any, tuple[Any, ...]]:
    return row.k, (row.t,)


def reduced(size: int) -> Build:
    """Values and when they came, in windows of rows."""
    return lambda rows: (
        rows.map(keyed_times)
        .uid("pairs")
        .key_by(lambda pair: pair[0])
        .window(tumbling(size))
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )


def test_windows_of_rows_that_have_begun_keep_their_bounds_if_that_is_allowed(request: pytest.FixtureRequest) -> None:
    with pytest.raises(JobDefinitionError, match=r"3000.*now.*5000.*allow-changed-windows"):
        results(reduced(3000), reduced(5000), request.node.name)
    found = results(reduced(3000), reduced(5000), request.node.name, allow_changed_windows=True)
    first_new = _part(STOPPED_AFTER)[0][3]
    panes: dict[tuple[str, int, int], list[int]] = {}
    for key, _, _, t in RECORDS:
        size = 3000 if t < first_new else 5000
        panes.setdefault((key, size, t // size), []).append(t)
    assert found == sorted((key, tuple(times)) for (key, _, _), times in panes.items())


# ---------------------------------------------------------------- interval joins


class Pairs(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        yield left.k, left.t, right.t


def joined(lower: int, upper: int) -> Build:
    def build(rows: DataStream) -> DataStream:
        keyed = rows.key_by(lambda row: row.k)
        bounds = Time.milliseconds(lower), Time.milliseconds(upper)
        return keyed.interval_join(keyed).between(*bounds).process(Pairs())

    return build


def test_an_interval_join_may_become_narrower_and_not_wider(request: pytest.FixtureRequest) -> None:
    for lower, upper in ((-600, 400), (-500, 500)):
        with pytest.raises(JobDefinitionError, match=rf"bounds: -500 to 400 ms, now {lower} to {upper} ms"):
            results(joined(-500, 400), joined(lower, upper), request.node.name)
    found = results(joined(-500, 400), joined(-300, 200), request.node.name)
    first_new = _part(STOPPED_AFTER)[0][3]
    pairs = [(a[0], a[3], b[3]) for a in RECORDS for b in RECORDS if a[0] == b[0] and -500 <= b[3] - a[3] <= 400]
    assert found == sorted(
        (key, left, right) for key, left, right in pairs if max(left, right) < first_new or -300 <= right - left <= 200
    )
