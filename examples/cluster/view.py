"""What the cluster demo shows: a screen that is redrawn on a terminal, its story line by line elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 100
_NOTES = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    number: int
    pid: int
    alive: bool
    executors: Sequence[int]  # pids
    slots: Sequence[tuple[int, int]]  # (number, pid) of the slot processes that run below it


@dataclass(slots=True, kw_only=True)
class View:
    """Belongs to the thread that watches; a terminal's own thread only reads it."""

    console: Console
    readings: int
    began: float = field(default_factory=time.monotonic)
    doing: str = "starting a Spark master and two workers on 127.0.0.1"
    workers: list[Worker] = field(default_factory=list)
    epochs: dict[int, Mapping[str, Any]] = field(default_factory=dict)  # by number
    read: int = 0
    over: bool = False
    notes: list[tuple[float, str, str]] = field(default_factory=list)
    spinner: Spinner = field(default_factory=lambda: Spinner("dots"))

    def note(self, text: str, style: str = "") -> None:
        at = time.monotonic() - self.began
        self.notes.append((at, text, style))
        if not self.console.is_terminal:
            self.console.print(f"{at:6.1f} s  {text}", highlight=False, soft_wrap=True)

    def __rich__(self) -> RenderableType:
        parts: list[RenderableType] = [self._head(), Text()]
        if self.workers:
            parts += [self._cluster(), Text()]
        if self.epochs:
            parts += [*self._epochs(), Text()]
        title = Text("Penstock on a Spark cluster", "bold")
        return Panel(
            Group(*parts, self._story()),
            title=title,
            width=min(_WIDTH, self.console.width),
            border_style="bright_black",
        )

    def _head(self) -> RenderableType:
        grid = Table.grid(expand=True)
        grid.add_column(ratio=1)
        grid.add_column(justify="right")
        done = min(1.0, self.read / self.readings)
        bar = Text.assemble(("━" * round(done * 40), "cyan"), ("━" * (40 - round(done * 40)), "bright_black"))
        elapsed = Text(f"{time.monotonic() - self.began:.0f} s", "bright_black")
        self.spinner.update(text=Text(self.doing, "bold"))
        grid.add_row(Text(f"✓ {self.doing}", "bold green") if self.over else self.spinner, elapsed)
        grid.add_row(Text.assemble(bar, f"  {done:4.0%}  {self.read:,} of {self.readings:,} readings"), "")
        return grid

    def _cluster(self) -> RenderableType:
        table = Table.grid(padding=(0, 3, 0, 0))
        for worker in self.workers:
            name = f"worker {worker.number}"
            if worker.alive:
                executors = ", ".join(f"executor {pid}" for pid in worker.executors) or "no executor"
                slots = ", ".join(f"slot {number} ({pid})" for number, pid in worker.slots) or "no slot"
                table.add_row(Text(f"● {name}", "green"), str(worker.pid), executors, slots)
            else:
                table.add_row(Text(f"✗ {name}", "bold red"), str(worker.pid), Text("killed", "bold red"), "")
        return table

    def _epochs(self) -> list[RenderableType]:
        width = min(_WIDTH, self.console.width) - 4
        shown = list(self.epochs.values())[-width:]
        longest = max(epoch["duration_ms"] for epoch in shown)
        bars = Text()
        for epoch in shown:
            height = round(epoch["duration_ms"] / longest * (len(_BARS) - 1))
            bars.append(_BARS[height], "bold red" if is_restored(epoch) else "cyan")
        last = shown[-1]
        words = (
            f"epoch {last['epoch']}: {last['records_in']:,} readings in {last['duration_ms'] / 1000:.1f} s, "
            f"checkpoint of {last['checkpoint_bytes'] / 1024:.0f} KiB"
        )
        legend = Text("a bar is an epoch, as high as it took long; red: subtasks were restored", "bright_black")
        return [Text(words), bars, legend]

    def _story(self) -> RenderableType:
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(justify="right", style="bright_black", no_wrap=True)
        table.add_column(overflow="fold")
        for at, text, style in self.notes[-_NOTES:]:
            table.add_row(f"{at:.1f} s", Text(text, style))
        return table


def is_restored(epoch: Mapping[str, Any]) -> bool:
    return bool(epoch["restored_tasks"]) and epoch["epoch"] > 1
