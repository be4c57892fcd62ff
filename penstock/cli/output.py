"""What commands print: tables for people on standard output, hints on standard error, JSON when asked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from penstock.cli.targets import Target, checked
from penstock.errors import PenstockError
from penstock.protocol.events import MAX_WATERMARK, MIN_WATERMARK
from penstock.service.endpoint import UnreachableError

_POLL_S, _SLOWEST_POLL_S = 0.1, 1.0
_UNREACHABLE_S = 60.0  # a dispatcher that is started again needs no longer, and jobs go on meanwhile
_LONGEST_NAME = 60


def print_json(content: Any) -> None:
    """Prints a document for programs to read."""
    typer.echo(json.dumps(content, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """A column whose name begins with > is right-aligned; one with ~ is folded where the terminal is narrow."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        table.add_column(column.lstrip(">~"), justify=justify, overflow="fold", no_wrap=not column.startswith("~"))
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))  # as it is: in a name, [red] is no colour
    Console().print(table)


def shortened(name: str) -> str:
    """A name of the user's choice in one cell of a table."""
    line = " ".join(name.split())
    return line if len(line) <= _LONGEST_NAME else f"{line[: _LONGEST_NAME - 1]}…"


def hint(*commands: str) -> None:
    """The next command to type."""
    for command in commands:
        typer.echo(f"  → {command}", err=True)


def moment(ms: int | None) -> str:
    """Local time; with its date if that is not today's."""
    if ms is None:
        return "–"
    at = datetime.fromtimestamp(ms / 1000)
    today = at.date() == datetime.now().date()
    return at.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")


def watermark(value: int | None) -> str:
    """Event time may be a counter, or anything: only what can be a time of day is shown as one."""
    if value is None or value == MIN_WATERMARK:
        return "–"
    if value == MAX_WATERMARK:
        return "end of input"
    return moment(value) if 10**11 < value < 10**14 else f"{value:,}"


def milliseconds(ms: float | None) -> str:
    """A duration for people; a dash if it is not known."""
    if ms is None:
        return "–"
    return f"{ms:.0f} ms" if ms < 1000 else span(ms)


def span(ms: float) -> str:
    """A duration for people, from tenths of seconds to days."""
    return str(timedelta(seconds=int(ms / 1000))) if ms >= 60_000 else f"{ms / 1000:.1f} s"


def size(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def wait_for_operation(target: Target, what: str, path: str, trigger_id: str, timeout_s: float) -> str | None:
    """Show that something goes on until a long action has ended; the place it made, if any."""

    def ended() -> dict[str, Any] | None:
        document = checked(target.ask("GET", f"/jobs/{target.job_id}/{path}/{trigger_id}", {}, {}))
        return dict(document["operation"] or {}) if document["status"]["id"] == "COMPLETED" else None

    try:
        operation = _until(ended, what, timeout_s)
    except KeyboardInterrupt:
        typer.echo(f"{what}: nobody waits for it any more, but it goes on, with trigger id {trigger_id}", err=True)
        hint(f"penstock info {target.job_id[:8]}", f"penstock checkpoints {target.job_id[:8]}")
        raise
    if operation is None:
        raise PenstockError(f"{what} was not done within {timeout_s:.0f} s; it goes on, with trigger id {trigger_id}")
    if "failure-cause" in operation:
        raise PenstockError(f"{what} failed: {operation['failure-cause']['stack-trace']}")
    location = operation.get("location")
    return None if location is None else str(location)


def wait_for_state(target: Target, what: str, states: Sequence[str], timeout_s: float) -> dict[str, Any]:
    """Until the job is in one of `states`; its facts then."""
    short = target.job_id[:8]
    try:
        facts = _until(lambda: found if (found := target.facts())["state"] in states else None, what, timeout_s)
    except KeyboardInterrupt:
        typer.echo(f"Nobody waits for job {short} any more, but it goes on.", err=True)
        hint(f"penstock info {short}", f"penstock stop {short}", f"penstock cancel {short}")
        raise
    if facts is None:
        raise PenstockError(f"{what}: not done within {timeout_s:.0f} s; the job is {target.facts()['state']}")
    return facts


def _until(ask: Callable[[], dict[str, Any] | None], what: str, timeout_s: float) -> dict[str, Any] | None:
    """Ask until there is an answer; None when there was none in time. Who does not answer at all may be starting again."""
    deadline = time.monotonic() + timeout_s
    silent_since, pause = None, _POLL_S
    with _progress() as progress:
        progress.add_task(what, total=None)
        while True:
            try:
                found = ask()
                silent_since = None
            except UnreachableError:
                found, silent_since = None, silent_since or time.monotonic()
                if time.monotonic() - silent_since > _UNREACHABLE_S:
                    raise
            if found is not None or time.monotonic() >= deadline:
                return found
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(_SLOWEST_POLL_S, pause * 1.1)


def _progress() -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(24), TimeElapsedColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
