"""The frame of a system's program: `python -m benchmarks.peers.on_NAME SPEC`, SPEC as JSON; the result goes to FOLDER/run.json.

A program runs its job three times in one process: over a few events with an output that is checked, over the same with one that
is dropped, and over many with one that is dropped. What the last took longer than the second is what its further events cost:
starting a process, a session or a job is in both, and compilers are warm. Needs no more than the standard library and psutil, as
it runs in environments of other systems.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.competitor import Usage

_LOOK_S: Final = 0.25

# (input folder, output folder or None, the whole spec): returns when the job is done.
Job = Callable[[str, str | None, Mapping[str, Any]], None]


def main(jobs: Mapping[str, Job]) -> None:
    """Runs the workload that the spec names."""
    spec = json.loads(sys.argv[1])
    job, folder = jobs[spec["workload"]], Path(spec["folder"])
    few, many = spec["inputs"]
    job(spec.get("checked", few), str(folder / "output"), {**spec, "run": "answer"})
    (folder / "answered").touch()
    less = _timed(job, few, {**spec, "run": "few"})
    more = _timed(job, many, {**spec, "run": "many"})
    (folder / "run.json").write_text(json.dumps({**more, "seconds": [less["seconds"], more["seconds"]]}))


def _timed(job: Job, source: str, spec: Mapping[str, Any]) -> dict[str, float]:
    usage, done = Usage(os.getpid()), threading.Event()

    def look() -> None:
        while not done.wait(_LOOK_S):
            usage.look()

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    started = time.perf_counter()
    job(source, None, spec)
    seconds = time.perf_counter() - started
    done.set()
    looking.join()
    usage.look()
    cpu_s, others = usage.result()
    return {"seconds": seconds, "cpu_s": cpu_s, "others": others, "memory": usage.memory}
