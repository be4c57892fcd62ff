"""A changed program goes on from an old savepoint: state is matched by uid, migrated, or refused with what does not match."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Types, WatermarkStrategy
from penstock.common.time import Time
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.errors import JobDefinitionError
from penstock.testing import ListSink
from tests.embedded.jobs import configured

TOTAL = 3000


class Keep(KeyedProcessFunction):
    """Keeps numbers under a key in one state, and says what it holds when the last ones come."""

    def __init__(self, descriptor: StateDescriptor, use: Callable[[Any, Any], Any]) -> None:
        self.descriptor, self.use = descriptor, use

    def open(self, runtime_context: Any) -> None:
        match self.descriptor:
            case ListStateDescriptor():
                self.state = runtime_context.get_list_state(self.descriptor)
            case MapStateDescriptor():
                self.state = runtime_context.get_map_state(self.descriptor)
            case _:
                self.state = runtime_context.get_state(self.descriptor)

    def process_element(self, value: Any, ctx: Any) -> Any:
        found = self.use(self.state, value)
        if value >= TOTAL - 10:
            yield ctx.get_current_key(), found


def as_int(state: Any, value: int) -> Any:
    state.update((state.value() or 0) + 1)
    return state.value()


def as_pair(state: Any, value: int) -> Any:
    count, last = state.value() or (0, None)
    state.update((count + 1, value))
    return count + 1, last is not None


def environment(
    folder: Path, job: str, path: str | None, parallelism: int = 2, *, more: dict[str, str] | None = None
) -> Any:
    config = configured(folder / job, {"penstock.epoch.max-records": "100", **(more or {})}, path=path)
    return StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(parallelism)


def numbers(env: Any) -> DataStream:
    source = DataGeneratorSource(lambda i: i, TOTAL, splits=2)
    return env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")  # type: ignore[no-any-return]


@pytest.fixture
def sink(request: pytest.FixtureRequest) -> str:
    ListSink.clear(request.node.name)
    return str(request.node.name)


def saved(folder: Path, function: Any, sink: str) -> str:
    env = environment(folder, "old", None)
    numbers(env).key_by(lambda n: n % 10).process(function).uid("keep").sink_to(ListSink(sink)).uid("sink")
    return str(env.execute_async("old").stop_with_savepoint(False, str(folder)).result())


def go_on(folder: Path, path: str, function: Any, sink: str) -> dict[int, Any]:
    env = environment(folder, "new", path, parallelism=3)
    numbers(env).key_by(lambda n: n % 10).process(function).uid("keep").sink_to(ListSink(sink)).uid("sink")
    env.execute("new")
    return dict(ListSink.results(sink))


def plain(name: str = "state") -> ValueStateDescriptor:
    return ValueStateDescriptor(name)


# ---------------------------------------------------------------- values


def test_old_values_go_through_the_migration(sink: str, tmp_path: Path) -> None:
    path = saved(tmp_path, Keep(plain(), as_int), sink)
    descriptor = plain()
    descriptor.set_migration(1, lambda value, version: (value, None))
    assert go_on(tmp_path, path, Keep(descriptor, as_pair), sink) == dict.fromkeys(range(10), (300, True))


def test_a_second_migration_is_told_the_version_it_starts_from(sink: str, tmp_path: Path) -> None:
    first = plain()
    first.set_migration(3, lambda value, version: value)
    path = saved(tmp_path, Keep(first, as_int), sink)
    second = plain()
    second.set_migration(5, lambda value, version: value + 1000 * version)
    assert go_on(tmp_path, path, Keep(second, as_int), sink) == dict.fromkeys(range(10), 3300)


def test_a_migration_is_done_once(sink: str, tmp_path: Path) -> None:
    path = saved(tmp_path, Keep(plain(), as_int), sink)
    descriptor = plain()
    descriptor.set_migration(1, lambda value, version: value + 1000)
    env = environment(tmp_path, "new", path)

    def build(env: Any) -> None:
        keep = numbers(env).key_by(lambda n: n % 10).process(Keep(descriptor, as_int)).uid("keep")
        keep.sink_to(ListSink(sink)).uid("sink")

    build(env)
    env.execute_async("new").stop_with_savepoint(False, str(tmp_path)).result()
    env = environment(tmp_path, "new", path, parallelism=1)  # a restart in its own folder
    build(env)
    env.execute("new")
    assert dict(ListSink.results(sink)) == dict.fromkeys(range(10), 1300)


def add_to_list(state: Any, value: int) -> Any:
    state.add(1 if value < TOTAL - 10 else "new")
    return sum(1 for element in state.get() if isinstance(element, str))


def add_to_map(state: Any, value: int) -> Any:
    state.put(value, 1 if value < TOTAL - 10 else "new")
    return sum(1 for element in state.values() if isinstance(element, str))


@pytest.mark.parametrize("ttl", [False, True])
@pytest.mark.parametrize(("kind", "use"), [(ListStateDescriptor, add_to_list), (MapStateDescriptor, add_to_map)])
def test_elements_of_lists_and_values_of_maps_are_migrated_one_by_one(
    kind: Any, use: Any, ttl: bool, sink: str, tmp_path: Path
) -> None:
    def descriptor() -> Any:
        made = kind("state")
        if ttl:
            made.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
        return made

    path = saved(tmp_path, Keep(descriptor(), use), sink)
    migrated = descriptor()
    migrated.set_migration(1, lambda value, version: f"old {value}")
    strings = go_on(tmp_path, path, Keep(migrated, use), sink)
    assert all(1 < count < 300 for count in strings.values()), "the restored ones are strings now, later ones are not"


def test_another_type_without_a_migration_is_refused(sink: str, tmp_path: Path) -> None:
    path = saved(tmp_path, Keep(ValueStateDescriptor("state", Types.LONG()), as_int), sink)
    with pytest.raises(
        JobDefinitionError, match=r"'keep' declares state 'state'.*String.*holds Long.*set_migration\(1"
    ):
        go_on(tmp_path, path, Keep(ValueStateDescriptor("state", Types.STRING()), as_int), sink)


def test_another_kind_of_state_is_refused(sink: str, tmp_path: Path) -> None:
    path = saved(tmp_path, Keep(plain(), as_int), sink)
    with pytest.raises(JobDefinitionError, match="declares state 'state' as list, but it is value already"):
        go_on(tmp_path, path, Keep(ListStateDescriptor("state"), as_int), sink)


def test_a_program_older_than_the_values_is_refused(sink: str, tmp_path: Path) -> None:
    descriptor = plain()
    descriptor.set_migration(2, lambda value, version: value)
    path = saved(tmp_path, Keep(descriptor, as_int), sink)
    with pytest.raises(JobDefinitionError, match="values of version 2, and the program knows versions up to 0"):
        go_on(tmp_path, path, Keep(plain(), as_int), sink)


def test_a_migration_that_fails_names_state_and_value(sink: str, tmp_path: Path) -> None:
    path = saved(tmp_path, Keep(plain(), as_int), sink)
    descriptor = plain()
    descriptor.set_migration(1, lambda value, version: value["no"])
    with pytest.raises(
        JobDefinitionError, match=r"'keep', state 'state': the migration from version 0 to 1 failed on \d"
    ):
        go_on(tmp_path, path, Keep(descriptor, as_pair), sink)


def test_a_new_state_beside_an_old_one_starts_empty(sink: str, tmp_path: Path) -> None:
    class Both(KeyedProcessFunction):
        def open(self, runtime_context: Any) -> None:
            self.old, self.new = (runtime_context.get_state(ValueStateDescriptor(n)) for n in ("state", "other"))

        def process_element(self, value: Any, ctx: Any) -> Any:
            old, new = as_int(self.old, value), as_int(self.new, value)
            if value >= TOTAL - 10:
                yield ctx.get_current_key(), (old, 0 < new < 300)

    path = saved(tmp_path, Keep(plain(), as_int), sink)
    assert go_on(tmp_path, path, Both(), sink) == dict.fromkeys(range(10), (300, True))


# ---------------------------------------------------------------- the graph


def test_operators_may_be_added_reordered_and_chained_otherwise(sink: str, tmp_path: Path) -> None:
    def same(number: Any) -> Any:
        return number

    env = environment(tmp_path, "old", None)
    stream = numbers(env).map(same).uid("first").key_by(lambda n: n % 10)
    kept = stream.process(Keep(plain(), as_int)).uid("keep").disable_chaining()
    kept.map(same).uid("second").disable_chaining().sink_to(ListSink(sink)).uid("sink")
    path = env.execute_async("old").stop_with_savepoint(False, str(tmp_path)).result()

    env = environment(tmp_path, "new", path, parallelism=3)
    stream = numbers(env).map(same).uid("second").map(same).uid("brand new").key_by(lambda n: n % 10)
    kept = stream.process(Keep(plain(), as_int)).uid("keep")
    kept.map(same).uid("first").sink_to(ListSink(sink)).uid("sink")
    numbers(env).uid("another source").key_by(lambda n: n).process(Keep(plain(), as_int)).uid("more").print()
    env.execute("new")
    assert dict(ListSink.results(sink)) == dict.fromkeys(range(10), 300)


def test_an_operator_that_becomes_part_of_another_chain_keeps_its_state(sink: str, tmp_path: Path) -> None:
    class Total(KeyedProcessFunction):
        def open(self, runtime_context: Any) -> None:
            self.total = runtime_context.get_state(ValueStateDescriptor("total"))

        def process_element(self, value: Any, ctx: Any) -> Any:
            yield ctx.get_current_key(), as_int(self.total, 0)

    def build(env: Any, chained: bool) -> None:
        """Two keyed operators by the same key: the second can follow in the same chain, or behind an exchange."""
        first = numbers(env).key_by(lambda n: n % 10).process(Keep(plain(), lambda s, v: as_int(s, v))).uid("keep")
        again = first.map(lambda pair: pair).uid("between")
        if not chained:
            again = again.disable_chaining()
        again.key_by(lambda pair: pair[0]).process(Total()).uid("total").sink_to(ListSink(sink)).uid("sink")

    env = environment(tmp_path, "old", None)
    build(env, chained=False)
    path = env.execute_async("old").stop_with_savepoint(False, str(tmp_path)).result()
    env = environment(tmp_path, "new", path)
    build(env, chained=True)
    env.execute("new")
    assert dict(ListSink.results(sink)) == dict.fromkeys(range(10), 1)


def test_a_removed_operator_is_refused_by_name_unless_its_state_may_be_dropped(sink: str, tmp_path: Path) -> None:
    path = saved(tmp_path, Keep(plain(), as_int), sink)

    def without(job: str, more: dict[str, str] | None = None) -> None:
        env = environment(tmp_path, job, path, more=more)
        numbers(env).sink_to(ListSink(sink)).uid("sink")
        env.execute("without")

    with pytest.raises(JobDefinitionError, match=r"state of operators \['keep'\].*ignore-unclaimed-state"):
        without("refused")
    without("allowed", {"execution.state-recovery.ignore-unclaimed-state": "true"})


# ---------------------------------------------------------------- uids


def test_state_without_a_uid_is_warned_about_at_submit_time(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    env = environment(tmp_path, "warned", None)
    numbers(env).key_by(lambda n: n % 10).process(Keep(plain(), as_int)).sink_to(ListSink("unused"))
    with caplog.at_level(logging.WARNING, "penstock"):
        env.execute("careless")
    assert ["KeyedProcess" in r.getMessage() and "numbers" not in r.getMessage() for r in caplog.records] == [True]
