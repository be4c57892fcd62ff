"""`penstock jobmanager` and `penstock ui`."""

from __future__ import annotations

import json
import webbrowser
from typing import Annotated
from urllib.parse import quote

import typer

from penstock.cli.output import hint
from penstock.cli.targets import Directory, TokenFile, given_token, home_at
from penstock.driver.control.home import is_running, read_json, write_private
from penstock.errors import ConfigurationError
from penstock.service.known_jobs import MAX_JOBS

_LEADS_ON = '<!doctype html><meta charset="utf-8"><title>Penstock</title><script>location.replace(%s)</script>\n'


def add_to(app: typer.Typer) -> None:
    """Adds the commands of this module."""
    app.command()(jobmanager)
    app.command()(ui)


def jobmanager(
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 8081,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0: all of this machine's.")] = "127.0.0.1",
    directory: Directory = None,
    slots: Annotated[
        int | None, typer.Option(min=1, help="Slots all jobs may have together; default: no limit.")
    ] = None,
    history: Annotated[
        int, typer.Option(min=0, help="Jobs that have ended are kept, so many of the newest.")
    ] = MAX_JOBS,
    token_file: TokenFile = None,
) -> None:
    """Run the dispatcher. It accepts jobs, starts their drivers, starts dead ones again, and serves REST and the page."""
    try:
        from penstock.service.rest.app import serve
    except ImportError as error:
        raise ConfigurationError(
            f"the dispatcher needs FastAPI and uvicorn ({error}): install them with `pip install 'penstock[ui]'`"
        ) from error
    serve(home_at(directory), host=host, port=port, slots=slots, max_ended=history, token=given_token(token_file))


def ui(
    directory: Directory = None,
    open_browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Or print an address to copy, with the token in it.")
    ] = True,
) -> None:
    """Open the dispatcher's page."""
    root = home_at(directory).root
    found = read_json(root / "dispatcher.json")
    if found is None or not is_running(found):
        typer.echo(f"No dispatcher runs on {root}.", err=True)
        hint("penstock jobmanager")
        raise typer.Exit(1)
    # After the #: a browser keeps that to itself, so the token is in no request and in no log.
    address = f"{found['address']}/#token={quote(found['token'], safe='')}"
    if not open_browser:
        typer.echo(address)
        return
    # Not as an argument of the browser's either, where everybody on the machine would see it.
    write_private(root / "open.html", _LEADS_ON % json.dumps(address))
    typer.echo(found["address"])
    webbrowser.open((root / "open.html").as_uri())
