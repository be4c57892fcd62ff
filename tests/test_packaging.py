"""The wheel and the sdist: built as users build them, and tried in an environment that has nothing of this checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
JOB = """
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
words = env.from_collection(["to be or not to be"]).flat_map(lambda line: line.split())
words.map(lambda word: (word, 1)).key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).print()
env.execute("word count")
"""

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and an sdist of this checkout."""
    folder = tmp_path_factory.mktemp("dist")
    made = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)], cwd=ROOT, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    return folder


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "penstock"], cwd=ROOT, capture_output=True, text=True
    )
    expected = {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}
    assert names == expected
    assert {"penstock/py.typed", "penstock/runtime/log4j2.properties"} <= names


def test_the_sdist_has_what_its_documents_refer_to(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml", "docs/index.md", "tests/conftest.py"} <= names


@pytest.mark.parametrize("kind", ["*.whl", "*.tar.gz"])
def test_a_fresh_environment_runs_a_job_and_the_command(built: Path, tmp_path: Path, kind: str) -> None:
    """Dependencies are those of this environment, seen through a .pth file: what is tried is the package, not the index."""
    (package,) = built.glob(kind)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python*/site-packages")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check"]
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(tmp_path / "venv" / "bin" / "python"),
            "install",
            *options,
            str(package),
        ],
        check=True,
        env={**os.environ, "PYTHONPATH": _dependencies()},
    )
    (tmp_path / "job.py").write_text(JOB)
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PENSTOCK_RUNTIME": "embedded",
        "PYTHONPATH": _dependencies(),
    }
    for command in (["python", "job.py"], ["penstock", "run", "job.py"]):
        ran = subprocess.run(
            [str(tmp_path / "venv" / "bin" / command[0]), *command[1:]],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert ran.returncode == 0, ran.stderr
        assert "('to', 2)" in ran.stdout
    where = subprocess.run(
        [str(tmp_path / "venv" / "bin" / "python"), "-c", "import penstock; print(penstock.__file__)"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert where.stdout.startswith(str(site)), "the installed package was tried, not the checkout"


def _dependencies() -> str:
    """Where this environment keeps its packages. Editable installs are .pth files, which PYTHONPATH does not read."""
    import numpy

    return str(Path(numpy.__file__).parent.parent)
