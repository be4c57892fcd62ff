"""A Dispatcher with its REST interface, served until the process is told to end."""

from __future__ import annotations

import secrets
import signal
import socket
import sys
import threading

import uvicorn

from penstock.driver.control.home import TOKEN, JobHome, this_process, write_json, write_private
from penstock.errors import ConfigurationError
from penstock.service.dispatcher import Dispatcher
from penstock.service.history import MAX_JOBS
from penstock.service.rest.app import create_app


def serve(
    home: JobHome,
    *,
    host: str,
    port: int,
    slots: int | None,
    token: str | None,
    max_ended: int = MAX_JOBS,
    announce: bool = True,
) -> None:
    """Blocks. Every request needs the token; one is made for this start if none is given. Address and token are in
    `dispatcher.json` of the home folder, and the token alone in `token`, for the folder's owner only: there commands, and whoever
    uses curl or Prometheus, find it. It is never printed: what a server prints ends up in logs."""
    token = token or secrets.token_urlsafe(32)
    dispatcher = Dispatcher(home, slots=slots, max_ended=max_ended)
    try:
        listening = _listen(host, port)
        address = f"http://{host}:{listening.getsockname()[1]}"
        write_private(home.root / TOKEN, f"{token}\n")
        write_json(home.root / "dispatcher.json", {"address": address, "token": token, **this_process()})
        if announce:
            print(f"Dispatcher at {address}, jobs in {home.jobs}", flush=True)
            print(f"Requests need the token in {home.root / TOKEN}; `penstock` finds it by itself", flush=True)
            print("  → penstock ui\n  → penstock run --detached job.py", file=sys.stderr, flush=True)
        app = create_app(dispatcher, token=token, shutdown=lambda: setattr(server, "should_exit", True))
        # A browser keeps its connection open; whoever ends the server does not wait for it longer than this.
        config = uvicorn.Config(app, log_level="warning", timeout_keep_alive=30, timeout_graceful_shutdown=5)
        server = uvicorn.Server(config)
        if threading.current_thread() is threading.main_thread():
            # uvicorn ends in order and then sends the signal once more: by default that would kill us before we clean up.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        server.run(sockets=[listening])
    finally:
        for name in ("dispatcher.json", TOKEN):
            (home.root / name).unlink(missing_ok=True)
        dispatcher.close()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        why = str(error.strerror or error).partition(" (while")[0]  # Python adds the address, which is said already
        raise ConfigurationError(
            f"the dispatcher cannot listen on {host}:{port} ({why}): choose another --port, or 0 for any"
        ) from error
