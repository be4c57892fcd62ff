"""State is data: read as tables, queried by key while the job runs, written and transformed without a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.checkpoint import state_data
from penstock.checkpoint.savepoint_writer import SavepointWriter
from penstock.common import Configuration, Duration, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction, ProcessWindowFunction
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.driver.client import JobClient
from penstock.errors import CorruptSnapshotError, JobDefinitionError, PenstockError
from penstock.state.keys import key_group
from penstock.testing import ListSink
from tests.embedded.jobs import configured

TOTAL = 2000


class EventTime(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value)


class Many(KeyedProcessFunction):
    """One state of each kind, and a timer far ahead."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.all = runtime_context.get_list_state(ListStateDescriptor("all"))
        self.by_parity = runtime_context.get_map_state(MapStateDescriptor("by-parity"))
        expiring = ValueStateDescriptor("last")
        expiring.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
        self.last = runtime_context.get_state(expiring)

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        self.all.add(value)
        self.by_parity.put("odd" if value % 2 else "even", value)
        self.last.update(value)
        ctx.timer_service().register_event_time_timer(10**9 + ctx.get_current_key())
        if value >= TOTAL - 10:
            yield ctx.get_current_key(), self.count.value(), len(list(self.all.get()))


class Window(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, len(list(elements))


def start(folder: Path, job: str, sink: str, path: str | None = None, uid: str = "many") -> JobClient:
    more = {"penstock.epoch.max-records": "100", "penstock.checkpoint.inline-threshold": "0"}
    config = configured(folder / job, more, path=path)
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(2)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(10)).with_timestamp_assigner(
        EventTime()
    )
    numbers = env.from_source(DataGeneratorSource(lambda i: i, TOTAL, splits=2), strategy, "numbers").uid("numbers")
    keyed = numbers.key_by(lambda n: n % 10)
    keyed.process(Many()).uid(uid).sink_to(ListSink(sink)).uid("sink")
    windows = keyed.window(TumblingEventTimeWindows.of(Time.seconds(1))).process(Window()).uid("windows")
    windows.sink_to(ListSink(sink + "-windows")).uid("window sink")
    return env.execute_async("many states")


@pytest.fixture
def sink(request: pytest.FixtureRequest) -> str:
    for name in (request.node.name, request.node.name + "-windows"):
        ListSink.clear(name)
    return str(request.node.name)


@pytest.fixture
def saved(sink: str, tmp_path: Path) -> str:
    return start(tmp_path, "old", sink).stop_with_savepoint(False, str(tmp_path)).result()


def test_every_kind_of_state_is_a_table(saved: str) -> None:
    count = state_data.read(saved, "many", "count").to_arrow()
    assert count.column_names == ["key_group", "key", "value"]
    rows = {row["key"]: row for row in count.to_pylist()}
    assert sorted(rows) == list(range(10))
    assert all(row["key_group"] == key_group(key, 128) for key, row in rows.items())
    done = rows[0]["value"]
    assert 0 < done < 200
    lists = {entry.key: entry.value for entry in state_data.read(saved, "many", "all")}
    assert {key: len(values) for key, values in lists.items()} == {key: row["value"] for key, row in rows.items()}
    assert {entry.key: set(entry.value) for entry in state_data.read(saved, "many", "by-parity")} == {
        key: {"odd" if key % 2 else "even"} for key in range(10)
    }
    last = state_data.read(saved, "many", "last").to_pandas()
    assert (last["value"] % 10 == last["key"]).all()
    assert (last["last_update"] > 0).all()
    timers = state_data.read(saved, "many", "timer-event").to_arrow()
    assert sorted(timers.column("timestamp").to_pylist()) == [10**9 + key for key in range(10)]


def test_state_of_windows_has_the_window(saved: str) -> None:
    names = {
        name for uid, name, _ in state_data.list_states(saved) if uid == "windows" and not name.startswith("timer")
    }
    assert names
    table = state_data.read(saved, "windows", names.pop()).to_arrow()
    assert set(table.column("window_end").to_pylist()) <= {1000, 2000}
    assert {"window_start", "window_end", "key"} <= set(table.column_names)


def test_a_checkpoint_is_read_like_a_savepoint(sink: str, tmp_path: Path) -> None:
    client = start(tmp_path, "job", sink)
    client.get_job_execution_result().result()
    (folder,) = (f.parent for f in (tmp_path / "job/checkpoints").glob("*/manifest.json"))
    assert {e.key: e.value for e in state_data.read(str(folder), "many", "count")} == dict.fromkeys(range(10), 200)


def test_what_is_not_there_is_said_with_what_is(saved: str) -> None:
    with pytest.raises(PenstockError, match=r"no entries of state 'cuont' of operator 'many'.*many: count"):
        state_data.read(saved, "many", "cuont")


