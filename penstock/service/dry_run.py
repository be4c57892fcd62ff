"""The plan of a program whose job is not started.

As Flink runs a program's `main` for its plan, the program is run up to its first `execute`, which ends it there: in a process
of its own, since a program may do anything before, and in a time.

The process that finds out a program's plan: `python -m penstock.service.dry_run ASKED FOUND`, two JSON files.
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

from penstock.common.configuration import GlobalConfiguration
from penstock.common.options import InternalOptions
from penstock.driver.control.facts import FactsRecorder
from penstock.driver.control.home import read_json, this_process, write_json
from penstock.driver.description import JobDescription, Planned
from penstock.errors import JobDefinitionError, PenstockError
from penstock.service.documents import jobs as documents
from penstock.service.program import ProgramError, UserProgram, run_program
from penstock.service.submission import python_path


def plan_of(
    program: UserProgram,
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
                [sys.executable, "-m", "penstock.service.dry_run", str(asked), str(found)],
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


def main(asked: str, found: str) -> int:
    """Builds the program that file `asked` names without running it, and writes its plan to file `found`."""
    request = read_json(Path(asked)) or {}
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in request["program"].items()
    }
    configuration = dict(request["configuration"])
    InternalOptions.PLAN_ONLY.set(configuration, True)
    os.environ.update(GlobalConfiguration.to_environment(configuration))
    if request["runtime"] is not None:
        os.environ["PENSTOCK_EXECUTION_MODE"] = request["runtime"]
    try:
        run_program(UserProgram(**given))
        answer: dict[str, Any] = {"error": "it ended without starting a job: does it call env.execute()?"}
    except Planned as planned:
        answer = {"plan": _plan(planned.job)}
    except ProgramError as failed:
        answer = {"error": str(failed)}
    except PenstockError as refused:
        answer = {"error": str(refused)}
    except SystemExit as left:
        answer = {"error": f"it ended itself with status {left.code!r}"}
    write_json(Path(found), answer)
    return 0 if "plan" in answer else 1


def _plan(job: JobDescription) -> dict[str, Any]:
    recorder = FactsRecorder(
        job_id=job.job_id,
        graph=lambda: job.graph,
        life_cycle=lambda: {"state": "CREATED", "transitions": [], "exceptions": []},
        configuration={},
        runtime=job.settings.runtime,
        storage_url=None,
        process=this_process(),
    )
    return documents.plan(recorder.snapshot())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
