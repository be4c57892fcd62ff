"""The table on the terminal, `results/latest.json` with everything, `results/latest.md` for people and for the history."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.suite import Line, Results

FOLDER = Path(__file__).parent / "results"
_HEAD = ("", "measurement", "Penstock", "the other", "ratio", "goal", "", "other programs")
_STATE = {True: "met", False: "MISSED", None: ""}


def machine() -> dict[str, Any]:
    from importlib.metadata import version

    packages = ("pyspark", "pyarrow", "numpy")
    return {
        "cores": os.cpu_count(),
        "cpu": _cpu_name(),
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def _cells(line: Line) -> tuple[str, ...]:
    return (
        line.number, line.what, line.penstock, line.other, line.ratio, line.goal, _STATE[line.ok], line.noise
    )  # fmt: skip


def show(results: Results, console: Console) -> None:
    table = Table(title="Steady state; medians over the rounds; every output checked against numpy")
    for name in _HEAD:
        table.add_column(name, justify="left" if name == "measurement" else "right")
    for line in results.lines:
        table.add_row(*_cells(line), style={True: "green", False: "red", None: None}[line.ok])
    console.print(table)
    for name, value in _profile(results).items():
        console.print(f"  {value:8.1f} ms  {name}")


def _profile(results: Results) -> dict[str, float]:
    runs = results.raw.get("empty epochs", [])
    found: dict[str, float] = runs[-1]["details"]["parts_ms"] if runs else {}
    return found


def write(results: Results, options: dict[str, Any]) -> None:
    FOLDER.mkdir(exist_ok=True)
    whole = {
        "machine": machine(), "options": options, "lines": [asdict(line) for line in results.lines], "runs": results.raw
    }  # fmt: skip
    (FOLDER / "latest.json").write_text(json.dumps(whole, indent=1) + "\n")
    (FOLDER / "latest.md").write_text(markdown(results, options))


def markdown(results: Results, options: dict[str, Any]) -> str:
    about = ", ".join(f"{name} {value}" for name, value in machine().items())
    rows = [_HEAD, ("---",) * len(_HEAD), *(_cells(line) for line in results.lines)]
    text = ["# Benchmark", "", f"`python -m benchmarks` with {options}.", "", about + ".", ""]
    text += ["| " + " | ".join(cells) + " |" for cells in rows]
    text += [
        "",
        "Rates are events per second in the steady state: the second half of the epochs, four million events where the "
        "competitor is not too slow for that; the first half warms up, and the epoch of the marker event that closes the "
        'last windows is left out. Medians over the rounds. "Other programs" is the share of all cores that programs '
        "outside the benchmark used meanwhile, from the quietest to the busiest run: absolute numbers count only when it "
        "is small, ratios suffer less.",
    ]
    profile = _profile(results)
    if profile:
        text += ["", "## Where an empty epoch goes (p50, ms; parts overlap and nest)", ""]
        text += [f"* {value:.1f} {name}" for name, value in profile.items()]
    return "\n".join(text) + "\n"
