"""`penstock run`: a program runs unchanged, with configuration from the command line below its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.programs import PYFLINK_WORD_COUNT, penstock

pytestmark = pytest.mark.long


def _write(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_pyflink_script_runs_as_it_is_with_its_own_arguments(tmp_path: Path) -> None:
    script = _write(tmp_path, "word_count.py", PYFLINK_WORD_COUNT)
    done = penstock("run", "--pyflink", "--runtime", "embedded", script, "--input", "to be or not to be")
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n")) == sorted(["(to,1)", "(be,1)", "(or,1)", "(not,1)", "(to,2)", "(be,2)", ""])


def test_annotations_of_a_script_are_what_python_makes_of_them(tmp_path: Path) -> None:
    text = "import inspect\ndef f(n: int): ...\nprint(inspect.signature(f).parameters['n'].annotation is int)\n"
    done = penstock("run", "--runtime", "embedded", _write(tmp_path, "annotated.py", text))
    assert done.stdout == "True\n", done.stderr


def test_without_pyflink_the_script_is_told_that_there_is_none(tmp_path: Path) -> None:
    script = _write(tmp_path, "word_count.py", PYFLINK_WORD_COUNT)
    done = penstock("run", "--runtime", "embedded", script, "--input", "x")
    assert done.returncode == 1
    assert "the program imports pyflink, which is not installed" in done.stderr
    assert "penstock run --pyflink" in done.stderr


_SETTINGS = """
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
own = Configuration().set_string("penstock.block.size", "7")
env = StreamExecutionEnvironment.get_execution_environment(own)
print(env.get_parallelism(), *(env._effective_configuration().get(k) for k in ("penstock.block.size", "a.key", "spark.master")))
env.set_parallelism(1)
print(env.get_parallelism())
"""


def test_what_the_command_line_says_lies_below_what_the_program_says(tmp_path: Path) -> None:
    script = _write(tmp_path, "settings.py", _SETTINGS)
    done = penstock(
        "run", "-p", "3", "-D", "penstock.block.size=9", "-D", "a.key= b=c ", "--master", "local[1]", script
    )
    assert done.stdout.split("\n") == ["3 7 b=c local[1]", "1", ""], done.stderr


def test_savepoint_options_become_flinks_keys(tmp_path: Path) -> None:
    script = _write(
        tmp_path,
        "keys.py",
        "from penstock.common.configuration import GlobalConfiguration as G\n"
        "keys = G.load_configuration().to_dict().items()\n"
        "for key, value in sorted(keys):\n    if key.startswith('execution'): print(key, value)\n",
    )
    done = penstock("run", "-s", "/sp/1", "--claim", "--allow-non-restored-state", script)
    assert done.stdout.split("\n") == [
        "execution.state-recovery.claim-mode CLAIM",
        "execution.state-recovery.ignore-unclaimed-state true",
        "execution.state-recovery.path /sp/1",
        "",
    ], done.stderr
    refused = penstock("run", "--claim", script)
    assert refused.returncode == 1
    assert "--from-savepoint" in refused.stderr


_ASYNC = """
import sys
from penstock.datastream import StreamExecutionEnvironment
import helper

class Word:
    def __init__(self, text):
        self.text = text

env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2, 3]).map(lambda n: Word(helper.shout(n))).map(lambda w: w.text).print()
env.execute_async()
sys.stdout.write("script is done\\n")  # in one piece: the job prints from another thread
"""


def test_a_job_the_script_did_not_wait_for_is_waited_for_and_py_files_are_found(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    _write(tmp_path / "elsewhere", "helper.py", "def shout(n): return f'{n}!'\n")
    script = _write(tmp_path, "job.py", _ASYNC)
    done = penstock("run", "--runtime", "embedded", "--py-files", str(tmp_path / "elsewhere/helper.py"), script)
    assert sorted(done.stdout.split("\n")) == ["", "1!", "2!", "3!", "script is done"], done.stderr


def test_a_module_runs_from_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    _write(tmp_path / "package", "__init__.py", "")
    _write(
        tmp_path / "package",
        "job.py",
        "import sys\nfrom . import __name__ as own\nprint(__name__, own, sys.argv[1:])\n",
    )
    done = penstock("run", "-m", "package.job", "--flag", cwd=tmp_path)
    assert done.stdout == "__main__ package ['--flag']\n", done.stderr


def test_the_programs_error_is_shown_as_python_shows_it_and_ours_without_a_traceback(tmp_path: Path) -> None:
    broken = _write(tmp_path, "broken.py", "def f():\n    raise KeyError('mine')\nf()\n")
    done = penstock("run", broken)
    assert done.returncode == 1
    assert done.stderr.startswith(f'Traceback (most recent call last):\n  File "{broken}", line 3')
    assert "penstock/" not in done.stderr
    for arguments, words in (
        (("run", str(tmp_path / "absent.py")), "cannot be read"),
        (("run", "-D", "novalue", broken), "KEY=VALUE"),
        (("run", "-D", "penstock.epoch.intervall=1s", "--detached", broken), "did you mean 'penstock.epoch.interval'"),
        (("run", "-D", "penstock.epoch.interval=1x", broken), "should be a duration, but is '1x'"),
        (("run", "-m", "no.such.module"), "no.such.module"),
    ):
        refused = penstock(*arguments)
        assert refused.returncode == 1
        assert words in refused.stderr
        assert "Traceback" not in refused.stderr
        assert 'File "' not in refused.stderr, "there is no line of the user's in it"


def test_a_pyflink_program_without_the_switch_is_told_of_it(tmp_path: Path) -> None:
    program = _write(tmp_path, "flinks.py", "import os\n\nfrom pyflink.datastream import StreamExecutionEnvironment\n")
    done = penstock("run", program)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert "penstock run --pyflink" in lines[0]
    assert lines[1] == f'  File "{program}", line 3, in <module>'
    assert "Traceback" not in done.stderr
    other = penstock("run", _write(tmp_path, "other.py", "import pyflinkless"))
    assert "ModuleNotFoundError: No module named 'pyflinkless'" in other.stderr


def test_a_setting_that_nobody_reads_may_be_a_misspelt_one(tmp_path: Path) -> None:
    script = _write(tmp_path, "nothing.py", "")
    told = penstock(
        "run", "-D", "parallelism=3", "-D", "checkpointing.interval=3s", "-D", "my.own.key=1", "-D", "x=1", script
    )
    assert told.returncode == 0, told.stderr
    assert "did you mean 'parallelism.default'?" in told.stderr
    assert "did you mean 'execution.checkpointing.interval'?" in told.stderr
    assert told.stderr.count("did you mean") == 2, "whatever else there is may be the program's own"
    assert "did you mean 'embedded'?" in penstock("run", "--runtime", "embeded", script).stderr


def test_a_program_runs_also_where_no_home_folder_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    script = _write(tmp_path, "word_count.py", PYFLINK_WORD_COUNT)
    home = {"PENSTOCK_HOME": str(tmp_path / "file" / "home")}
    done = penstock("run", "--pyflink", "--runtime", "embedded", script, "--input", "be", environment=home)
    assert (done.returncode, done.stdout) == (0, "(be,1)\n")
    assert "cannot be watched" in done.stderr
