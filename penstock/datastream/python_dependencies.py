"""What a program brings beside itself: Python files, archives, an interpreter, and what PyFlink would take for its JVM."""

from __future__ import annotations

import atexit
import importlib.metadata
import os
import re
import shutil
import sys
import tempfile
import warnings
from pathlib import Path

from penstock.common.configuration import Configuration
from penstock.common.options import JobOptions
from penstock.errors import ConfigurationError

_made_links: dict[Path, Path] = {}  # the archives that are unpacked for this process, by the name they have here


class PythonDependencies:
    """Part of `StreamExecutionEnvironment`."""

    _configuration: Configuration

    def add_python_file(self, file_path: str) -> None:
        """Lets functions import from a module, a folder, or a zip, egg or wheel: in this process and, shipped by Spark, in its
        workers. The same as `python.files` of the configuration.

        Example:

            env.add_python_file("helpers.py")
        """
        path = _existing(file_path, "add_python_file")
        listed = JobOptions.PYTHON_FILES.get(self._configuration)
        if str(path) not in listed:
            JobOptions.PYTHON_FILES.set(self._configuration, (*listed, str(path)))
        place = str(path.parent if path.suffix == ".py" else path)
        if place not in sys.path:
            sys.path.insert(0, place)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Unpacks an archive (zip, tar) for functions, which find it as `target_dir` (or the archive's own name) in their working
        folder. For functions that run on this machine that is a link in the folder the program was started in, for as long as
        it runs; other machines get the archive from Spark.

        Example:

            env.add_python_archive("model.zip", "model")
        """
        path = _existing(archive_path, "add_python_archive")
        name = target_dir or path.name
        if not name or Path(name).name != name:
            raise ConfigurationError(f"add_python_archive: target_dir must be the name of a folder, not {target_dir!r}")
        listed = JobOptions.PYTHON_ARCHIVES.get(self._configuration)
        entry = f"{path}#{name}"
        if entry not in listed:
            JobOptions.PYTHON_ARCHIVES.set(self._configuration, (*listed, entry))
        _unpack_here(path, name)

    def set_python_requirements(self, requirements_file_path: str, requirements_cache_dir: str | None = None) -> None:
        """Warns which of the packages are missing here: nothing is installed while a job starts. Wheels of pure Python in
        `requirements_cache_dir` are added as Python files, so that functions can import them.

        Example:

            env.set_python_requirements("requirements.txt")
        """
        requirements = _existing(requirements_file_path, "set_python_requirements")
        shipped = []
        if requirements_cache_dir is not None:
            folder = _existing(requirements_cache_dir, "set_python_requirements")
            shipped = sorted(folder.glob("*-none-any.whl"))
            for wheel in shipped:
                self.add_python_file(str(wheel))
        brought = {_normal(wheel.name.partition("-")[0]) for wheel in shipped}
        wanted = [name for name in map(_requirement, requirements.read_text(encoding="utf-8").splitlines()) if name]
        missing = [name for name in wanted if _normal(name) not in brought and not _is_installed(name)]
        state = f"missing here: {', '.join(missing)}" if missing else "all of them are there"
        warnings.warn(
            f"set_python_requirements({requirements_file_path!r}): Penstock installs nothing while a job starts; {state}. Install "
            "them beside Penstock on every host that runs workers"
            + (f" ({len(shipped)} pure wheels of {requirements_cache_dir!r} are shipped)" if shipped else ""),
            stacklevel=2,
        )

    def set_python_executable(self, python_exec: str) -> None:
        """The interpreter of Spark's workers, and so of functions. It must have Penstock and what the functions import. Counts for
        a Spark session that Penstock makes; the embedded runtime runs functions in this process.

        Example:

            env.set_python_executable(sys.executable)
        """
        found = shutil.which(python_exec)
        if found is None:
            raise ConfigurationError(f"set_python_executable: there is no program {python_exec!r}")
        pyspark = sys.modules.get("pyspark")
        running = pyspark is not None and pyspark.SparkContext._active_spark_context is not None
        if running and os.environ.get("PYSPARK_PYTHON", sys.executable) != python_exec:
            warnings.warn(
                f"set_python_executable({python_exec!r}) has no effect: Spark runs already, with "
                f"{os.environ.get('PYSPARK_PYTHON', sys.executable)!r}. Call it before the first job",
                stacklevel=2,
            )
            return
        os.environ["PYSPARK_PYTHON"] = python_exec
        os.environ["python"] = python_exec  # noqa: SIM112 - where functions of PyFlink find it

    def add_jars(self, *jars_path: str) -> None:
        """Warns that jars are not loaded: there is no Flink in a JVM behind Penstock, and its connectors need none.

        Example:

            env.add_jars("file:///jars/connector.jar")
        """
        _not_loaded("add_jars", jars_path)

    def add_classpaths(self, *classpaths: str) -> None:
        """Warns that class paths are not loaded, as `add_jars` does.

        Example:

            env.add_classpaths("file:///jars/connector.jar")
        """
        _not_loaded("add_classpaths", classpaths)

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> None:
        """Warns that the file is not copied: functions of PyFlink have no way to ask for such a file either.

        Example:

            env.register_cached_file("hdfs:///data/labels.csv", "labels")
        """
        warnings.warn(
            f"register_cached_file({file_path!r}, {name!r}): the file is not copied, and functions of PyFlink cannot ask for "
            "it either. Open a path that every worker reaches in open(), or ship it with add_python_archive",
            stacklevel=2,
        )


def _not_loaded(verb: str, paths: tuple[str, ...]) -> None:
    warnings.warn(
        f"{verb}: {', '.join(map(repr, paths)) or 'nothing'} is not loaded: Penstock has its own connectors (Kafka, files, "
        "PostgreSQL) and formats, which need no jar. Jars for Spark's own sources go to spark.jars or spark.jars.packages",
        stacklevel=3,
    )


def _existing(path: str, verb: str) -> Path:
    found = Path(path.removeprefix("file://")).absolute()
    if not found.exists():
        raise ConfigurationError(f"{verb}: there is no {path!r} on this machine ({found})")
    return found


def _unpack_here(archive: Path, name: str) -> None:
    link = Path.cwd() / name
    if link in _made_links:
        link.unlink(missing_ok=True)
    elif link.exists() or link.is_symlink():
        warnings.warn(
            f"add_python_archive: there is a {name!r} in {link.parent} already, and functions on this machine find that one "
            f"instead of {archive}",
            stacklevel=3,
        )
        return
    folder = Path(tempfile.mkdtemp(prefix="penstock-archive-"))
    try:
        shutil.unpack_archive(archive, folder)
    except (shutil.ReadError, ValueError) as error:
        raise ConfigurationError(f"add_python_archive: {archive} cannot be unpacked: {error}") from error
    link.symlink_to(folder)
    _made_links[link] = folder
    atexit.register(_remove, link, folder)


def _remove(link: Path, folder: Path) -> None:
    if _made_links.get(link) == folder:
        link.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _requirement(line: str) -> str:
    """The name of the package that a line of a requirements file asks for; empty for comments and options."""
    match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", line.partition("#")[0])
    return match[1] if match else ""


def _normal(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
