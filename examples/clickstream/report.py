"""The report of a run: one HTML file that needs nothing but a browser, and the same charts as a PNG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from examples.clickstream.history import History, Incident
from examples.clickstream.verify import Verdict
from examples.clickstream.view import size

Point = tuple[int, float]
_W, _H, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 210, 46, 12, 42, 24
_LABEL_ROW = 15  # kills may be close together: their labels take turns on two rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    title: str
    unit: str
    points: Sequence[Point]  # (wall ms, value)
    label: Callable[[float], str]
    colour: str  # a CSS variable of the page, and its value for the PNG
    plain_colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a report is about."""

    history: History
    verdict: Verdict
    started_ms: int
    ended_ms: int

    def at(self, wall_ms: float) -> float:
        """Seconds into the run."""
        return (wall_ms - self.started_ms) / 1000


def charts(run: Run) -> list[Chart]:
    history = run.history
    return [
        Chart(
            title="Rate", unit="events/s", points=history.rate_series(), label=_thousands,
            colour="--rate", plain_colour="#1f77b4",
        ),
        Chart(
            title="Watermark lag", unit="s, time of day − watermark", points=history.lag_series(), label=_number,
            colour="--lag", plain_colour="#c2660a",
        ),
        Chart(
            title="Checkpoint size", unit="KiB, incremental", points=history.checkpoint_series(), label=_thousands,
            colour="--size", plain_colour="#2a8a4a",
        ),
    ]  # fmt: skip


def write_report(folder: Path, run: Run) -> list[Path]:
    """Returns the files written: the HTML always, the PNG if matplotlib is there."""
    page = folder / "report.html"
    page.write_text(html(run), encoding="utf-8")
    picture = folder / "report.png"
    return [page, picture] if _png(picture, run) else [page]


# ---------------------------------------------------------------- HTML

_STYLE = """
:root { color-scheme: light dark; --bg: #fbfbfa; --card: #fff; --ink: #1d2327; --soft: #68747d; --line: #e2e5e8;
  --rate: #1f77b4; --lag: #c2660a; --size: #2a8a4a; --kill: #c8322b; --back: #2a8a4a; --good: #e3f3e8; --bad: #fbe3e1; }
@media (prefers-color-scheme: dark) { :root { --bg: #14181b; --card: #1c2226; --ink: #e4e8ea; --soft: #93a0a9;
  --line: #323b41; --rate: #6cb6ee; --lag: #f0a35a; --size: #6fcf8f; --kill: #ff7b72; --back: #6fcf8f; --good: #1b3625;
  --bad: #43201e; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem 1rem 3rem; max-width: 800px; background: var(--bg); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.4rem; margin: 0 0 .2rem; } h2 { font-size: 1rem; margin: 0 0 .2rem; } p { margin: .2rem 0 1rem; }
.soft { color: var(--soft); } .card { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: .8rem .9rem; margin: 0 0 1rem; overflow-x: auto; }
.verdict { font-weight: 600; } .good { background: var(--good); } .bad { background: var(--bad); }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--soft); font-size: 12px; }
svg .k { fill: var(--kill); font-weight: 600; } svg .b { fill: var(--back); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 500; color: var(--soft); } td { text-align: right; font-weight: 600; }
th, td { padding: .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child th, tr:last-child td { border-bottom: 0; } td { padding-left: 1rem; }
"""


