"""A real Kafka broker (KRaft, one node) on loopback. `python -m tests.servers.kafka` fetches its jars."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from penstock.testing.kill import Target, kill
from tests.servers.jars import ServerUnavailable, cache_folder, fetch

_LOCK = Path(__file__).with_name("kafka.lock")
_START_TIMEOUT_S = 90.0


def fetch_kafka() -> list[Path]:
    return fetch(_LOCK, cache_folder("kafka"))


class KafkaServer:
    """One broker with its own data folder. `stop`, `kill` (SIGKILL) and `start` again keep the data and the port."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        java = shutil.which("java")
        if java is None:
            raise ServerUnavailable("no java on PATH: install Java 17 or newer (`make java`)")
        self._java = java
        self._folder = folder
        self._mark = f"-Dpenstock.broker={uuid.uuid4().hex}"  # tells this broker from every other process
        self._jars = fetch_kafka()
        self.port, self._controller_port = _free_ports(2)
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        folder.mkdir(parents=True, exist_ok=True)
        self._properties = folder / "server.properties"
        self._properties.write_text("".join(f"{k}={v}\n" for k, v in self._settings(settings or {}).items()))
        self._format()

    def _settings(self, more: Mapping[str, str]) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self._controller_port}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self._folder / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "2",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            # Expired transactions are looked for once a second instead of every ten.
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            # After SIGKILL the broker must come back at once, not when its old session has run out.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            **more,
        }

    def _format(self) -> None:
        cluster = "".join(c for c in uuid.uuid4().hex[:22])
        command = [*self._command("64m"), "kafka.tools.StorageTool", "format", "--standalone", "-t", cluster]
        done = subprocess.run(
            [*command, "-c", str(self._properties)], capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            raise ServerUnavailable(f"formatting the broker's folder failed: {done.stdout[-500:]}{done.stderr[-500:]}")

    def _command(self, heap: str) -> list[str]:
        return [
            self._java,
            f"-Xmx{heap}",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1" if heap == "64m" else "-XX:+TieredCompilation",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            self._mark,
            "-cp",
            os.pathsep.join(str(jar) for jar in self._jars),
        ]

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *, wait: bool = True) -> None:
        assert not self.running, "the broker runs already"
        with (self._folder / f"broker-{self.starts}.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*self._command("384m"), "kafka.Kafka", str(self._properties)],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self._folder,
            )
        self.starts += 1
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if not self.running:
                raise ServerUnavailable(f"the broker ended by itself:\n{self.log()}")
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
                if client.list_topics(timeout=5).brokers:
                    return
            except (OSError, KafkaException):
                time.sleep(0.1)
        raise ServerUnavailable(f"the broker was not ready within {_START_TIMEOUT_S:.0f} s:\n{self.log()}")

    def stop(self) -> None:
        """An orderly end; SIGKILL if it takes too long."""
        if self.running:
            assert self._process is not None
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> int:
        """SIGKILL. Returns the pid that died."""
        assert self._process is not None
        pid = self._process.pid
        kill(Target.of(pid, command_contains=self._mark))
        self._process.wait(10)
        return pid

    def log(self) -> str:
        logs = sorted(self._folder.glob("broker-*.log"), key=lambda path: path.stat().st_mtime)
        return logs[-1].read_text(errors="replace")[-3000:] if logs else ""


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


if __name__ == "__main__":
    jars = fetch_kafka()
    print(f"Kafka: {len(jars)} jars in {jars[0].parent}")
