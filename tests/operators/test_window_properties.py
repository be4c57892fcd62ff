"""Random input, out of order, with watermarks, snapshots and failures anywhere: always the windows one makes by hand."""

from __future__ import annotations

from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.datastream.window import EventTimeSessionWindows, SlidingEventTimeWindows, TumblingEventTimeWindows
from penstock.operators.window import WindowOperator
from penstock.operators.window_contents import AggregateContents, ListContents, ReduceContents
from penstock.state.keys import key_group, subtask_of
from penstock.testing.harness import OperatorHarness
from tests.operators.windows_by_hand import MAX, Listing, Statistics, Tagging, WindowsByHand, listed

Step: TypeAlias = tuple[str, Any]

elements = st.lists(st.tuples(st.integers(0, 2), st.integers(-12, 25)), min_size=1, max_size=4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("elements"), elements),
        st.tuples(st.just("elements"), elements),
        st.tuples(st.just("watermark"), st.integers(-12, 30)),
        st.tuples(st.sampled_from(["full", "delta", "restart", "crash"]), st.none()),
    ),
    min_size=4,
    max_size=25,
)
lateness = st.sampled_from([0, 1, 5, MAX])


@st.composite
def grids(draw: st.DrawFn) -> tuple[Any, dict[str, int]]:
    """An assigner and the same windows for the reference."""
    size, kind = draw(st.integers(1, 8)), draw(st.sampled_from(["tumbling", "sliding", "session"]))
    if kind == "session":
        return EventTimeSessionWindows(size), {"gap": size}
    if kind == "tumbling":
        offset = draw(st.integers(-size + 1, size - 1))
        return TumblingEventTimeWindows(size, offset), {"size": size, "slide": size, "offset": offset}
    slide = draw(st.integers(1, 9))
    offset = draw(st.integers(-slide + 1, slide - 1))
    return SlidingEventTimeWindows(size, slide, offset), {"size": size, "slide": slide, "offset": offset}


class Run:
    """Plays steps to a harness. A crash loses the epoch, which is then played again; a restart goes on from files."""

    def __init__(self, operator: WindowOperator) -> None:
        self.operator = operator
        self.harness = OperatorHarness(operator)
        self.chain: list[bytes] = []
        self.epoch: list[Step] = []

    def play(self, script: list[Step]) -> OperatorHarness:
        self.play_open(script)
        return self.harness.end_input()

    def play_open(self, script: list[Step]) -> None:
        """Without the end of the input."""
        value = 0
        for kind, what in script:
            match kind:
                case "elements":
                    batch = [((key, value := value + 1), time) for key, time in what]
                    self.feed(("elements", batch))
                case "watermark":
                    self.feed((kind, what))
                case "crash":
                    self.harness.rollback()
                    for step in self.epoch:
                        self.send(step)
                case _:
                    self.snapshot(kind)

    def feed(self, step: Step) -> None:
        self.epoch.append(step)
        self.send(step)

    def send(self, step: Step) -> None:
        if step[0] == "elements":
            self.harness.push_all(step[1])
        else:
            self.harness.advance_watermark(step[1])

    def snapshot(self, kind: str) -> None:
        full = kind == "full" or not self.chain
        data = self.harness.snapshot(full=full)
        self.chain = [data] if full else [*self.chain, data]
        self.epoch = []
        if kind == "restart":
            output = self.harness.output
            self.harness = OperatorHarness(self.operator).restore(self.chain)
            self.harness.output = output.copy()
            self.harness._confirmed = (*self.harness._confirmed[:2], output.copy())


def by_hand(script: list[Step], windows: WindowsByHand) -> WindowsByHand:
    value = 0
    for kind, what in script:
        if kind == "elements":
            for key, time in what:
                value += 1
                windows.element(key, value, time)
        elif kind == "watermark":
            windows.advance(what)
    windows.advance(MAX)
    return windows


def listing(assigner: Any, late: int, **more: Any) -> WindowOperator:
    return WindowOperator(
        selector=lambda value: value[0],
        assigner=assigner,
        contents=ListContents(),
        function=Listing(),
        allowed_lateness=late,
        **more,
    )


@settings(max_examples=150)
@given(grid=grids(), late=lateness, script=steps, fast=st.booleans())
def test_windows_are_those_made_by_hand_wherever_snapshots_and_failures_fall(
    grid: tuple[Any, dict[str, int]], late: int, script: list[Step], fast: bool
) -> None:
    operator = listing(grid[0], late, late_tag="late", fast_path=fast)
    harness = Run(operator).play(script)
    expected = by_hand(script, WindowsByHand(**grid[1], lateness=late))
    assert sorted(listed(harness)) == sorted(expected.fired)
    assert sorted(value for _, value in harness.side_values("late")) == sorted(expected.late)
    # All windows ended with the input: nothing is left, unless windows are kept forever.
    if late != MAX:
        assert {name: len(table) for name, table in harness.state.tables.items() if len(table)} == {}


CONTENTS = {
    "list": (ListContents(), Listing()),
    "reduce": (ReduceContents(lambda a, b: (a[0], a[1] * 31 + b[1])), None),  # order matters
    "aggregate": (AggregateContents(Statistics()), Tagging()),
}


@settings(max_examples=100)
@given(grid=grids(), late=lateness, script=steps, kind=st.sampled_from(sorted(CONTENTS)))
def test_the_fast_path_gives_the_same_output_in_the_same_order_and_the_same_state(
    grid: tuple[Any, dict[str, int]], late: int, script: list[Step], kind: str
) -> None:
    contents, function = CONTENTS[kind]
    runs = []
    for fast in (True, False):
        operator = WindowOperator(
            selector=lambda value: value[0],
            assigner=grid[0],
            contents=contents,
            function=function,
            allowed_lateness=late,
            fast_path=fast,
        )
        run = Run(operator)
        run.play_open(script)
        state = {name: dict(table.items()) for name, table in run.harness.state.tables.items()}
        run.harness.end_input()
        runs.append((run.harness.records(), run.harness.watermarks, state))
    assert runs[0] == runs[1]


@settings(max_examples=60)
@given(grid=grids(), late=lateness, before=steps, after=steps, parallelism=st.integers(2, 4))
def test_windows_go_on_at_another_parallelism(
    grid: tuple[Any, dict[str, int]], late: int, before: list[Step], after: list[Step], parallelism: int
) -> None:
    operator = listing(grid[0], late)
    before = [step for step in before if step[0] in ("elements", "watermark")]
    after = [step for step in after if step[0] in ("elements", "watermark")]
    one = OperatorHarness(operator)
    value = 0
    for kind, what in before:
        if kind == "elements":
            one.push_all([((key, value := value + 1), time) for key, time in what])
        else:
            one.advance_watermark(what)
    data = one.snapshot()
    many = [OperatorHarness(operator, parallelism=parallelism, subtask=s).restore(data) for s in range(parallelism)]
    for kind, what in after:
        for key, time in what if kind == "elements" else ():
            owner = subtask_of(key_group(key, 128), parallelism, 128)
            many[owner].push((key, value := value + 1), time)
        if kind == "watermark":
            for harness in many:
                harness.advance_watermark(what)
    results = listed(one) + [result for harness in many for result in listed(harness.end_input())]
    expected = by_hand(before + after, WindowsByHand(**grid[1], lateness=late))
    assert sorted(results) == sorted(expected.fired)
