"""A type checker finds what does not fit, on the line where it is; a program that is right has no complaints."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Each line that ends with # wrong is one that a user would have to mend.
PROGRAM = """
from penstock.common import Types, WatermarkStrategy
from penstock.datastream import DataStream, StreamExecutionEnvironment
from penstock.datastream.window import TumblingEventTimeWindows
from penstock.common import Time

env = StreamExecutionEnvironment.get_execution_environment()
words = env.from_collection(["to", "be"])
words.map(len).map(lambda n: n.upper())  # wrong
words.map(lambda word: word.upper()).filter(lambda word: word > 3)  # wrong
words.flat_map(lambda line: line.split()).map(lambda word: word + 1)  # wrong
keyed = words.map(lambda word: (word, 1)).key_by(lambda pair: pair[0])
keyed.reduce(lambda a, b: (a[0], a[1] + b[1])).print()
keyed.reduce(lambda a, b: (a[0], a[1] + b[2])).print()  # wrong
keyed.map(lambda pair: pair[1].upper())  # wrong
numbers: DataStream[int] = words  # wrong
numbers = words.map(len)
declared = words.map(lambda word: word, output_type=Types.STRING())
declared.map(lambda anything: anything.whatever())
windows = keyed.window(TumblingEventTimeWindows.of(Time.seconds(10)))
windows.reduce(lambda a, b: (a[0], a[1] + b[1])).map(lambda pair: pair[1] + 1).print()
env.set_parallelism("2")  # wrong
words.print().uid(7)  # wrong
words.key_by(lambda word: word).prnt()  # wrong
env.execute("words")
"""


@pytest.mark.long
def test_mypy_complains_at_the_lines_that_are_wrong_and_at_no_other(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(ROOT / ".mypy_cache"), "program.py"],
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
    )
    found = {int(line) for line in re.findall(r"^program\.py:(\d+): error", checked.stdout, re.M)}
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if line.endswith("# wrong")}
    assert found == wrong, checked.stdout + checked.stderr
