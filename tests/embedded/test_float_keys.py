"""NaN is one key and -0.0 is not 0.0, as in Flink: on every backend, at every parallelism, across a restore."""

from __future__ import annotations

import math
import pickle
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.common.types import Row
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction, ProcessWindowFunction, RuntimeContext
from penstock.datastream.state import MapStateDescriptor, ValueStateDescriptor
from penstock.driver.requests import RescaleRequest
from penstock.operators.keyed import KeyedReduceOperator
from penstock.operators.selectors import key_selector
from penstock.state.backend import OperatorState
from penstock.state.keys import NAN, NEGATIVE_ZERO, canonical, key_group, normal_key, user_key
from penstock.state.overlay import MISSING
from penstock.state.snapshot_file import TableDelta
from penstock.testing import EmbeddedJob, Epoch, ListSink, ScriptedSource
from penstock.testing.harness import OperatorHarness
from tests.embedded.jobs import configured, master_of, memory_storage

NANS = [float("nan"), -float("nan"), math.inf - math.inf]
KEYS = [*NANS, 0.0, -0.0, 0, -0.0, 1.5, False, *NANS]
# 6 NaNs; 0.0, 0 and False are one key in Python and here; two -0.0; one 1.5
EXPECTED = {"nan": 6, "0.0": 3, "-0.0": 2, "1.5": 1}


def _named(key: Any) -> str:
    return str(float(key))


