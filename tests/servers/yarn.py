"""A real YARN on loopback: Hadoop's ResourceManager and NodeManagers, each a process of its own, and what clients need."""

from __future__ import annotations

import json
import os
import shutil
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pyspark

from tests.servers.jars import ServerUnavailable, cache_folder, fetch
from tests.servers.process import ServerProcess, free_ports

_LOCK = Path(__file__).with_name("yarn.lock")
_SPARK_JARS = Path(pyspark.__file__).parent / "jars"
_FROM_SPARK = ("hadoop-client-*.jar", "slf4j-api-*.jar", "log4j-*.jar", "jcl-over-slf4j-*.jar")
_DAEMON = "org.apache.hadoop.yarn.server"

_LOG4J = """rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d %p %c{1}: %m%n%ex
"""


class _Daemon(ServerProcess):
    """A JVM that runs one of Hadoop's main classes with a configuration folder of its own."""

    start_timeout_s = 120.0
    main = ""

    def __init__(self, folder: Path, java: str, jars: list[Path], settings: Mapping[str, str]) -> None:
        super().__init__(folder, mark=f"-Dpenstock.yarn={uuid.uuid4().hex}")
        self._java = java
        write_configuration(folder / "conf", settings)
        spark = [jar for pattern in _FROM_SPARK for jar in sorted(_SPARK_JARS.glob(pattern))]
        self._path = os.pathsep.join(str(part) for part in (folder / "conf", *spark, *jars))

    def _command(self) -> list[str]:
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", self._mark]
        return [self._java, *options, "-cp", self._path, self.main]


class ResourceManager(_Daemon):
    main = f"{_DAEMON}.resourcemanager.ResourceManager"

    def __init__(self, folder: Path, java: str, jars: list[Path], settings: Mapping[str, str]) -> None:
        super().__init__(folder, java, jars, settings)
        self._web = settings["yarn.resourcemanager.webapp.address"]

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"http://{self._web}/ws/v1/cluster/{path}", timeout=10) as response:
            return json.load(response)

    def _answers(self) -> bool:
        try:
            return bool(self.ask("info")["clusterInfo"]["state"] == "STARTED")
        except (OSError, urllib.error.URLError):
            return False


class NodeManager(_Daemon):
    main = f"{_DAEMON}.nodemanager.NodeManager"

    def __init__(
        self, folder: Path, java: str, jars: list[Path], settings: Mapping[str, str], manager: ResourceManager
    ) -> None:
        (port,) = free_ports(1)
        self._port = port
        own = {
            "yarn.nodemanager.address": f"127.0.0.1:{port}",
            "yarn.nodemanager.localizer.address": "127.0.0.1:0",
            "yarn.nodemanager.collector-service.address": "127.0.0.1:0",
            "yarn.nodemanager.webapp.address": "127.0.0.1:0",
            "yarn.nodemanager.local-dirs": str(folder / "local"),
            "yarn.nodemanager.log-dirs": str(folder / "logs"),
        }
        super().__init__(folder, java, jars, {**settings, **own})
        self._manager = manager

    @property
    def local(self) -> Path:
        return self._folder / "local"

    @property
    def logs(self) -> Path:
        """Folders of applications, with one of each container and its stdout and stderr below."""
        return self._folder / "logs"

    def _answers(self) -> bool:
        nodes = (self._manager.ask("nodes")["nodes"] or {"node": []})["node"]
        return any(node["id"].endswith(f":{self._port}") and node["state"] == "RUNNING" for node in nodes)


