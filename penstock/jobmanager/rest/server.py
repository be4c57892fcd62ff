"""A Dispatcher with its REST interface, served until the process is told to end."""

from __future__ import annotations

import ipaddress
import secrets
import signal
import socket
import sys
import threading

import uvicorn

from penstock.errors import ConfigurationError
from penstock.jobmanager.dispatcher import Dispatcher
from penstock.jobmanager.history import MAX_JOBS
from penstock.jobmanager.home import JobHome, this_process, write_json
from penstock.jobmanager.rest.app import create_app


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
    """Blocks. Beyond loopback a token is required: one is made if none is given. Address and token are in
    `dispatcher.json` of the home folder, for its owner only, so that the command finds them."""
    if token is None and not _is_loopback(host):
        token = secrets.token_urlsafe(32)
    dispatcher = Dispatcher(home, slots=slots, max_ended=max_ended)
    try:
        listening = _listen(host, port)
        address = f"http://{host}:{listening.getsockname()[1]}"
        write_json(home.root / "dispatcher.json", {"address": address, "token": token, **this_process()})
        if announce:
            print(f"Dispatcher at {address}, jobs in {home.jobs}", flush=True)
            if token is not None:
                print(f"Token required: it is in {home.root / 'dispatcher.json'}", flush=True)
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
        (home.root / "dispatcher.json").unlink(missing_ok=True)
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


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