class Count(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(10)
        return ()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield type(ctx.get_current_key()), _named(ctx.get_current_key()), self.count.value()


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("parallelism", [1, 7])
def test_state_and_timers_have_one_nan_and_two_zeros(backend: str, parallelism: int, tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(configured(tmp_path, {"state.backend.type": backend}))
    env.set_parallelism(parallelism)
    stream = env.from_collection([(key, index) for index, key in enumerate(KEYS)])
    counted = stream.key_by(lambda record: record[0]).process(Count())
    results = list(counted.execute_and_collect())
    assert {name: count for _, name, count in results} == EXPECTED
    assert len(results) == len(EXPECTED)
    assert {kind for kind, *_ in results} <= {int, float, bool}  # what users see is Python's own


class Sizes(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterable[Any]:
        yield _named(key[1]), type(key[1]) is float, len(list(elements))


def test_count_windows_of_nan_fire_also_inside_of_a_tuple(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(configured(tmp_path, {}))
    pairs = env.from_collection([("a", float("nan")) for _ in range(5)] + [("a", -0.0), ("a", 0.0), ("a", -0.0)])
    windows = pairs.key_by(lambda pair: pair).count_window(2).process(Sizes())
    assert Counter(windows.execute_and_collect()) == {("nan", True, 2): 2, ("-0.0", True, 2): 1}


def test_map_state_has_the_same_keys() -> None:
    class Maps(KeyedProcessFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.seen = runtime_context.get_map_state(MapStateDescriptor("seen", Types.DOUBLE(), Types.LONG()))

        def process_element(self, value: float, ctx: Any) -> Iterable[Any]:
            self.seen.put(value, (self.seen.get(value) or 0) + 1)
            yield sorted((str(key), type(key), count) for key, count in self.seen.items())

    harness = OperatorHarness.for_function(Maps(), lambda _: "one")
    for index, value in enumerate([float("nan"), -0.0, 0.0, float("nan"), -0.0]):
        harness.push(value, index)
        harness.snapshot()
    assert harness.records()[-1][0] == [("-0.0", float, 2), ("0.0", float, 1), ("nan", float, 2)]


def test_a_key_of_a_declared_type_is_compared_as_that_type() -> None:
    single = key_selector(lambda value: value, None, Types.FLOAT())
    double = key_selector(lambda value: value, None, Types.DOUBLE())
    both = key_selector(lambda value: value, None, Types.TUPLE([Types.STRING(), Types.FLOAT()]))
    assert single(0.1) == single(0.1 + 1e-12) != double(0.1)
    assert type(double(1)) is float
    assert double(None) is None
    assert both(("a", 0.1)) == both(("a", 0.1 + 1e-12))
    assert both(("a", float("nan"))) == both(("a", math.inf - math.inf))


@pytest.mark.parametrize(
    "key",
    [float("nan"), np.float32("nan"), np.float64("nan"), Decimal("NaN"), -float("nan")],
    ids=["float", "float32", "float64", "Decimal", "negative"],
)
def test_every_nan_is_the_one_nan(key: Any) -> None:
    assert normal_key(key) is NAN
    assert canonical(key) == canonical(NAN) == canonical(float("nan"))
    assert normal_key((1, Row("x", key))) == normal_key((1, Row("x", float("nan"))))


def test_the_normal_form_survives_pickling_and_users_see_plain_floats() -> None:
    for exact in (NAN, NEGATIVE_ZERO):
        assert pickle.loads(pickle.dumps((exact, "x"))) == (exact, "x")
        assert type(user_key(exact)) is float
        assert type(user_key(("a", exact))[1]) is float
    assert len({0.0: 1, NEGATIVE_ZERO: 2}) == len({NEGATIVE_ZERO: 1, 0.0: 2}) == 2
    assert canonical(-0.0) == canonical(NEGATIVE_ZERO) != canonical(0.0)
    assert math.copysign(1, user_key(NEGATIVE_ZERO)) == -1


def test_keys_that_worked_before_are_encoded_as_before() -> None:
    assert canonical(0.0) == canonical(0) == b"i" + bytes(8)
    assert canonical(float("nan")).hex() == "66" + "000000000000f87f"
    assert canonical(1.5).hex() == "66" + "000000000000f83f"
    assert canonical(math.inf).hex() == "66" + "000000000000f07f"


def test_the_zero_of_an_old_snapshot_is_plain_zero_whichever_came_first() -> None:
    group = key_group(0.0, 128)
    state = OperatorState("op", 128)
    state.restore(
        TableDelta(
            operator="op", name="reduce", kind="reducing", full=True, key_groups=[group], keys=[-0.0], values=[41]
        ),
        range(128),
    )
    state.restored()
    table = state.table("reduce", "reducing")
    assert table.get(normal_key(0.0)) == 41
    assert len(table) == 1
    assert table.peek(NEGATIVE_ZERO) is MISSING


def test_a_restored_nan_is_the_key_that_the_next_record_finds() -> None:
    def summing() -> OperatorHarness:
        return OperatorHarness(KeyedReduceOperator(lambda a, b: (a[0], a[1] + b[1]), key_selector(lambda v: v[0])))

    snapshot = summing().push((float("nan"), 1), 0).snapshot()
    assert summing().restore(snapshot).push((float("nan"), 1), 1).values()[0][1] == 2


def test_columns_of_floats_key_a_process_function_alike() -> None:
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    typed = env.from_collection(
        [(float(key), index) for index, key in enumerate(KEYS)],
        Types.ROW_NAMED(["k", "v"], [Types.DOUBLE(), Types.LONG()]),
    )
    results = list(typed.key_by("k").process(Count()).execute_and_collect())
    assert Counter({name: count for _, name, count in results}) == Counter(EXPECTED)
    assert len(results) == len(EXPECTED)


class Counted(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        self.count.update((self.count.value() or 0) + 1)
        yield round(value[0], 3), self.count.value()


@pytest.mark.parametrize("key", ["k", lambda row: row["k"]], ids=["column", "function"])
def test_keys_of_32_bits_keep_their_state_when_the_job_is_rescaled(key: Any, request: pytest.FixtureRequest) -> None:
    """A tenth is another number after it has travelled as a FLOAT. The sender has to find the key that the receiver keeps its
    state under: else that is in a key group which goes elsewhere than the records."""
    sink, epochs = request.node.name, 6
    ListSink.clear(sink)
    script: list[Any] = []
    for _ in range(epochs):
        script += [*range(50), Epoch()]
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    config.set_string("execution.checkpointing.interval", "0 ms")
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(3).set_max_parallelism(16)
    tenths = env.from_source(ScriptedSource(script[:-1]), WatermarkStrategy.no_watermarks(), "numbers").map(
        lambda n: Row(k=n / 10), output_type=Types.ROW_NAMED(["k"], [Types.FLOAT()])
    )
    tenths.key_by(key).process(Counted()).sink_to(ListSink(sink))
    job = env._describe("tenths")
    runtime = EmbeddedJob(job, master_of(job, memory_storage()))
    asked = RescaleRequest(parallelism=2)

    def on_report(report: Any) -> None:
        if report.epoch == 2:
            runtime.master.requests.rescale(asked)

    runtime.master.on_report = on_report
    runtime.run()
    assert asked.answer.result().after == 2
    assert sorted(ListSink.results(sink)) == [(n / 10, count + 1) for n in range(50) for count in range(epochs)]
