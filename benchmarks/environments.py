"""Virtual environments of other systems, in the user's cache folder: made once, from names of packages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.dataset import cache_folder
from tests.servers.jars import ServerUnavailable, fetch

_TIMEOUT_S: Final = 900
_LOCK: Final = Path(__file__).parent / "flink.lock"


class NotToBeHadError(Exception):
    """A system cannot be installed on this machine; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One system at one version and what its programs need beside it."""

    package: str
    version: str
    others: tuple[str, ...] = ("numpy", "psutil", "pyarrow")


ENVIRONMENTS: Final[Mapping[str, Environment]] = {
    "pyflink": Environment(package="apache-flink", version="2.3.0", others=("numpy", "psutil")),
    "bytewax": Environment(package="bytewax", version="0.21.1"),
    "pathway": Environment(package="pathway", version="0.33.0"),
}


def interpreter(name: str) -> Path:
    """The Python of an environment, which is made first if it is not there. Raises NotToBeHadError."""
    environment = ENVIRONMENTS[name]
    folder = cache_folder() / f"{name}-{environment.version}"
    python, made = folder / "bin" / "python", folder / "made"
    if made.exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    wanted = [f"{environment.package}=={environment.version}", *environment.others]
    try:
        for command in (
            [sys.executable, "-m", "venv", str(folder)],
            [str(python), "-m", "pip", "-q", "install", *wanted],
        ):
            subprocess.run(command, check=True, timeout=_TIMEOUT_S, capture_output=True, text=True)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip()
        raise NotToBeHadError(f"{wanted[0]} cannot be installed: {said.splitlines()[-1]}") from error
    made.touch()
    return python


def flink_jars() -> list[Path]:
    """What Flink needs to read Parquet files: its format, and Hadoop's classes, of which PySpark has a copy."""
    import pyspark

    try:
        format_jars = fetch(_LOCK, cache_folder() / "flink-jars")
    except ServerUnavailable as error:
        raise NotToBeHadError(str(error)) from error
    return [*format_jars, *sorted((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-*.jar"))]
