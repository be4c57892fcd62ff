"""The process that finds out a program's plan: `python -m penstock.service.planner ASKED FOUND`, two JSON files."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from penstock.common.global_configuration import GlobalConfiguration
from penstock.driver.control.facts import FactsRecorder
from penstock.driver.control.home import read_json, this_process, write_json
from penstock.driver.description import PLAN_ONLY, JobDescription, Planned
from penstock.errors import PenstockError
from penstock.service.documents import jobs as documents
from penstock.service.program import Program, ProgramError, run_program


def main(asked: str, found: str) -> int:
    request = read_json(Path(asked)) or {}
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in request["program"].items()
    }
    os.environ.update(GlobalConfiguration.to_environment({**request["configuration"], PLAN_ONLY: "true"}))
    if request["runtime"] is not None:
        os.environ["PENSTOCK_RUNTIME"] = request["runtime"]
    try:
        run_program(Program(**given))
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
