"""A job with every kind of state, sink and source position, whose checkpoints and savepoints are stored in `tests/data`.

    PYTHONPATH=. python -m tests.checkpoint.wide_sample BACKEND FOLDER

makes `FOLDER.tar.xz` with a job folder that was cancelled in the middle (`checkpoint.job`, incremental), a savepoint, and what the
sinks had committed by then (`*-committed.json`, `*-files`), without the output that the newest checkpoint has only promised.

It uses public names alone, so that it runs on every release. `expected()` knows the answer without running anything. Every output
is committed exactly once, by the run that made the sample or by the one that was restored: their sum is the answer.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.common import Configuration, Duration, Row, RowKind, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner, WatermarkGenerator
from penstock.connectors.datagen import ColumnGenerator, DataGeneratorSource
from penstock.connectors.file_sink import FileSink
from penstock.datastream import (
    AsyncDataStream,
    AsyncFunction,
    DataStream,
    KeyedStream,
    StreamExecutionEnvironment,
)
from penstock.datastream.aggregates import count, max_, mean, sum_
from penstock.datastream.functions import (
    AggregateFunction,
    CheckpointedFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    TwoPhaseCommitSinkFunction,
)
from penstock.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    CountTrigger,
    EventTimeSessionWindows,
    GlobalWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
)
from penstock.testing import ListSink

RECORDS, KEYS = 720, 6
END = 10**12  # event time of the timers that give out everything
LATE = RECORDS - 60  # records from here on make `Held` give out what it holds
LISTED = (
    "states", "windows", "sessions", "panes", "session-sums", "counted", "evicted", "early", "custom",
    "rolled", "intervals", "met", "joined", "asked", "held", "priced", "loop",
)  # fmt: skip


# ---------------------------------------------------------------- records


def event(index: int) -> tuple[str, int, int]:
    return f"k{index % KEYS}", index * 10, index


def rule(index: int) -> tuple[str, int, int]:
    return f"rule{index}", index * 10, index * index


class Columns(ColumnGenerator):
    event_time_column = "at"

    def generate(self, index: Any, seed: int) -> pa.RecordBatch:
        return pa.record_batch(
            {
                "key": pa.array([f"k{i % KEYS}" for i in index.tolist()]),
                "at": pa.array(index * 10, type=pa.int64()),
                "size": pa.array(index.astype(np.int64) % 17),
            }
        )


class EventTime(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class Lagging(WatermarkGenerator):
    """A generator of the user's own, which is part of the source's state."""

    def __init__(self) -> None:
        self.largest = -(10**6)

    def on_event(self, value: Any, timestamp: int, output: Any) -> None:
        self.largest = max(self.largest, timestamp)

    def on_periodic_emit(self, output: Any) -> None:
        output.emit_watermark(self.largest - 100)


# ---------------------------------------------------------------- functions


@dataclass(frozen=True)
class Seen:
    """A class of the user's, in state."""

    first: int
    window: TimeWindow


class Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0, 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Everything(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        keep = StateTtlConfig.new_builder(Time.days(100_000)).build()

        def lasting(descriptor: Any) -> Any:
            descriptor.enable_time_to_live(keep)
            return descriptor

        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.odd = runtime_context.get_state(ValueStateDescriptor("odd"))
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))
        self.by_rest = runtime_context.get_map_state(MapStateDescriptor("by-rest"))
        self.once = runtime_context.get_map_state(MapStateDescriptor("once"))  # an entry is in one increment only
        self.total = runtime_context.get_reducing_state(ReducingStateDescriptor("total", lambda a, b: a + b))
        self.mean = runtime_context.get_aggregating_state(AggregatingStateDescriptor("mean", Mean(), None))
        self.last = runtime_context.get_state(lasting(ValueStateDescriptor("last")))
        self.recent = runtime_context.get_list_state(lasting(ListStateDescriptor("recent")))
        self.places = runtime_context.get_map_state(lasting(MapStateDescriptor("places")))
        self.alarms = runtime_context.get_state(ValueStateDescriptor("alarms"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        index = value[2]
        if self.count.value() is None:
            self.odd.update([Row(a=index, b=Decimal(index)), RowKind.DELETE, Seen(index, TimeWindow(index, index + 1))])
            # Due long before anybody restores the sample, and after it was made: it fires in the restored job.
            timers = ctx.timer_service()
            timers.register_processing_time_timer(timers.current_processing_time() + 60_000)
        self.count.update((self.count.value() or 0) + 1)
        self.seen.add(index)
        self.by_rest.put(index % 4, (self.by_rest.get(index % 4) or 0) + 1)
        self.once.put(index, -index)
        self.total.add(index)
        self.mean.add(index)
        self.last.update(index)
        self.recent.update([index, index + 1])
        self.places.put(index % 3, index)
        ctx.timer_service().register_event_time_timer(END)
        return ()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        if timestamp != END:
            self.alarms.update((self.alarms.value() or 0) + 1)
            return
        yield (
            ctx.get_current_key(),
            self.count.value(),
            self.odd.value(),
            sorted(self.seen.get()),
            dict(sorted(self.by_rest.items())),
            sorted(self.once.items()),
            self.total.get(),
            self.mean.get(),
            self.last.value(),
            list(self.recent.get()),
            dict(sorted(self.places.items())),
            self.alarms.value(),
        )


class Contents(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        window = context.window()
        yield key, getattr(window, "start", None), getattr(window, "end", None), sorted(e[2] for e in elements)


class Amount(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, len(list(elements))


class EveryThird(Trigger[Any, Any]):
    """With state of its own, per key and window. Fires at the end only, if it has counted right."""

    def __init__(self) -> None:
        self._seen = ReducingStateDescriptor("seen", lambda a, b: a + b, Types.LONG())

    def on_element(self, element: Any, timestamp: int, window: Any, ctx: Any) -> TriggerResult:
        ctx.get_partitioned_state(self._seen).add(1)
        ctx.register_event_time_timer(window.max_timestamp())
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Any, ctx: Any) -> TriggerResult:
        counted = ctx.get_partitioned_state(self._seen).get()
        return TriggerResult.FIRE if counted == RECORDS // KEYS else TriggerResult.PURGE

    def on_merge(self, window: Any, ctx: Any) -> None:
        raise AssertionError("these windows do not merge")

    def clear(self, window: Any, ctx: Any) -> None:
        ctx.get_partitioned_state(self._seen).clear()
        ctx.delete_event_time_timer(window.max_timestamp())


class Pairs(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Any:
        yield left[2], right[2]


class Met(KeyedCoProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.sums = runtime_context.get_map_state(MapStateDescriptor("sums"))

    def process_element1(self, value: Any, ctx: Any) -> Any:
        self.sums.put("left", (self.sums.get("left") or 0) + value[2])
        ctx.timer_service().register_event_time_timer(END)
        return ()

    def process_element2(self, value: Any, ctx: Any) -> Any:
        self.sums.put("right", (self.sums.get("right") or 0) + 1)
        return ()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield ctx.get_current_key(), self.sums.get("left"), self.sums.get("right")


class Ask(AsyncFunction):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [(value[2], value[2] + 1)]


class Held(FlatMapFunction, CheckpointedFunction):
    """Holds records back in a list that is dealt out, and notes every tenth in one that everybody gets whole."""

    def initialize_state(self, context: Any) -> None:
        store = context.get_operator_state_store()
        self.held = store.get_list_state(ListStateDescriptor("held"))
        self.noted = store.get_union_list_state(ListStateDescriptor("noted"))
        self.buffer = list(self.held.get())
        self.restored = context.is_restored()
        self.tenth = list(self.noted.get())
        self.before = sorted(self.tenth)
        self.releasing = False

    def snapshot_state(self, context: Any) -> None:
        self.held.update(list(self.buffer))
        self.noted.update(list(self.tenth))

    def flat_map(self, value: Any) -> Iterable[Any]:
        if self.restored and self.before:
            yield ("noted", tuple(self.before))
            self.before, self.tenth = [], []
        if value[2] % 10 == 0:
            self.tenth.append(value[2])
        if self.restored:
            yield ("after", value[2])
        self.releasing = self.releasing or value[2] >= LATE
        self.buffer.append(value[2])
        if self.releasing:
            yield from (("held", index) for index in self.buffer)
            self.buffer = []


RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class Priced(KeyedBroadcastProcessFunction[Any, Any, Any, Any]):
    def process_element(self, value: Any, ctx: Any) -> Any:
        ctx.timer_service().register_event_time_timer(END)
        return ()

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        ctx.get_broadcast_state(RULES).put(value[0], value[2])
        return ()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        rules = ctx.get_broadcast_state(RULES)
        yield ctx.get_current_key(), len(list(rules)), sum(value for _, value in rules.items())


class Transactions(TwoPhaseCommitSinkFunction[Any]):
    """A transaction holds what was written; committed ones are in this process."""

    committed: ClassVar[dict[str, dict[str, list[Any]]]] = {}

    def __init__(self, name: str) -> None:
        self.name = name

    def begin_transaction(self) -> Any:
        return {"id": uuid.uuid4().hex, "values": []}

    def invoke(self, transaction: Any, value: Any, context: Any) -> None:
        transaction["values"].append(value)

    def pre_commit(self, transaction: Any) -> None:
        return None

    def commit(self, transaction: Any) -> None:
        self.committed.setdefault(self.name, {})[transaction["id"]] = transaction["values"]

    def abort(self, transaction: Any) -> None:
        return None


# ---------------------------------------------------------------- the job


def build(env: StreamExecutionEnvironment, sink: str, files: Path) -> None:
    bounded = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(50))
    events = env.from_source(
        DataGeneratorSource(event, RECORDS, splits=2), bounded.with_timestamp_assigner(EventTime()), "events"
    ).uid("events")
    others = env.from_source(
        DataGeneratorSource(event, RECORDS, splits=1),
        WatermarkStrategy.for_generator(Lagging).with_timestamp_assigner(EventTime()),
        "others",
    ).uid("others")
    rules = env.from_source(
        DataGeneratorSource(rule, RECORDS, splits=1), bounded.with_timestamp_assigner(EventTime()), "rules"
    ).uid("rules")
    columns = env.from_source(
        DataGeneratorSource(Columns(), RECORDS, splits=2), WatermarkStrategy.for_monotonous_timestamps(), "columns"
    ).uid("columns")
    keyed = events.key_by(lambda value: value[0])
    other_keyed = others.key_by(lambda value: value[0])
    hour = TumblingEventTimeWindows.of(Time.hours(1))

    def out(name: str, stream: DataStream) -> None:
        stream.uid(name).sink_to(ListSink(f"{sink}-{name}")).uid(f"{name}-sink")

    out("states", keyed.process(Everything()))
    _windows(keyed, columns, hour, out)
    out("rolled", keyed.map(lambda v: (v[0], v[2])).key_by(lambda v: v[0]).sum(1))
    within = keyed.interval_join(other_keyed).between(Time.milliseconds(-120), Time.milliseconds(120))
    out("intervals", within.process(Pairs()))
    out("met", keyed.connect(other_keyed).process(Met()))
    pairs = events.join(others).where(lambda v: v[0]).equal_to(lambda v: v[0]).window(hour)
    joined = pairs.apply(lambda a, b: (a[2], b[2])).uid("join")
    out("joined", joined.filter(lambda pair: pair[0] == pair[1]))
    out("asked", AsyncDataStream.unordered_wait(events, Ask(), Time.seconds(60)))
    out("held", events.rebalance().flat_map(Held()))
    out("priced", keyed.connect(rules.broadcast(RULES)).process(Priced()))
    _loop(events, out)
    text = events.map(lambda v: f"{v[2]}")
    text.sink_to(FileSink.csv(files, pa.schema([("index", pa.string())]))).uid("files-sink")
    events.map(lambda v: v[2]).uid("moved").add_sink(Transactions(sink)).uid("transactions-sink")
    events.filter(lambda v: v[2] % 100 == 0).print().uid("print-sink")


def _windows(keyed: KeyedStream, columns: DataStream, hour: Any, out: Callable[[str, DataStream], None]) -> None:
    out("windows", keyed.window(hour).process(Contents()))
    out("sessions", keyed.window(EventTimeSessionWindows.with_gap(Time.minutes(10))).process(Contents()))
    sliding = columns.key_by("key").window(SlidingEventTimeWindows.of(Time.hours(1), Time.minutes(30)))
    out("panes", sliding.agg(n=count(), size=sum_("size"), last=max_("at")))
    merging = columns.key_by("key").window(EventTimeSessionWindows.with_gap(Time.minutes(10)))
    out("session-sums", merging.agg(n=count(), size=sum_("size"), middle=mean("size")))
    out("counted", keyed.count_window(25).process(Amount()))
    last_ten = keyed.window(GlobalWindows.create()).trigger(PurgingTrigger.of(CountTrigger.of(40)))
    out("evicted", last_ten.evictor(CountEvictor.of(10)).process(Amount()))
    out("early", keyed.window(hour).trigger(ContinuousEventTimeTrigger.of(Time.seconds(3))).process(Amount()))
    out("custom", keyed.window(hour).trigger(EveryThird()).process(Amount()))


def _loop(events: DataStream, out: Callable[[str, DataStream], None]) -> None:
    """(index, rounds left): in every epoch something is on its way back."""
    tokens = events.map(lambda v: (v[2], v[2] % 3)).uid("tokens")
    iteration = tokens.iterate()
    step = iteration.map(lambda t: (t[0], t[1] - 1)).uid("step")
    iteration.close_with(step.filter(lambda t: t[1] >= 0).uid("again"))
    out("loop", step.filter(lambda t: t[1] < 0))


def environment(
    job_dir: Path, backend: str, parallelism: int = 2, epoch_records: int = 60
) -> StreamExecutionEnvironment:
    settings = {
        "penstock.runtime": "embedded",
        "restart-strategy.type": "none",
        "penstock.job.dir": str(job_dir),
        "state.backend.type": backend,
        "execution.checkpointing.interval": "0 ms",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.num-retained": "1",
        "penstock.epoch.interval": "100 ms",
        "penstock.epoch.max-records": str(epoch_records),
        "penstock.checkpoint.inline-threshold": "2000",  # some state in the manifest, some in files
    }
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict(settings))
    env.set_parallelism(parallelism)
    return env


# ---------------------------------------------------------------- the answer


def expected(name: str) -> list[Any]:
    """What sink `name` has got in the end, in any order."""
    every = range(RECORDS)
    by_key = {f"k{key}": [i for i in every if i % KEYS == key] for key in range(KEYS)}
    each = RECORDS // KEYS
    match name:
        case "states":
            return [_state(key, indices) for key, indices in by_key.items()]
        case "windows":
            return [(key, 0, 3_600_000, indices) for key, indices in by_key.items()]
        case "sessions":
            return [(key, i[0] * 10, i[-1] * 10 + 600_000, i) for key, i in by_key.items()]
        case "panes":
            half = 1_800_000
            return [
                Row(key=key, window_start=start, window_end=start + 2 * half, n=each, size=_size(i), last=i[-1] * 10)
                for key, i in by_key.items()
                for start in (-half, 0)
            ]
        case "session-sums":
            return [
                Row(
                    key=key,
                    window_start=i[0] * 10,
                    window_end=i[-1] * 10 + 600_000,
                    n=each,
                    size=_size(i),
                    middle=_size(i) / each,
                )
                for key, i in by_key.items()
            ]
        case "counted":
            return [(key, 25) for key in by_key for _ in range(each // 25)]
        case "evicted":
            return [(key, 10) for key in by_key for _ in range(each // 40)]
        case "custom":
            return [(key, each) for key in by_key]
        case "intervals":
            near = ((a, b) for a in every for b in (a - 12, a - 6, a, a + 6, a + 12))
            return [(a, b) for a, b in near if 0 <= b < RECORDS]
        case "met":
            return [(key, sum(indices), each) for key, indices in by_key.items()]
        case "joined":
            return [(index, index) for index in every]
        case "asked":
            return [(index, index + 1) for index in every]
        case "held":
            return [("held", index) for index in every]
        case "priced":
            return [(key, RECORDS, sum(i * i for i in every)) for key in by_key]
        case "loop":
            return [(index, -1) for index in every]
        case "files":
            return [str(index) for index in every]
        case "transactions":
            return list(every)
    raise ValueError(name)


def _size(indices: list[int]) -> int:
    return sum(index % 17 for index in indices)


def _state(key: str, indices: list[int]) -> tuple[Any, ...]:
    rests: dict[int, int] = {}
    places: dict[int, int] = {}
    for index in indices:
        rests[index % 4] = rests.get(index % 4, 0) + 1
        places[index % 3] = index
    first, last = indices[0], indices[-1]
    odd = [Row(a=first, b=Decimal(first)), RowKind.DELETE, Seen(first, TimeWindow(first, first + 1))]
    return (
        key,
        len(indices),
        odd,
        indices,
        dict(sorted(rests.items())),
        [(index, -index) for index in indices],
        sum(indices),
        (sum(indices), len(indices)),
        last,
        [last, last + 1],
        dict(sorted(places.items())),
        1,
    )


# ---------------------------------------------------------------- making a sample


def main(backend: str, folder: Path) -> None:
    folder.mkdir(parents=True)
    for kind in ("checkpoint", "savepoint"):
        sink, job, files = f"{kind}-{backend}", folder / f"{kind}.job", folder / f"{kind}-files"
        env = environment(job, backend)
        build(env, sink, files)
        client = env.execute_async("wide sample")
        while len(client.epoch_reports()) < 6:
            time.sleep(0.001)
        promised: frozenset[str] = frozenset()
        epoch = 10**9
        if kind == "checkpoint":
            client.cancel().result()
            shutil.rmtree(job / "generations")  # says who made it, and nothing that is needed
            (job / "epochs.jsonl").unlink()  # a report, for people
            epoch, promised = _take_back(job, files)
        else:
            made = client.stop_with_savepoint(False, str(folder)).result()
            shutil.move(made.removeprefix("file://"), folder / "savepoint")
            shutil.rmtree(job)
        committed = {
            name: [repr(v) for e, values in ListSink.by_epoch(f"{sink}-{name}").items() if e < epoch for v in values]
            for name in LISTED
        }
        taken = Transactions.committed[sink]
        committed["transactions"] = [repr(v) for key, values in taken.items() if key not in promised for v in values]
        (folder / f"{kind}-committed.json").write_text(json.dumps(committed, indent=0) + "\n")
    with tarfile.open(f"{folder}.tar.xz", "w:xz") as archive:
        archive.add(folder, arcname=".")


def _take_back(job: Path, files: Path) -> tuple[int, frozenset[str]]:
    """As if the driver had died between the newest manifest and the commit: what that promises is not out yet."""
    import pickle

    from penstock.checkpoint.manifest_file import unpack_committables
    from penstock.checkpoint.storage import LocalStorage
    from penstock.checkpoint.store import CheckpointStore

    newest = CheckpointStore(LocalStorage(job), 1).latest()
    assert newest is not None
    for staged in unpack_committables(newest.committables["files-sink"], sink="files-sink"):
        (files / staged.staged).parent.mkdir(parents=True, exist_ok=True)
        (files / staged.final).rename(files / staged.staged)
    next((files / "_commits").glob(f"{newest.epoch}-*.json")).unlink()
    promised = unpack_committables(newest.committables["transactions-sink"], sink="transactions-sink")
    return int(newest.epoch), frozenset(pickle.loads(one.transaction)["id"] for one in promised)


if __name__ == "__main__":
    from tests.checkpoint import wide_sample  # not __main__: its classes are in the samples

    wide_sample.main(sys.argv[1], Path(sys.argv[2]))
