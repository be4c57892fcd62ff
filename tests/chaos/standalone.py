"""A real standalone cluster from the PySpark package: a master and workers, each a process of its own, on loopback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from penstock.testing.kill import Target, kill

_CLASS = str(Path(pyspark.__file__).parent / "bin" / "spark-class")


@contextmanager
def standalone_cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """Yields the master's spark:// address."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_MEMORY": "512m",
        "PYSPARK_PYTHON": sys.executable,
    }
    started: list[tuple[subprocess.Popen[bytes], str]] = []

    def launch(name: str, command: str, *arguments: str) -> Path:
        log = folder / f"{name}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [_CLASS, command, "--host", "127.0.0.1", *arguments],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        started.append((process, command))
        return log

    try:
        master = launch("master", "org.apache.spark.deploy.master.Master", "--port", "0", "--webui-port", "0")
        address = _wait_for(master, r"spark://127\.0\.0\.1:\d+")
        for number in range(workers):
            log = launch(
                f"worker-{number}", "org.apache.spark.deploy.worker.Worker",
                "--cores", "1", "--memory", "1g", "--webui-port", "0", address,
            )  # fmt: skip
            _wait_for(log, r"Successfully registered with master")
        yield address
    finally:
        for process, command in reversed(started):
            if process.poll() is None:
                kill(Target.of(process.pid, command_contains=command))
                process.wait(10)


def _wait_for(log: Path, pattern: str, timeout: float = 90.0) -> str:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found:
            return found.group(0)
        time.sleep(0.2)
    raise AssertionError(f"{pattern!r} did not appear in {log.name} within {timeout:.0f} s:\n{log.read_text()[-2000:]}")
