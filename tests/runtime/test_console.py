"""What a person at a terminal sees: the user's own error first, few words while Spark starts, a quiet end on Ctrl-C."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.common import terminal
from penstock.connectors.program import PrintedLines, PrintSink
from penstock.errors import ConfigurationError, JobFailedError
from penstock.runtime import console

PROGRAM = """
import sys, time
from penstock.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
log = sys.argv[1]


def parse(line):
    with open(log, "a") as file:
        file.write(f"{line}\\n")
    return int(line)


env.from_collection(["1", "x"]).map(parse).print()
env.execute("numbers")
"""

ENDLESS = """
import sys
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
from penstock.testing import ListSink

config = Configuration.from_dict({"execution.checkpointing.interval": "0 ms", "penstock.epoch.interval": "5 ms",
                                  "penstock.epoch.max-records": "10", "penstock.job.dir": sys.argv[1] + "/job"})
env = StreamExecutionEnvironment.get_execution_environment(config)
env.from_sequence(1, 10_000_000).uid("numbers").sink_to(ListSink("endless")).uid("out")
env.execute("endless")
"""


WRONG_BEFORE_THERE_IS_A_JOB = {
    "a setting": """
from penstock.common import Configuration
from penstock.datastream import StreamExecutionEnvironment
config = Configuration.from_dict({"execution.checkpointing.intervall": "1 s"})
env = StreamExecutionEnvironment.get_execution_environment(config)
""",
    "a stream": """
from penstock.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_collection([1])

