"""The page: plain files, as they are in the package."""

from __future__ import annotations

from pathlib import Path

from fastapi.staticfiles import StaticFiles
from starlette.responses import Response
from starlette.types import Scope

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
    def __init__(self) -> None:
        super().__init__(directory=WEB, html=True)

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_HEADERS)
        return response