class YarnCluster:
    """`configuration` is what clients need as HADOOP_CONF_DIR."""

    def __init__(self, folder: Path, nodes: int) -> None:
        java = shutil.which("java")
        if java is None:
            raise ServerUnavailable("no java on PATH: install Java 17 or newer (`make java`)")
        # Containers ask for JAVA_HOME, which they get from the environment of their NodeManager or of the client.
        self.java_home = str(Path(java).resolve().parents[1])
        jars = fetch(_LOCK, cache_folder("yarn"))
        settings = _settings(folder)
        self.configuration = folder / "conf"
        write_configuration(self.configuration, settings)
        self.manager = ResourceManager(_made(folder / "resourcemanager"), java, jars, settings)
        self.nodes = [
            NodeManager(_made(folder / f"node-{number}"), java, jars, settings, self.manager) for number in range(nodes)
        ]

    def start(self) -> None:
        self.manager.start(wait=False)
        for node in self.nodes:  # they try until the ResourceManager is up
            node.start(wait=False)
        self.manager.wait_until_ready()
        for node in self.nodes:
            node.wait_until_ready()

    def stop(self) -> None:
        for node in self.nodes:  # first: they end the containers that are left
            node.stop()
        self.manager.stop()

    def applications(self) -> list[dict[str, Any]]:
        """As the ResourceManager tells of them, the oldest first."""
        found = (self.manager.ask("apps")["apps"] or {"app": []})["app"]
        return sorted(found, key=lambda one: str(one["id"]))

    def outcome(self) -> str:
        """How the newest application ended, as the ResourceManager sees it, a moment after its driver has ended."""
        deadline = time.monotonic() + 60
        while (status := str(self.applications()[-1]["finalStatus"])) == "UNDEFINED" and time.monotonic() < deadline:
            time.sleep(0.2)
        return status

    def owns(self, folder: Path) -> bool:
        """Whether a container of this cluster works there."""
        return any(node.local in folder.parents for node in self.nodes)

    def output_of_containers(self) -> str:
        """What the containers of the newest application, and the slots in them, have printed."""
        application = self.applications()[-1]["id"]
        files = [file for node in self.nodes for file in sorted(node.logs.glob(f"{application}/*/std*"))]
        return "\n".join(file.read_text(errors="replace") for file in files)

    def environment(self) -> dict[str, str]:
        return {"HADOOP_CONF_DIR": str(self.configuration), "JAVA_HOME": self.java_home}


@contextmanager
def yarn_cluster(folder: Path, nodes: int = 2) -> Iterator[YarnCluster]:
    """All processes are gone afterwards; logs of daemons and containers stay below `folder`."""
    cluster = YarnCluster(folder, nodes)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def write_configuration(folder: Path, settings: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, prefixes in (
        ("core-site.xml", ("fs.", "hadoop.")),
        ("capacity-scheduler.xml", ("yarn.scheduler.capacity.",)),
        ("yarn-site.xml", ("yarn.",)),
    ):
        entries = "".join(
            f"  <property><name>{key}</name><value>{escape(value)}</value></property>\n"
            for key, value in settings.items()
            if key.startswith(prefixes)
        )
        (folder / name).write_text(f"<configuration>\n{entries}</configuration>\n")
    (folder / "log4j2.properties").write_text(_LOG4J)


def _settings(folder: Path) -> dict[str, str]:
    client, scheduler, tracker, admin, web = (f"127.0.0.1:{port}" for port in free_ports(5))
    capacity = "yarn.scheduler.capacity"
    return {
        "fs.defaultFS": "file:///",
        "hadoop.tmp.dir": str(folder / "tmp"),
        "yarn.resourcemanager.hostname": "127.0.0.1",
        "yarn.resourcemanager.address": client,
        "yarn.resourcemanager.scheduler.address": scheduler,
        "yarn.resourcemanager.resource-tracker.address": tracker,
        "yarn.resourcemanager.admin.address": admin,
        "yarn.resourcemanager.webapp.address": web,
        "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
        "yarn.nodemanager.resource.memory-mb": "3072",
        "yarn.nodemanager.resource.cpu-vcores": "4",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.disk-health-checker.enable": "false",  # a laptop's disk is often fuller than 90 %
        "yarn.scheduler.minimum-allocation-mb": "64",
        f"{capacity}.root.queues": "default",
        f"{capacity}.root.default.capacity": "100",
        f"{capacity}.maximum-am-resource-percent": "1.0",
    }


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


if __name__ == "__main__":
    jars = fetch(_LOCK, cache_folder("yarn"))
    print(f"YARN: {len(jars)} jars in {jars[0].parent}")
