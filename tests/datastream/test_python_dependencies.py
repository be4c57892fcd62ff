"""What a PyFlink program brings beside itself: files, archives, requirements, an interpreter, jars."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from penstock.common import Configuration
from penstock.common.options import JobOptions
from penstock.datastream import StreamExecutionEnvironment
from penstock.errors import ConfigurationError


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> StreamExecutionEnvironment:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    configuration = Configuration.from_dict({"penstock.runtime": "embedded"})
    return StreamExecutionEnvironment.get_execution_environment(configuration)


def test_functions_import_from_an_added_python_file(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "added_by_a_program.py").write_text("def twice(n):\n    return 2 * n\n")
    env.add_python_file(str(tmp_path / "files" / "added_by_a_program.py"))

    def function(n: int) -> Any:
        from added_by_a_program import twice  # type: ignore[import-not-found]

        return twice(n)

    assert list(env.from_collection([1, 2]).map(function).execute_and_collect()) == [2, 4]
    assert JobOptions.PYTHON_FILES.get(env._configuration) == (str(tmp_path / "files" / "added_by_a_program.py"),)


def test_functions_find_an_added_archive_in_their_folder(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    (tmp_path / "content").mkdir()
    (tmp_path / "content" / "data.txt").write_text("5")
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "content")
    env.add_python_archive(archive, "data")
    added = env.from_collection([1]).map(lambda n: n + int(Path("data/data.txt").read_text()))
    assert list(added.execute_and_collect()) == [6]
    assert JobOptions.PYTHON_ARCHIVES.get(env._configuration) == (f"{archive}#data",)


def test_an_archive_does_not_replace_a_folder_of_the_users(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", tmp_path / "data")
    with pytest.warns(UserWarning, match="a 'data' in .* already"):
        env.add_python_archive(archive, "data")
    assert not (tmp_path / "data").is_symlink()


def test_requirements_are_not_installed_but_pure_wheels_are_shipped(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    (tmp_path / "requirements.txt").write_text("# tools\npytest\nno-such-package==1\nin-a-wheel>=0\n")
    (tmp_path / "wheels").mkdir()
    with zipfile.ZipFile(tmp_path / "wheels" / "in_a_wheel-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("in_a_wheel.py", "VALUE = 7")
    with pytest.warns(UserWarning, match=r"installs nothing .*missing here: no-such-package\. .*1 pure wheels"):
        env.set_python_requirements(str(tmp_path / "requirements.txt"), str(tmp_path / "wheels"))

    def function(n: int) -> Any:
        import in_a_wheel  # type: ignore[import-not-found]

        return in_a_wheel.VALUE

    assert list(env.from_collection([1]).map(function).execute_and_collect()) == [7]


def test_the_interpreter_is_that_of_sparks_workers(
    env: StreamExecutionEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.setenv("python", "")
    env.set_python_executable(sys.executable)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    with pytest.raises(ConfigurationError, match="no program"):
        env.set_python_executable("/no/such/python")


def test_jars_are_accepted_with_a_warning_that_says_what_happens_instead(env: StreamExecutionEnvironment) -> None:
    with pytest.warns(UserWarning, match=r"'file:///kafka.jar' is not loaded: .*spark\.jars"):
        env.add_jars("file:///kafka.jar")
    with pytest.warns(UserWarning, match="add_classpaths"):
        env.add_classpaths("file:///folder")


def test_a_file_that_is_not_there_is_refused_at_once(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(ConfigurationError, match=r"add_python_file: there is no 'missing\.py'"):
        env.add_python_file("missing.py")
