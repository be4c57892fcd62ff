"""The job whose checkpoints and savepoints are stored in `tests/data`, one for each version of the formats.

    PYTHONPATH=. python -m tests.checkpoint.sample_job checkpoint FOLDER      a job folder, stopped in the middle
    PYTHONPATH=. python -m tests.checkpoint.sample_job savepoint FOLDER       a savepoint

Every kind of state is in flight when it stops, and all results come out at the very end, from what was restored and
what was read since: any entry that is lost, doubled or misread shows. It must run with every release since the first.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

from penstock.common import Configuration, Duration, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction, ProcessWindowFunction
from penstock.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from penstock.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from penstock.testing import ListSink

RECORDS, KEYS = 1200, 6


def event(index: int) -> tuple[str, int, int]:
    return f"k{index % KEYS}", index * 10, index


class EventTime(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class Everything(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))
        self.by_parity = runtime_context.get_map_state(MapStateDescriptor("by-parity"))
        self.total = runtime_context.get_reducing_state(ReducingStateDescriptor("total", lambda a, b: a + b))
        expiring = ValueStateDescriptor("last")
        expiring.enable_time_to_live(StateTtlConfig.new_builder(Time.days(100_000)).build())
        self.last = runtime_context.get_state(expiring)

    def process_element(self, value: Any, ctx: Any) -> Any:
        index = value[2]
        self.count.update((self.count.value() or 0) + 1)
        self.seen.add(index)
        self.by_parity.put(index % 4, (self.by_parity.get(index % 4) or 0) + 1)
        self.total.add(index)
        self.last.update(index)
        ctx.timer_service().register_event_time_timer(10**12)
        return ()

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield (
            ctx.get_current_key(),
            self.count.value(),
            sorted(self.seen.get()),
            dict(sorted(self.by_parity.items())),
            self.total.get(),
            self.last.value(),
        )


class Contents(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        yield key, context.window().start, context.window().end, sorted(index for _, _, index in elements)


def expected(name: str) -> list[Any]:
    found: list[Any] = []
    for key in range(KEYS):
        indices = [i for i in range(RECORDS) if i % KEYS == key]
        if name == "states":
            parities: dict[int, int] = {}
            for index in indices:
                parities[index % 4] = parities.get(index % 4, 0) + 1
            row = (f"k{key}", len(indices), indices, dict(sorted(parities.items())), sum(indices), indices[-1])
            found.append(row)
        elif name == "windows":
            found.append((f"k{key}", 0, 3_600_000, indices))
        else:
            found.append((f"k{key}", indices[0] * 10, indices[-1] * 10 + 600_000, indices))
    return found


def build(env: StreamExecutionEnvironment, sink: str) -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(50)).with_timestamp_assigner(
        EventTime()
    )
    events = env.from_source(DataGeneratorSource(event, RECORDS, splits=2), strategy, "events").uid("events")
    keyed = events.key_by(lambda value: value[0])
    keyed.process(Everything()).uid("states").sink_to(ListSink(f"{sink}-states")).uid("states-sink")
    hour = keyed.window(TumblingEventTimeWindows.of(Time.hours(1))).process(Contents()).uid("windows")
    hour.sink_to(ListSink(f"{sink}-windows")).uid("windows-sink")
    sessions = keyed.window(EventTimeSessionWindows.with_gap(Time.minutes(10))).process(Contents()).uid("sessions")
    sessions.sink_to(ListSink(f"{sink}-sessions")).uid("sessions-sink")


def environment(job_dir: Path, parallelism: int = 2) -> StreamExecutionEnvironment:
    config = Configuration()
    config.set_string("penstock.runtime", "embedded")
    config.set_string("penstock.job.dir", str(job_dir))
    config.set_string("execution.checkpointing.interval", "0 ms")
    config.set_string("penstock.epoch.interval", "20 ms")
    config.set_string("penstock.epoch.max-records", "100")
    config.set_string("penstock.checkpoint.inline-threshold", "3000")  # some state in the manifest, some in files
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(parallelism)
    return env


def main(kind: str, folder: Path) -> None:
    working = folder.with_name(folder.name + ".job")
    env = environment(folder if kind == "checkpoint" else working)
    build(env, "sample")
    client = env.execute_async("sample")
    while len(client.epoch_reports()) < 4:
        time.sleep(0.001)
    if kind == "checkpoint":
        client.cancel().result()
        shutil.rmtree(folder / "generations", ignore_errors=True)  # says who made it, and nothing that is needed
        (folder / "epochs.jsonl").unlink(missing_ok=True)
    else:
        made = client.stop_with_savepoint(False, str(folder.parent)).result()
        shutil.move(made.removeprefix("file://"), folder)
        shutil.rmtree(working)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
