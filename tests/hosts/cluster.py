"""A standalone Spark cluster whose master and workers are hosts, and drivers on hosts beside them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples.cluster.standalone import _MASTER, _WORKER, _wait_for, spark_class
from tests.chaos.cluster import REPOSITORY, Driver
from tests.hosts.network import Host, Network, network

MASTER, WORKERS, DRIVERS = "master", ("w1", "w2"), ("d1", "d2")
_PORT = 7077
# All tasks run at once, two levels of two: one executor of two cores on each worker, and room for both on one of them.
_PIPELINED = {
    "spark.executor.cores": "2",
    "spark.cores.max": "4",
    "execution.checkpointing.interval": "300 ms",
}


@dataclass
class HostDriver(Driver):
    """A driver on a host of its own."""

    host: Host | None = None

    def start(self) -> None:
        assert self.host is not None
        self.folder.mkdir(parents=True, exist_ok=True)
        log = self.folder / f"driver-{self.host.name}-{self.starts}.log"
        self.starts += 1
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                self.host.command(sys.executable, "-m", self.module, str(self.folder), *self.arguments),
                cwd=REPOSITORY,
                env={**_environment(self.host), **self.environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )

    def slots_by_host(self) -> dict[str, list[str]]:
        """The slots of the newest epoch: host → names (`host:port:pid`)."""
        reports = self.reports()
        found: dict[str, list[str]] = {}
        for name in reports[-1]["slots"] if reports else ():
            found.setdefault(name.partition(":")[0], []).append(name)
        return found

    def own_log(self) -> str:
        assert self.host is not None
        return "\n".join(p.read_text(errors="replace") for p in sorted(self.folder.glob(f"driver-{self.host.name}-*")))


def _environment(host: Host) -> dict[str, str]:
    return {
        **os.environ,
        "SPARK_LOCAL_IP": host.address,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(REPOSITORY),
    }


@dataclass
class Cluster:
    net: Network
    folder: Path
    mode: str = "epochs"
    logs: dict[str, Path] = field(default_factory=dict)
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"spark://{self.net[MASTER].address}:{_PORT}"

    def launch(self, name: str, command: str, *arguments: str) -> None:
        host = self.net[name]
        log = self.folder / f"{name}-{len(list(self.folder.glob(f'{name}-*.log')))}.log"
        environment = {
            **_environment(host),
            "SPARK_WORKER_DIR": str(self.folder / f"work-{name}"),
            "SPARK_DAEMON_MEMORY": "384m",
        }
        with log.open("wb") as output:
            self.daemons[name] = subprocess.Popen(
                host.command(spark_class(), command, "--host", host.address, *arguments),
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        self.logs[name] = log

    def start_worker(self, name: str) -> None:
        self.launch(name, _WORKER, "--cores", "4", "--memory", "4g", "--webui-port", "0", self.url)

    def driver(self, name: str, folder: Path, records: int, rate: int, **options: str) -> HostDriver:
        host = self.net[name]
        settings = {
            "records": str(records),
            "rate": str(rate),
            "parallelism": "2",
            "splits": "3",
            "spark.master": self.url,
            "spark.driver.host": host.address,
            "spark.driver.bindAddress": host.address,
            "spark.driver.memory": "768m",
            "spark.executor.memory": "640m",
            "spark.executor.cores": "1",
            "spark.cores.max": "2",
            "spark.task.maxFailures": "8",
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "20",
            "restart-strategy.fixed-delay.delay": "1 s",
            "penstock.execution.mode": self.mode,
            **(_PIPELINED if self.mode == "pipelined" else {}),
            **options,
        }
        return HostDriver(folder, [f"{key}={value}" for key, value in settings.items()], host=host)

    def as_new(self) -> None:
        """All links are up and both workers are there, whatever the scenario before has done."""
        for host in self.net.hosts.values():
            if not host.linked:
                host.mend()
        for name in DRIVERS:
            self.net[name].kill_all()
        for name in WORKERS:
            host = self.net[name]
            host.kill_all()
            self.daemons[name].wait(10)
            self.start_worker(name)
        for name in WORKERS:
            _wait_for(self.logs[name], r"Successfully registered with master")


@contextmanager
def cluster(folder: Path, mode: str = "epochs") -> Iterator[Cluster]:
    folder.mkdir(parents=True, exist_ok=True)
    with network(MASTER, *WORKERS, *DRIVERS) as net:
        made = Cluster(net, folder, mode)
        try:
            made.launch(MASTER, _MASTER, "--port", str(_PORT), "--webui-port", "0")
            _wait_for(made.logs[MASTER], r"spark://[\d.]+:\d+")
            for name in WORKERS:
                made.start_worker(name)
            for name in WORKERS:
                _wait_for(made.logs[name], r"Successfully registered with master")
            yield made
        finally:
            for host in net.hosts.values():
                host.kill_all()
            for daemon in made.daemons.values():
                daemon.wait(10)


def wait_until(condition: Callable[[], Any], timeout: float, what: str, driver: HostDriver) -> Any:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        if not driver.running:
            raise AssertionError(f"the driver ended before {what}\n{driver.log()}")
        time.sleep(0.1)
    raise AssertionError(f"{what} did not happen within {timeout:.0f} s\n{driver.log()}")
