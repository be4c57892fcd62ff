"""`python -m benchmarks.growth [--only list,chain] [--rounds 3]`: cost against size, the law of each; fails if one is worse.

Written to benchmarks/results when all cases were measured. No Spark; a few minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from benchmarks.growth.cases import CASES, Case

RESULTS: Final = Path(__file__).parents[1] / "results"


def steepness(points: Sequence[tuple[int, float]]) -> float:
    """The exponent s of cost ∝ sizeˢ that fits best: a straight line through the logarithms."""
    logs = [(math.log(size), math.log(max(cost, 1e-9))) for size, cost in points]
    mean_x, mean_y = (sum(values) / len(logs) for values in zip(*logs, strict=True))
    slope: float = sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)
    return slope


def measured(case: Case, rounds: int) -> list[tuple[int, float]]:
    """The best of a few rounds at each size: other programs only ever add."""
    return [(size, min(case.measure(size) for _ in range(rounds))) for size in case.sizes]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--only", default="", help="names of cases, separated by commas")
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many counts")
    arguments = parser.parse_args()
    chosen = {name: CASES[name] for name in arguments.only.split(",")} if arguments.only else CASES
    console = Console()
    found: dict[str, list[tuple[int, float]]] = {}
    worse = []
    for name, case in chosen.items():
        found[name] = measured(case, arguments.rounds)
        if steepness(found[name]) > case.steepness:
            worse.append(name)
        console.print(_line(name, case, found[name]), highlight=False, soft_wrap=True)
    if not arguments.only:
        _write(found)
    if worse:
        console.print(f"steeper than they may be: {', '.join(worse)}")
    return 1 if worse else 0


def _line(name: str, case: Case, points: list[tuple[int, float]]) -> str:
    costs = ", ".join(f"{size:,}: {cost:.3g}" for size, cost in points)
    law = f"{steepness(points):.2f} | {case.steepness}"
    return f"| {name} | {case.title} | {case.before} | {case.unit} by {case.size}: {costs} | {law} |"


def _write(found: dict[str, list[tuple[int, float]]]) -> None:
    text = [
        "# Cost against size",
        "",
        "`make bench-growth`: each thing at several sizes, the best of three, on the embedded runtime or one operator by itself.",
        "`s` is the exponent of cost ∝ sizeˢ; the target fails when it is above its bound.",
        "",
        "| case | what | before | now | s | at most |",
        "| --- | --- | --- | --- | --- | --- |",
        *(_line(name, CASES[name], points) for name, points in found.items()),
        "",
        "![Cost against size](growth.svg)",
        "",
    ]
    (RESULTS / "growth.md").write_text("\n".join(text))
    (RESULTS / "growth.json").write_text(json.dumps(found, indent=1))
    _plot(found)


def _plot(found: dict[str, list[tuple[int, float]]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(8, 5))
    for name, points in found.items():
        smallest: Any = points[0]
        axis.plot([x / smallest[0] for x, _ in points], [y / smallest[1] for _, y in points], marker="o", label=name)
    axis.plot([1, 64], [1, 64], color="0.7", linestyle="--", label="linear")
    axis.plot([1, 16], [1, 256], color="0.7", linestyle=":", label="quadratic")
    axis.set(
        xscale="log", yscale="log", xlabel="size, relative to the smallest", ylabel="cost, relative to the smallest"
    )
    axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(RESULTS / "growth.svg")


if __name__ == "__main__":
    sys.exit(main())
