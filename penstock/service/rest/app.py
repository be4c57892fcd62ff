"""The application: routes, the guard in front of them, the page behind them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from penstock import __version__
from penstock.service.dispatcher import Dispatcher
from penstock.service.rest import cluster, jobmanager, jobs, programs, results, vertices
from penstock.service.rest.guard import LARGEST_BODY, App, Guard
from penstock.service.rest.page import WEB, Page


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
