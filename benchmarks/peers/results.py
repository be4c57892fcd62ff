"""What was measured so far: `results/peers.json` for the next run, `results/peers.md` and `results/peers.svg` for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.systems import SYSTEMS
from benchmarks.peers.workloads import WORKLOADS
from benchmarks.report import machine

RESULTS: Final = Path(__file__).parents[1] / "results"
QUIET: Final = 0.1  # of all cores, used by other programs
OURS: Final = "penstock-pipelined"

_METHOD: Final = f"""\
Every system reads the same events from Parquet files, 100,000 keys, and runs three times in one process: over a short input with
an output that is compared with an answer computed with numpy, over the short one with a sink that drops everything, and over a long
one with that sink. The rate is of the events that the long run has more, over the time that it took longer: starting the process,
the session and the job is in neither, and compilers are warm. Inputs are as long as a system is fast. Events per CPU second and
memory (of all its processes, pages that they share counted for each) are of the long run, its start included. `others`: the share
of all cores that other programs used; rows above {QUIET:.0%} are of a busy machine, and no figures to rely on. The third column is
Penstock, pipelined, by the system of the row, where both rows are of a quiet machine: below 1 we are slower."""

# Of a workload, of a system: what `harness.measure` says.
Found = dict[str, dict[str, dict[str, Any]]]


def load(folder: Path = RESULTS) -> Found:
    """What earlier runs found."""
    path = folder / "peers.json"
    found: Found = json.loads(path.read_text())["found"] if path.exists() else {}
    return found


def is_quiet(row: Mapping[str, Any]) -> bool:
    """Whether there is a figure, and other programs did not spoil it."""
    return "rate" in row and row["others"] <= QUIET


def write(found: Found, folder: Path = RESULTS) -> None:
    """All three files."""
    folder.mkdir(exist_ok=True)
    whole = {"machine": machine(), "found": found}
    (folder / "peers.json").write_text(json.dumps(whole, indent=1, sort_keys=True) + "\n")
    (folder / "peers.md").write_text(page(found))
    plot(found, folder / "peers.svg")


def page(found: Found) -> str:
    """The tables."""
    about = ", ".join(f"{name} {value}" for name, value in machine().items())
    text = [
        "# Penstock and peers",
        "",
        f"`make bench-peers`: {about}. Two of each thing: subtasks, threads, processes or task slots.",
        "",
        _METHOD,
        "",
    ]
    for name, workload in WORKLOADS.items():
        text += [
            f"## {name}: {workload.title}",
            "",
            "| system | events/s | Penstock is | events per CPU second | MB | events measured | others |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            *(line(found, name, system) for system in SYSTEMS if system in found.get(name, {})),
            "",
        ]
    text += ["![Events per second](peers.svg)", "", "## The systems", ""]
    text += [f"* **{system.title}**: {system.note}." for system in SYSTEMS.values()]
    return "\n".join(text) + "\n"


def line(found: Mapping[str, Mapping[str, Mapping[str, Any]]], workload: str, name: str) -> str:
    """A row of a table."""
    row, title = found[workload][name], SYSTEMS[name].title
    for why in ("skipped", "wrong"):
        if why in row:
            return f"| {title} | {why}: {' '.join(str(row[why]).split())[:300]} | | | | | |"
    ours = found[workload].get(OURS, {})
    ratio = f"{ours['rate'] / row['rate']:.2f}×" if name != OURS and is_quiet(ours) and is_quiet(row) else ""
    return (
        f"| {title} | {row['rate']:,.0f} | {ratio} | {row['per_cpu_second']:,.0f} | {row['memory'] / 1e6:,.0f} | "
        f"{row['events']:,} in {row['seconds']:.1f} s | {row['others']:.0%} |"
    )


def plot(found: Found, path: Path) -> None:
    """Rates as bars, a panel for each workload."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(WORKLOADS), figsize=(12, 4), sharey=True)
    names = list(SYSTEMS)[::-1]
    for panel, workload in zip(panels, WORKLOADS, strict=True):
        rates = [found.get(workload, {}).get(name, {}).get("rate", 0.0) for name in names]
        colours = ["C0" if name.startswith("penstock") else "0.6" for name in names]
        bars = panel.barh([SYSTEMS[name].title for name in names], rates, color=colours)
        panel.bar_label(bars, [f" {rate:,.0f}" if rate else " –" for rate in rates], fontsize=7)
        panel.set(title=workload, xlabel="million events/s", xlim=(0, 1.3 * max([*rates, 1.0])))
        panel.xaxis.set_major_formatter(lambda rate, _: f"{rate / 1e6:g}")
        panel.tick_params(axis="x", labelsize=7)
        panel.locator_params(axis="x", nbins=4)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
