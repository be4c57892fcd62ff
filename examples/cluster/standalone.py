"""A real standalone cluster from the PySpark package: a master and workers, each a process of its own, on loopback.

For tests and the demo. A cluster for work is started with Spark's own scripts.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import psutil

from examples.kill import ChosenProcess, kill
from penstock.errors import PenstockError

_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


def spark_class() -> str:
    """The script that starts a process of Spark's. Found without importing PySpark: nothing of it runs in this one."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise PenstockError("a standalone cluster is made from the PySpark package: install penstock[spark]")
    return str(Path(spec.origin).parent / "bin" / "spark-class")


@dataclass(slots=True, kw_only=True)
class StandaloneCluster:
    address: str  # spark://127.0.0.1:port
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def kill_worker(self, number: int) -> int:
        """SIGKILL to one worker; its executors end when they miss it, and slots with them. The pid that was."""
        worker = self.workers[number]
        kill(ChosenProcess.of(worker.pid, command_contains=_WORKER))
        worker.wait(10)
        return worker.pid

    def executors_of(self, number: int) -> list[int]:
        """The pids of the executors that a worker has started and that live."""
        return [child.pid for child in _children(self.workers[number].pid)]

    def worker_of(self, slot_pid: int) -> int | None:
        """The number of the worker below which a slot process runs; None if the slot or its executor is gone."""
        try:
            command = psutil.Process(slot_pid).cmdline()
            executor = int(command[command.index("--executor") + 1])
            parent = psutil.Process(executor).ppid()
        except (psutil.Error, ValueError, IndexError):
            return None
        return next((n for n, worker in enumerate(self.workers) if worker.pid == parent), None)


@contextmanager
def standalone_cluster(
    folder: Path, workers: int = 2, hosts: Sequence[str] = ("127.0.0.1",)
) -> Iterator[StandaloneCluster]:
    """A master and `workers` workers with one core and 1 GiB each; logs and applications' files are below `folder`. All
    their processes are gone afterwards. `hosts` are addresses of loopback: workers at different ones are different hosts to
    Spark, which does not start a second attempt at a task on the host of the first."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_MEMORY": "512m",
        "PYSPARK_PYTHON": sys.executable,
    }
    started: list[tuple[subprocess.Popen[bytes], str]] = []

    def launch(
        name: str, command: str, *arguments: str, host: str = "127.0.0.1"
    ) -> tuple[subprocess.Popen[bytes], Path]:
        log = folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [spark_class(), command, "--host", host, *arguments],
                env={**environment, "SPARK_LOCAL_IP": host},
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        started.append((process, command))
        return process, log

    try:
        _, log = launch("master", _MASTER, "--port", "0", "--webui-port", "0")
        cluster = StandaloneCluster(address=_wait_for(log, r"spark://127\.0\.0\.1:\d+"))
        options = ("--cores", "1", "--memory", "1g", "--webui-port", "0", cluster.address)
        logs = []
        for number in range(workers):
            worker, log = launch(f"worker-{number}", _WORKER, *options, host=hosts[number % len(hosts)])
            cluster.workers.append(worker)
            logs.append(log)
        for log in logs:
            _wait_for(log, r"Successfully registered with master")
        yield cluster
    finally:
        executors = [child for process, _ in started for child in _children(process.pid)]
        for process, command in reversed(started):
            if process.poll() is None:
                kill(ChosenProcess.of(process.pid, command_contains=command))
                process.wait(10)
        psutil.wait_procs(executors, timeout=15)  # they end by themselves when their worker is gone


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children()
    except psutil.Error:
        return []


def _wait_for(log: Path, pattern: str, timeout: float = 90.0) -> str:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found.group(0)
        time.sleep(0.2)
    raise PenstockError(
        f"a standalone Spark cluster did not start: {pattern!r} was not in {log} within {timeout:.0f} s. Its end:\n"
        f"{log.read_text(errors='replace')[-2000:]}"
    )
