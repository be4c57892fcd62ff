"""Real Flink's recorded answers are our answers: every case of tests/data/flink_cases on the embedded runtime."""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from penstock.common import watermark_strategy
from penstock.common.watermark_strategy import set_per_record_watermarks
from penstock.compat import pyflink as compat

FOLDER = Path(__file__).parents[1] / "data" / "flink_cases"
NAMES = sorted(path.stem for path in (FOLDER / "cases").glob("*.py"))
CASES = 43


@pytest.fixture(scope="module")
def runner() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("flink_cases_runner", FOLDER / "run_case.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    was_installed, per_record = compat.installed(), watermark_strategy._per_record
    yield module
    set_per_record_watermarks(per_record)
    if not was_installed:
        compat.uninstall()


@pytest.fixture(scope="module")
def engine(runner: ModuleType) -> Any:
    return runner.PenstockEngine("thread")


def test_the_recorded_cases_are_here_each_with_its_answer() -> None:
    """A folder that is missing or half copied would otherwise be an empty list of cases, and pass."""
    assert sorted(path.stem for path in (FOLDER / "expected").glob("*.json")) == NAMES
    assert len(NAMES) == CASES


@pytest.mark.parametrize("name", NAMES)
def test_flinks_answer_is_ours(name: str, runner: ModuleType, engine: Any) -> None:
    os.environ["PENSTOCK_RUNTIME"] = "embedded"
    case = runner.load_case(name)
    ordered = bool(getattr(case, "ORDERED", False))
    recorded = json.loads((FOLDER / "expected" / f"{name}.json").read_text(encoding="utf-8"))
    outputs = json.loads(json.dumps(runner.run_case(engine, case)))
    assert recorded["ordered"] == ordered
    assert runner.canonical(outputs, ordered) == runner.canonical(recorded["outputs"], ordered)
