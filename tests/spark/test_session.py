"""Setting up Spark: what is missing is said before the JVM says it worse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.errors import ConfigurationError
from penstock.runtime.epochs.session import _LIVENESS, _beside, _defaults, check_java


def test_missing_java_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ConfigurationError, match=r"Java.*17.*openjdk-17-jre-headless.*PENSTOCK_EXECUTION_MODE=embedded"
    ):
        check_java()


def test_a_java_home_without_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match=str(tmp_path)):
        check_java()


@pytest.mark.spark
def test_modules_and_folders_named_by_python_files_reach_the_slots(
    configuration: Configuration, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder" / "shipped_package").mkdir(parents=True)
    (tmp_path / "folder" / "shipped_package" / "__init__.py").write_text("def twice(n): return 2 * n\n")
    (tmp_path / "shipped_module.py").write_text("def shout(n): return f'{n}!'\n")
    configuration.set_string("python.files", f"{tmp_path / 'folder'},{tmp_path / 'shipped_module.py'}")

    def uses_both(n: int) -> str:
        module, package = import_module("shipped_module"), import_module("shipped_package")
        return str(module.shout(package.twice(n)))

    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    with env.from_collection([1, 2]).map(uses_both).execute_and_collect() as results:
        assert sorted(results) == ["2!", "4!"]


_SHOWS_ITS_PROCESSES = """
import contextlib, json, sys
import psutil
from penstock.runtime.epochs.session import spark_session

settings = json.loads(sys.stdin.read())
context = spark_session(settings).sparkContext
words = []
for child in psutil.Process().children(recursive=True):
    with contextlib.suppress(psutil.NoSuchProcess):  # also what has ended and nobody has waited for yet
        words += child.cmdline()
seen = {key: context.getConf().get(key) for key in settings}
hadoop = context._jsc.hadoopConfiguration().get("fs.azure.account.key.acct")
print(json.dumps({"words": words, "seen": seen, "hadoop": hadoop}))
context.stop()
"""


@pytest.mark.spark
def test_secrets_reach_spark_but_not_the_list_of_processes() -> None:
    settings = {
        "spark.master": "local[1]",
        "spark.driver.memory": "600m",
        "spark.hadoop.fs.azure.account.key.acct": "hush-key",
        "spark.my.database": "postgresql://me:hush-uri@db/jobs",
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY": "hush-env",
    }
    done = subprocess.run(
        [sys.executable, "-c", _SHOWS_ITS_PROCESSES],
        input=json.dumps(settings),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["seen"] == settings
    assert found["hadoop"] == "hush-key"
    assert "-Xmx600m" in found["words"], "the JVM's arguments were seen"
    assert [word for word in found["words"] if "hush" in word] == []


def test_only_a_master_on_this_machine_gets_loopback_addresses() -> None:
    assert _defaults("local[2]")["spark.driver.host"] == "127.0.0.1"
    assert _defaults("spark://127.0.0.1:7077")["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in _defaults("spark://master:7077")


def test_yarn_gets_neither_a_file_system_it_cannot_hand_files_from_nor_sockets_in_its_long_folders() -> None:
    assert "spark.hadoop.fs.file.impl" in _defaults("local[2]")
    assert "spark.hadoop.fs.file.impl" not in _defaults("yarn")
    assert _defaults("yarn")["spark.python.unix.domain.socket.dir"] == "/tmp"
    assert "spark.python.unix.domain.socket.dir" not in _defaults("local[2]")


class _Submitted:
    """What is used of Spark's own configuration."""

    def __init__(self, **values: str) -> None:
        self._values = {key.replace("__", "."): value for key, value in values.items()}

    def get(self, key: str) -> str | None:
        return self._values.get(key)

    def contains(self, key: str) -> bool:
        return key in self._values


def test_under_spark_submit_only_python_workers_and_lost_hosts_are_set_and_not_over_the_users_choice() -> None:
    sockets, folder = "spark.python.unix.domain.socket.enabled", "spark.python.unix.domain.socket.dir"
    submitted: Any = _Submitted(spark__master="spark://master:7077")
    assert _beside(submitted) == {sockets: "true", **_LIVENESS}
    submitted = _Submitted(spark__master="yarn")
    assert _beside(submitted) == {sockets: "true", folder: "/tmp", **_LIVENESS}
    chosen = {sockets: "false", folder: "/run/short", **dict.fromkeys(_LIVENESS, "77s")}
    submitted = _Submitted(spark__master="yarn", **chosen)
    assert _beside(submitted) == {}


@pytest.mark.spark
def test_sockets_and_logs_of_spark_are_in_folders_that_are_swept(
    spark: SparkSession, configuration: Configuration
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(30)
    stale = Path("/dev/shm") / f"penstock-log-{ended.pid}-1794830000000-stale"
    stale.mkdir()
    (stale / "metadata").write_text("of a driver that was killed")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    with env.from_collection([1, 2]).map(lambda n: n + 1).execute_and_collect() as results:
        assert sorted(results) == [2, 3]
    assert not stale.exists()
    assert list(Path("/dev/shm").glob(f"penstock-log-{os.getpid()}-*")) == []
    sockets = Path(spark.sparkContext.getConf().get("spark.python.unix.domain.socket.dir") or "")
    assert sockets.name.startswith(f"penstock-sockets-{os.getpid()}-")
    assert list(sockets.glob(".*.sock"))  # that is where they are
