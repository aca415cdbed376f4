"""The pages for people: one to try a model, one that shows the API. Plain files, no build step."""

from __future__ import annotations

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from weft.serve.server.protocols.openapi import document
from weft.serve.server.protocols.rest import Handler, as_json
from weft.serve.server.state import ServerState

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src 'self' blob: data:"
)


def routes(state: ServerState) -> list[Route]:
    async def openapi(request: Request) -> Response:
        # It is open to all: behind keys it does not tell what is served.
        return as_json(document([] if state.options.keys else state.repository.loaded()))

    return [
        Route("/", _front(_page("try.html"))),
        Route("/docs", _page("docs.html")),
        Route("/v2/docs", _page("docs.html")),
        Route("/openapi.json", openapi),
    ]


def _front(page: Handler) -> Handler:
    """Return the page for browsers; for others, what KServe's V1 asks for to see whether a server lives."""

    async def show(request: Request) -> Response:
        if "text/html" in request.headers.get("accept", ""):
            return await page(request)
        return as_json({"status": "alive"})

    return show


def _page(name: str) -> Handler:
    text = (files("weft.serve.server") / "html" / name).read_text()

    async def show(request: Request) -> Response:
        return HTMLResponse(text, headers={"content-security-policy": _POLICY})

    return show
