"""A pipelined job that has nothing to do for far longer than any time-out loses no connection, and answers at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("master", ["local[8]", "local-cluster[2,4,1024]"])
def test_a_job_that_was_idle_for_thirty_network_time_outs_answers_without_a_restart(
    master: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.pipelined.idle_job", str(tmp_path), "60", master],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print(found)
    assert found["attempts"] == 0, found["failures"]
    assert found["out"] == 20
    assert found["checkpoints"] >= 30
    assert found["answer_ms"] < 5000
