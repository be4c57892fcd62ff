"""The job that fault tests kill: three levels, splits of which one lags, half of all records on one key, two exact sinks.

It lasts until the test lets it end (`ends`), not for a time. Its answer is computed here a second time, without Penstock.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from examples.kill import ChosenProcess, kill
from penstock.common import Configuration, Duration, Time, Types, WatermarkStrategy
from penstock.common.watermark_strategy import TimestampAssigner
from penstock.connectors.files import FileSink
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction, ProcessWindowFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.driver.client import JobClient
from penstock.runtime.pipelined.hosts import EnlistedHost
from penstock.runtime.pipelined.job import PipelinedJob
from tests.chaos.verify import rows
from tests.connectors.lasting import Lasting

SPLITS, KEYS, GROUPS, WINDOW_MS = 3, 101, 7, 500
WORKER = "penstock.runtime.pipelined.daemon"  # what a worker's command line holds


def event(index: int) -> tuple[int, int, int]:
    """(user, event time, index). Half of all records are of user 0, and each split is in order but for 40 ms."""
    user = 0 if index % 2 else index * 31 % KEYS
    return user, index - (index * 7919) % 40, index


def lagging_event(index: int) -> tuple[int, int, int]:
    """One split of three is slower than the others."""
    if index % SPLITS == 1 and index % 4 == 0:
        time.sleep(0.001)
    return event(index)


class EventTime(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class Numbering(KeyedProcessFunction):
    """Numbers the records of a user. Raises once at each index of `raises`: a file is the proof, and the memory. Raises once
    when the test says so (`fail_now`). Hangs at one."""

    def __init__(self, folder: str, raises: tuple[int, ...], hangs_at: int) -> None:
        self.folder, self.raises, self.hangs_at = folder, raises, hangs_at

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value[2] in self.raises:
            proof = Path(self.folder) / f"raised-{value[2]}"
            if not proof.exists():
                proof.touch()
                raise ValueError(f"record {value[2]} is not liked")
        if (asked := Path(self.folder) / "raise").exists():
            with suppress(FileNotFoundError):  # another subtask was faster
                asked.rename(asked.with_name("raised"))
                raise ValueError("as the test wants it")
        if value[2] == self.hangs_at:
            (Path(self.folder) / "hangs").write_text(str(os.getpid()))
            time.sleep(3600)
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        yield value[0], number, value[2], value[1]


class CountAndSum(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        indices = [e[2] for e in elements]
        yield key, context.window().start, len(indices), sum(indices)


def start(
    folder: Path,
    *,
    records: int,
    rate: float,
    parallelism: int,
    raises: tuple[int, ...] = (),
    hangs_at: int = -1,
    **options: str,
) -> JobClient:
    """The job, pipelined, with a checkpoint every 200 ms. Most of its last quarter comes when it may end."""
    config = Configuration()
    settings = {
        "penstock.execution.mode": "pipelined",
        "penstock.job.dir": str(folder / "job"),
        "execution.checkpointing.interval": "200 ms",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "20",
        "restart-strategy.fixed-delay.delay": "50 ms",
        **options,
    }
    for key, value in settings.items():
        config.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(parallelism)
    source = Lasting(lagging_event, records, until=folder / "may-end", splits=SPLITS, rate_per_second=rate)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(50)).with_timestamp_assigner(
        EventTime()
    )
    strategy = strategy.with_idleness(Duration.of_hours(1))  # only subtasks without a split are idle
    longs = pa.int64()
    numbered = (
        env.from_source(source, strategy, "events")
        .uid("events")
        .key_by(lambda e: e[0])
        .process(Numbering(str(folder), raises, hangs_at))
        .uid("numbering")
    )
    numbered.map(lambda e: e[:3]).sink_to(
        FileSink.parquet(
            str(folder / "numbered"), schema=pa.schema([("user", longs), ("number", longs), ("index", longs)])
        )
    ).uid("numbered-sink")
    numbered.key_by(lambda e: e[2] % GROUPS).window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW_MS))).process(
        CountAndSum()
    ).uid("windows").sink_to(
        FileSink.parquet(
            str(folder / "windows"),
            schema=pa.schema([("group", longs), ("start", longs), ("count", longs), ("total", longs)]),
        )
    ).uid("windows-sink")
    return env.execute_async("uneven")


def verify(folder: Path, records: int) -> None:
    """Exactly the answer: nothing lost, twice, or out of order within a key."""
    numbered = rows(folder / "numbered")
    seen = Counter(index for _, _, index in numbered)
    assert (records - len(seen), sum(seen.values()) - len(seen)) == (0, 0), "lost, duplicated"
    numbers: dict[int, list[int]] = defaultdict(list)
    order: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for user, number, index in numbered:
        assert user == event(index)[0]
        numbers[user].append(number)
        order[user, index % SPLITS].append((number, index))
    for user, given in numbers.items():
        assert sorted(given) == list(range(1, len(given) + 1)), f"user {user}"
    for key, pairs in order.items():
        indices = [index for _, index in sorted(pairs)]
        assert indices == sorted(indices), f"user and split {key} are out of order"
    expected: dict[tuple[int, int], tuple[int, int]] = {}
    for index in range(records):
        moment = event(index)[1]
        key = index % GROUPS, moment - moment % WINDOW_MS
        count, total = expected.get(key, (0, 0))
        expected[key] = count + 1, total + index
    windows = rows(folder / "windows")
    assert len({row[:2] for row in windows}) == len(windows), "a window has fired twice"
    assert {(group, begin): (count, total) for group, begin, count, total in windows} == expected


# ---------------------------------------------------------------- what is done to it


def running(client: JobClient) -> PipelinedJob:
    job = client._job
    assert isinstance(job, PipelinedJob)
    return job


def hosts_of(client: JobClient) -> list[EnlistedHost]:
    hosts = running(client)._hosts
    return [] if hosts is None else hosts.all


def pid_of(host: EnlistedHost) -> int:
    return int(host.name.rpartition(":")[2])


def wait_until(client: JobClient, condition: Any, what: str, timeout_s: float = 90) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        result = client.get_job_execution_result()
        assert not result.done(), f"the job ended before {what}: {result.result()}"
        assert time.monotonic() < until, f"{what} did not happen within {timeout_s} s"
        time.sleep(0.01)


def wait_for_checkpoints(client: JobClient, more: int = 2) -> None:
    """So many more are complete, in this attempt."""
    statistics = running(client).master.statistics.statistics
    wanted = statistics.completed + more
    wait_until(client, lambda: statistics.completed >= wanted, f"{more} more checkpoints")


def kill_host(client: JobClient, level: int, index: int | None = None) -> int:
    """SIGKILL of a worker of this level; the pid that was."""
    found: list[EnlistedHost] = []

    def there() -> bool:
        found[:] = [h for h in hosts_of(client) if h.id.level == level and index in (None, h.id.index)]
        return bool(found)

    wait_until(client, there, f"a host of level {level}")
    pid = pid_of(found[-1])
    kill(ChosenProcess.of(pid, command_contains=WORKER))
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    return pid


def fail_now(folder: Path) -> None:
    """The next record is an error, once. There is one: the job may end from now on."""
    (folder / "raise").touch()
    (folder / "may-end").touch()


def ends(client: JobClient, folder: Path, timeout_s: float = 240) -> Any:
    """The job gets its last records. Its result; an error if it fails, or takes longer."""
    (folder / "may-end").touch()
    result, until = client.get_job_execution_result(), time.monotonic() + timeout_s
    while not result.done():
        assert time.monotonic() < until, f"the job did not end within {timeout_s} s"
        time.sleep(0.02)
    return result.result()
