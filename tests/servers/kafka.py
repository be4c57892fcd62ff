"""A real Kafka broker (KRaft, one node) on loopback. `python -m tests.servers.kafka` fetches its jars."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from tests.servers.jars import ServerUnavailable, cache_folder, fetch
from tests.servers.process import ServerProcess, free_ports

_LOCK = Path(__file__).with_name("kafka.lock")


def fetch_kafka() -> list[Path]:
    return fetch(_LOCK, cache_folder("kafka"))


class KafkaServer(ServerProcess):
    """One broker with its own data folder."""

    start_timeout_s = 90.0

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        java = shutil.which("java")
        if java is None:
            raise ServerUnavailable("no java on PATH: install Java 17 or newer (`make java`)")
        self._java = java
        super().__init__(folder, mark=f"-Dpenstock.broker={uuid.uuid4().hex}")
        self._jars = fetch_kafka()
        self.port, self._controller_port = free_ports(2)
        self.bootstrap_servers = f"127.0.0.1:{self.port}"
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
        command = [*self._java_command("64m"), "kafka.tools.StorageTool", "format", "--standalone", "-t", cluster]
        done = subprocess.run(
            [*command, "-c", str(self._properties)], capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            raise ServerUnavailable(f"formatting the broker's folder failed: {done.stdout[-500:]}{done.stderr[-500:]}")

    def _java_command(self, heap: str) -> list[str]:
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

    def _command(self) -> list[str]:
        return [*self._java_command("384m"), "kafka.Kafka", str(self._properties)]

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
            return bool(client.list_topics(timeout=5).brokers)
        except (OSError, KafkaException):
            return False


if __name__ == "__main__":
    jars = fetch_kafka()
    print(f"Kafka: {len(jars)} jars in {jars[0].parent}")
