"""Programs as users write them, for tests that run them in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def penstock(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a child process of this interpreter, with this tree."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **environment}
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli", *arguments],
        cwd=cwd, env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