def test_a_damaged_file_is_not_read(saved: str) -> None:
    for file in Path(saved.removeprefix("file://")).glob("*.state"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    with pytest.raises(CorruptSnapshotError, match="checksum"):
        state_data.read(saved, "many", "count")


def test_one_key_of_a_running_job_can_be_queried(sink: str, tmp_path: Path) -> None:
    client = start(tmp_path, "job", sink)
    client.get_job_execution_result().result()
    assert client.query_state("many", "count", 3).result() == 200
    assert client.query_state("many", "by-parity", 3).result() == {"odd": 1993}
    assert client.query_state("many", "count", 77).result() is None
    assert client.query_state("many", "timer-event", 3).result() == []
    assert client.query_state("many", "timer-processing", 3).result() == [], "no file has anything of these timers"


def test_without_a_checkpoint_there_is_nothing_to_query() -> None:
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.from_collection([1]).print()
    client = env.execute_async()
    client.get_job_execution_result().result()
    with pytest.raises(PenstockError, match="no checkpoint"):
        client.query_state("many", "count", 3).result()


# ---------------------------------------------------------------- writing


@pytest.mark.parametrize("form", ["arrow", "pandas", "pairs", "dict"])
def test_a_job_starts_from_state_that_was_written_for_it(form: str, sink: str, tmp_path: Path) -> None:
    table = pa.table({"user": list(range(10)), "total": [1000] * 10})
    data: Any = {
        "arrow": table,
        "pandas": table.to_pandas(),
        "pairs": [(key, 1000) for key in range(10)],
        "dict": dict.fromkeys(range(10), 1000),
    }[form]
    writer = SavepointWriter.new().with_state("many", "count", data, key="user", value="total")
    path = writer.write(str(tmp_path / "written"))
    start(tmp_path, "job", sink, path).get_job_execution_result().result()
    assert sorted(ListSink.results(sink)) == [(key, 1200, 200) for key in range(10)]


def test_a_savepoint_written_anew_resumes_exactly(saved: str, sink: str, tmp_path: Path) -> None:
    path = SavepointWriter.from_existing(saved).write(str(tmp_path / "copy"))
    start(tmp_path, "new", sink, path).get_job_execution_result().result()
    assert sorted(ListSink.results(sink)) == [(key, 200, 200) for key in range(10)]
    counted: dict[int, int] = {}
    for key, count in ListSink.results(sink + "-windows"):
        counted[key] = counted.get(key, 0) + count
    assert counted == dict.fromkeys(range(10), 200), "nothing was late: event time came along"


def test_operators_are_renamed_keys_dropped_and_values_changed(saved: str, sink: str, tmp_path: Path) -> None:
    before = {entry.key: entry.value for entry in state_data.read(saved, "many", "count")}
    path = (
        SavepointWriter.from_existing(saved)
        .map_values("many", "count", lambda key, value: value + 10_000)
        .drop_keys("many", lambda key: key >= 5)
        .rename_operator("many", "renamed")
        .write(str(tmp_path / "changed"))
    )
    assert "many" not in {uid for uid, *_ in state_data.list_states(path)}
    start(tmp_path, "new", sink, path, uid="renamed").get_job_execution_result().result()
    found = {key: (count, elements) for key, count, elements in ListSink.results(sink)}
    assert found == dict.fromkeys(range(5), (10200, 200)) | {
        key: (200 - before[key], 200 - before[key]) for key in range(5, 10)
    }


def test_an_operator_is_removed_with_all_it_has(saved: str, sink: str, tmp_path: Path) -> None:
    writer = SavepointWriter.from_existing(saved).remove_operator("many").remove_operator("numbers")
    path = writer.write(str(tmp_path / "less"))
    assert {uid for uid, *_ in state_data.list_states(path)} == {"windows"}
    ListSink.clear(sink)
    start(tmp_path, "new", sink, path).get_job_execution_result().result()
    assert sorted(ListSink.results(sink)) == [(key, 200, 200) for key in range(10)]


def test_mistakes_are_refused(saved: str, tmp_path: Path) -> None:
    writer = SavepointWriter.from_existing(saved)
    with pytest.raises(PenstockError, match="no state of operator 'nobody'; there is of"):
        writer.remove_operator("nobody")
    with pytest.raises(JobDefinitionError, match="'numbers' already"):
        writer.rename_operator("many", "numbers")
    with pytest.raises(JobDefinitionError, match="occurs more than once"):
        writer.with_state("many", "count", [(1, 1), (1, 2)])
    with pytest.raises(JobDefinitionError, match="kind 'set' is not known"):
        writer.with_state("many", "count", [], kind="set")
    with pytest.raises(PenstockError, match="no keyed state 'nothing'"):
        writer.map_values("many", "nothing", lambda key, value: value)
    with pytest.raises(PenstockError, match="already"):
        writer.write(saved)
