"""The same recorded answers on real Spark, all in one session: the runner itself as a user would start it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.compat.test_flink_cases import CASES, FOLDER


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_flinks_answers_are_ours_on_spark() -> None:
    done = subprocess.run(
        [sys.executable, str(FOLDER / "run_case.py"), "--engine", "penstock"],
        env={**os.environ, "PENSTOCK_RUNTIME": "spark", "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == f"{CASES} passed, 0 failed", done.stdout[-5000:] + done.stderr[-2000:]