env.from_collection([1]).map("not a function")
""",
}


def run(folder: Path, program: str, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    script = folder / "job.py"
    script.write_text(program)
    environment = {**os.environ, "PENSTOCK_RUNTIME": "embedded", "PYTHONPATH": os.getcwd(), **variables}
    return subprocess.Popen(
        [sys.executable, str(script), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell that starts something in the background has it ignore Ctrl-C, and so all that this starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize("what", list(WRONG_BEFORE_THERE_IS_A_JOB))
def test_what_is_wrong_before_there_is_a_job_is_a_sentence_and_the_users_line(what: str, tmp_path: Path) -> None:
    with run(tmp_path, WRONG_BEFORE_THERE_IS_A_JOB[what]) as process:
        _, error = process.communicate(timeout=90)
    lines = error.strip().splitlines()
    assert process.returncode == 1
    assert lines[0].startswith(("ConfigurationError: ", "JobDefinitionError: "))
    assert lines[1] == f'  File "{tmp_path / "job.py"}", line {5 if what == "a setting" else 6}, in <module>'
    assert "PENSTOCK_VERBOSE" in lines[-1]
    assert len(lines) == 4 or (len(lines) == 5 and set(lines[3].strip()) <= set("^~"))


def expect_the_users_error_first(error: str, folder: Path) -> None:
    lines = error.strip().splitlines()
    assert lines[0] == "ValueError: invalid literal for int() with base 10: 'x'"
    assert lines[1] == f'  File "{folder / "job.py"}", line 12, in parse'
    assert lines[2].strip() == "return int(line)"
    context = next(line for line in lines if line.startswith("raised in"))
    assert "map of operator 'Map'" in context
    assert "on record 'x'" in context
    assert "is not started again" in lines[-2]
    assert "PENSTOCK_VERBOSE" in lines[-1]
    assert "Traceback" not in error
    assert "org.apache" not in error


def test_a_users_error_is_shown_first_with_its_file_and_line(tmp_path: Path) -> None:
    process = run(tmp_path, PROGRAM, str(tmp_path / "calls"))
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1
    expect_the_users_error_first(error, tmp_path)


def test_all_tracebacks_are_shown_to_who_asks(tmp_path: Path) -> None:
    _, error = run(tmp_path, PROGRAM, str(tmp_path / "calls"), PENSTOCK_VERBOSE="1").communicate(timeout=60)
    assert error.count("Traceback (most recent call last)") >= 2
    assert "penstock/operators/simple.py" in error


def test_ctrl_c_ends_quietly_and_says_where_the_job_goes_on(tmp_path: Path) -> None:
    process = run(tmp_path, ENDLESS, str(tmp_path))
    deadline = time.monotonic() + 60
    while not list((tmp_path / "job").rglob("*manifest*")):
        assert time.monotonic() < deadline, "no checkpoint in a minute"
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGINT, 130)
    line = error.strip()
    assert "\n" not in line, error
    assert line.startswith("interrupted: job 'endless' has ended; started again with its job folder")
    assert "goes on from checkpoint" in line


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["pipelined", "epochs"])
def test_on_spark_a_users_error_is_told_once_and_not_tried_again(mode: str, tmp_path: Path) -> None:
    process = run(tmp_path, PROGRAM, str(tmp_path / "calls"), PENSTOCK_EXECUTION_MODE=mode, PENSTOCK_PROGRESS="1")
    _, error = process.communicate(timeout=240)
    words, _, rest = error.partition("\n")
    assert words.startswith("penstock: starting Spark… task hosts… ")
    expect_the_users_error_first(rest, tmp_path)
    assert (tmp_path / "calls").read_text().splitlines().count("x") == 1


def test_an_error_of_the_program_has_the_place_in_the_program() -> None:
    def wrong() -> None:
        raise ConfigurationError("no such key")

    with pytest.raises(ConfigurationError) as caught:
        wrong()
    told = console.report(caught.value).splitlines()
    assert told[0] == "ConfigurationError: no such key"
    assert any(__file__ in line for line in told[1:])
    assert console.report(JobFailedError("ValueError: x")).startswith("ValueError: x\n")


def test_progress_is_one_line_and_only_for_who_looks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal.progress("starting Spark…")
    assert capsys.readouterr().err == "", "this is no terminal"
    monkeypatch.setenv("PENSTOCK_PROGRESS", "1")
    terminal.progress("starting Spark…")
    terminal.progress("task hosts…")
    terminal.progress("running", last=True)
    terminal.progress("running", last=True)
    assert capsys.readouterr().err == "penstock: starting Spark… task hosts… running\n"


def test_the_banner_of_the_jvm_is_left_out_and_all_else_passed_on(tmp_path: Path) -> None:
    child = "import sys; print('WARNING: Using incubator modules: x\\nOutOfMemory', file=sys.stderr)"
    program = (
        "import subprocess, sys, time\n"
        "from penstock.runtime.console import without_banner\n"
        "with without_banner():\n"
        f"    child = subprocess.Popen([sys.executable, '-c', {child!r}])\n"
        "child.wait(); time.sleep(0.3); print('own', file=sys.stderr)\n"
    )
    _, error = run(tmp_path, program).communicate(timeout=60)
    assert error.splitlines() == ["OutOfMemory", "own"]


def test_a_log_that_the_user_has_set_up_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = {"spark.driver.extraJavaOptions": "-Dlog4j2.configurationFile=mine"}
    assert console.quiet_log(own, "ERROR") == own
    ours = console.quiet_log({"spark.driver.extraJavaOptions": "-Xmx1g"}, "ERROR")["spark.driver.extraJavaOptions"]
    assert ours.startswith("-Xmx1g -Dlog4j2.configurationFile=file:")
    assert "-Dpenstock.tasks=OFF" in ours
    assert "-Dpenstock.tasks=INFO" in console.quiet_log({}, "INFO")["spark.driver.extraJavaOptions"]
    (tmp_path / "log4j2.properties").touch()
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert console.quiet_log({}, "ERROR") == {}


def test_py4j_is_quiet_unless_its_level_was_set() -> None:
    logger = logging.getLogger("py4j")
    before = logger.level
    try:
        logger.setLevel(logging.DEBUG)
        console.quiet_py4j()
        assert logger.level == logging.DEBUG
        logger.setLevel(logging.NOTSET)
        console.quiet_py4j()
        assert logger.level == logging.CRITICAL
    finally:
        logger.setLevel(before)


def test_results_and_warnings_begin_a_line_of_their_own(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that goes on commits, and so prints, before it runs."""
    monkeypatch.setenv("PENSTOCK_PROGRESS", "1")
    monkeypatch.setattr(sys, "stdout", sys.stderr)  # one terminal
    terminal.progress("starting Spark…")
    PrintSink().create_committer("out").commit(1, [PrintedLines(epoch=1, lines=("('to', 2)",))])
    terminal.progress("task hosts…")
    handler = logging.StreamHandler(sys.stderr)
    logging.getLogger("penstock").addHandler(handler)
    try:
        logging.getLogger("penstock").warning("event time stands still")
    finally:
        logging.getLogger("penstock").removeHandler(handler)
    terminal.progress("running", last=True)
    assert capfd.readouterr().err.splitlines() == [
        "penstock: starting Spark… ",
        "('to', 2)",
        "penstock: task hosts… ",
        "event time stands still",
    ]
