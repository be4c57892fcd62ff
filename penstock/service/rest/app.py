"""The application: routes, the guard in front of them, the page behind them.

The page: plain files, as they are in the package.

A Dispatcher with its REST interface, served until the process is told to end.
"""

from __future__ import annotations

import secrets
import signal
import socket
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Scope

from penstock import __version__
from penstock.driver.control.home import TOKEN, JobHome, this_process, write_json, write_private
from penstock.errors import ConfigurationError
from penstock.service.dispatcher import Dispatcher
from penstock.service.known_jobs import MAX_JOBS
from penstock.service.rest import cluster, jobmanager, jobs, programs, results, vertices
from penstock.service.rest.guard import LARGEST_BODY, App, Guard

WEB = Path(__file__).parents[1] / "web"
_HEADERS = {
    # Another version of Penstock has other files under the same names: ask each time, 304 if nothing changed.
    "Cache-Control": "no-cache",
    # Nothing from elsewhere is loaded, run or asked, and nobody frames the page to have its buttons clicked.
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class Page(StaticFiles):
    """The web page: static files that a browser asks for again whenever they may have changed."""

    def __init__(self) -> None:
        super().__init__(directory=WEB, html=True)

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_HEADERS)
        return response


def create_api(dispatcher: Dispatcher, *, shutdown: Callable[[], None] | None = None) -> FastAPI:
    """All routes, without a guard. `shutdown` ends the server after the answer that is under way."""
    api = FastAPI(
        title="Penstock",
        version=__version__,
        description="Jobs, their state and what can be done with them; Flink's paths and documents. "
        "Every path also answers below /v1.",
        docs_url=None,  # its pages load scripts from elsewhere
        redoc_url=None,
    )
    api.state.dispatcher = dispatcher
    api.state.shutdown = shutdown
    api.state.disposals = OrderedDict()
    for part in (cluster, jobmanager, results):  # before jobs: /jobs/metrics is not a job's id
        api.include_router(part.router)
    for router in (programs.submissions, jobs.router, vertices.router, programs.router, programs.jars):
        api.include_router(router)
    api.mount("/", Page(), name="web")
    api.add_exception_handler(HTTPException, _refused)
    api.add_exception_handler(RequestValidationError, _invalid)
    api.add_exception_handler(OSError, _not_written)
    return api


def create_app(
    dispatcher: Dispatcher,
    *,
    token: str,
    largest_body: int = LARGEST_BODY,
    shutdown: Callable[[], None] | None = None,
) -> App:
    """What a server serves, to those who know `token`."""
    api = create_api(dispatcher, shutdown=shutdown)
    # Of the page nothing is secret, and a browser loads it before it can send a token.
    page = {f"/{path.relative_to(WEB).as_posix()}" for path in WEB.rglob("*") if path.is_file()}
    return Guard(api, token=token, public=frozenset(page | {"/"}), largest_body=largest_body)


async def _refused(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return JSONResponse({"errors": [str(error.detail)]}, status_code=error.status_code, headers=error.headers)


async def _not_written(request: Request, error: Exception) -> JSONResponse:
    """A home folder that is full, or gone: 507, which says that the request itself was all right."""
    assert isinstance(error, OSError)
    words = f"the dispatcher cannot use its home folder: {error.strerror or error}"
    return JSONResponse({"errors": [words]}, status_code=507)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    found = [f"{'.'.join(str(part) for part in e['loc'])}: {e['msg']}" for e in error.errors()]
    return JSONResponse({"errors": found}, status_code=400)


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
