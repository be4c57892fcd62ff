"""Programs as users write them, for tests that run them in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.errors import PenstockError

ROOT = Path(__file__).parents[2]

# As in PyFlink's own documentation: not a word of Penstock.
PYFLINK_WORD_COUNT = """
import argparse

from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment


def word_count(text):
    env = StreamExecutionEnvironment.get_execution_environment()
    ds = env.from_collection(text.split())
    ds = ds.map(lambda i: (i, 1), output_type=Types.TUPLE([Types.STRING(), Types.INT()]))
    ds.key_by(lambda i: i[0]).reduce(lambda i, j: (i[0], i[1] + j[1])).print()
    env.execute()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    word_count(parser.parse_args().input)
"""


def penstock(
    *arguments: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The command in a child process of this interpreter, with this tree."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **(environment or {})}
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli", *arguments],
        cwd=cwd, env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def command(*arguments: str, environment: Mapping[str, str] | None = None) -> Done:
    """The same in this process, which is faster: for commands that do not run a program here."""
    env = {"COLUMNS": "200", "PYTHONPATH": str(ROOT), **(environment or {})}
    result = CliRunner().invoke(app, list(arguments), prog_name="penstock", env=env)
    if isinstance(result.exception, PenstockError):  # what main() shows without a traceback
        return Done(1, result.stdout, f"{result.stderr}{result.exception}")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)
