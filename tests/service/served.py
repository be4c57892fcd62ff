"""An application served on a free port for the length of a test."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import uvicorn

from penstock.service.rest.guard import App
from tests.driver.jobs import eventually


@contextmanager
def served(app: App, token: str | None = None) -> Iterator[httpx.Client]:
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=lambda: server.run(sockets=[listening]), daemon=True)
    thread.start()
    eventually(lambda: server.started, "the server starts")
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{listening.getsockname()[1]}",
            headers={} if token is None else {"Authorization": f"Bearer {token}"},
            trust_env=False,
            timeout=30,
        ) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(20)
        listening.close()
