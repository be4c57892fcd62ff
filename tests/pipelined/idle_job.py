"""A pipelined job that is idle for far longer than every time-out of Spark's and ours, in a process of its own.

`python -m tests.pipelined.idle_job FOLDER SECONDS MASTER`. Prints how long it was idle and how soon an answer came then."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from penstock.common import WatermarkStrategy
from penstock.connectors.files import FileSink, committed_files
from tests.pipelined.controlled import ControlledSource
from tests.pipelined.jobs import Note, environment, wait_until
from tests.pipelined.uneven_job import hosts_of, pid_of, running

# An hour has 30 of Spark's network time-outs (120 s), and 60 of our own waits; so has a minute of these.
SHORT = {
    "spark.network.timeout": "2s",
    "spark.executor.heartbeatInterval": "500ms",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "2000",
    "spark.network.timeoutInterval": "500ms",
    "spark.shuffle.io.connectionTimeout": "1s",
    "spark.rpc.io.connectionTimeout": "2s",
    "spark.rpc.askTimeout": "2s",
    "spark.python.worker.idleTimeoutSeconds": "1",
    "spark.python.daemon.killWorkerOnFlushFailure": "true",
}


def main(folder: Path, seconds: float, master: str) -> None:
    env = environment(folder, 2, execution_checkpointing_interval="1 s", spark_master=master, **SHORT)
    source, heard = ControlledSource(folder / "source", 10, 10), Note(folder / "heard")

    def tell(value: tuple[int, int]) -> str:
        heard.add(f"{value[0]} {value[1]} {time.time()}")
        return str(value)

    records = env.from_source(source, WatermarkStrategy.no_watermarks(), "records").uid("records")
    records.key_by(lambda v: v[1]).map(lambda v: v).uid("middle").rebalance().map(tell).uid("last").sink_to(
        FileSink.text(str(folder / "out"))
    ).uid("out")
    client = env.execute_async("idle")
    source.allow(0, 10)
    wait_until(lambda: len(heard.lines()) == 10, "the first records")
    before = sorted(pid_of(host) for host in hosts_of(client))
    time.sleep(seconds)
    asked = time.time()
    source.allow(1, 10)
    wait_until(lambda: len(heard.lines()) == 20, "records after the pause", seconds=30)
    answered = min(float(line.split()[2]) for line in heard.lines() if line.startswith("1 "))
    client.stop_with_savepoint(False, str(folder / "savepoints")).result()
    client.get_job_execution_result().result()
    found = {
        "idle_s": seconds,
        "answer_ms": round((answered - asked) * 1000, 1),
        "hosts": len(before),
        "attempts": running(client).master.job_attempt,
        "checkpoints": client.checkpoint_statistics().completed,
        "failures": client.life_cycle()["exceptions"],
        "out": sum(len(Path(path).read_text().splitlines()) for path in committed_files(str(folder / "out"))),
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
