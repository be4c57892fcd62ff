"""The driver of a job with many hosts, which only talk (`hosts`): `python -m benchmarks.scale.driver SPEC`, SPEC as JSON.

Everything on the driver's side is real: JobMaster, enumerators, grants, barriers, acknowledgements, manifests, connections. Spark
is not there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from types import SimpleNamespace
from typing import Any

os.environ["PYSPARK_PIN_THREAD"] = "false"  # there is no JVM

from penstock.checkpoint.storage import open_storage
from penstock.common import Configuration, Types, WatermarkStrategy
from penstock.common.options import InternalOptions
from penstock.connectors.datagen import DataGeneratorSource
from penstock.datastream import StreamExecutionEnvironment
from penstock.datastream.functions import KeyedProcessFunction
from penstock.datastream.state import ValueStateDescriptor
from penstock.driver.description import JobDescription, Planned
from penstock.driver.job_master import JobMaster
from penstock.runtime.pipelined import grants, hosts, spark_plan
from penstock.runtime.pipelined import job as pipelined


class Total(KeyedProcessFunction):
    """A running count."""

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.total.update((self.total.value() or 0) + 1)
        yield value


def described(parallelism: int, folder: str, settings: dict[str, str]) -> JobDescription:
    """Three levels: source, keyed state, keyed windows with a sink."""
    config = Configuration()
    config.set_string("penstock.execution.mode", "pipelined")
    config.set_string("penstock.job.dir", folder)
    config.set_string("execution.checkpointing.interval", "1 s")
    for key, value in settings.items():
        config.set_string(key, value)
    InternalOptions.PLAN_ONLY.set(config, True)
    env = StreamExecutionEnvironment.get_execution_environment(config)
    env.set_parallelism(parallelism)
    env.set_max_parallelism(max(128, 2 * parallelism))
    source = DataGeneratorSource(lambda index: index, None, splits=parallelism, rate_per_second=10e6)
    events = env.from_source(source, WatermarkStrategy.no_watermarks(), "events").uid("events")
    counted = events.key_by(lambda v: v % 1000).process(Total()).uid("total")
    counted.key_by(lambda v: v % 500).count_window(10).reduce(lambda a, b: b).uid("window").print().uid("out")
    try:
        env.execute("scale")
    except Planned as planned:
        return planned.job
    raise AssertionError("the job was run, not planned")


class Attempt(pipelined._Attempt):
    """The hosts are started here, and not by Spark."""

    def _plan_ahead(self) -> None:
        pass

    def _await_task_slots(self) -> None:
        pass

    def _run_spark(self) -> None:
        graph = self._job.graph
        arguments = [str(self._hosts.port), self._hosts.token, str(graph.levels), str(graph.slots)]
        arguments.append(str(self._master.job_attempt))
        subprocess.run([sys.executable, "-m", "benchmarks.scale.hosts", *arguments], check=False)
        self._ended.set()


def main(spec: dict[str, Any]) -> dict[str, Any]:
    slots, seconds = int(spec["slots"]), float(spec["seconds"])
    with tempfile.TemporaryDirectory() as folder:
        job = described(slots, folder, spec.get("settings", {}))
        master = JobMaster(job, open_storage(folder))
        context = SimpleNamespace(master="local[1000]", cancelJobGroup=lambda group: None)
        session: Any = SimpleNamespace(sparkContext=context, conf=SimpleNamespace(get=lambda *_: "127.0.0.1"))
        pipelined._Attempt = Attempt  # type: ignore[misc]
        spark_plan.cores = lambda session: 3 * slots
        running = pipelined.PipelinedJob(job, master, session)
        counts = _count_messages(running)
        thread = threading.Thread(target=running.run, daemon=True)
        thread.start()
        while not running.ran:
            time.sleep(0.1)
            assert thread.is_alive(), "the job has ended"
        time.sleep(3.0)
        cpu, wall, before, reports = time.process_time(), time.monotonic(), dict(counts), len(master.reports)
        time.sleep(seconds)
        used = (time.process_time() - cpu) / (time.monotonic() - wall)
        spent = {name: (counts[name] - before.get(name, 0)) / seconds for name in counts}
        recent = master.reports[reports:]
        checkpoints = [report for report in recent if report.checkpoint]
        running.cancel()
        thread.join(30)
    return {
        "slots": slots,
        "hosts": 3 * slots,
        "driver_cores": round(used, 3),
        "messages_per_s": {name: round(rate, 1) for name, rate in spent.items()},
        "checkpoints_per_s": round(len(checkpoints) / seconds, 2),
        "checkpoint_ms": round(sum(r.duration_ms for r in checkpoints) / max(1, len(checkpoints)), 1),
        "manifest_ms": round(sum(r.manifest_ms for r in checkpoints) / max(1, len(checkpoints)), 1),
    }


def _count_messages(running: pipelined.PipelinedJob) -> dict[str, int]:
    counts = {"in": 0, "out": 0, "grant rounds": 0}
    send, hear, gave = hosts.EnlistedHost.send, pipelined._Attempt._hear, grants.Grants.gave

    def counted_send(self: Any, message: Any) -> None:
        counts["out"] += 1
        send(self, message)

    def counted_hear(self: Any, host: Any, message: Any) -> None:
        counts["in"] += 1
        hear(self, host, message)

    def counted_gave(self: Any, asked: Any, granted: Any, now: float) -> None:
        counts["grant rounds"] += bool(granted)
        gave(self, asked, granted, now)

    hosts.EnlistedHost.send = counted_send  # type: ignore[method-assign]
    pipelined._Attempt._hear = counted_hear  # type: ignore[method-assign]
    grants.Grants.gave = counted_gave  # type: ignore[method-assign]
    return counts


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
