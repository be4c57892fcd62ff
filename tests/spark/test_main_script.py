"""Classes that only the started script knows can be records and state, across processes and epochs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.spark
def test_records_and_state_of_classes_from_the_main_script(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("main_script.py")), str(tmp_path / "job")],
        env={**os.environ, "PENSTOCK_EXECUTION_MODE": "epochs", "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    expected = [(f"u{k}", (4, sum(range(k, 12, 3)))) for k in range(3)]
    assert done.stdout.splitlines()[-1:] == [str(expected)], done.stdout[-2000:] + done.stderr[-3000:]
