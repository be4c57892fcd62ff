"""The live view: one screen of 80×24 on a terminal, one line a second where there is none."""

from __future__ import annotations

import io
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from examples.clickstream.history import History
from penstock.engine.messages import EpochReport

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 78
_BAR = 16
_SPAN_MS = 3_000  # numbers that would jitter from epoch to epoch are means over this


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A line of the story: when, what, and the style it is shown in."""

    wall_ms: int
    text: str
    style: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class VertexLoad:
    """One row of the table: a vertex over the last few seconds."""

    name: str
    parallelism: int
    records_per_s: float
    busy: float  # of the time of all its subtasks, 0 to 1
    back_pressured: float
    state_entries: int


def vertex_loads(history: History, now_ms: int) -> list[VertexLoad]:
    epochs, settled = history.epochs, history.settled_ms(now_ms)
    if not epochs:
        return []
    positions = [i for i, epoch in enumerate(epochs) if epoch.wall_ms > settled - _SPAN_MS]
    recent = [epochs[i] for i in positions]
    span = max(1.0, settled - history.began(positions[0])) if positions else 1.0
    loads = []
    for position, vertex in enumerate(epochs[-1].vertices):
        mine = [epoch.vertices[position] for epoch in recent]
        available = span * vertex["parallelism"]
        loads.append(
            VertexLoad(
                name=vertex["name"].split(" → ")[0],  # a chain is known by its head
                parallelism=vertex["parallelism"],
                records_per_s=sum(v["records_in"] for v in mine) * 1000 / span,
                busy=min(1.0, sum(v["busy_ms"] for v in mine) / available),
                back_pressured=min(1.0, sum(v["back_pressured_ms"] for v in mine) / available),
                state_entries=vertex["state_entries"],
            )
        )
    return loads


def sparkline(values: list[float], width: int) -> str:
    """The newest `width` values, scaled to the largest."""
    shown = values[-width:]
    top = max(shown, default=0.0)
    if top <= 0:
        return _BARS[0] * len(shown)
    return "".join(_BARS[min(len(_BARS) - 1, round(value / top * (len(_BARS) - 1)))] for value in shown)


def size(count: float) -> str:
    return f"{count / 1024:.0f} KiB" if count < 1 << 20 else f"{count / (1 << 20):.1f} MiB"


def seconds(ms: float | None) -> str:
    return "–" if ms is None else f"{ms / 1000:.1f} s"


class View:
    """Renders a history; holds nothing but where the run began and its story so far."""

    def __init__(self, history: History, started_ms: int) -> None:
        self._history = history
        self._started_ms = started_ms
        self.notes: list[Note] = []
        self.state = "starting"

    def note(self, wall_ms: int, text: str, style: str = "") -> Note:
        self.notes.append(Note(wall_ms=wall_ms, text=text, style=style))
        return self.notes[-1]

    # ------------------------------------------------------------ plain lines

    def line(self, now_ms: int) -> str:
        """The numbers in one line, for pipes and logs."""
        history = self._history
        if not history.epochs:
            return f"{self._elapsed(now_ms)}  {self.state:<10} waiting for the first epoch"
        checkpoint = self._checkpoint()
        loads = ", ".join(f"{load.name.split(' ')[0]} {load.busy:.0%}" for load in vertex_loads(history, now_ms))
        return (
            f"{self._elapsed(now_ms)}  {self.state:<10} {self._rate(now_ms):>7,.0f} events/s  latency {self._latency():>9}  "
            f"watermark {seconds(self._lag(now_ms)):>5} behind  "
            f"checkpoint {seconds(None if checkpoint is None else now_ms - checkpoint.wall_ms)} ago, "
            f"{size(checkpoint.checkpoint_bytes) if checkpoint else '–'}  busy: {loads}"
        )

    def note_line(self, note: Note) -> str:
        return f"{self._elapsed(note.wall_ms)}  » {note.text}"

    # ------------------------------------------------------------ the screen

    def render(self, now_ms: int) -> RenderableType:
        return Panel(
            Group(
                self._header(now_ms),
                Text(),
                self._numbers(now_ms),
                Text(),
                self._vertices(now_ms),
                Text(),
                self._story(),
            ),
            title="[bold]Penstock[/bold] clickstream",
            title_align="left",
            subtitle=self._slots(),
            subtitle_align="left",
            border_style="cyan",
            width=_WIDTH + 2,
        )

    def _header(self, now_ms: int) -> RenderableType:
        history = self._history
        done = history.records / history.clicks if history.clicks else 0.0
        grid = Table.grid(expand=True)
        grid.add_column()
        grid.add_column(justify="right")
        style = {"running": "bold green", "finished": "bold green", "recovering": "bold yellow"}.get(self.state, "bold")
        left = Text.assemble((f"● {self.state}", style), f"   {self._elapsed(now_ms).strip()}")
        filled = round(done * _BAR)
        bar = Text.assemble(("━" * filled, "cyan"), ("━" * (_BAR - filled), "bright_black"), f" {done:>4.0%}")
        grid.add_row(left, Text.assemble(f"{history.records:,} of {history.clicks:,} clicks  ", bar))
        return grid

    def _numbers(self, now_ms: int) -> RenderableType:
        history = self._history
        checkpoint = self._checkpoint()
        grid = Table.grid(expand=True, padding=(0, 1))
        for _ in range(4):
            grid.add_column(ratio=1)
        grid.add_row(
            *(Text(name, "bright_black") for name in ("events/s", "latency p50 / p99", "watermark lag", "checkpoint"))
        )
        lag = self._lag(now_ms)
        grid.add_row(
            Text(f"{self._rate(now_ms):,.0f}", "bold"),
            Text(self._latency(), "bold"),
            Text(seconds(lag), "bold" if lag is None or lag < 3_000 else "bold yellow"),
            Text(
                "–" if checkpoint is None
                else f"{seconds(now_ms - checkpoint.wall_ms)} old, {size(checkpoint.checkpoint_bytes)}",
                "bold",
            ),
        )  # fmt: skip
        settled = history.settled_ms(now_ms)
        first = history.epochs[0].wall_ms if history.epochs else settled
        steps = max(1, min(_WIDTH - 4, (settled - first) // 500 + 2))
        rates = [history.rate(settled - back * 500, 500) for back in reversed(range(steps))]
        return Group(grid, Text(sparkline(rates, _WIDTH - 4), "cyan"))

    def _vertices(self, now_ms: int) -> RenderableType:
        table = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="bright_black")
        table.add_column("vertex", no_wrap=True, ratio=1)
        for name in ("records/s", "busy", "back pressure", "state"):
            table.add_column(name, justify="right", no_wrap=True)
        for load in vertex_loads(self._history, now_ms):
            table.add_row(
                f"{load.name} ×{load.parallelism}",
                f"{load.records_per_s:,.0f}",
                Text.assemble((_meter(load.busy), "green"), f" {load.busy:>4.0%}"),
                Text.assemble((_meter(load.back_pressured), "yellow"), f" {load.back_pressured:>4.0%}"),
                f"{load.state_entries:,}",
            )
        if not self._history.epochs:
            table.add_row("waiting for the first epoch …", "", "", "", "")
        return table

    def _story(self) -> RenderableType:
        lines = [Text.assemble((self._elapsed(n.wall_ms), "bright_black"), "  ", (n.text, n.style)) for n in self.notes]
        return Group(*lines[-7:])

    def _slots(self) -> str:
        if not self._history.epochs:
            return ""
        pids = [slot.rpartition(":")[2] for slot in self._history.epochs[-1].slots]
        return f"task hosts: {', '.join(pids)}"

    def _latency(self) -> str:
        latency = self._history.latency_ms()
        return "–" if latency is None else f"{latency[0]:.0f} / {latency[1]:.0f} ms"

    def _rate(self, now_ms: int) -> float:
        return self._history.rate(self._history.settled_ms(now_ms), _SPAN_MS)

    def _lag(self, now_ms: int) -> int | None:
        return None if self.state == "finished" else self._history.lag_ms(now_ms)

    def _checkpoint(self) -> EpochReport | None:
        return next((epoch for epoch in reversed(self._history.epochs) if epoch.checkpoint), None)

    def _elapsed(self, wall_ms: int) -> str:
        return f"{(wall_ms - self._started_ms) / 1000:>5.1f} s"


def _meter(share: float, width: int = 5) -> str:
    return ("▮" * round(share * width)).ljust(width, "▯")


def screen_text(view: View, now_ms: int) -> str:
    """The screen without colours, as 80 columns of text."""
    buffer = io.StringIO()
    Console(file=buffer, width=80, height=24, color_system=None).print(view.render(now_ms))
    return buffer.getvalue()
