"""`penstock jobmanager` and `penstock ui`."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from penstock.cli.output import hint
from penstock.cli.targets import Directory, Token, home_at
from penstock.errors import ConfigurationError
from penstock.jobmanager.history import MAX_JOBS
from penstock.jobmanager.home import is_running, read_json


def add_to(app: typer.Typer) -> None:
    app.command()(jobmanager)
    app.command()(ui)


def jobmanager(
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8081,
    host: Annotated[str, typer.Option(help="Beyond loopback a token is required.")] = "127.0.0.1",
    directory: Directory = None,
    slots: Annotated[
        int | None, typer.Option(min=1, help="Slots all jobs may have together; default: no limit.")
    ] = None,
    history: Annotated[
        int, typer.Option(min=0, help="Jobs that have ended are kept, so many of the newest.")
    ] = MAX_JOBS,
    token: Token = None,
) -> None:
    """Run the dispatcher. It accepts jobs, starts their drivers, starts dead ones again, and serves REST and the page."""
    try:
        from penstock.jobmanager.rest.server import serve
    except ImportError as error:
        raise ConfigurationError(
            f"the dispatcher needs FastAPI and uvicorn ({error}): install them with `pip install 'penstock[ui]'`"
        ) from error
    serve(home_at(directory), host=host, port=port, slots=slots, max_ended=history, token=token)


def ui(directory: Directory = None, open_browser: Annotated[bool, typer.Option("--open/--no-open")] = True) -> None:
    """Open the dispatcher's page."""
    found = read_json(home_at(directory).root / "dispatcher.json")
    if found is None or not is_running(found):
        typer.echo(f"No dispatcher runs on {home_at(directory).root}.", err=True)
        hint("penstock jobmanager")
        raise typer.Exit(1)
    typer.echo(found["address"])
    if open_browser:
        webbrowser.open(found["address"])
