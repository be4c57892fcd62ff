"""A Penstock job as an application of a YARN cluster: started, watched, its executors killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyspark

from examples.kill import ChosenProcess, kill
from penstock.driver.control.home import JobHome
from tests.servers.yarn import YarnCluster

REPOSITORY = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("readings.py")
EXECUTOR = "YarnCoarseGrainedExecutorBackend"
_SPARK = Path(pyspark.__file__).parent


@dataclass(slots=True)
class Application:
    """One run of the program. `folder` holds everything it writes; `log` what its driver prints."""

    folder: Path
    name: str
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        return (self.folder / f"{self.name}.log").read_text(errors="replace")[-6000:]

    def facts(self) -> dict[str, Any] | None:
        found = JobHome(self.folder / f"{self.name}-home").all()
        return found[0].facts() if found else None

    def slots(self) -> list[int]:
        """The pids of the newest epoch's slots."""
        names = (self.facts() or {"slot_processes": []})["slot_processes"]
        return [int(name.rpartition(":")[2]) for name in names]

    def readings(self) -> int:
        return int((self.facts() or {"totals": {"records_in": 0}})["totals"]["records_in"])

    def wait_for(self, condition: Callable[[], bool], what: str, timeout: float = 120.0) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert self.process.poll() is None, f"the driver ended with {self.process.returncode}\n{self.log}"
            assert time.monotonic() < deadline, f"{what} did not happen within {timeout:.0f} s\n{self.log}"
            time.sleep(0.1)

    def wait(self, timeout: float = 180.0) -> None:
        assert self.process.wait(timeout) == 0, self.log


def kill_executor_of(slot: psutil.Process) -> None:
    """SIGKILL of the JVM in the container that the slot belongs to."""
    command = slot.cmdline()
    executor = int(command[command.index("--executor") + 1])
    kill(ChosenProcess.of(executor, command_contains=EXECUTOR))


def dependencies(folder: Path) -> tuple[Path, Path]:
    """A folder with a module, and an archive with a file."""
    (folder / "modules").mkdir(parents=True, exist_ok=True)
    (folder / "modules/shipped_formula.py").write_text("def reading(index): return index * 31 % 100, index\n")
    archive = folder / "constants.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("first.txt", "0")
    return folder / "modules", archive


def penstock_zip(folder: Path) -> Path:
    """Penstock itself as a file to ship, for clusters that do not have it installed."""
    return Path(shutil.make_archive(str(folder / "penstock"), "zip", REPOSITORY, "penstock"))


def penstock_run(cluster: YarnCluster, folder: Path, name: str, program: Sequence[str], *more: str) -> Any:
    """`penstock run --master yarn`: client mode."""
    modules, archive = dependencies(folder)
    options = {**_conf(folder), "penstock.job.dir": str(folder / f"{name}-job")}
    options["execution.checkpointing.interval"] = "0 ms"
    command = [sys.executable, "-m", "penstock.cli", "run", "--dir", str(folder / f"{name}-home")]
    command += ["--master", "yarn", "-p", "2", "--py-files", str(modules), "--archives", str(archive), *more]
    command += [part for key, value in options.items() for part in ("-D", f"{key}={value}")]
    return _started(cluster, folder, name, [*command, str(PROGRAM), *program], {"PYTHONPATH": str(REPOSITORY)})


def spark_submit(cluster: YarnCluster, folder: Path, name: str, mode: str, program: Sequence[str]) -> Any:
    """`spark-submit`, with Penstock itself shipped: nothing of it need be on the nodes."""
    modules, archive = dependencies(folder)
    shipped = f"{penstock_zip(folder)},{modules / 'shipped_formula.py'}"
    command = [str(_SPARK / "bin/spark-submit"), "--master", "yarn", "--deploy-mode", mode, "--py-files", shipped]
    command += ["--archives", f"{archive}#constants.zip"]
    options = {**_conf(folder), "spark.pyspark.python": sys.executable, "spark.yarn.maxAppAttempts": "2"}
    command += [part for key, value in options.items() for part in ("--conf", f"{key}={value}")]
    return _started(cluster, folder, name, [*command, str(PROGRAM), *program], {})


def _conf(folder: Path) -> dict[str, str]:
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.instances": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "640m",
        "spark.yarn.am.memory": "384m",
        "spark.yarn.jars": f"local:{_SPARK}/jars/*",  # else 400 MB are handed to every node
        "spark.yarn.stagingDir": (folder / "staging").as_uri(),
        "spark.yarn.submit.waitAppCompletion": "true",
    }


@contextmanager
def _started(
    cluster: YarnCluster, folder: Path, name: str, command: Sequence[str], environment: dict[str, str]
) -> Iterator[Application]:
    without = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**without, **cluster.environment(), **environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Application(folder, name, process)
    finally:
        if process.poll() is None:
            family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
            for member in family:
                with contextlib.suppress(psutil.Error):
                    member.terminate()
            for member in psutil.wait_procs(family, timeout=15)[1]:
                with contextlib.suppress(psutil.Error):
                    member.kill()
            process.wait(10)
