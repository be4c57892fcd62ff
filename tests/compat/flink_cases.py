"""The programs that real Flink has answered (`tests/data/flink_cases`), run on a runtime of ours and compared."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.common import watermark_strategy
from penstock.common.watermark_strategy import set_per_record_watermarks
from penstock.compat import pyflink as compat

FOLDER = Path(__file__).parents[1] / "data" / "flink_cases"
NAMES = sorted(path.stem for path in (FOLDER / "cases").glob("*.py"))


class FlinkCases:
    def __init__(self, runner: ModuleType) -> None:
        self._runner, self._engine = runner, runner.PenstockEngine("thread")

    def compare(self, name: str, runtime: str) -> None:
        """Fails the test when the program's outputs are not those that Flink gave."""
        os.environ["PENSTOCK_EXECUTION_MODE"] = runtime
        case = self._runner.load_case(name)
        ordered = bool(getattr(case, "ORDERED", False))
        recorded = json.loads((FOLDER / "expected" / f"{name}.json").read_text(encoding="utf-8"))
        outputs: Any = json.loads(json.dumps(self._runner.run_case(self._engine, case)))
        assert recorded["ordered"] == ordered
        assert self._runner.canonical(outputs, ordered) == self._runner.canonical(recorded["outputs"], ordered)


@contextmanager
def flink_cases() -> Iterator[FlinkCases]:
    """Meanwhile `import pyflink` is Penstock, and watermarks come after every record, as they did from Flink."""
    spec = importlib.util.spec_from_file_location("flink_cases_runner", FOLDER / "run_case.py")
    assert spec is not None
    assert spec.loader is not None
    runner = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    was_installed, per_record = compat.installed(), watermark_strategy._per_record
    try:
        yield FlinkCases(runner)
    finally:
        set_per_record_watermarks(per_record)
        if not was_installed:
            compat.uninstall()