def html(run: Run) -> str:
    tone = "good" if run.verdict.exact else "bad"
    cards = "\n".join(
        f'<section class="card"><h2>{escape(chart.title)} <span class="soft">{escape(chart.unit)}</span></h2>'
        f"{svg(chart, run)}</section>"
        for chart in charts(run)
    )
    rows = "\n".join(f'<tr><th scope="row">{escape(k)}</th><td>{escape(v)}</td></tr>' for k, v in facts(run))
    verdict = "<br>".join(escape(line) for line in str(run.verdict).splitlines())
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Penstock clickstream run</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>Penstock clickstream</h1>
<p class="soft">{run.history.clicks:,} clicks on two cores, with a worker and then the whole driver killed.</p>
<section class="card verdict {tone}">{verdict}</section>
{cards}
<section class="card"><table>{rows}</table></section>
<p class="soft">Shaded: from a kill to the first epoch completed after it.</p>
</body>
</html>
"""


def svg(chart: Chart, run: Run) -> str:
    seconds = max(1.0, run.at(max([run.ended_ms, *(x for x, _ in chart.points)])))
    top = _ceiling(max((y for _, y in chart.points), default=1.0))
    right, bottom = _W - _RIGHT, _H - _BOTTOM

    def x(wall_ms: float) -> float:
        return _LEFT + run.at(wall_ms) / seconds * (right - _LEFT)

    def y(value: float) -> float:
        return bottom - value / top * (bottom - _TOP)

    parts = []
    for step in range(5):
        value = top * step / 4
        parts.append(
            f'<line x1="{_LEFT}" x2="{right}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="var(--line)"/>'
            f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{chart.label(value)}</text>'
        )
    for second in range(0, int(seconds) + 1, 5 if seconds <= 60 else 20):
        position = _LEFT + second / seconds * (right - _LEFT)
        parts.append(f'<text x="{position:.1f}" y="{_H - 6}" text-anchor="middle">{second} s</text>')
    for number, incident in enumerate(run.history.incidents):
        parts.append(_incident(incident, x, bottom, row=(number + 1) % 2))
    line = " ".join(f"{x(wall):.1f},{y(value):.1f}" for wall, value in chart.points)
    if line:
        first, last = x(chart.points[0][0]), x(chart.points[-1][0])
        area = f"{first:.1f},{bottom} {line} {last:.1f},{bottom}"
        parts.append(f'<polygon points="{area}" fill="var({chart.colour})" opacity=".13"/>')
        parts.append(f'<polyline points="{line}" fill="none" stroke="var({chart.colour})" stroke-width="2"/>')
    title = escape(f"{chart.title} over time")
    return f'<svg viewBox="0 0 {_W} {_H}" role="img" aria-label="{title}">{"".join(parts)}</svg>'


def _incident(incident: Incident, x: Callable[[float], float], bottom: int, row: int) -> str:
    killed = x(incident.killed_ms)
    parts = []
    if incident.recovered_ms is not None:
        width = max(1.0, x(incident.recovered_ms) - killed)
        place = f'x="{killed:.1f}" y="{_TOP}" width="{width:.1f}" height="{bottom - _TOP}"'
        parts.append(f'<rect {place} fill="var(--kill)" opacity=".10"/>')
    ends = f'x1="{killed:.1f}" x2="{killed:.1f}" y1="{_TOP - 8 - row * _LABEL_ROW}" y2="{bottom}"'
    parts.append(f'<line {ends} stroke="var(--kill)" stroke-width="1.5" stroke-dasharray="4 3"/>')
    back = "" if incident.recovery_s is None else f'<tspan class="b"> back in {incident.recovery_s:.1f} s</tspan>'
    anchor = "end" if killed > _W * 0.7 else "start"
    place = f'x="{killed:.1f}" y="{_TOP - 12 - row * _LABEL_ROW}" text-anchor="{anchor}"'
    parts.append(f'<text {place}><tspan class="k">{incident.kind} killed</tspan>{back}</text>')
    return "".join(parts)


def facts(run: Run) -> list[tuple[str, str]]:
    """The small table under the charts."""
    history, verdict = run.history, run.verdict
    rows = [
        (f"{incident.kind.capitalize()} killed at {run.at(incident.killed_ms):.1f} s", _recovery(incident))
        for incident in history.incidents
    ]
    epochs = [epoch.duration_ms for epoch in history.epochs]
    sizes = [epoch.checkpoint_bytes for epoch in history.epochs if epoch.checkpoint]
    if epochs:
        rows.append(("Epochs", f"{len(epochs)}, median {sorted(epochs)[len(epochs) // 2] / 1000:.2f} s"))
    if sizes:
        rows.append(("Checkpoints", f"{len(sizes)}, {size(min(sizes))} to {size(max(sizes))}"))
    rows += [
        ("Running totals", f"{verdict.accounted:,} for {verdict.users:,} users"),
        ("Windows", f"{verdict.windows:,}"),
        ("Late clicks in their own file", f"{verdict.late:,}"),
        ("Whole run", f"{run.at(run.ended_ms):.1f} s"),
    ]
    return rows


def _recovery(incident: Incident) -> str:
    return incident.outcome() if incident.recovery_s is None else incident.recovery()


def _ceiling(value: float) -> float:
    """A round number above the largest value."""
    if value <= 0:
        return 1.0
    magnitude = 10.0 ** (len(str(int(value))) - 1) if value >= 1 else 0.1
    return next(step * magnitude for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * magnitude >= value)


def _thousands(value: float) -> str:
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"


def _number(value: float) -> str:
    return f"{value:g}"


# ---------------------------------------------------------------- PNG


def _png(path: Path, run: Run) -> bool:
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")  # no window system needed
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    plt: Any = pyplot
    figure, axes = plt.subplots(3, 1, figsize=(9, 7.5), sharex=True, layout="constrained")
    for axis, chart in zip(axes, charts(run), strict=True):
        xs, ys = [run.at(wall) for wall, _ in chart.points], [value for _, value in chart.points]
        axis.plot(xs, ys, color=chart.plain_colour, linewidth=1.8)
        axis.fill_between(xs, ys, color=chart.plain_colour, alpha=0.13)
        axis.set_title(f"{chart.title} ({chart.unit})", loc="left", fontsize=10)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _, label=chart.label: label(round(value, 6))))
        for incident in run.history.incidents:
            killed = run.at(incident.killed_ms)
            axis.axvline(killed, color="#c8322b", linestyle="--", linewidth=1.2)
            if incident.recovered_ms is not None:
                axis.axvspan(killed, run.at(incident.recovered_ms), color="#c8322b", alpha=0.10, linewidth=0)
    top = axes[0]
    for number, incident in enumerate(run.history.incidents):
        back = "" if incident.recovery_s is None else f", back in {incident.recovery_s:.1f} s"
        place = (run.at(incident.killed_ms), 1.0)
        top.annotate(
            f"{incident.kind} killed{back}", place, xycoords=("data", "axes fraction"), xytext=(4, -10 - 12 * (number % 2)),
            textcoords="offset points", fontsize=8, color="#c8322b",
        )  # fmt: skip
    axes[-1].set_xlabel("seconds")
    axes[-1].set_xlim(0, run.at(run.ended_ms))
    figure.suptitle(str(run.verdict).splitlines()[0], fontsize=11, fontweight="bold")
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return True
