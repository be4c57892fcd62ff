"""The plan of a program whose job is not started.

As Flink runs a program's `main` for its plan, the program is run up to its first `execute`, which ends it there: in a process
of its own, since a program may do anything before, and in a time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock.driver.control.home import read_json
from penstock.errors import JobDefinitionError
from penstock.service.program import Program
from penstock.service.submission import python_path


def plan_of(
    program: Program,
    configuration: Mapping[str, str],
    *,
    runtime: str | None = None,
    folder: str = ".",
    timeout_s: float = 60.0,
) -> dict[str, Any]:
    """The plan as REST shows it of a job; JobDefinitionError with the program's own words if it has none."""
    with tempfile.TemporaryDirectory(prefix="penstock-plan-") as place:
        asked, found = Path(place) / "asked.json", Path(place) / "found.json"
        asked.write_text(
            json.dumps({"program": asdict(program), "configuration": dict(configuration), "runtime": runtime})
        )
        try:
            subprocess.run(
                [sys.executable, "-m", "penstock.service.planner", str(asked), str(found)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": python_path()},
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise JobDefinitionError(
                f"the program did not get as far as execute() within {timeout_s:.0f} s: what takes it so long?"
            ) from None
        answer = read_json(found)
    if answer is None or "plan" not in answer:
        words = "its process ended by itself" if answer is None else answer["error"]
        raise JobDefinitionError(f"the program has no plan: {words}")
    plan: dict[str, Any] = answer["plan"]
    return plan
