"""A job on Spark is started, watched, rescaled and stopped from the command line as one on the embedded runtime is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from penstock.driver.control.home import JobHome
from penstock.service.known_jobs import KnownJob
from tests.cli.programs import command
from tests.driver.jobs import eventually
from tests.service.programs import ENDLESS, program

pytestmark = pytest.mark.spark


def test_a_detached_job_on_spark_shows_its_slots_and_stops_with_a_savepoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    path = program(tmp_path, "endless.py", ENDLESS)
    started = command("run", "-d", "--runtime", "spark", "--master", "local[2,4]", "-p", "2", str(path), "on-spark")
    assert started.returncode == 0, started.stderr
    job_id = started.stdout.strip()
    known = KnownJob(JobHome(tmp_path / "home").job(job_id))
    try:
        facts = eventually(lambda: (f := known.facts()) and f["totals"]["epochs"] > 3 and f, "epochs", 90.0)
        assert len(facts["slot_processes"]) == 2
        assert all(":" in process for process in facts["slot_processes"])
        _, keyed = facts["vertices"]
        assert all(busy > 0 for busy in keyed["subtasks"]["busy_ms"])
        assert all(waited > 0 for waited in keyed["subtasks"]["alignment_ms"])
        newest = command("state", job_id, "newest", "reduce", "3")
        assert int(newest.stdout) % 10 == 3, newest.stderr
        stopped = command("stop", job_id, "--json")
        assert stopped.returncode == 0, stopped.stderr
        assert (Path(json.loads(stopped.stdout)["location"].removeprefix("file://")) / "manifest.json").is_file()
        ended = known.facts()
        assert ended is not None
        assert ended["state"] == "FINISHED"
    finally:
        if known.endpoint() is not None:
            known.ask("PATCH", f"/jobs/{job_id}", {"mode": "cancel"}, {})
            eventually(lambda: known.endpoint() is None, "the job ends", 60.0)
